/* claims.h - the messages that a worker has received from a broker
 *
 * WHAT   Keeps each message from its arrival until it is settled: delays it
 *        until its time, lends it to the flow, gives the outbox the copy that
 *        follows from its verdict, and the inbox its acknowledgement. A claim
 *        is the tag of a message on the inbox's connection, and is void when
 *        that connection is lost.
 * WHO    The worker's flow, by the operations of source.h: any thread, but one
 *        at a time for each lane. The threads of inbox.h and outbox.h: the
 *        sections named after them. open, close: the engine's thread.
 * OWNS   Each message, from claims_arrived until it is settled.
 * FAILS  open: -errno. take, settle: as source.h says.
 *
 * A message is on one list at a time, as its state says. While a message is
 * CLAIM_SETTLING or CLAIM_MOVING, the outbox publishes its job. A CLAIM_SETTLED
 * message is on no list, but its lane may read it until the lane's next call.
 */
#ifndef WORKER_SOURCE_AMQP_CLAIMS_H
#define WORKER_SOURCE_AMQP_CLAIMS_H

#include "common/amqp/envelope.h"
#include "common/amqp/publisher.h"
#include "common/base/basics.h"
#include "worker/source/amqp/run_file.h"
#include "worker/source/amqp/side.h"
#include "worker/source/source.h"

struct claims; /* opaque; body in claims.c */

enum claim_state {
    CLAIM_ARRIVED,  /* claims_take may take it */
    CLAIM_DELAYED,  /* waits until due_ns */
    CLAIM_LENT,     /* the flow has it */
    CLAIM_SETTLING, /* the outbox publishes its verdict */
    CLAIM_MOVING,   /* is being moved to another queue of the broker */
    CLAIM_RETURNED, /* will be delayed once its lane stops reading it */
    CLAIM_DUE,      /* a group's head that claims_take_due may take again */
    CLAIM_SETTLED,  /* settled; its lane may still read it */
};

/* A copy of a message that the outbox publishes. */
struct amqp_job {
    struct unconfirmed u;
    struct settle *settle; /* verdict; NULL: the message is moved */
    struct settle own;     /* the DEAD verdict of a refused message */
    uint64_t due_wall_ns;  /* due time of a retry or a moved message; 0: now */
    bool returned;         /* the broker returned the copy: no queue took it */
};

/* c = constant once it has arrived   q = under the mutex of the claims
 * t = of the thread that runs it */
struct amqp_message {
    struct message m;
    struct claims *claims;     /* c */
    struct ulid id;            /* c */
    struct run_key key;        /* c */
    struct run_key repeat_key; /* c  same for copies that failed as often */
    uint64_t epoch, tag;       /* q  the claim: void in another epoch */
    uint64_t due_ns;           /* q  DELAYED: CLOCK_BOOTTIME */
    uint64_t arrived_ns;       /* q  clock_mono_ns when it became ARRIVED */
    uint64_t due_wall_ns;      /* c  due time in the header; 0: now */
    uint64_t first_ns;         /* c  wall; first receipt by a worker */
    enum claim_state at;       /* q */
    bool grouped;              /* c  the header names a group */
    const char *refused;       /* c  why it must not run; NULL: it may run */
    uint32_t group_crc;        /* c  CRC-32 of the group's key */
    unsigned part;             /* c  partition; 0 also in a queue without any */
    bool failed_head;          /* t  a failed head, which waits in the worker */
    uint32_t head_failures;    /* t  failures of that head */
    void *own_raw;             /* t  memory of `raw` after a failure; or NULL */
    atomic_bool runs;          /* a handler is running the message */
    bool marked;         /* q  this worker, not the broker, marked a repeat */
    uint64_t line;       /* q  number that its copies share; 0: no copies yet */
    struct amqp_job job; /* q, then of the outbox's thread */
    TAILQ_ENTRY(amqp_message) link; /* q */
    LIST_ENTRY(amqp_message) twins; /* q  if lent, or `failed_head` */
    amqp_bytes_t raw;               /* t  encoded properties */
    unsigned char *body;            /* c */
    size_t body_size;               /* c */
};

