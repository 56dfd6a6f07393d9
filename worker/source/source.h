/* source.h - where messages come from, and where they go back to
 *
 * WHAT   One origin of messages behind a table of operations: source_mq is a
 *        POSIX queue with its custody file and store, source_amqp a queue on a
 *        broker. The worker takes messages, runs handlers and decides; the
 *        source makes the decision durable.
 * WHO    A comment above each table states the thread of each operation.
 * OWNS   Every struct message. The source lends it from take, take_due, unpark
 *        or recover until settle returns 0 or -ESTALE for it, or until the
 *        event `settled`.
 * FAILS  Each operation states its errors, as -errno.
 *
 * Every source promises: a lent message is settled once, or it comes again,
 * with MESSAGE_REDELIVERED if a handler may have seen it. It may come twice; it
 * is never lost.
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
/* Opaque to a source: arguments of the events below. */
struct flow;
struct gate;
struct groups;
struct on_dead;

/* A lane is the number of a work item, below ITEMS_MAX (settings.h). Under that
 * number a source keeps what it has prepared for the item's next message. All
 * calls with one lane come from one thread at a time. */
#define LANE_NONE UINT_MAX

#define SETTLE_MOST 64   /* verdicts in one call */
#define BROKER_LENT 8192 /* messages that a source on a broker lends at most */

/* One failed run of a handler. */
struct attempt {
    uint64_t started_ns; /* wall */
    uint64_t duration_ns;
    const char *error;       /* "exit 1", "signal 11", "timeout 5s", ... */
    const char *stderr_tail; /* any bytes */
    size_t stderr_size;
    bool said; /* the error is the handler's own words */
    struct usage usage;
};

/* A verdict. DONE and DISCARD use only m, kind and lane. Pointers are borrowed
 * until settle returns, or, after -EINPROGRESS, until `settled`. */
struct settle {
    struct message *m;
    enum settle_kind kind; /* out: DISCARD if an operator discarded it */
    /* The caller may read the message until its next call with this lane; with
     * LANE_NONE until its call of release, which it must make. */
    unsigned lane;
    struct header_text group; /* RETRY, DEAD, PARK: at NULL: none */
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
    /* One more failure, which is kept as history; NULL: it did not run. */
    const struct attempt *attempt;
    bool unkey;     /* DISCARD by an operator: free its unique key */
    int64_t letter; /* out, DEAD: number of the letter; 0: none or unknown */
    /* out: 0          the verdict is durable; the message is not lent any more.
     *      -EINPROGRESS  the event `settled` brings the final result; until
     *                 then the source owns the message (only if ops->late).
     *      -ESTALE    the claim is gone: nothing was written, the message is
     *                 not lent any more, and the source redelivers it.
     *      others     the disk failed: nothing has changed, the message is
     *                 still lent and counts as not running; try again. */
    int err;
};

/* What `link` found for a message whose header names a letter. */
enum source_link {
    LINK_NONE,   /* no letter of this source: an ordinary message */
    LINK_LETTER, /* it is that letter from here on (MESSAGE_FRONT is set) */
    /* A second copy of a letter that was taken. The caller drops the copy by a
     * DISCARD, which settle never leaves in progress. */
    LINK_REPEAT,
};

/* A stored message that died without a run: it is never lent again. */
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

/* A handler that was running when the last owner of the source died. The
 * numbers are those given to message_ops.handler. */
struct source_run {
    uint64_t mark;  /* of its processes, beside the source's nonce */
    uint64_t start; /* start time of the leader of its process group */
    pid_t group;    /* its process group; 0: not known, or a C function */
};

/* A message that was lent when the last owner died, without a verdict. It is
 * lent again. */
struct source_left {
    struct message *m;
    bool ran; /* a handler had it; m->crashes counts that, durably */
    /* Its row is still in the store, so settle it as DEAD or RETURN. A message
     * without a row may run as it is lent. */
    bool waits;
    bool torn; /* the machine went down: its bytes may be damaged */
};

