/* data.c - see top.h */
#include "scripts/mqctl/top/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <bsd/stdlib.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "scripts/mqctl/queue_list.h"

/* row_get - the row of a queue, a new one if need be; NULL: no memory */
static struct top_row *row_get(struct top *t, const char *queue)
{
    struct top_row **more, *r;

    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->rows[i]->queue, queue) == 0)
            return t->rows[i];
    more = reallocarray(t->rows, t->count + 1, sizeof *more);
    if (!more)
        return NULL;
    t->rows = more;
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    strlcpy(r->queue, queue, sizeof r->queue);
    t->rows[t->count++] = r;
    return r;
}

/* between - the difference to the look before; a new worker began at 0 */
static void between(struct top_row *r, uint64_t now,
                    const struct histogram_sum *handler,
                    const struct histogram_sum *latency)
{
    static struct histogram_sum part;
    bool same = r->head.started_ns == r->v.head.started_ns &&
                r->v.sum.ended >= r->sum.ended;
    double seconds = (double)(now - r->at_ns) / (double)NS_PER_S;

    if (same && seconds > 0)
        r->rate = (double)(r->v.sum.ended - r->sum.ended) / seconds;
    if (!same) {
        memset(&r->handler, 0, sizeof r->handler);
        memset(&r->latency, 0, sizeof r->latency);
    }
    histogram_since(&part, handler, &r->handler);
    r->p50 = histogram_quantile(&part, 0.5);
    r->p99 = histogram_quantile(&part, 0.99);
    histogram_since(&part, latency, &r->latency);
    r->wait99 = histogram_quantile(&part, 0.99);
}

/* count - what the counters say; nothing of an interval at the first look,
 * whose numbers are those of hours or days */
static void count(struct top_row *r, uint64_t now)
{
    static struct histogram_sum handler, latency;

    counters_histograms(r->v.counters, &handler, &latency);
    r->measured = r->counted;
    if (r->counted)
        between(r, now, &handler, &latency);
    r->counted = true;
    r->handler = handler;
    r->latency = latency;
    r->sum = r->v.sum;
    r->head = r->v.head;
}

/* row_refresh - how it is now; what is of an interval stays */
static void row_refresh(struct top *t, struct top_row *r)
{
    if (r->looked)
        snapshot_close(&r->v);
    r->looked = snapshot_open(&r->v, t->o->state_dir, r->queue, !t->files_only,
                              &r->problem) == 0;
}

/* row_look - once more, at the end of an interval */
static void row_look(struct top *t, struct top_row *r)
{
    uint64_t now = clock_mono_ns();
    size_t at = r->past.looks++ % TOP_HISTORY;

    row_refresh(t, r);
    r->measured = false;
    r->rate = 0;
    r->p50 = r->p99 = r->wait99 = 0;
    if (r->looked && r->v.counters)
        count(r, now);
    r->at_ns = now;
    r->past.depth[at] = r->looked && r->v.depth > 0 ? (uint64_t)r->v.depth : 0;
    r->past.waits[at] = r->wait99;
    r->past.rates[at] = (uint64_t)(r->rate + 0.5);
}

static int compare(const void *a, const void *b)
{
    return strcmp((*(struct top_row *const *)a)->queue,
                  (*(struct top_row *const *)b)->queue);
}

/* rows_find - those that were named, else whatever has a folder by now */
static int rows_find(struct top *t)
{
    struct queue_list n = {0};
    char label[QUEUE_NAME_MAX];
    struct problem p;
    int err = 0;

    for (int i = 0; i < t->o->line.operand_count && !err; i++) {
        if (snapshot_name(t->o->line.operands[i], label, &p) < 0)
            strlcpy(label, t->o->line.operands[i], sizeof label);
        err = row_get(t, label) ? 0 : -ENOMEM;
    }
    if (t->o->line.operand_count == 0)
        err = queue_list_of_all_workers(&n, t->o->state_dir);
    strlcpy(t->trouble, n.folder_trouble, sizeof t->trouble);
    for (size_t i = 0; i < n.count && !err; i++)
        err = row_get(t, n.at[i]) ? 0 : -ENOMEM;
    queue_list_free(&n);
    if (t->count)
        qsort(t->rows, t->count, sizeof *t->rows, compare);
    return err;
}

/* top_look - at all of them */
int top_look(struct top *t)
{
    int err = rows_find(t);

    for (size_t i = 0; i < t->count && !err; i++)
        row_look(t, t->rows[i]);
    return err;
}

int top_refresh(struct top *t)
{
    int err = rows_find(t);

    for (size_t i = 0; i < t->count && !err; i++)
        row_refresh(t, t->rows[i]);
    return err;
}

void top_free(struct top *t)
{
    for (size_t i = 0; i < t->count; i++) {
        if (t->rows[i]->looked)
            snapshot_close(&t->rows[i]->v);
        free(t->rows[i]);
    }
    free(t->rows);
    t->rows = NULL;
    t->count = 0;
}
