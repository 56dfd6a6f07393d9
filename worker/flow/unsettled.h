/* unsettled.h - verdicts that are not durable yet
 *
 * WHAT   A verdict that the source refused (a full disk) is kept, with copies
 *        of what it points to, and given again, in order, after a delay that
 *        doubles; nothing more is taken meanwhile (HOLD_STORE). A verdict that
 *        is on its way (SOURCE_ASYNC) is kept until the source says how it
 *        went.
 * WHO    keep, late, settled: any thread. quiet: the loop. init, fini: the
 *        engine.
 * OWNS   What it keeps; the messages are lent still.
 * FAILS  Never; without memory the message is first in line again.
 */
#ifndef WORKER_FLOW_UNSETTLED_H
#define WORKER_FLOW_UNSETTLED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <bsd/sys/queue.h>

#include "worker/loop/pool.h"
#include "worker/loop/timers.h"

struct decision;
struct flow;
struct settle;
struct unsettled_verdict;

/* c = constant after init   a = atomic   m = under mtx */
struct unsettled {
    struct flow *flow;    /* c */
    atomic_uint count;    /* a  verdicts that wait, or are on their way */
    atomic_bool flushing; /* a  the job is submitted, or runs */
    struct pool_job job;  /* tries again */
    struct timer timer;
    pthread_mutex_t mtx;
    STAILQ_HEAD(, unsettled_verdict) list; /* m  those that wait */
    bool trying;      /* m  the first of them is off the list, and given */
    uint64_t wait_ns; /* m  until the next try */
};

void unsettled_init(struct unsettled *u, struct flow *f);
/* The source refused it: `err`. The message is this part's from here on. */
void unsettled_keep(struct unsettled *u, const struct decision *dec, int err);
/* Give it to a source that may settle late. */
void unsettled_late(struct unsettled *u, const struct decision *dec);
/* The source's event of that name. */
void unsettled_settled(struct unsettled *u, struct settle *s);
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
