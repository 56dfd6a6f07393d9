/* ready.h - messages that wait for a thread
 *
 * WHAT   A list of messages that are lent: recovered, or given back as the
 *        handler could not be started. They go before anything that is taken.
 * WHO    init, fini: the engine. put, take, pull: any thread.
 * OWNS   Nothing; it links the messages by their own field.
 * FAILS  Never.
 */
#ifndef WORKER_GATE_READY_H
#define WORKER_GATE_READY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "worker/rules/attention.h"
#include "worker/rules/message.h"

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

#endif