/* Answer of the `place` callback of keep. */
enum source_place {
    PLACE_WAITS,   /* as *out says; a message with a row keeps its row */
    PLACE_SETTLED, /* it was settled meanwhile: there is nothing to keep */
};

/* Orders of an operator for messages that wait in the source. */
enum steer { STEER_RUN_NOW, STEER_CANCEL };
#define STEER_MOST 64 /* in one call */

/* Numbers that `count` returns. For the first four it may wait for a disk or a
 * broker, for the others it never waits. */
enum source_count {
    COUNT_WAITING,
    COUNT_PARKED,
    COUNT_SPOOLED, /* messages in the spool that are not lent */
    COUNT_DEAD,
    COUNT_SLOTS, /* messages that may be lent; changed by resize */
    COUNT_FREE,  /* messages that could still be lent now; a hint. At 0 nothing
                  * can be taken */
    COUNT_FRESH, /* messages at the origin; -1: not known */
    /* Messages that --max-waiting bounds: those that this machine keeps until
     * their time, or behind their group's head. A verdict is counted by the
     * time that settle returns. 0 on a broker. */
    COUNT_BACKLOG,
    COUNT_NEXT_SEQ, /* seq of the next message; 0 on a broker */
    COUNT_UNLOCKED, /* bytes of messages in flight that may be swapped out */
};

/* A group that has messages or letters in the source. */
struct source_group {
    struct header_text key;
    uint64_t parked;  /* messages that unpark gives */
    uint64_t letters; /* dead, or on their way again */
    uint64_t head;    /* seq of the message that blocks the group; 0: none */
};

/* A partition of the origin, as far as this worker knows. One worker at a time
 * gets its messages. */
struct source_part {
    unsigned number;
    bool here;        /* this worker gets its messages: at least one has come */
    unsigned in_hand; /* its messages that this worker has */
    unsigned blocked; /* its groups whose head waits here for a retry */
};

/* A death for the command of --on-dead. */
struct source_hook {
    int64_t n;      /* number of this death */
    int64_t letter; /* number of the letter */
    char *json;     /* one line; the caller's to free, like `data` */
    size_t json_size;
    struct ulid id;
    uint64_t received_ns; /* wall */
    uint32_t priority, failures, crashes;
    bool redelivered;
    struct header_text group; /* at NULL: none; in `data` */
    void *data; /* the message as received, then the group; the caller's */
    size_t size;
};

/* Calls from the source to the worker; the source holds no lock of its own
 * then. The first argument is the member with the name of the first parameter.
 * Other pointers are borrowed for the call. */
struct source_events {
    struct flow *flow;
    struct gate *gate;
    const struct groups *groups;
    /* *on_dead is NULL while no --on-dead command can be run. */
    struct on_dead *const *on_dead;
    /* Something may have arrived that poll_fd does not report, or a message is
     * due. Any thread. */
    void (*changed)(struct flow *flow);
    /* A settle that was in progress has ended, with settle->err 0, -ESTALE, or
     * a disk error, after which the message is lent again. Any thread; may come
     * before settle returns. A message that is not lent again can be read until
     * the event returns. */
    void (*settled)(struct flow *flow, struct settle *settle);
    /* A stored message died. Inside take_due or unpark, or on a thread of the
     * source. */
    void (*died)(struct flow *flow, const struct source_death *death);
    /* Settle this unlent message as DISCARD: the message *first has its unique
     * key. Any thread; may wait for a disk. */
    void (*duplicate)(struct flow *flow, struct message *m,
                      const struct ulid *first);
    /* This unlent message now waits durably for its not-before, after which
     * take_due lends it. Can be read until the event returns. A thread of the
     * source. */
    void (*delayed)(struct flow *flow, struct message *m);
    /* A letter of a group may be gone: call `letters` for each held group.
     * Returns -errno if one call failed: the event then comes again. A pool
     * thread. */
    int (*letters_gone)(struct flow *flow);
    /* Return how many groups are held. Any thread. */
    size_t (*held)(const struct groups *groups);
    /* The operation `hook` may find a death. Any thread; may be NULL. */
    void (*hooks)(struct on_dead *on_dead);
    /* Return true if the worker will take more messages: no hold keeps it from
     * that, now or when its handlers have finished. Any thread; never waits. */
    bool (*wants)(struct gate *gate);
    /* The source cannot continue: finish what is running and exit with
     * `status`. Any thread. */
    void (*ended)(struct gate *gate, const char *why, int status);
};

