/* items.h - the work items that there are, and when one starts
 *
 * WHAT   A work item is made when one more runs at once than ever before, and
 *        kept until the end. Which of them have work, which would take one
 *        more message, what they did so far. Whenever something may have
 *        changed (schedule_wake): one more work item, one more message for an
 *        item that has room, or peek mode; gate.h says whether one may run.
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

struct counters;
struct flow;
struct coprocess;
struct receive; /* receive.h: one work item */

/* a = atomic   m = under mtx   c = constant once the worker runs */
struct items {
    struct counters *counters; /* c */
    _Atomic uint64_t pace_ns;  /* a  moving mean of handler time */
    atomic_uint wants;         /* a  items on the wanting list */
    uint64_t seen; /* deliveries at the last quiet round; the loop's */
    pthread_mutex_t mtx;
    LIST_HEAD(, receive) all;     /* m  all that were ever made */
    unsigned made;                /* m  never over ITEMS_MAX */
    unsigned others;              /* m  jobs that write to messages, too */
    bool over;                    /* m  no job begins any more */
    LIST_HEAD(, receive) spare;   /* m  those without work */
    LIST_HEAD(, receive) wanting; /* m  those that wait and would take more */
};

/* `guess_ns`: how long a handler takes before one has been measured. */
void items_init(struct items *it, uint64_t guess_ns);
void items_fini(struct items *it); /* nothing runs any more */

/* A spare item, or a new one: 0. */
int items_get(struct items *it, struct flow *f, struct receive **out);
/* Give it a place to count in, which may allocate: on the thread that runs it,
 * not in the loop. */
void items_count(struct items *it, struct receive *item);
/* It has no work; before it is counted out, so that a thread that counts itself
 * in finds it. */
void items_put(struct items *it, struct receive *item);
/* Around what a job does to a message, which no work item has; false: the
 * worker ends. */
bool items_other_begin(struct items *it);
void items_other_end(struct items *it);
/* The worker's last step: none of these begins any more. True: and none is at
 * work. */
bool items_others_over(struct items *it);
/* Whether another thread than that of `item` is as quick as this one. */
bool items_contended(struct items *it, const struct receive *item);
/* Handlers are quick: one thread is enough for them (receive.c). */
#define ITEMS_QUICK_NS 3000
static inline bool items_quick(const struct items *it)
{
    return atomic_load_explicit(&it->pace_ns, memory_order_relaxed) <
           ITEMS_QUICK_NS;
}
/* A handler took so long. The moving mean decides how many threads pay off. One
 * that was interrupted for once does not count as slow: with that, the next
 * dozen of messages would go the way of slow ones, over two more threads. */
static inline void items_pace(struct items *it, uint64_t took)
{
    /* One handler's share of the mean; how often the mean it counts at most. */
    enum { PART = 8, STEP = 4 };
    uint64_t mean = atomic_load_explicit(&it->pace_ns, memory_order_relaxed);

    if (took > STEP * mean + 1000)
        took = STEP * mean + 1000;
    atomic_store_explicit(&it->pace_ns, mean - mean / PART + took / PART,
                          memory_order_relaxed);
}

/* What all of them did so far. */
struct items_stats {
    uint64_t deliveries; /* handlers started */
    uint64_t ended;      /* of these */
    uint64_t took_ns;    /* they, together */
    uint64_t longest_ns;
};
void items_stats(struct items *it, struct items_stats *out);

/* An item that waits for its coprocess would take one more message: on and off
 * the list of these. */
void items_want(struct items *it, struct receive *item);
void items_unwant(struct items *it, struct receive *item);
/* Wake the one that began to wait last; false: none does. */
bool items_wake_one(struct items *it,
                    void (*wake)(struct coprocess *coprocess));
/* Wake all that have a coprocess. */
void items_wake_all(struct items *it,
                    void (*wake)(struct coprocess *coprocess));
void items_coprocess_set(struct items *it, struct receive *item,
                         struct coprocess *coprocess);

/* ---- when one starts ---- */

/* Start a work item or peek. */
void schedule_wake(struct flow *f);
/* Start one more work item, or give one that keeps several deliveries open one
 * more; false if there is no room. */
bool schedule_start(struct flow *f);

/* Why nothing is taken from the queue; the loop. */
enum gate_why schedule_why(struct flow *f);

/* How long the loop may wait for its next event, ms; -1: no limit. */
int schedule_wait_ms(struct flow *f);
/* It waited that long, and nothing came. */
void schedule_quiet(struct flow *f);

#endif