static inline struct amqp_job *amqp_job_of(struct unconfirmed *u)
{
    return CONTAINER_OF(u, struct amqp_job, u);
}
static inline struct amqp_message *amqp_job_message(struct amqp_job *j)
{
    return CONTAINER_OF(j, struct amqp_message, job);
}

void amqp_message_free(struct amqp_message *m);

int claims_open(struct claims **out, struct amqp_queue *queue);
void claims_close(struct claims **claims); /* NULL-safe; sets NULL */

/* ---- for the flow: operations of source.h ---- */

int claims_take(struct source *s, unsigned lane, uint64_t wall_ns,
                struct message **out);
int claims_take_due(struct source *s, unsigned lane, struct message **out);
int claims_settle(struct source *s, struct settle *list, size_t n);
void claims_release(struct source *s, struct message *released);
void claims_lane_rest(struct source *s, unsigned lane);
/* Numbers of messages at one moment; any thread. */
struct claims_counts {
    unsigned room;      /* messages that can be lent in addition */
    unsigned arrived;   /* messages that can be taken */
    unsigned delayed;   /* messages that wait for their time */
    unsigned jobs;      /* messages whose copies are not confirmed yet */
    bool starved;       /* `arrived` is 0, and fewer run than may run */
    uint64_t oldest_ns; /* arrival of the next message to be taken; 0: none */
};
struct claims_counts claims_count(struct claims *c);
void claims_parts(struct source *s,
                  void (*visit)(void *arg, const struct source_part *part),
                  void *arg);
/* Return true if no message was lent between the last call and this one, and no
 * head of a group waits. Any thread (the is_due operation). */
bool claims_still_idle(struct claims *c);
void claims_clock_set(struct source *s);
/* Wait up to `limit_ns` until no copy is waiting for its confirm. Called by the
 * stop of the source, on the engine's thread. Returns how many copies are still
 * unconfirmed. */
unsigned claims_drain(struct claims *c, uint64_t limit_ns);

/* ---- for the inbox, on its thread ---- */

/* Accept a whole message from part `part` of the queue. Its block begins with
 * room for a struct amqp_message, and has a gap of HEADER_MAX in front of the
 * body. The next claims_place puts the message on its list. */
void claims_arrived(struct claims *c, struct incoming *in, unsigned part);
/* Put each message that has arrived on its list. */
void claims_place(struct claims *c);
/* Let the delayed messages be taken whose time has come. Returns the time until
 * the next one is due, ns; UINT64_MAX if no message is delayed. */
uint64_t claims_due(struct claims *c);
/* Begin a new epoch for a new connection, so that claims on its messages are
 * valid. */
void claims_begin(struct claims *c);
/* End the connection: forget messages that were not lent, and mark the lent
 * ones as stale. Returns true if claims_begin was not called since the last
 * call. */
bool claims_void(struct claims *c);
/* Take the *n tags to acknowledge, in memory that the caller frees; NULL if
 * there are no tags. `starved` is as in claims_counts. */
uint64_t *claims_acks(struct claims *c, size_t *n, bool *starved);
/* Drop the messages that can be taken, so that the inbox can give them back to
 * the broker. Returns their tags, in memory that the caller frees; NULL if
 * there are no such messages. */
uint64_t *claims_take_back(struct claims *c, size_t *n);

/* ---- for the outbox, on its thread ---- */

/* Move all jobs to the end of `to`. */
void claims_jobs_take(struct claims *c, struct unconfirmed_list *to);
/* Finish a job: the broker has confirmed the copy. */
void claims_confirmed(struct claims *c, struct amqp_job *j);
/* Describe a failed attempt, for the history of a copy. */
struct envelope_attempt amqp_attempt_of(const struct amqp_queue *queue,
                                        const struct attempt *a,
                                        uint64_t number);

#endif
