/* source.h - where messages come from, and where they go back to
 *
 * WHAT   One origin of messages behind a table of operations: source_mq is a
 *        POSIX queue with its custody file and store, source_amqp a queue on a
 *        broker. The worker takes messages, runs handlers and decides; to make
 *        the decision durable is the source's.
 * WHO    take: one thread at a time (its lock is the caller's). runs, recover,
 *        start, keep: the engine's thread, when no other uses the source.
 *        resize: one thread at a time. All others: any thread, unless marked
 *        otherwise. None is called from an event but those that say so.
 * OWNS   Every struct message; lends it from take, take_due, unpark or recover
 *        until settle said 0 or -ESTALE for it, or `settled` came.
 * FAILS  As each says, -errno. take never waits. settle of RETRY, DEAD, PARK
 *        and RETURN may wait for a disk, and so may what is marked so. is_due
 *        and count may wait for a broker, for some seconds; nothing else waits
 *        for a network.
 *
 * The promise of every source: a message that was lent is settled once, or it
 * comes again, with MESSAGE_REDELIVERED if a handler may have seen it. It may
 * come twice; it is never lost.
 */
#ifndef WORKER_SOURCE_SOURCE_H
#define WORKER_SOURCE_SOURCE_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/ulid.h"
#include "common/message/header.h"
#include "common/message/steered.h"
#include "worker/rules/attention.h"
#include "worker/rules/message.h"
#include "worker/rules/verdict.h"

struct settings; /* settings.h */

/* A lane is the number of a work item, below source.lanes. A source keeps by
 * this number whatever it has ready for the next message of that item. All
 * calls with one lane come from one thread at a time. */
#define LANE_NONE UINT_MAX

#define SETTLE_MOST 64   /* in one call */
#define BROKER_LENT 8192 /* by a source that is no file of this machine */

/* One failed run of a handler. */
struct attempt {
    uint64_t started_ns; /* wall */
    uint64_t duration_ns;
    const char *error;       /* "exit 1", "signal 11", "timeout 5s", ... */
    const char *stderr_tail; /* any bytes */
    size_t stderr_size;
    bool said; /* the error is the handler's own words */
};

/* A verdict. Of DONE and DISCARD nothing is read but m, kind and lane. Pointers
 * are borrowed: until settle returns, or, after -EINPROGRESS, until
 * `settled`. */
struct settle {
    struct message *m;
    enum settle_kind kind; /* out: DISCARD, see there */
    /* Whose work item settles: it may read the message until its next call with
     * that lane. LANE_NONE: until it calls release, which it has to. */
    unsigned lane;
    struct header_text group; /* RETRY, DEAD, PARK: at NULL, it has none */
    size_t header_size;       /* RETRY, DEAD, PARK: bytes before the body */
    /* RETRY, RETURN: due time by CLOCK_BOOTTIME if due_boot_ns is not 0, else
     * by the wall clock. */
    uint64_t due_ns, due_boot_ns;
    /* RETRY: length of the delay, which does not change when the wall clock is
     * set; 0: due_ns is an instant of the wall clock. */
    uint64_t delay_ns;
    uint64_t died_ns;        /* DEAD: wall */
    enum dead_reason reason; /* DEAD */
    const char *error;       /* NULL: none */
    /* NULL: it did not run. Else one failure more, and kept as history. */
    const struct attempt *attempt;
    bool unkey;     /* DISCARD by an operator: its unique key is free */
    int64_t letter; /* out, of DEAD: its number; 0: it has none, or not known */
    /* out: 0          it is durable, and the message is not lent any more.
     *      -EINPROGRESS  the event `settled` comes, with another of these; the
     *                 message belongs to the source until then (if ops->late).
     *      -ESTALE    the claim is gone: nothing was written, the message is
     *                 not lent any more, and comes again by itself.
     *      others     the disk: nothing has happened, the message is lent still
     *                 and counts as not running; ask again. */
    int err;
};

/* What link says of a message whose header names a letter. */
enum source_link {
    LINK_NONE,   /* not one of ours: a message as any other */
    LINK_LETTER, /* it is that letter from here on (MESSAGE_FRONT is set) */
    /* It is a second copy of one that was taken, to be dropped: its DISCARD is
     * settled before the call returns, also by a source that settles late. */
    LINK_REPEAT,
};

