/* mq_steer.c - what an operator wants of rows that wait (see source_mq.h) */
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/store/waiting.h"

/* seize - nobody takes them before they have their mark; skip: somebody has */
static void seize(struct source_mq *q, struct spool *sp,
                  const struct waiting_steer *order, bool *skip)
{
    for (size_t i = 0; i < order->count; i++)
        skip[i] =
            order->rows[i] < 0 || !due_rows_seize(q->due_rows, order->rows[i]);
    if (sp)
        spool_seize(sp, order->rows, order->count, skip);
}

/* release - `done`: those that have it */
static void release(struct source_mq *q, struct spool *sp,
                    const struct waiting_steer *order, const bool *done)
{
    for (size_t i = 0; i < order->count; i++)
        if (order->rows[i] > 0 && !order->skip[i])
            due_rows_release(q->due_rows, order->rows[i]);
    if (sp)
        spool_release(sp, done);
}

/* mq_steer - one commit
 * A row that is to be cancelled is claimed first: nobody loads it into a slot
 * before it has its mark, and one that a slot has already is left alone. Crash
 * before the commit: all wait as before, the claims were in memory. After it:
 * the next start takes what is due, or next in the spool, and what it takes has
 * the mark.
 * One that is to run now needs no claim: while it is in flight its due time is
 * over. If it was settled as a retry meanwhile, it is that retry which is due,
 * and it may still be noted as in flight: due_rows_sooner.
 */
int mq_steer(struct source *s, enum steer what, const int64_t *numbers,
             size_t n, enum steered *out)
{
    struct source_mq *q = source_mq_of(s);
    struct spool *sp = q->spool;
    bool skip[STEER_MOST] = {false}, done[STEER_MOST] = {false};
    struct waiting_steer order = {.cancel = what == STEER_CANCEL,
                                  .rows = numbers,
                                  .count = n,
                                  .most = custody_body_bytes(q->custody),
                                  .skip = skip,
                                  .now_ns = clock_wall_ns()};
    int err = atomic_load(&q->store_gone) ? -EBADFD : 0;

    if (order.cancel)
        seize(q, sp, &order, skip);
    if (!err)
        err = waiting_steer(q->store, &order, out);
    for (size_t i = 0; i < n && !err; i++)
        done[i] = out[i] == STEERED;
    if (order.cancel)
        release(q, sp, &order, done);
    for (size_t i = 0; i < n && !order.cancel; i++)
        if (done[i])
            due_rows_sooner(q->due_rows, numbers[i]);
    due_rows_look(q->due_rows);
    return err;
}
