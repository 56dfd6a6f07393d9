/* chore.h - something small that is done beside the loop, and again if it fails
 *
 * WHAT   A job of the pool with a timer. It runs when a thread asks for it, one
 *        run at a time; a request during a run leads to another run. After
 *        trouble it runs again by itself, after a wait that doubles; each kind
 *        of trouble is told once, and so is its end.
 * WHO    soon, after: any thread. run: the engine's thread, while no other
 *        thread asks. quiet: the loop. stop: any thread but that of a run.
 * OWNS   Its timer and its job; it is embedded in the caller's struct.
 * FAILS  Never: where no thread can be had, the timer tries again.
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
    int (*run)(struct chore *chore); /* c  0, or -errno: trouble */
    /* c  The trouble is another one than before; 0: it is over. May be NULL. */
    void (*tell)(struct chore *chore, int err);
    uint64_t first_ns, most_ns; /* c  the wait after trouble */
    struct timers *timers;      /* c  set before the first use, as `pool` */
    struct pool **pool;         /* c */
    struct timer timer;
    struct pool_job job;
    atomic_uint asked; /* a  open requests; > 0: it is queued, or runs */
    int err;           /* r  of the last run */
    uint64_t wait_ns;  /* r  before the next; 0: no trouble */
};

/* `run` and the waits are set, the rest is 0. */
void chore_init(struct chore *c);
/* Run as soon as a thread has time. */
void chore_soon(struct chore *c);
/* Run at the latest `ns` from now. */
void chore_after(struct chore *c, uint64_t ns);
/* Run in this thread, now. */
void chore_run(struct chore *c);
/* In the loop, whose timer fires nowhere else: none begins before this callback
 * of it returns. True: and none is queued or under way. */
bool chore_quiet(struct chore *c);
/* No run is under way on return, and none begins any more. */
void chore_stop(struct chore *c);

#endif