/* A stored message that died where no handler was asked: it can never be lent
 * again. */
struct source_death {
    struct ulid id;
    uint64_t seq;
    int64_t letter;           /* its number; 0: it has none */
    struct header_text group; /* at NULL: none */
    enum dead_reason reason;
    const char *error;
    uint64_t died_ns; /* wall */
    size_t size, allowed;
};

/* A handler that was cut off: the last owner of the source died while it had a
 * message. The numbers are those that message_ops.handler and handler_group
 * were told. */
struct source_run {
    uint64_t mark;  /* of its processes; beside the source's nonce */
    uint64_t start; /* of the leader of its group */
    pid_t group;    /* 0: not known, or a C function */
};

/* A message that was lent when the last owner died, and that no verdict has
 * settled. It is lent again. */
struct source_left {
    struct message *m;
    bool ran;   /* a handler had it: that is one of its crashes, and durable */
    bool waits; /* it has its place here still, as before it was taken: it is
                 * settled DEAD or RETURN. Else it may run as it is lent */
    bool torn;  /* the machine went down: its bytes may be damaged */
};

/* What keep's `place` says of a message. */
enum source_place {
    PLACE_WAITS,   /* as *out says; one that has its place here keeps that */
    PLACE_SETTLED, /* it was settled meanwhile: there is nothing to keep */
};

/* What an operator wants of messages that wait in the source. */
enum steer { STEER_RUN_NOW, STEER_CANCEL };
#define STEER_MOST 64 /* in one call */

/* Of what count gives the number. */
enum source_count {
    COUNT_WAITING,
    COUNT_PARKED,
    COUNT_SPOOLED, /* behind those that are lent */
    COUNT_DEAD,
};

/* What a group has in the source. */
struct source_group {
    struct header_text key;
    uint64_t parked;  /* messages that unpark gives */
    uint64_t letters; /* dead ones, or on their way again */
    uint64_t head;    /* seq of the one that the others wait for; 0: none */
};

/* A part of the origin that one worker has at a time, as far as this one can
 * tell. */
struct source_part {
    unsigned number;
    bool here;        /* it has given messages to this worker, so it is its */
    unsigned in_hand; /* of its messages */
    unsigned blocked; /* groups of it whose head waits here for its retry */
};

/* A death that a command is to be told of. */
struct source_hook {
    int64_t n;      /* of this death */
    int64_t letter; /* its number */
    char *json;     /* a line; the caller's, to free */
    size_t json_size;
    struct ulid id;
    uint64_t received_ns; /* wall */
    uint32_t priority, failures, crashes;
    bool redelivered;
    struct header_text group; /* at NULL: none; in `data` */
    void *data; /* the message as received, then the group; to free */
    size_t size;
};

/* Told by the source, without a lock of its own; `arg` is that of the table. */
struct source_events {
    void *arg;
    /* There may be something to take that poll_fd does not tell of. Any
     * thread. */
    void (*changed)(void *arg);
    /* poll_fd is another descriptor now. Inside take. */
    void (*moved)(void *arg);
    /* The end of a settle that was in progress, err filled in; 0, -ESTALE, or
     * the disk: then it is lent again. The message can be read until the event
     * returns, unless it is lent. Any thread; may come before settle returns.*/
    void (*settled)(void *arg, struct settle *settle);
    /* Inside take_due or unpark, or by a thread of the source's that holds no
     * lock. */
    void (*died)(void *arg, const struct source_death *death);
    /* A message that is lent to nobody came while another one, *first, has its
     * unique key: to be settled as DISCARD. Any thread; may wait for a disk. */
    void (*duplicate)(void *arg, struct message *m, const struct ulid *first);
    /* Report that an unlent message now waits durably for its not-before, after
     * which take_due returns it. The message can be read until the event
     * returns. Called by a thread of the source, without a lock. */
    void (*put_by)(void *arg, struct message *m);
    /* A letter of a group may be gone: ask letters() for each group that is
     * held. How many are not held any more, or -errno: of one it is not known,
     * and the event comes again. A pool thread. */
    int (*letters_gone)(void *arg);
    size_t (*held)(void *arg); /* how many groups are held; any thread */
    /* There are letters that hook() may tell of. Any thread; may be NULL. */
    void (*hooks)(void *arg);
    /* Letters were removed, as the settings say. A pool thread. */
    void (*removed)(void *arg, uint64_t letters);
    /* Take nothing for a while. Any thread. */
    void (*trouble)(void *arg, const char *what, int err);
    /* Whether a message would be taken now, or once what runs is done: no hold
     * of the worker keeps it from that. Any thread; never waits. */
    bool (*wants)(void *arg);
    /* The source cannot go on: finish what runs and exit with `status`. */
    void (*ended)(void *arg, const char *why, int status);
};

