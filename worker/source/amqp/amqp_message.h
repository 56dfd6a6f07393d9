/* amqp_message.h - one message of a broker, in the worker
 *
 * WHAT   The message that the flow is lent, with its properties, its claim and
 *        what follows from its verdict; read from what the broker sent.
 * WHO    The thread that has it. Fields say which lock they need.
 * OWNS   Its bytes.
 * FAILS  read: -errno, and the message cannot be used.
 */
#ifndef WORKER_SOURCE_AMQP_AMQP_MESSAGE_H
#define WORKER_SOURCE_AMQP_AMQP_MESSAGE_H

#include "common/amqp/envelope.h"
#include "common/amqp/publisher.h"
#include "common/base/basics.h"
#include "worker/source/amqp/run_file.h"
#include "worker/source/amqp/side.h"
#include "worker/source/source.h"

struct claims; /* claims.h */

enum claim_state {
    CLAIM_ARRIVED, /* take gives it */
    CLAIM_HELD,    /* until due_ns */
    CLAIM_LENT,    /* flow has it */
    CLAIM_LATE,    /* its verdict is on its way */
    CLAIM_HOP,     /* it goes on waiting in another queue */
    CLAIM_PUT_OFF, /* to be held, once nobody reads it */
    CLAIM_DUE,     /* take_due gives it: the head of its group, again */
    CLAIM_OVER,    /* settled; somebody may read it still */
};

/* What the outbox does for a message, and how far it is. */
struct amqp_job {
    struct unconfirmed u;
    struct settle *settle; /* NULL: a hop, or a burial of our own */
    struct settle own;     /* of a burial */
    uint64_t due_wall_ns;  /* of a retry or hop; 0: now */
    bool returned;         /* no queue took it */
};

/* c = constant once it has arrived   q = under the mutex of the claims
 * t = of the thread that runs it */
struct amqp_message {
    struct message m;
    struct claims *claims; /* c */
    struct ulid id;        /* c */
    struct run_key key;    /* c */
    uint64_t epoch, tag;   /* q  the claim: good while the epoch is the same */
    uint64_t due_ns;       /* q  HELD: CLOCK_BOOTTIME */
    uint64_t arrived_ns;   /* q  ARRIVED: clock_mono_ns, since when */
    uint64_t due_wall_ns;  /* c  as its header says; 0: now */
    uint64_t first_ns;     /* c  wall */
    enum claim_state at;   /* q */
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
    unsigned char *body;            /* c */
    size_t body_size;               /* c */
    unsigned char bytes[];          /* properties, room for a header, body */
};

static inline struct amqp_job *amqp_job_of(struct unconfirmed *u)
{
    return CONTAINER_OF(u, struct amqp_job, u);
}
static inline struct amqp_message *amqp_job_message(struct amqp_job *j)
{
    return CONTAINER_OF(j, struct amqp_message, job);
}

/* A message with these encoded properties and room for its body; NULL: no
 * memory. */
struct amqp_message *amqp_message_make(amqp_bytes_t raw, size_t body_size);
void amqp_message_free(struct amqp_message *m);
/* Read what the properties of a message say that has all its bytes. A message
 * that must not run has `refused` then. */
int amqp_message_read(struct amqp_message *m, struct amqp_queue *queue,
                      bool redelivered);

#endif
