/* due_rows.c - stored messages that are due (see due_rows.h) */
#include "worker/source/mq/due_rows.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

#define BATCH 64

/* States of source->due (docs/design/machines.md). ASKING counts as due,
 * because the query may find a row: a thread that slept now would not be woken
 * for it. */
enum { NONE, ASKING, DUE };

struct claim {
    int64_t row;
    bool sooner; /* made due by an operator while it was claimed */
};

/* m = under mtx   c = constant after open   a = atomic */
struct due_rows {
    struct timer timer;             /* of the earliest waiting row */
    struct store *store;            /* c */
    struct timers *timers;          /* c */
    void (*due)(struct flow *flow); /* c */
    struct flow *flow;              /* c */
    pthread_mutex_t mtx;
    int64_t batch[BATCH]; /* m  due, not yet handed out */
    size_t at, count;     /* m */
    atomic_bool old; /* a  the batch is stale: other rows may come before it */
    struct claim *claims;  /* m  handed out, not yet released */
    size_t claim_count;    /* m */
    size_t claim_max;      /* c */
    bool all;              /* c  ignore due times: every row is due */
    int64_t moving;        /* m  row that moves to another queue; 0: none */
    struct source *source; /* c  has `due` */
};

void due_rows_look(struct due_rows *r)
{
    atomic_store(&r->old, true);
    source_due_set(r->source, DUE);
    r->due(r->flow);
}

static void timer_fired(struct timer *timer)
{
    due_rows_look(CONTAINER_OF(timer, struct due_rows, timer));
}

/* source->due is set at the start, because rows that the last worker left may
 * be due immediately. */
int due_rows_open(struct due_rows **out, struct store *store,
                  struct timers *timers, unsigned in_flight_max, bool all,
                  struct source *source, void (*due)(struct flow *flow),
                  struct flow *flow)
{
    struct due_rows *r = calloc(1, sizeof *r);

    *out = NULL;
    if (!r)
        return -ENOMEM;
    r->claims = calloc(in_flight_max, sizeof *r->claims);
    if (!r->claims) {
        free(r);
        return -ENOMEM;
    }
    r->claim_max = in_flight_max;
    r->all = all;
    r->store = store;
    r->timers = timers;
    r->source = source;
    r->due = due;
    r->flow = flow;
    timer_init(&r->timer, timer_fired);
    pthread_mutex_init(&r->mtx, NULL);
    source_due_set(source, DUE);
    *out = r;
    return 0;
}

void due_rows_close(struct due_rows **due_rows)
{
    struct due_rows *r = *due_rows;

    if (!r)
        return;
    *due_rows = NULL;
    timers_cancel_sync(r->timers, &r->timer);
    pthread_mutex_destroy(&r->mtx);
    free(r->claims);
    free(r);
}

static struct claim *claim_find(const struct due_rows *r, int64_t row)
{
    for (size_t i = 0; i < r->claim_count; i++)
        if (r->claims[i].row == row)
            return &r->claims[i];
    return NULL;
}

static bool claimed_locked(int64_t row, void *arg)
{
    return claim_find(arg, row) != NULL;
}

void due_rows_expect(struct due_rows *r, uint64_t due_ns)
{
    uint64_t now = clock_boot_ns();
    uint64_t wait = due_ns > now ? due_ns - now : 0;

    if (due_ns != UINT64_MAX)
        timers_start_earlier(r->timers, &r->timer,
                             ns_add(clock_mono_ns(), wait));
}

/* Read the next due rows if the batch is empty or stale. A batch is stale if a
 * row of higher priority may have become due since, or if the clock was set and
 * rows of the batch may no longer be due. */
static int fill_locked(struct due_rows *r)
{
    uint64_t next;
    int n;

    if (!atomic_exchange(&r->old, false) && r->at < r->count)
        return 0;

    /* Set ASKING before the query: a row that is stored after the query starts
     * the timer, which sets DUE again. */
    source_due_set(r->source, ASKING);
    n = store_due(r->store, r->all ? UINT64_MAX : clock_boot_ns(), r->batch,
                  BATCH, claimed_locked, r, &next);
    r->at = 0;
    r->count = n > 0 ? (size_t)n : 0;
    if (n == 0)
        source_due_clear(r->source, ASKING);
    else /* more rows may be due, or the query failed and is repeated */
        source_due_set(r->source, DUE);
    if (n < 0)
        return n;
    due_rows_expect(r, next);
    return 0;
}

int due_rows_take(struct due_rows *r, int64_t *row)
{
    int err;

    pthread_mutex_lock(&r->mtx);
    err = fill_locked(r);
    if (!err && (r->at == r->count || r->claim_count == r->claim_max))
        err = -EAGAIN;
    if (!err) {
        *row = r->batch[r->at++];
        r->claims[r->claim_count++] = (struct claim){.row = *row};
    }
    pthread_mutex_unlock(&r->mtx);
    return err;
}

int due_rows_any(struct due_rows *r)
{
    int err;
    bool due;

    if (!source_due(r->source))
        return NO;
    pthread_mutex_lock(&r->mtx);
    err = fill_locked(r);
    due = r->at < r->count;
    pthread_mutex_unlock(&r->mtx);
    return err ? err : due ? YES : NO;
}

int due_rows_claim(struct due_rows *r, int64_t row, enum due_claim why)
{
    size_t at;
    int err = 0;

    pthread_mutex_lock(&r->mtx);
    at = r->at;
    while (at < r->count && r->batch[at] != row)
        at++;
    if (r->moving == row)
        err = -EXDEV;
    else if (claim_find(r, row) || (at < r->count && why != CLAIM_STEER))
        err = -EALREADY;
    else if (r->claim_count == r->claim_max)
        err = -ENOMEM;
    if (!err && at < r->count) { /* drop the row from the batch */
        r->count--;
        memmove(&r->batch[at], &r->batch[at + 1],
                (r->count - at) * sizeof *r->batch);
    }
    if (!err)
        r->claims[r->claim_count++] = (struct claim){.row = row};
    if (!err && why == CLAIM_MOVE)
        r->moving = row;
    pthread_mutex_unlock(&r->mtx);
    return err;
}

bool due_rows_is_claimed(int64_t row, void *due_rows)
{
    struct due_rows *r = due_rows;
    bool claimed;

    pthread_mutex_lock(&r->mtx);
    claimed = claimed_locked(row, r);
    pthread_mutex_unlock(&r->mtx);
    return claimed;
}

void due_rows_release(struct due_rows *r, int64_t row)
{
    struct claim *c;
    bool sooner;

    pthread_mutex_lock(&r->mtx);
    c = claim_find(r, row);
    sooner = c && c->sooner;
    if (c)
        *c = r->claims[--r->claim_count];
    if (r->moving == row)
        r->moving = 0;
    pthread_mutex_unlock(&r->mtx);
    if (sooner)
        due_rows_expect(r, 0);
}

void due_rows_sooner(struct due_rows *r, int64_t row)
{
    struct claim *c;

    pthread_mutex_lock(&r->mtx);
    c = claim_find(r, row);
    if (c)
        c->sooner = true;
    pthread_mutex_unlock(&r->mtx);
}
