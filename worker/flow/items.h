/* items.h - the work items that there are, and when one starts
 *
 * WHAT   A work item is made when more run at once than ever before, and is
 *        kept until the end. The list of all items, of those without work, and
 *        of those that would take one more message; and what they did so far.
 *        When something may have changed (schedule_wake), one more item starts,
 *        or an item that has room takes one more message, or peek mode begins;
 *        gate.h says whether one may run.
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
    uint64_t seen; /* deliveries at the last quiet round; the loop's */
    pthread_mutex_t mtx;
    LIST_HEAD(, work_item) all;     /* m  all that were ever made */
    unsigned made;                  /* m  their number, up to ITEMS_MAX */
    LIST_HEAD(, work_item) spare;   /* m  items without work */
    LIST_HEAD(, work_item) wanting; /* m  items that wait and would take more */
};

/* `guess_ns`: the time of a handler before one has been measured. */
void items_init(struct items *it, uint64_t guess_ns);
void items_fini(struct items *it); /* nothing runs any more */

/* Get a spare item, or a new one. */
int items_get(struct items *it, struct flow *f, struct work_item **out);
/* Give the item its block of counters, which may allocate: called by the thread
 * that runs the item, and not by the loop. */
void items_count(struct items *it, struct work_item *item);
/* Put an item that has no work away. Called before it is counted out, so that a
 * thread that counts itself in finds it. */
void items_put(struct items *it, struct work_item *item);
/* Return true if another item also takes quick messages. An item inside a slow
 * handler does not. */
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
    /* One handler's share of the mean; the most it counts, in means. */
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
/* Wake the item that began to wait last; false: none does. */
bool items_wake_one(struct items *it,
                    void (*wake)(struct coprocess *coprocess));
/* Wake all items that have a coprocess. */
void items_wake_all(struct items *it,
                    void (*wake)(struct coprocess *coprocess));
void items_coprocess_set(struct items *it, struct work_item *item,
                         struct coprocess *coprocess);

/* ---- when one starts ---- */

/* Start a work item, or peek, after something changed. */
void schedule_wake(struct flow *f);
/* Start one more work item, or let one that keeps several deliveries open take
 * one more; false if there is no room. */
bool schedule_start(struct flow *f);

/* Return why nothing is taken from the queue. Called by the loop. */
enum gate_why schedule_why(struct flow *f);

/* Return how long the loop may wait for its next event, in ms; -1: no limit. */
int schedule_wait_ms(struct flow *f);
/* Handle a wait of the loop that ended without an event. */
void schedule_quiet(struct flow *f);

#endif