/* What a source on a broker is opened with (broker_engine.h); all of it
 * outlives the source. */
struct broker_source_setup {
    const struct settings *set; /* with the queue, and what opens it */
    const char *runs;           /* path of the run file */
    struct source_events events;
    struct attention *attention; /* of the worker */
};

/* The head of each source's own struct.
 * c = constant after open   a = atomic, written by the source */
struct source {
    const struct source_ops *ops;         /* c */
    const struct source_local_ops *local; /* c  NULL: it is no local store */
    unsigned lanes;                       /* c */
    unsigned lent_most; /* c  message.index is below this, after any resize */
    uint64_t nonce; /* c  marks the handlers of its messages for all its owners,
                     *    one after the other */
    _Atomic uint64_t timeout_most_ns; /* a  longest time limit that a message
                                       *    may have by its header */
    /* a  0: take_due has nothing; else it is worth a call. By the two calls
     * below. */
    atomic_int due;
    struct attention *attention; /* c  the worker's; ATTEND_DUE is ours */
    /* a  it fetches nothing, as wants() said no, until ops->wanted. Set first,
     * and wants() asked once more after it: who opens the gate looks here after
     * that, so one of the two sees it. */
    atomic_bool rests;
};

/* What every source can do. */
struct source_ops {
    const char *name; /* "mq" */
    bool late;        /* settle may say -EINPROGRESS */

    /* ---- taking: 0 and *out, which is lent; or -EAGAIN: none now; or trouble
     * of another kind. A lane gives up what it had settled last. ---- */

    /* The next one of the origin itself, in its order, which is that of the
     * calls. `wall_ns`: what time it is, for received_ns. -ECANCELED: as 0,
     * with MESSAGE_CANCELLED or with crashes. */
    int (*take)(struct source *s, unsigned lane, uint64_t wall_ns,
                struct message **out);
    /* The next one whose time has come: a retry, a delayed message, one that an
     * earlier worker kept. May wait for a disk. */
    int (*take_due)(struct source *s, unsigned lane, struct message **out);

    /* ---- giving back ---- */

    /* The first error that is not -EINPROGRESS, or else that. n > 1: all are
     * RETRY or PARK without an attempt and with LANE_NONE; they are written in
     * one commit, all or none of them: their errors are the same, and neither
     * -ESTALE nor -EINPROGRESS. Up to SETTLE_MOST. */
    int (*settle)(struct source *s, struct settle *list, size_t n);
    /* Settled with LANE_NONE, and nobody reads it any more. */
    void (*release)(struct source *s, struct message *m);
    /* The lane has no work: nothing is kept for it, nor can what it settled
     * last be read. */
    void (*rest)(struct source *s, unsigned lane);

    /* ---- looking ---- */

    /* Readable while take may give something; may block in poll only. */
    int (*poll_fd)(const struct source *s);
    /* Whether take is worth a call although poll_fd is silent. */
    bool (*pending)(const struct source *s);
    /* How many more could be lent now; a hint. Without room nothing can be
     * taken but what is lent already. */
    unsigned (*room)(const struct source *s);
    /* Messages at the origin; -1: not known. */
    long (*fresh)(const struct source *s);
    /* Whether something is due: YES, NO or -errno. May wait for a disk, or for
     * a broker. */
    int (*is_due)(struct source *s);
    /* How many there are; -errno. May wait for a disk, and for long; or for a
     * broker. */
    int64_t (*count)(struct source *s, enum source_count what);
    /* Each part, by number; NULL, or none: the origin is one whole. Any thread;
     * never waits. */
    void (*parts)(struct source *s,
                  void (*visit)(void *arg, const struct source_part *part),
                  void *arg);

