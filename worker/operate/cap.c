/* cap.c - how many work items may run, changed while they do (see cap.h) */
#include "worker/operate/cap.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/config/settings.h"
#include "worker/flow/flow.h"

/* grow_job - `growing` is cleared last: a thread that reads false sees all new
 * slots */
static void grow_job(struct pool_job *job)
{
    struct cap *c = CONTAINER_OF(job, struct cap, job);
    struct flow *f = c->flow;

    if (f->source->ops->resize(f->source, slots_for(f->set, c->growing),
                               &c->problem) == 0)
        c->growing = 0;
    atomic_store(&f->growing, false);
    timers_start(f->timers, &c->timer, clock_mono_ns());
}

/* grow - start the job */
static int grow(struct cap *c, unsigned cap, struct problem *p)
{
    struct flow *f = c->flow;
    int err;

    c->busy = true;
    c->growing = cap;
    c->failed = 0;
    atomic_store(&f->growing, true);
    err = pool_submit(f->pool, &c->job);
    if (!err)
        return -EINPROGRESS;
    c->busy = false;
    atomic_store(&f->growing, false);
    return problem_set(p, EX_OSERR, -err, "cannot start a thread: %s",
                       errno_text(-err));
}

int cap_ready(struct cap *c, unsigned cap, struct problem *p)
{
    struct flow *f = c->flow;

    if (c->busy)
        return -EINPROGRESS;
    if (slots_for(f->set, cap) <= f->source->ops->lent(f->source))
        return 0;
    if (c->failed != cap)
        return grow(c, cap, p);
    c->failed = 0; /* the next request tries again */
    if (p)
        *p = c->problem;
    return -ENOSPC;
}

/* apply - there are slots for it */
static void apply(struct cap *c, unsigned cap)
{
    struct flow *f = c->flow;
    unsigned old = gate_cap(&f->gate);

    pool_resize(f->pool, cap + SPARE_THREADS);
    c->live->concurrency = cap;
    gate_set_cap(&f->gate, cap);
    f->source->ops->tuned(f->source); /* how much it fetches depends on it */
    if (f->ops->coprocesses &&
        cap < old) /* an item that waits for its child keeps a place */
        items_wake_all(&f->items, f->ops->coprocesses->wake);
    dirty_state(&f->dirty);
    log_info("max_concurrency", F_UINT("old", old), F_UINT("new", cap));
    gate_changed(&f->gate);
}

int cap_set(struct cap *c, unsigned cap, struct problem *p)
{
    int err = cap_ready(c, cap, p);

    c->later = err == -EINPROGRESS ? cap : 0; /* the last order counts */
    if (!err)
        apply(c, cap);
    return err;
}

/* set_or_tell - nobody waits for an answer: trouble goes to the log */
static void set_or_tell(struct cap *c, unsigned cap)
{
    struct problem p;
    int err = cap_set(c, cap, &p);

    if (err && err != -EINPROGRESS)
        log_error("cap_not_raised", F_STR("error", p.text));
}

/* grown - the job is over; the first in line that waits for it */
static void grown(struct timer *timer)
{
    struct cap *c = CONTAINER_OF(timer, struct cap, timer);
    unsigned later = c->later;

    c->busy = false;
    c->failed = c->growing;
    c->later = 0;
    if (later)
        set_or_tell(c, later);
    if (c->over)
        c->over(c->arg);
}

void cap_change(struct cap *c, int change)
{
    unsigned now = c->later ? c->later : gate_cap(&c->flow->gate);
    unsigned want = now + (unsigned)change;

    if (want >= 1 && want <= CONCURRENCY_MAX)
        set_or_tell(c, want);
}

void cap_init(struct cap *c, struct flow *f, struct settings *live)
{
    c->flow = f;
    c->live = live;
    c->job.run = grow_job;
    timer_init(&c->timer, grown);
}
