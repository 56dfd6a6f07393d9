/* steering.c - see steering.h */
#include "worker/operate/steering.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/container.h"

/* c = constant after begin   j = the job's until it is over   a = atomic */
struct steering {
    struct pool_job job;
    struct flow *flow;                /* c */
    struct steering_end end;          /* c */
    enum steer what;                  /* c */
    int64_t numbers[STEER_MOST];      /* c */
    size_t count;                     /* c */
    enum steered results[STEER_MOST]; /* j */
    int err;                          /* j */
    atomic_bool over;  /* a  released when results and err are there */
    atomic_uint users; /* a  the loop, the job */
};

/* unuse - the last one frees it */
static void unuse(struct steering *s)
{
    if (atomic_fetch_sub(&s->users, 1) == 1)
        free(s);
}

/* steer_job - `end` is told before the job lets go: it outlives the pool */
static void steer_job(struct pool_job *job)
{
    struct steering *s = CONTAINER_OF(job, struct steering, job);
    struct source *source = s->flow->source;

    s->err =
        source->ops->steer(source, s->what, s->numbers, s->count, s->results);
    atomic_store(&s->over, true);
    s->end.over(s->end.arg);
    unuse(s);
}

int steering_begin(struct steering **out, struct flow *f, enum steer what,
                   const int64_t *numbers, size_t n,
                   const struct steering_end *end)
{
    struct steering *s = calloc(1, sizeof *s);
    int err;

    *out = NULL;
    if (!s)
        return -ENOMEM;
    s->flow = f;
    s->end = *end;
    s->what = what;
    s->count = n;
    memcpy(s->numbers, numbers, n * sizeof *numbers);
    s->job.run = steer_job;
    atomic_init(&s->users, 2);
    err = pool_submit(f->pool, &s->job);
    if (err)
        free(s);
    else
        *out = s;
    return err;
}

bool steering_is_over(const struct steering *s)
{
    return atomic_load(&s->over);
}

int steering_results(const struct steering *s, const enum steered **out,
                     size_t *n)
{
    *out = s->results;
    *n = s->err ? 0 : s->count;
    return s->err;
}

void steering_drop(struct steering **s)
{
    if (*s)
        unuse(*s);
    *s = NULL;
}
