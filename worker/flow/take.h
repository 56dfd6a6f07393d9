/* take.h - taking the next message: the list of those that are ready, the lock,
 * and how long an empty queue is tried
 *
 * WHAT   The ready list: messages that are lent and wait for a thread, because
 *        they were recovered, or given back as the handler could not be started.
 *        They go before anything that is taken from the source.
 *        The lock under which work items take messages: a thread that finds it
 *        taken tries again for some microseconds before it sleeps.
 *        Spinning: going to sleep and being woken costs both sides some
 *        microseconds, so an empty queue is tried again for SPIN_NS, while that
 *        pays: after SPIN_VAIN times in vain, only one empty queue in SPIN_SKIP
 *        is. This saves the thread switch for each message of a sender that
 *        runs on another processor.
 * WHO    init, fini: the engine. spin: the thread that receives, each with a
 *        struct of its own, all 0 at first. All others: any thread.
 * OWNS   The ready list links the messages by their own field.
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

/* ---- messages that are ready ---- */

/* a = atomic   m = under mtx   c = constant after init */
struct ready {
    struct attention *attention; /* c  ATTEND_READY is ours, under mtx */
    atomic_uint waiting;         /* a  how many are on the list */
    pthread_mutex_t mtx;
    STAILQ_HEAD(, message) list; /* m  in the order of the source */
};

void ready_init(struct ready *r, struct attention *attention);
void ready_fini(struct ready *r);
/* `front`: it was first in line. */
void ready_put(struct ready *r, struct message *m, bool front);
/* The first; NULL: none. */
struct message *ready_take(struct ready *r);
/* The one with that sequence; NULL: it does not wait here. */
struct message *ready_pull(struct ready *r, uint64_t seq);
/* How many wait. */
static inline unsigned ready_waiting(const struct ready *r)
{
    return atomic_load(&r->waiting);
}
/* The same where it may be a moment old. */
static inline bool ready_empty(const struct ready *r)
{
    return atomic_load_explicit(&r->waiting, memory_order_relaxed) == 0;
}

/* ---- one work item takes at a time ---- */

/* a = atomic */
struct solo {
    pthread_mutex_t mtx;
    atomic_uint vain; /* a  waits in a row in which the tries were in vain */
};

void solo_init(struct solo *s);
void solo_fini(struct solo *s);
/* Not inline: a thread that finds the lock free leaves the caller's frame
 * small. */
__attribute__((noinline)) void solo_wait(struct solo *s);
static inline void solo_lock(struct solo *s)
{
    if (pthread_mutex_trylock(&s->mtx) != 0)
        solo_wait(s);
}
static inline void solo_unlock(struct solo *s)
{
    pthread_mutex_unlock(&s->mtx);
}

/* ---- whether an empty queue is tried again at once ---- */

#define SPIN_NS   (10 * NS_PER_US)
#define SPIN_VAIN 4
#define SPIN_SKIP 64

struct spin {
    unsigned tries;    /* of an empty queue since the last message */
    unsigned left;     /* how often it may be in vain still */
    unsigned skipped;  /* empty queues, since none is left */
    uint64_t since_ns; /* the first of the tries */
};

/* The queue is empty: false, it is not worth a try now. */
bool spin_begin(struct spin *s);
/* It is: the next try. False: the time is over, and it was in vain. */
bool spin_on(struct spin *s, uint64_t now_ns);

/* Between two tries: well under a microsecond, and no system call. */
void spin_pause(void);

/* A new batch. */
static inline void spin_reset(struct spin *s)
{
    s->tries = 0;
}
/* There is a message, which may have been waited for. */
static inline void spin_hit(struct spin *s)
{
    if (s->tries == 0)
        return;
    s->left = SPIN_VAIN;
    s->tries = 0;
}

#endif
