/* items.h - all work items, and when another item starts
 *
 * WHAT   A work item is a job of the thread pool: it takes messages and runs
 *        their handlers (receive.h). An item is made when more items run than
 *        ever before, and is kept until the worker ends. This file has the
 *        lists of all items, of items without work, and of items that would
 *        take one more message; and sums over all items.
 *        schedule_wake is called when something may have changed. It starts one
 *        more item if the gate has room, or has an item with room take one more
 *        message, or begins to wait for the queue (peek mode).
 * WHO    init, fini: the engine. schedule_why, wait_ms, quiet: the loop. All
 *        others: any thread.
 * OWNS   The items.
 * FAILS  get: -ENOMEM. schedule_: trouble goes to gate_trouble.
 */
#ifndef WORKER_FLOW_ITEMS_H
#define WORKER_FLOW_ITEMS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "worker/flow/gate.h"

struct flow;
struct coprocess;
struct work_item; /* receive.h: one work item */

#define ITEMS_OTHERS_OVER (1u << 31)

/* a = atomic   m = under mtx   c = constant once the worker runs */
struct items {
    struct counters *counters; /* c */
    _Atomic uint64_t pace_ns;  /* a  moving mean of handler time */
    atomic_uint wants;         /* a  items on the wanting list */
    /* a  jobs that change a message which no work item has (settle_cancel);
     * ITEMS_OTHERS_OVER is set when no more may begin (keep_quiet) */
    atomic_uint others;
    uint64_t seen; /* deliveries at the last schedule_quiet; the loop's */
    pthread_mutex_t mtx;
    LIST_HEAD(, work_item) all;     /* m  all that were ever made */
    unsigned made;                  /* m  their number, up to ITEMS_MAX */
    LIST_HEAD(, work_item) spare;   /* m  items without work */
    LIST_HEAD(, work_item) wanting; /* m  items that wait and would take more */
};

/* `guess_ns`: the time of a handler before one has been measured. */
void items_init(struct items *it, uint64_t guess_ns);
void items_fini(struct items *it); /* after all threads have ended */

/* Get a spare item, or a new one. */
int items_get(struct items *it, struct flow *f, struct work_item **out);
/* Give the item its block of counters, which may allocate: called by the thread
 * that runs the item, and not by the loop. */
void items_count(struct items *it, struct work_item *item);
/* Put away an item that has no work. Called before gate_leave, so that a thread
 * that gate_enter then lets in finds the item. */
void items_put(struct items *it, struct work_item *item);
/* Return true if another item also takes quick messages. An item inside a slow
 * handler does not count. */
bool items_contended(struct items *it, const struct work_item *item);
/* Below this mean, one thread is enough for all handlers (receive.c). */
#define ITEMS_QUICK_NS 3000
static inline bool items_quick(const struct items *it)
{
    return atomic_load_explicit(&it->pace_ns, memory_order_relaxed) <
           ITEMS_QUICK_NS;
}
/* Add a handler's time to the moving mean, which decides how many threads pay
 * off. A single handler that was interrupted counts as a few times the mean:
 * otherwise the next dozen messages would be treated as slow ones, and go
 * through two more threads. */
static inline void items_pace(struct items *it, uint64_t took)
{
    /* The mean moves by 1/PART of the difference. A handler counts as at
     * most STEP means plus 1 us. */
    enum { PART = 8, STEP = 4 };
    uint64_t mean = atomic_load_explicit(&it->pace_ns, memory_order_relaxed);

    if (took > STEP * mean + 1000)
        took = STEP * mean + 1000;
    atomic_store_explicit(&it->pace_ns, mean - mean / PART + took / PART,
                          memory_order_relaxed);
}

/* Sums over all items. */
struct items_stats {
    uint64_t deliveries; /* handlers started */
    uint64_t ended;      /* handlers that ended */
    uint64_t took_ns;    /* their time together */
    uint64_t longest_ns;
};
void items_stats(struct items *it, struct items_stats *out);

/* Put an item that waits for its coprocess on the list of items that would take
 * one more message, and take it off again. */
void items_want(struct items *it, struct work_item *item);
void items_unwant(struct items *it, struct work_item *item);
/* Wake the item that began to wait last; false: no item waits. */
bool items_wake_one(struct items *it,
                    void (*wake)(struct coprocess *coprocess));
/* Wake all items that have a coprocess. */
void items_wake_all(struct items *it,
                    void (*wake)(struct coprocess *coprocess));
void items_coprocess_set(struct items *it, struct work_item *item,
                         struct coprocess *coprocess);

/* ---- when an item starts ---- */

/* Start a work item, or enter peek mode. Called after each change of a reason
 * not to take messages, and by a work item that has counted itself out. */
void schedule_wake(struct flow *f);
/* Start one more work item, or let an item with open deliveries take one more
 * message. Returns false if there is no room. */
bool schedule_start(struct flow *f);

/* Return why nothing is taken from the queue. Called by the loop. */
enum gate_why schedule_why(struct flow *f);

/* Return how long the loop may wait for its next event, in ms; -1: no limit. */
int schedule_wait_ms(struct flow *f);
/* Handle a wait of the loop that ended without an event. */
void schedule_quiet(struct flow *f);

#endif
