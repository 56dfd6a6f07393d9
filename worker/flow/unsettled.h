/* unsettled.h - verdicts that could not be written
 *
 * WHAT   Keeps a verdict, with copies of all it points to, while the store
 *        cannot be written (disk full); nothing is taken meanwhile; a timer
 *        tries again.
 * WHO    keep: pool threads. init, fini: the engine.
 * OWNS   The slots of these verdicts.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_FLOW_UNSETTLED_H
#define WORKER_FLOW_UNSETTLED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "worker/loop/pool.h"
#include "worker/loop/timers.h"

struct flow;
struct op;
struct slot;
struct unsettled_verdict;

/* c = constant after init   a = atomic   m = under mtx */
struct unsettled {
    struct flow *flow;    /* c */
    atomic_uint count;    /* a  verdicts that wait */
    atomic_bool flushing; /* a  the job is submitted, or runs */
    struct pool_job job;  /* tries again */
    struct timer timer;
    pthread_mutex_t mtx;
    STAILQ_HEAD(, unsettled_verdict) list; /* m */
    uint64_t wait_ns;                      /* m  until the next try */
};

void unsettled_init(struct unsettled *u, struct flow *f);
/* It could not be written: `err`. The slot is this part's from here on. */
void unsettled_keep(struct unsettled *u, struct slot *slot, const struct op *op,
                    int err);
static inline unsigned unsettled_count(const struct unsettled *u)
{
    return atomic_load(&u->count);
}
/* The loop: nothing is tried again until it returns from its callback. True:
 * nor is it just now. */
bool unsettled_quiet(struct unsettled *u);
/* At the end: one last try. */
void unsettled_fini(struct unsettled *u);

#endif
