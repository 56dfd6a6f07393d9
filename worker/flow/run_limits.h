/* run_limits.h - runs that end by themselves
 *
 * WHAT   --run-for, --exit-when-idle, --max-deliveries: when to take no more.
 *        For cron and timers; BOUNDED RUNS in docs/mqworker.8. Whether --rate
 *        lets one be taken is asked here, too.
 * WHO    take, untake, busy, left: pool threads. start: the engine.
 * OWNS   Two timers. Costs nothing where no bound was asked for.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_RUN_LIMITS_H
#define WORKER_FLOW_RUN_LIMITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/chore.h"

struct flow;

/* c = constant after start   a = atomic */
struct run_limits {
    uint64_t started_ns;         /* c  monotonic */
    uint64_t end_ns;             /* c  UINT64_MAX: no end */
    uint64_t max_deliveries;     /* c  UINT64_MAX: no bound */
    bool idle_ends;              /* c */
    uint64_t idle_ns;            /* c */
    _Atomic uint64_t tickets;    /* a  deliveries made or about to be made */
    _Atomic uint64_t idle_since; /* a  monotonic; grows: last run_limits_busy */
    unsigned unread;   /* of idle: looks in a row at a store that failed */
    struct chore idle; /* looks whether nothing is left to do */
    struct timer end_timer;
};

void run_limits_init(struct flow *f);
void run_limits_start(struct flow *f);
/* May one more message be taken? It counts as a delivery until untaken. */
bool run_limits_take(struct flow *f);
/* Nothing was there, or it was not delivered. */
void run_limits_untake(struct flow *f);
/* A message came, or a delivery has ended, in a work item that still counts. A
 * try that found none is no work, nor is one that failed. */
void run_limits_busy(struct flow *f);
/* A work item has left. */
void run_limits_left(struct flow *f);

#endif
