/* amqp_inner.h - inside of source_amqp
 *
 * WHAT   What its files share: the struct, its messages, and their lists.
 * WHO    The files of this folder.
 * OWNS   -
 * FAILS  -
 *
 * A message is on one list at a time: incoming, arrived, held, lent, or due; or
 * it is with a lane, which may read it until its next call, or with nobody.
 * While it is lent, or a hop, it can be a job of the outbox, too.
 */
#ifndef WORKER_SOURCE_AMQP_AMQP_INNER_H
#define WORKER_SOURCE_AMQP_AMQP_INNER_H

#include <pthread.h>

#include "common/amqp/envelope.h"
#include "common/amqp/link.h"
#include "common/amqp/topology.h"
#include "common/amqp/publisher.h"
#include "common/base/basics.h"
#include "common/broker/broker_operand.h"
#include "worker/source/amqp/ack_window.h"
#include "worker/source/amqp/run_file.h"
#include "worker/source/amqp/source_amqp.h"

#define AMQP_GROUPED \
    "it names a group, and a queue without partitions keeps no order"
#define AMQP_NO_GROUP  "what it names in mqw-group cannot be a group"
#define AMQP_MISPLACED "it is not in the partition of its group"

#pragma GCC visibility push(hidden)

enum amqp_at {
    AMQP_ARRIVED, /* take gives it */
    AMQP_HELD,    /* until due_ns */
    AMQP_LENT,    /* flow has it */
    AMQP_LATE,    /* its verdict is on its way */
    AMQP_HOP,     /* it goes on waiting in another queue */
    AMQP_PUT_OFF, /* to be held, once nobody reads it */
    AMQP_DUE,     /* take_due gives it: the head of its group, again */
    AMQP_OVER,    /* settled; somebody may read it still */
};

/* What the outbox does for a message, and how far it is. */
struct amqp_job {
    struct unconfirmed u;
    struct settle *settle; /* NULL: a hop, or a burial of our own */
    struct settle own;     /* of a burial */
    uint64_t due_wall_ns;  /* of a retry or hop; 0: now */
    bool returned;         /* no queue took it */
};

/* c = constant once it has arrived   q = under the source's mtx
 * t = of the thread that runs it */
struct amqp_message {
    struct message m;
    struct source_amqp *q; /* c */
    struct ulid id;        /* c */
    struct run_key key;    /* c */
    uint64_t epoch, tag;   /* q  the claim: good while the inbox's epoch is
                             *    the same */
    uint64_t due_ns;       /* q  HELD: CLOCK_BOOTTIME */
    uint64_t arrived_ns;   /* q  ARRIVED: clock_mono_ns, since when */
    uint64_t due_wall_ns;  /* c  as its header says; 0: now */
    uint64_t first_ns;     /* c  wall */
    enum amqp_at at;       /* q */
    bool grouped;          /* c  it names a group */
    const char *refused;   /* c  why it must not run; NULL: it may */
    uint32_t group_crc;    /* c  of that group */
    unsigned part;         /* c  of the queue; 0 where it has none */
    /* Of a group, and failed: it waits in hand, as nothing at the broker would
     * keep it in front of those behind it. */
    bool again;          /* t */
    uint32_t tries;      /* t  failures, for its next run */
    void *own_raw;       /* t  what `raw` is in after a failure; NULL */
    atomic_bool runs;    /* a handler has it */
    bool derived;        /* c  an equal message has the same id */
    bool marked;         /* c  as one that may have run, by us alone */
    uint64_t line;       /* q  of its copies; 0: it has none yet */
    struct amqp_job job; /* q, then of the outbox's thread */
    TAILQ_ENTRY(amqp_message) link; /* q */
    amqp_bytes_t raw;               /* t  encoded properties */
    const unsigned char *body;      /* c */
    size_t body_size;               /* c */
    unsigned char bytes[];          /* properties, room for a header, body */
};
TAILQ_HEAD(amqp_list, amqp_message);