/* What a source on a broker is opened with (broker_engine.h); all of it
 * outlives the source. */
struct broker_source_setup {
    const struct settings *set; /* also the queue, and the access to it */
    const char *runs;           /* path of the run file */
    struct source_events events;
    struct attention *attention; /* of the worker */
};

/* The head of each source's own struct.
 * c = constant after open   a = atomic, written by the source */
struct source {
    const struct source_ops *ops;         /* c */
    const struct source_local_ops *local; /* c  NULL: it is no local store */
    int poll_fd;        /* c  readable while take may lend; only to be polled */
    unsigned lent_most; /* c  message.index is below this, after any resize */
    uint64_t nonce; /* c  marks the handlers of its messages; the next worker
                     *    that opens the source finds them by it */
    _Atomic uint64_t timeout_most_ns; /* a  longest time limit that a message
                                       *    may have by its header */
    /* a  0: take_due has nothing; else it is worth a call. Changed only by
     * source_due_set and source_due_clear. */
    atomic_int due;
    struct attention *attention; /* c  the worker's; ATTEND_DUE is ours */
    /* a  the source fetches nothing, because wants() was false, until
     * ops->wanted. The source sets `rests`, then asks wants() again; the worker
     * opens the gate, then reads `rests`: so one of the two sees the other. */
    atomic_bool rests;
};

/* What every source can do.
 *
 *   operation       thread             may wait for   returns
 *   take            under take_lock    nothing        0, -EAGAIN, -ECANCELED,
 *                                                     -errno
 *   take_due        the lane's         disk           0, -EAGAIN, -errno
 *   settle          any; the lane's    disk           see struct settle
 *   release         any                nothing        -
 *   rest            the lane's         nothing        -
 *   parts           any                nothing        -
 *   is_due          any                disk, broker   YES, NO, -errno
 *   count           any                source_count   the number, -errno
 *   resize          one at a time      disk           0, problem
 *   wanted, tuned   any                nothing        -
 *   clock_set       the loop           nothing        -
 *   runs, recover   the engine's       disk           0, problem or -errno
 *   start           the engine's       disk           -
 *
 * "The engine's": before other threads use the source. A broker answers within
 * some seconds; nothing else waits for a network. No operation is called from
 * an event, except where one of them says so.
 *
 * Any later call with the same lane ends the right to read the message that was
 * settled last with it. */
struct source_ops {
    const char *name; /* "mq" */
    bool late;        /* settle may return -EINPROGRESS */

    /* Lend the next message, in the order of the origin, which is the order of
     * the calls. `wall_ns` is the time for received_ns. -EAGAIN: none now.
     * -ECANCELED: as 0, and the message is MESSAGE_CANCELLED or has crashes. */
    int (*take)(struct source *s, unsigned lane, uint64_t wall_ns,
                struct message **out);
    /* Lend the next message whose time has come: a retry, a delayed message, or
     * one that an earlier worker kept. -EAGAIN: none. */
    int (*take_due)(struct source *s, unsigned lane, struct message **out);

    /* Make verdicts durable, up to SETTLE_MOST. Returns the result of the
     * verdict (struct settle). n > 1: all are RETRY or PARK without an attempt
     * and with LANE_NONE. They are written in one commit, all or none, with the
     * same result, which is neither -ESTALE nor -EINPROGRESS. DONE of a message
     * without a row never waits. */
    int (*settle)(struct source *s, struct settle *list, size_t n);
    /* End the right to read a message that was settled with LANE_NONE. */
    void (*release)(struct source *s, struct message *m);
    /* Drop what is kept for the lane, because it has no work. */
    void (*rest)(struct source *s, unsigned lane);

