/* chore.c - a small job beside the loop (see chore.h) */
#include "worker/loop/chore.h"

#include <time.h>

#include "common/base/basics.h"
#include "common/base/clock.h"

/* Run the chore, and run it again if another thread has asked for that during
 * the run. */
static void job_run(struct pool_job *job)
{
    struct chore *c = CONTAINER_OF(job, struct chore, job);
    unsigned seen;

    do {
        int err;

        seen = atomic_load(&c->asked);
        timers_cancel(c->timers, &c->timer); /* this run replaces the timer's */
        err = c->run(c);
        if (c->tell && err != c->err)
            c->tell(c, err);
        c->err = err;
        c->wait_ns = !err ? 0 : c->wait_ns ? 2 * c->wait_ns : c->first_ns;
        if (c->wait_ns > c->most_ns)
            c->wait_ns = c->most_ns;
        if (err)
            chore_after(c, c->wait_ns);
    } while (!atomic_compare_exchange_strong(&c->asked, &seen, 0));
}

void chore_run(struct chore *c)
{
    if (atomic_fetch_add(&c->asked, 1) == 0)
        job_run(&c->job);
}

void chore_soon(struct chore *c)
{
    if (atomic_fetch_add(&c->asked, 1) > 0)
        return;
    if (*c->pool && pool_submit(*c->pool, &c->job) == 0)
        return;
    atomic_store(&c->asked, 0);
    chore_after(c, c->first_ns);
}

void chore_after(struct chore *c, uint64_t ns)
{
    timers_start_earlier(c->timers, &c->timer, ns_add(clock_mono_ns(), ns));
}

static void chore_due(struct timer *timer)
{
    chore_soon(CONTAINER_OF(timer, struct chore, timer));
}

/* The thread that moves `asked` from 0 has the right to run. This thread takes
 * that right and keeps it. */
void chore_stop(struct chore *c)
{
    const struct timespec tick = {.tv_nsec = NS_PER_MS};
    unsigned none = 0;

    while (!atomic_compare_exchange_strong(&c->asked, &none, 1)) {
        nanosleep(&tick, NULL);
        none = 0;
    }
    timers_cancel(c->timers, &c->timer);
}

void chore_init(struct chore *c)
{
    timer_init(&c->timer, chore_due);
    c->job.run = job_run;
}