/* A thread with a connection. c = constant after open  t = the thread's */
struct amqp_side {
    struct source_amqp *q; /* c */
    const char *name;      /* c  "inbox" */
    pthread_t thread;      /* c */
    bool running;          /* c  it was started */
    int wake_fd;           /* c  eventfd */
    struct link *link;     /* t  NULL: there is none just now */
    unsigned host;         /* t  to try next */
    uint64_t wait_ns;      /* t  before the next try */
    uint64_t lost_ns;      /* t  clock_mono_ns since when there is none */
};

/* A message that is coming in, frame by frame; the inbox's. */
struct inbox_part {
    struct amqp_message *m; /* NULL: its header is not there yet */
    size_t filled;
    uint64_t tag;
    unsigned queue; /* part of ours that it comes from */
    bool expected, redelivered;
};

/* How much of the queue is in hand; the inbox's. */
struct prefetch {
    unsigned level;    /* 0: as much as may be lent; PREFETCH_LEAN: the least */
    uint64_t level_ns; /* clock_mono_ns: it was changed, or looked at */
    uint64_t acked;    /* since then, */
    uint64_t starved;  /* and of those, when handlers had nothing to run */
    uint64_t acked_ns; /* clock_mono_ns of the last; 0: none */
    uint64_t trip_ns;  /* of a call to the broker and its answer */
    unsigned more;     /* in hand, where that is slow to come; 0: not more */
    unsigned consumer; /* number of the last one on this connection; 0: none */
    unsigned size;     /* that it was given */
    bool consuming;    /* it was not cancelled */
    bool called;       /* the broker, which may have kept messages back */
    uint64_t late_ns;  /* clock_mono_ns since when it runs fewer than it may, as
                        * the others wait for a confirm; 0: it does not */
};

struct amqp_count { /* of a queue, as somebody asked */
    const char *queue;
    uint32_t messages;
    int err;
    bool asked, answered;
};

/* c = constant after open   a = atomic   q = under mtx */
struct source_amqp {
    struct source source;
    struct source_events events;          /* c */
    const struct settings *set;           /* c */
    const struct broker_operand *operand; /* c */
    char password[BROKER_PASSWORD];       /* c */
    char machine[65];                     /* c */
    char dead[TOPOLOGY_NAME];             /* c  NAME.dead */
    struct link_setup setup;              /* c */
    struct topology topology;             /* c */
    struct run_file *runs;                /* c */
    struct amqp_message **lanes; /* c  what each may read still; a lane's
                                    *    thread's */
    int ready_fd;                /* c  readable while one may be taken */
    bool started;                /* c  after it; the engine */
    struct amqp_side inbox, outbox;
    struct inbox_part part;    /* the inbox's */
    struct ack_window window;  /* the inbox's */
    struct prefetch fetch;     /* the inbox's */
    struct amqp_list incoming; /* the inbox's: not placed yet */
    unsigned incoming_count;   /* the inbox's */
    struct confirms confirms;  /* the outbox's */
    /* The outbox's: of each part, bits of the wait queues. */
    unsigned declared[PARTITIONS_MAX];
    char (*parts)[TOPOLOGY_NAME]; /* c  NAME, or NAME.0 and up */
    unsigned part_count;          /* c */
    bool missing;                 /* the outbox's: a queue of ours is gone */
    uint64_t refused_ns;    /* the outbox's: the pause after the next refusal */
    atomic_bool stopping;   /* a */
    atomic_uint prefetch;   /* a  messages lent at once */
    atomic_long ready;      /* a  in the queue, when last asked */
    atomic_bool group_told; /* a */
    atomic_bool limit_told; /* a a delivery limit was logged */
    atomic_uint doubted;    /* a  the host that the outbox has just given up,
                             *    + 1; 0: none */

