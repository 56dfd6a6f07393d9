/* chore.h - a small job beside the loop that is repeated if it fails
 *
 * WHAT   A job of the pool with a timer. It runs when a thread asks for it, one
 *        run at a time; a request during a run leads to another run. After a
 *        failure it runs again by itself, after a wait that doubles; `tell` is
 *        called once for each kind of failure, and once for its end.
 * WHO    soon, after: any thread. chore_run: the engine's thread, while no
 *        other thread asks for a run. quiet: the loop. stop: any thread but
 *        that of a run. `run`, `tell`: a pool thread, or that of chore_run.
 * OWNS   Its timer and its job; it is embedded in the caller's struct.
 * FAILS  Never: without a thread, the timer tries again.
 */
#ifndef WORKER_LOOP_CHORE_H
#define WORKER_LOOP_CHORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/pool.h"
#include "worker/loop/timers.h"

/* c = constant after init   a = atomic   r = the run's */
struct chore {
    int (*run)(struct chore *chore); /* c  returns 0 or -errno */
    /* c  Called if the result differs from the last run's. May be NULL. */
    void (*tell)(struct chore *chore, int err);
    uint64_t first_ns, most_ns; /* c  first and longest wait after failures */
    struct timers *timers;      /* c  set before the first use, as `pool` */
    struct pool **pool;         /* c */
    struct timer timer;
    struct pool_job job;
    atomic_uint asked; /* a  open requests; > 0: it is queued, or running */
    int err;           /* r  result of the last run */
    uint64_t wait_ns;  /* r  wait before the next run; 0: none */
};

/* Initialize a chore whose `run` and waits are set; the rest may be 0. */
void chore_init(struct chore *c);
/* Run as soon as a thread has time. */
void chore_soon(struct chore *c);
/* Run at the latest `ns` from now. */
void chore_after(struct chore *c, uint64_t ns);
/* Run in this thread, now. */
void chore_run(struct chore *c);
/* Cancel the timer. Returns true if no run is queued or running. Called in the
 * loop, so no timer starts a run until the loop continues. */
static inline bool chore_quiet(struct chore *c)
{
    timers_cancel(c->timers, &c->timer);
    return atomic_load(&c->asked) == 0;
}
/* Wait for the end of a run, and let no other run begin. */
void chore_stop(struct chore *c);

#endif
