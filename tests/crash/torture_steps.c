/* torture_steps.c - a kill at every user instruction from the return of one
 * receive to the next (see torture.h)
 *
 * Each worker delivers at full speed, is stopped as a message has been
 * received, and is killed after one instruction more than the last one. Which
 * path the message takes is up to it and to what else happens, so the last
 * instruction is not at the same number each time: the end is where some in a
 * row came to the next receive. With --failures or --mixed messages the paths
 * are many, and no single one is covered whole.
 */
#include <inttypes.h>
#include <stdio.h>

#include "common/text/term_progress.h"
#include "tests/crash/torture.h"
#include "tests/crash/torture_feed.h"
#include "tests/crash/torture_tracer.h"

#define LEG   100  /* kills between two audits */
#define ENDS  8    /* in a row that came to the next receive */
#define NTH   24   /* message after the tracer: the lane is full, all is warm */
#define GUESS 6000 /* instructions, for the progress that is shown */

/* What came of the whole. */
struct steps {
    uint64_t shortest, longest; /* way to the next receive */
    uint64_t kills;
    unsigned ends; /* in a row */
};

/* kill_after - a worker's life: k instructions after a receive; false: there is
 * nothing more to be done */
static bool kill_after(struct torture *t, struct steps *s, uint64_t k)
{
    static const char *const one[] = {"-c", "1", NULL};
    struct tracer tr;
    uint64_t steps;
    bool again;

    worker_start(t, NULL, one);
    if (!worker_delivers(t))
        return false;
    switch (tracer_catch(&tr, t->worker.pid, NTH)) {
    case TRACER_REFUSED:
        t->refused = true;
        worker_kill(t);
        return false;
    case TRACER_ENDED:
        fprintf(stderr, "torture: the worker ended while it was traced\n");
        worker_kill(t);
        t->failed = true;
        return false;
    case TRACER_NOTHING:
        worker_kill(t); /* the same number once more */
        return true;
    case TRACER_CAUGHT:
        break;
    }
    steps = tracer_step(&tr, k, &again);
    tracer_kill(&tr);
    t->worker.pid = 0;
    t->sum.kills++;
    s->kills++;
    s->ends = again ? s->ends + 1 : 0;
    if (again && (s->shortest == 0 || steps < s->shortest))
        s->shortest = steps;
    if (again && steps > s->longest)
        s->longest = steps;
    return true;
}

/* steps_tell - the run has come to its end */
static void steps_tell(const struct torture *t, const struct steps *s,
                       uint64_t last)
{
    printf("%" PRIu64 " kills, each %" PRIu64 " instruction%s from %" PRIu64
           " to %" PRIu64 " after a receive",
           s->kills, t->options->stride, t->options->stride == 1 ? "" : "s",
           t->options->from, last);
    if (s->longest)
        printf("; the next receive came after %" PRIu64 " to %" PRIu64,
               s->shortest, s->longest);
    putchar('\n');
}

void steps_run(struct torture *t)
{
    struct steps s = {.shortest = 0};
    struct term_progress bar;
    uint64_t k = t->options->from;

    term_progress_start(&bar, "stepping", GUESS / t->options->stride);
    feed_start(t->world, t->queue);
    while (s.ends < ENDS && s.kills < t->options->kills && !torture_over(t) &&
           kill_after(t, &s, k)) {
        if (s.kills && (s.kills % LEG == 0 || feed_spent(t->world)) &&
            !leg_end(t))
            break;
        k = t->options->from + s.kills * t->options->stride;
        term_progress_step(&bar, s.kills);
    }
    term_progress_end(&bar);
    if (!t->failed && !t->refused)
        leg_end(t);
    steps_tell(t, &s, k);
}
