/* ready.h - messages in slots that wait for a thread
 *
 * WHAT   A list of HELD slots: recovered, or given back as the handler could
 *        not be started. They go before anything that is taken anew.
 * WHO    open, close: the engine. put, take: any thread.
 * OWNS   The slots on the list.
 * FAILS  open: -ENOMEM.
 */
#ifndef WORKER_FLOW_READY_H
#define WORKER_FLOW_READY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <bsd/sys/queue.h>

struct custody;
struct slot;

/* A slot's place on the list; one for each slot. */
struct ready_slot {
    STAILQ_ENTRY(ready_slot) link;
    struct slot *slot;
};

/* c = constant after open   a = atomic   m = under mtx */
struct ready {
    const struct custody *custody; /* c */
    struct ready_slot *of;         /* c  m: its members; by slot index */
    atomic_uint waiting;           /* a  how many are on the list */
    pthread_mutex_t mtx;
    STAILQ_HEAD(, ready_slot) slots; /* m  in receive order */
};

int ready_open(struct ready *r, const struct custody *custody);
void ready_close(struct ready *r); /* also one that was not opened */
/* `front`: it was first in line. */
void ready_put(struct ready *r, struct slot *slot, bool front);
/* The first; NULL: none. */
struct slot *ready_take(struct ready *r);
/* How many wait. */
static inline unsigned ready_waiting(const struct ready *r)
{
    return atomic_load(&r->waiting);
}
/* The same for the hot path: it may be a moment old. */
static inline bool ready_empty(const struct ready *r)
{
    return atomic_load_explicit(&r->waiting, memory_order_relaxed) == 0;
}

#endif