    pthread_mutex_t mtx;
    pthread_cond_t changed;               /* q  a count came, or jobs ended */
    struct amqp_list arrived, held, lent; /* q  held: by due_ns, priority */
    int64_t ahead_ns;     /* q  clock_ahead_ns when the clock was set last */
    struct amqp_list due; /* q  AMQP_DUE */
    struct amqp_list put_off; /* q  heads that are PUT_OFF */
    unsigned again_count;     /* q  heads in hand: PUT_OFF, HELD or DUE */
    unsigned arrived_count, held_count, lent_count; /* q */
    unsigned late_count;            /* q  of those lent: no handler has them */
    bool ready_said;                /* q  ready_fd is readable */
    uint64_t epoch;                 /* q  of the inbox's connection; 0: none */
    uint64_t epochs;                /* q  that there were */
    uint64_t given[PARTITIONS_MAX]; /* q  epoch of the last message of each */
    uint64_t seq;                   /* q  of the last message */
    uint64_t empty_at;              /* q  seq + 1 at a look in vain; 0: none */
    unsigned *free_index;           /* q  a stack of free_count */
    unsigned free_count;            /* q */
    uint64_t *acks;                 /* q  tags of this epoch */
    size_t ack_count, ack_room;     /* q */
    struct unconfirmed_list jobs;   /* q  to be published */
    unsigned job_count;             /* q  those, and those not confirmed */
    unsigned fetched;               /* q  what may be in hand; 0: it rests */
    struct amqp_count count;        /* q */
};

static inline struct source_amqp *source_amqp_of(const struct source *s)
{
    return CONTAINER_OF((struct source *)s, struct source_amqp, source);
}
static inline struct amqp_message *amqp_message_of(struct message *m)
{
    return CONTAINER_OF(m, struct amqp_message, m);
}
static inline struct amqp_job *amqp_job_of(struct unconfirmed *u)
{
    return CONTAINER_OF(u, struct amqp_job, u);
}
static inline struct amqp_message *amqp_job_message(struct amqp_job *j)
{
    return CONTAINER_OF(j, struct amqp_message, job);
}

/* ---- amqp_lists.c ---- */

/* Nobody reads it any more. */
void amqp_free(struct amqp_message *m);
/* Nobody reads it any more: one that was put off is held from here on. mtx is
 * not held. */
void amqp_let_go(struct source_amqp *q, struct amqp_message *m);
/* What a lane may read is put away; NULL: nothing else takes its place. */
void amqp_lane_keep(struct source_amqp *q, unsigned lane,
                    struct amqp_message *m);
/* The following under mtx. Until due_ns. */
void amqp_hold_locked(struct source_amqp *q, struct amqp_message *m);
/* To be acknowledged. */
void amqp_ack_locked(struct source_amqp *q, uint64_t epoch, uint64_t tag);
/* For the outbox. */
void amqp_job_locked(struct source_amqp *q, struct amqp_message *m);
/* `m` goes on in another queue at due_wall_ns; or is a dead letter. `error` is
 * constant. */
void amqp_hop_locked(struct source_amqp *q, struct amqp_message *m);
void amqp_die_locked(struct source_amqp *q, struct amqp_message *m,
                     enum dead_reason reason, const char *error);

/* ---- amqp_take.c ---- */

/* Make ready_fd readable exactly while a message may be taken; mtx is held.
 * True: take_due has something now, and the caller reports events.changed once
 * mtx is not held. */
bool amqp_ready_locked(struct source_amqp *q);

/* It is on that list no more; mtx is held. */
void amqp_arrived_remove(struct source_amqp *q, struct amqp_message *m);
/* It has all its bytes. The inbox; the message is another's from here on. */
void amqp_arrived(struct source_amqp *q, struct amqp_message *m,
                  bool redelivered);
/* Those that have arrived: to the next in turn. The inbox, before it waits. */
void amqp_place_all(struct source_amqp *q);
int amqp_take(struct source *s, unsigned lane, uint64_t wall_ns,
              struct message **out);
int amqp_take_due(struct source *s, unsigned lane, struct message **out);
/* What is due now is not held any more. How long until the next one is;
 * UINT64_MAX none. */
uint64_t amqp_due(struct source_amqp *q);
/* The inbox's connection is gone: messages that were not lent are forgotten,
 * lent ones are stale. */
void amqp_void_claims(struct source_amqp *q);

/* ---- in_hand.c: retries of groups ---- */

static inline bool amqp_parted(const struct source_amqp *q)
{
    return q->topology.partitions > 0;
}
/* It failed, and is to be put off. mtx is held. */
void amqp_again(struct source_amqp *q, struct amqp_message *m,
                const struct settle *s);