    /* Return YES if a message is due. */
    int (*is_due)(struct source *s);
    int64_t (*count)(struct source *s, enum source_count what);
    /* Visit each partition of the origin, by number. May be NULL. Visits none
     * if the origin has no partitions. */
    void (*parts)(struct source *s,
                  void (*visit)(void *arg, const struct source_part *part),
                  void *arg);

    /* Change COUNT_SLOTS, up to lent_most. A problem leaves it as before. */
    int (*resize)(struct source *s, unsigned lent, struct problem *p);

    /* Fetch messages again, because the worker may take one; called while the
     * source rests. May be NULL. */
    void (*wanted)(struct source *s);
    /* Follow a changed setting. */
    void (*tuned)(struct source *s);
    /* Find due messages again after the wall clock was set or the machine was
     * suspended. */
    void (*clock_set)(struct source *s);

    /* Visit each handler that was running when the last owner died, at most
     * COUNT_SLOTS of them. Changes no message that ran, because the start is
     * refused if these handlers cannot be killed. */
    int (*runs)(struct source *s,
                void (*visit)(void *arg, const struct source_run *run),
                void *arg, struct problem *p);
    /* Visit each message that the last owner left, in the order of seq. No
     * handler of it is running any more. `visit` settles the message or keeps
     * it lent. Stops at the first error of `visit`; the other messages stay as
     * they were. */
    int (*recover)(struct source *s,
                   int (*visit)(void *arg, const struct source_left *left),
                   void *arg);
    /* Begin: recovery is over, and other threads take messages from now on. */
    void (*start)(struct source *s);
};

/* What only a store of this machine can do: letters, orders of operators, the
 * deaths for --on-dead, groups that wait on the disk, and a short way to settle
 * a message as done.
 *
 *   operation       thread             may wait for   returns
 *   done            the lane's         nothing        0, -errno
 *   warm            the lane's         nothing        -
 *   link, claim     the taker's        disk           below, -errno
 *   unpark          the lane's         disk           0, below, -errno
 *   groups          the engine's       disk           0, -errno
 *   letters         any                disk           YES, NO, -errno
 *   watch           any                nothing        -
 *   pending, queued, differs
 *                   any                nothing        -
 *   steer           a pool thread      disk           0, -errno
 *   hook, hook_end  that of --on-dead  disk           0, -ENOENT, -errno
 *   keep            the engine's       disk           0, -errno
 *
 * After an error nothing has changed. */
struct source_local_ops {
    /* Settle one message as DONE that is not MESSAGE_STORED: the usual end,
     * without a list. */
    int (*done)(struct source *s, struct message *m, unsigned lane);
    /* Prepare the lane's next message, because the lane waits now and takes
     * again soon. */
    void (*warm)(struct source *s, unsigned lane);
    /* Return true if take is worth a call although poll_fd is not readable. */
    bool (*pending)(const struct source *s);

    /* Find the letter of a message whose header has HEADER_LETTER: enum
     * source_link. The message was just taken, or recovered. May be called
     * between take and the next take, under the same lock. */
    int (*link)(struct source *s, struct message *m, const struct header *h);
    /* Give the message its unique key for `ns` from its receipt on, before it
     * is delivered or stored for the first time. Of stored messages, only a
     * replayed letter claims its key again. The key is durable on 0, and a
     * redelivered message keeps it. -EEXIST: another message, *first, has it.
     * -EOPNOTSUPP: there are no keys here; the message runs. */
    int (*claim)(struct source *s, const struct message *m,
                 struct header_text key, uint64_t ns, struct ulid *first);

    /* Lend the next parked message of a group: of the highest priority, or with
     * `low` of the lowest, in the order of seq. With `before`, only one that
     * comes before that message, by the same order. -EAGAIN: `before` comes
     * first. -ENOENT: no message of the group is parked. -EINPROGRESS: one is
     * parked, but cannot be lent yet. -EMSGSIZE: it was too large and died. */
    int (*unpark)(struct source *s, unsigned lane, struct header_text key,
                  bool low, const struct message *before, struct message **out);
    /* Visit each group that has messages or letters here. Stops at the first
     * error of `visit`. */
    int (*groups)(struct source *s,
                  int (*visit)(void *arg, const struct source_group *group),
                  void *arg);
    /* Return YES if a group has a letter. */
    int (*letters)(struct source *s, struct header_text key);
    /* Call the event letters_gone when a letter of a group may be gone, because
     * a group is held from now on. `soon`: call it in a second in any case,
     * because `letters` failed for a held group. */
    void (*watch)(struct source *s, bool soon);
    /* Return true if the message of that number waits for its turn in take,
     * where later messages may come before it; 0: if any message does. */
    bool (*queued)(const struct source *s, int64_t number);

