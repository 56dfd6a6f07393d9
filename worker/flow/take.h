/* take.h - how the next message is taken: the list of ready messages, and how
 * long an empty queue is tried
 *
 * WHAT   The ready list: messages that are lent and wait for a thread, because
 *        they were recovered, or given back because their handler could not be
 *        started. They are taken before any message of the source.
 *        Spinning: sleeping and waking up costs the worker and the sender some
 *        microseconds, so a work item tries an empty queue again for SPIN_NS.
 *        After SPIN_VAIN spins without a message, it spins only at every
 *        SPIN_SKIPth empty queue, until a message comes.
 * WHO    spin_: the thread of a work item, whose struct spin is all 0 at first.
 *        All others: any thread. flow_init sets up the list.
 * OWNS   Nothing. The ready list links the messages by their own field.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_TAKE_H
#define WORKER_FLOW_TAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"
#include "worker/rules/attention.h"
#include "worker/rules/message.h"

/* a = atomic   m = under mtx   c = constant after init */
struct ready {
    struct attention *attention; /* c  ATTEND_READY is ours, under mtx */
    atomic_uint waiting;         /* a  messages on the list */
    pthread_mutex_t mtx;
    STAILQ_HEAD(, message) list; /* m  in the order of the source */
};

/* Add a message at the end, or with `front` before all others. */
void ready_put(struct ready *r, struct message *m, bool front);
/* Take the message with the sequence `seq`, or the first one if `seq` is 0;
 * NULL: it is not on the list. */
struct message *ready_take(struct ready *r, uint64_t seq);
static inline unsigned ready_waiting(const struct ready *r)
{
    return atomic_load(&r->waiting);
}
/* Return true if the list is empty, or was a moment ago. */
static inline bool ready_empty(const struct ready *r)
{
    return atomic_load_explicit(&r->waiting, memory_order_relaxed) == 0;
}

#define SPIN_NS   (10 * NS_PER_US)
#define SPIN_VAIN 4
#define SPIN_SKIP 64

struct spin {
    unsigned tries;    /* of an empty queue since the last message */
    unsigned left;     /* spins that may fail before most are skipped */
    unsigned skipped;  /* empty queues since `left` became 0 */
    uint64_t since_ns; /* time of the first try */
};

/* Return true if a queue that was just found empty should be tried again. */
static inline bool spin_begin(struct spin *s)
{
    return s->tries > 0 || s->left > 0 || ++s->skipped % SPIN_SKIP == 0;
}
/* Register one more try, after a short pause. Returns false once SPIN_NS has
 * passed without a message. */
bool spin_on(struct spin *s, uint64_t now_ns);
/* Begin a new batch. */
static inline void spin_reset(struct spin *s)
{
    s->tries = 0;
}
/* Register a message. If the queue was tried again before it came, the spin has
 * paid off, and more spins may fail. */
static inline void spin_hit(struct spin *s)
{
    if (s->tries == 0)
        return;
    s->left = SPIN_VAIN;
    s->tries = 0;
}

#endif