    /* ---- how many may be lent at once ---- */

    unsigned (*lent)(const struct source *s);
    /* So many from now on, up to lent_most. May wait for a disk. A problem: it
     * is as before. */
    int (*resize)(struct source *s, unsigned lent, struct problem *p);

    /* ---- what has changed ---- */

    /* It rests, and a message may be taken again. Any thread; never waits; may
     * be NULL. */
    void (*wanted)(struct source *s);
    /* A setting was changed. Any thread; never waits. */
    void (*tuned)(struct source *s);
    /* Find due messages again after the wall clock was set or the machine was
     * suspended. In the loop; never waits. */
    void (*clock_set)(struct source *s);

    /* ---- from one owner to the next ---- */

    /* Each handler that the last owner's death cut off; at most lent() of them.
     * No message that ran is changed, as a start that cannot end them is
     * refused. */
    int (*runs)(struct source *s,
                void (*visit)(void *arg, const struct source_run *run),
                void *arg, struct problem *p);
    /* Then, with none of them left: each message that is left, in the order of
     * seq. `visit` settles it, or keeps it. Stops at the first error of
     * `visit`; -errno: messages that were not visited are as they were. May
     * wait for a disk. */
    int (*recover)(struct source *s,
                   int (*visit)(void *arg, const struct source_left *left),
                   void *arg);
    /* What the last owner left is dealt with, and others take from now on. */
    void (*start)(struct source *s);
};

/* What only a store of this machine can do: letters, steering, hooks, groups
 * that wait on the disk, and a short way to the end of a message. */
struct source_local_ops {
    /* ---- the short way ---- */

    /* The usual end, without a list: one message, DONE, that is not
     * MESSAGE_STORED, with a lane. */
    int (*done)(struct source *s, struct message *m, unsigned lane);
    /* The lane will take again soon, but waits: have ready what that needs. */
    void (*warm)(struct source *s, unsigned lane);

    /* ---- messages that were here before ---- */

    /* A message just taken, or recovered, whose header has HEADER_LETTER:
     * enum source_link, or -errno: not known now, ask again. May be called
     * between take and the next take, under the same lock. May wait for a
     * disk. */
    int (*link)(struct source *s, struct message *m, const struct header *h);
    /* The same of one whose header has HEADER_UNIQUE, before it is delivered or
     * stored for the first time; MESSAGE_STORED has been. 0: it has the key
     * for `ns` from its receipt on, durably, and finds itself when it comes
     * again. -EEXIST: it came while another message, *first, has it.
     * -EOPNOTSUPP: there are no keys here, just now or ever; it runs. Others:
     * not known now, ask again. May wait for a disk. */
    int (*claim)(struct source *s, const struct message *m,
                 struct header_text key, uint64_t ns, struct ulid *first);

    /* ---- groups ---- */

    /* The next parked one of a group: of the highest priority, or with `low` of
     * the lowest, in the order of seq. `before` (NULL: any): only one that
     * comes before that message, by the same order. -EAGAIN: `before` comes
     * first. -ENOENT: nothing of that group is parked. -EINPROGRESS: it is, but
     * can be had only soon. -EMSGSIZE: it was too large, and died. May wait for
     * a disk. */
    int (*unpark)(struct source *s, unsigned lane, struct header_text key,
                  bool low, const struct message *before, struct message **out);
    /* At start: each group that has something here. May wait for a disk; stops
     * at the first error of `visit`. */
    int (*groups)(struct source *s,
                  int (*visit)(void *arg, const struct source_group *group),
                  void *arg);
    /* Whether a group has a letter: YES, NO or -errno. May wait for a disk. */
    int (*letters)(struct source *s, struct header_text key);
    /* A group is held from here on: letters_gone when one may be gone. `soon`:
     * letters failed for a group that is held, ask again in any case. */
    void (*watch)(struct source *s, bool soon);
    /* The seq that the next message gets. Any thread; never waits. */
    uint64_t (*next_seq)(const struct source *s);
    /* Whether the message of that number waits for its turn in take, where
     * others may come before it that are later; 0: whether any does. Any
     * thread; never waits. */
    bool (*queued)(const struct source *s, int64_t number);