/* It is due, or its claim is gone and its group is to go on; mtx is held. */
void amqp_due_locked(struct source_amqp *q, struct amqp_message *m);
/* The next that is due, off its list; NULL: none. mtx is held. */
struct amqp_message *amqp_due_take(struct source_amqp *q);

/* ---- amqp_look.c: as the operations of those names ---- */

unsigned amqp_room(const struct source *s);
long amqp_fresh(const struct source *s);
int amqp_is_due(struct source *s);
int64_t amqp_count(struct source *s, enum source_count what);

/* ---- parts.c ---- */

void amqp_parts(struct source *s,
                void (*visit)(void *arg, const struct source_part *part),
                void *arg);

/* ---- amqp_settle.c ---- */

int amqp_settle(struct source *s, struct settle *list, size_t n);
void amqp_release(struct source *s, struct message *m);
/* A job was confirmed. The outbox. */
void amqp_confirmed(struct source_amqp *q, struct amqp_job *j);
/* What a copy says. */
void amqp_change(const struct source_amqp *q, const struct amqp_job *j,
                 struct envelope_change *out, struct envelope_attempt *attempt);

/* ---- consumer.c: the inbox's ---- */

/* Consume from each part, up to `each` messages of it at once. `consumer`: the
 * number of this one on its connection. */
int consumer_begin(struct source_amqp *q, unsigned each, unsigned consumer);
int consumer_end(struct source_amqp *q, unsigned consumer);
/* From which of our queues a message comes, by the consumer's name. */
unsigned consumer_part(const struct source_amqp *q, amqp_bytes_t tag);
/* They are settled; or for others, who get them marked. Sorts `tags`. */
int consumer_ack(struct source_amqp *q, uint64_t *tags, size_t n);
int consumer_give_back(struct source_amqp *q, uint64_t *tags, size_t n);

/* ---- prefetch.c: how much is in hand; the inbox's, but wanted ---- */

/* A new connection: nothing is consumed yet. */
void prefetch_begin(struct source_amqp *q);
/* One comes, and is not counted yet: rates are of times with messages. */
void prefetch_delivered(struct source_amqp *q);
/* None waits in hand, and fewer run than may; mtx is held. */
bool prefetch_starves_locked(const struct source_amqp *q);
/* So many messages were acknowledged; `starved`: as above, at that time. */
void prefetch_acked(struct source_amqp *q, size_t n, bool starved);
/* Consume as much as is right now. -errno: the connection is of no use. */
int prefetch_apply(struct source_amqp *q);
/* What waits in hand for too long makes it less; and what nobody here takes
 * goes back to the broker. *next_ns: how long until it may again. -errno as
 * above. */
int prefetch_look(struct source_amqp *q, uint64_t *next_ns);
/* source_ops.wanted */
void prefetch_wanted(struct source *s);

/* ---- inbox.c, outbox.c ---- */

int inbox_open(struct source_amqp *q, struct problem *p);
int outbox_open(struct source_amqp *q, struct problem *p);
void *inbox_main(void *side);
void *outbox_main(void *side);
/* Messages in a queue: 0, -ETIMEDOUT, -errno. Any thread; waits for the
 * broker. */
int outbox_count(struct source_amqp *q, const char *queue, uint32_t *messages);

/* ---- side.c ---- */

int side_init(struct amqp_side *side, struct source_amqp *q, const char *name);
void side_fini(struct amqp_side *side);
int side_start(struct amqp_side *side, void *(*main)(void *));
void side_wake(struct amqp_side *side);
/* The connection is closed, and told. */
void side_lost(struct amqp_side *side, const char *why);
/* Wait a while, then try: true, there is one. */
bool side_reconnect(struct amqp_side *side);
/* Log once that a queue declared on this connection has a delivery limit. */
void side_limited(struct amqp_side *side);
/* Until the broker has something, somebody wakes us, or `ns` are over. */
void side_wait(struct amqp_side *side, uint64_t ns);

#pragma GCC visibility pop

#endif