    /* Make waiting messages, up to STEER_MOST, named by their public numbers,
     * due now or cancelled. A cancelled message comes from take_due
     * immediately, or from unpark or take in its turn, with MESSAGE_CANCELLED.
     * On 0 the result of each is durable. */
    int (*steer)(struct source *s, enum steer what, const int64_t *numbers,
                 size_t n, enum steered *out);
    /* Return true, with a text, if the origin is unlike what the settings would
     * make. */
    bool (*differs)(const struct source *s, char *text, size_t room);

    /* Return the first death whose n is greater than `after`; later deaths have
     * greater ones. It stays until hook_end. -ENOENT: none. */
    int (*hook)(struct source *s, int64_t after, struct source_hook *out);
    /* Finish with a death. `told`: the command was told, durably on 0. Else it
     * failed, and the death comes last: *next is its new n; 0: it is gone. */
    int (*hook_end)(struct source *s, int64_t n, bool told, int64_t *next);

    /* Ask `place` (enum source_place, or -errno) where each lent message must
     * wait, in the order of seq. Make that durable for all messages or, after
     * an error, for none. Called when no other thread takes or settles. `place`
     * sets the kind of *out (RETRY or PARK), its times and its group. `half`:
     * the message was not received completely. */
    int (*keep)(struct source *s,
                int (*place)(void *arg, struct message *m, bool half,
                             struct settle *out),
                void *arg);
};

/* Have a resting source fetch again, after a change that may let a message be
 * taken. */
static inline void source_wanted(struct source *s)
{
    if (s && atomic_load(&s->rests))
        s->ops->wanted(s);
}

/* Return true if take_due is worth a call. */
static inline bool source_due(const struct source *s)
{
    return atomic_load(&s->due) != 0;
}
/* Make ATTEND_DUE agree with `due`, after each change of `due`. Another thread
 * may change `due` in the meantime, so repeat this until both agree. */
static inline void source_due_attend(struct source *s)
{
    bool due;

    do {
        due = source_due(s);
        attention_set(s->attention, ATTEND_DUE, due ? ATTEND_DUE : 0);
    } while (due != source_due(s));
}
/* For the source: from now on take_due is worth a call. `due` is not 0. */
static inline void source_due_set(struct source *s, int due)
{
    atomic_store(&s->due, due);
    source_due_attend(s);
}
/* For the source: take_due is not worth a call, unless another thread has
 * replaced `was` in the meantime. */
static inline void source_due_clear(struct source *s, int was)
{
    if (atomic_compare_exchange_strong(&s->due, &was, 0))
        source_due_attend(s);
}
/* Make the message due in `wait_ns`. */
static inline void settle_wait(struct settle *s, uint64_t wait_ns)
{
    s->delay_ns = wait_ns ? wait_ns : 1;
    s->due_boot_ns = ns_add(clock_boot_ns(), wait_ns);
}
/* Return the due time by CLOCK_BOOTTIME. */
static inline uint64_t settle_due(const struct settle *s)
{
    return s->due_boot_ns ? s->due_boot_ns : clock_boot_at(s->due_ns);
}
/* Give a taken message back that cannot be delivered yet; it is due again in
 * `wait_ns`. */
static inline void source_return(struct source *s, struct message *m,
                                 unsigned lane, uint64_t wait_ns)
{
    struct settle st = {.m = m, .kind = SETTLE_RETURN, .lane = lane};

    settle_wait(&st, wait_ns);
    (void)s->ops->settle(s, &st, 1);
}

#endif