    /* ---- operators ---- */

    /* Make waiting messages, named by their public numbers, due now or
     * cancelled. A cancelled message comes from take_due immediately, or from
     * unpark or take in its turn, with MESSAGE_CANCELLED. On 0 the result of
     * each is durable; on -errno nothing has changed. Up to STEER_MOST. May
     * wait for a disk: called by a job of the pool
     * (worker/operate/orders.c). */
    int (*steer)(struct source *s, enum steer what, const int64_t *numbers,
                 size_t n, enum steered *out);
    /* Messages that --max-waiting bounds: those that this machine keeps until
     * their time, or behind their group's head. A settle that returned is
     * counted. Never waits. */
    uint64_t (*waits)(const struct source *s);
    /* Whether the origin is unlike what the settings would make; in words. */
    bool (*differs)(const struct source *s, char *text, size_t room);
    /* Bytes of messages in flight that may be swapped out. */
    size_t (*unlocked)(const struct source *s);

    /* ---- --on-dead; one thread ---- */

    /* The first death whose n is greater than `after`; those that come later
     * have greater ones. It stays until hook_end. -ENOENT: none. May wait for a
     * disk. */
    int (*hook)(struct source *s, int64_t after, struct source_hook *out);
    /* It was told, durably on 0; or not, and it comes after the others: *next
     * is its n from now on; 0: it is gone. */
    int (*hook_end)(struct source *s, int64_t n, bool told, int64_t *next);

    /* ---- the end ---- */

    /* At an orderly end, when nobody takes or settles any more: asks `place`
     * (enum source_place, or -errno) where each message that is lent is to
     * wait, in the order of seq, and makes that durable: all of it, or, after
     * any error, none. *out is of kind RETRY or PARK, with its times and group.
     * `half`: only half of the message was received. */
    int (*keep)(struct source *s,
                int (*place)(void *arg, struct message *m, bool half,
                             struct settle *out),
                void *arg);
};

/* Something changed that may let a message be taken. */
static inline void source_wanted(struct source *s)
{
    if (s && atomic_load(&s->rests))
        s->ops->wanted(s);
}

/* Whether take_due is worth a call. */
static inline bool source_due(const struct source *s)
{
    return atomic_load(&s->due) != 0;
}
/* For the source: it is, from here on; `due` is what it makes of it, not 0. */
static inline void source_due_set(struct source *s, int due)
{
    atomic_store(&s->due, due);
    attention_on(s->attention, ATTEND_DUE);
}
/* It is not, unless somebody has set another value than `was` meanwhile. */
static inline void source_due_clear(struct source *s, int was)
{
    if (!atomic_compare_exchange_strong(&s->due, &was, 0))
        return;
    attention_off(s->attention, ATTEND_DUE);
    if (source_due(s)) /* set between the two */
        attention_on(s->attention, ATTEND_DUE);
}
/* The message is due in `wait_ns`. */
static inline void settle_wait(struct settle *s, uint64_t wait_ns)
{
    s->delay_ns = wait_ns ? wait_ns : 1;
    s->due_boot_ns = ns_add(clock_boot_ns(), wait_ns);
}
/* Due time by CLOCK_BOOTTIME. */
static inline uint64_t settle_due(const struct settle *s)
{
    return s->due_boot_ns ? s->due_boot_ns : clock_boot_at(s->due_ns);
}
/* The taken message cannot be delivered yet; it is due again in `wait_ns`. */
static inline void source_return(struct source *s, struct message *m,
                                 unsigned lane, uint64_t wait_ns)
{
    struct settle st = {.m = m, .kind = SETTLE_RETURN, .lane = lane};

    settle_wait(&st, wait_ns);

    (void)s->ops->settle(s, &st, 1);
}

#endif
