/* cap.h - how many work items may run, changed while they do
 *
 * WHAT   Room in the source, threads, then the cap. That room is made by a pool
 *        job, as it may wait for a disk.
 * WHO    The loop.
 * OWNS   Its job and timer.
 * FAILS  A problem: the slots cannot be had; the cap stays as it was.
 */
#ifndef WORKER_OPERATE_CAP_H
#define WORKER_OPERATE_CAP_H

#include <stdbool.h>

#include "common/base/problem.h"
#include "worker/loop/pool.h"
#include "worker/loop/timers.h"

/* Threads beside those of the cap: one each that waits for the queue, writes
 * verdicts again, moves letters, lets groups go on, counts the store, writes
 * the store again, adds slots, looks whether the worker is idle, steers
 * messages, saves a pause, checks the store, follows the clock, empties the
 * -wal. */
#define SPARE_THREADS 13

struct flow;
struct settings;

/* l = in the loop only   j = the job's while flow->growing
 * c = constant after init */
struct cap {
    struct flow *flow;     /* c */
    struct settings *live; /* c */
    void (*over)(
        void *arg); /* c  slots were added, or could not be. May be NULL */
    void *arg;      /* c */
    struct pool_job job;
    struct timer timer; /* fires when the job is over */
    bool busy;        /* l  the job was submitted, and `timer` has not fired */
    unsigned growing; /* j  the cap that it makes room for */
    unsigned failed;  /* l  the last cap without room for its slots; 0: none */
    unsigned later;   /* l  to be set when the job is over; 0: none */
    struct problem problem; /* j  of `failed` */
};

void cap_init(struct cap *c, struct flow *f, struct settings *live);
/* Make room for `cap`: 0 there is, or -EINPROGRESS: `over` is called, then
 * ask again; or a problem. */
int cap_ready(struct cap *c, unsigned cap, struct problem *p);
/* Set it: 0, or -EINPROGRESS: it is set as soon as there is room, and trouble
 * is logged; or a problem. */
int cap_set(struct cap *c, unsigned cap, struct problem *p);
/* Some more or fewer; trouble is logged. */
void cap_change(struct cap *c, int change);

#endif
