/* steering.c - see steering.h */
#include "worker/operate/steering.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/basics.h"
#include "worker/flow/settle.h"

/* c = constant after begin   j = the job's until it is over   a = atomic */
struct steering {
    struct pool_job job;
    struct flow *flow;                /* c */
    struct steering_end end;          /* c */
    enum steer what;                  /* c */
    int64_t numbers[STEER_MOST];      /* c */
    bool lent;                        /* c  the only number is a sequence */
    char key[HEADER_VALUE_MAX];       /* c  of its group */
    size_t key_size;                  /* c  0: it has none */
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

/* steer_lent - the one that is named */
static int steer_lent(struct steering *s)
{
    struct header_text key = {.at = s->key_size ? s->key : NULL,
                              .size = s->key_size};
    int err = settle_cancel(s->flow, key, (uint64_t)s->numbers[0]);

    s->results[0] = err ? STEERED_IN_FLIGHT : STEERED;
    return err == -EAGAIN ? 0 : err;
}

/* steer_job - `end` is told before the job lets go: it outlives the pool */
static void steer_job(struct pool_job *job)
{
    struct steering *s = CONTAINER_OF(job, struct steering, job);
    struct source *source = s->flow->source;

    s->err = s->lent ? steer_lent(s)
                     : source->local->steer(source, s->what, s->numbers,
                                            s->count, s->results);
    atomic_store(&s->over, true);
    s->end.over(s->end.arg);
    unuse(s);
}

/* begin - the job, of which `s` has the rest; NULL: no memory for that */
static int begin(struct steering **out, struct steering *s, struct flow *f,
                 const struct steering_end *end)
{
    int err;

    *out = NULL;
    if (!s)
        return -ENOMEM;
    s->flow = f;
    s->end = *end;
    s->job.run = steer_job;
    atomic_init(&s->users, 2);
    err = pool_submit(f->pool, &s->job);
    if (err)
        free(s);
    else
        *out = s;
    return err;
}

int steering_begin(struct steering **out, struct flow *f, enum steer what,
                   const int64_t *numbers, size_t n,
                   const struct steering_end *end)
{
    struct steering *s = calloc(1, sizeof *s);

    if (s) {
        s->what = what;
        s->count = n;
        memcpy(s->numbers, numbers, n * sizeof *numbers);
    }
    return begin(out, s, f, end);
}

int steering_begin_lent(struct steering **out, struct flow *f, uint64_t seq,
                        struct header_text key, const struct steering_end *end)
{
    struct steering *s = calloc(1, sizeof *s);

    if (s) {
        s->lent = true;
        s->count = 1;
        s->numbers[0] = (int64_t)seq;
        s->key_size = key.size;
        memcpy(s->key, key.at ? key.at : "", key.size);
    }
    return begin(out, s, f, end);
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
