/* mq_settle.c - verdict -> slot and row (see source_mq.h)
 *
 * One order everywhere: the store has it on the disk, then the slot is FREE,
 * then anything else is written: what becomes of the claim on the row comes
 * after both.
 * Crash before the commit: the slot is RUNNING (or HELD), the message runs
 * again. Crash between: recovery finds the verdict in the store, by the row's
 * state or by the receive sequence, and frees the slot. So a crash can repeat a
 * message, never lose one, and never give it two final states.
 */
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#include <errno.h>

#include "common/base/fault_point.h"

static const enum store_state states[] = {
    [SETTLE_RETRY] = STORE_WAITING,
    [SETTLE_DEAD] = STORE_DEAD,
    [SETTLE_PARK] = STORE_PARKED,
    [SETTLE_RETURN] = STORE_WAITING,
};

/* row_of - what the store is to have of it */
static void row_of(struct store_row *row, const struct settle *st)
{
    row_make(row, lent_of(st->m), st->group, st->header_size);
    row->state = states[st->kind];
    row->attempts += st->attempt != NULL;
    row->due_ns = st->due_ns;
    row->due_boot_ns = st->due_boot_ns;
    row->delay_ns = st->delay_ns;
    row->died_ns = st->died_ns;
    row->reason = st->reason;
    row->error = st->error;
    if (st->reason == REASON_GROUP_CLOSED)
        row->flags |= STORE_LET_GO;
}

/* row_put - durable on 0
 * A row that is gone was a letter on its way again that an operator discarded:
 * so is the message. A sequence that is there already was written by a worker
 * that died before it freed the slot. Nothing is left to write for either.
 */
static int row_put(struct source_mq *q, struct settle *st)
{
    const struct attempt *a = st->attempt;
    struct store_attempt attempt;
    struct store_row row;
    int err;

    if (a)
        attempt = (struct store_attempt){
            .started_ns = a->started_ns,
            .duration_ns = a->duration_ns,
            .error = a->error,
            .stderr_tail = a->stderr_tail,
            .stderr_size = a->stderr_size,
            .said = a->said,
        };
    row_of(&row, st);
    err = store_put(q->store, &row, a ? &attempt : NULL, &row.row);
    st->letter = row.row;
    if (err == -ENOENT)
        st->kind = SETTLE_DISCARD;
    return err == -ENOENT || err == -EEXIST ? 0 : err;
}

/* unwritable - into a file that has lost its name nothing is written: it ends
 * with us. What a commit wrote just before that was seen is there as long as
 * the rest of the store, and put back with it. */
static int unwritable(const struct source_mq *q)
{
    return atomic_load(&q->store_gone) ? -EBADFD : 0;
}

/* unclaimed - the row is anybody's again, and due as it says */
static void unclaimed(struct source_mq *q, const struct settle *st, int64_t row)
{
    if (row)
        due_rows_release(q->due_rows, row);
    if (st->kind == SETTLE_RETRY || st->kind == SETTLE_RETURN)
        due_rows_expect(q->due_rows, settle_due(st));
}

/* give_back - a row that was not delivered is in the store as before, and one
 * of the spool that recovery gives back comes again in its turn; what came from
 * the queue waits there from now on
 * Crash: the slot is HELD, or FREE, and the row waits in the store.
 */
static bool give_back(const struct source_mq *q, const struct settle *st,
                      int64_t row)
{
    return st->kind == SETTLE_RETURN &&
           (row != 0 || (lent_of(st->m)->spooled && !atomic_load(&q->started)));
}

/* settle_ended - its rows are gone, or noted; a letter that came by way of the
 * spool has two
 * Crash between them: the slot is freed, as the letter is gone, and the other
 * row is a second copy of that, which is dropped. After an error the first is
 * deleted once more, which changes nothing.
 */
static int settle_ended(struct source_mq *q, struct lent *l)
{
    int err = store_delete(q->store, l->slot->row);

    return err || !l->spooled ? err : spool_end(q->spool, l);
}

/* settle_stored - what needs more than a store to its slot
 * A row that was put has freed the slot already; one that was deleted, or is
 * gone, has not. Not inline, as settle_all.
 */
__attribute__((noinline)) static int settle_stored(struct source_mq *q,
                                                   struct settle *st)
{
    struct lent *l = lent_of(st->m);
    int64_t row = l->slot->row;
    int err = 0;

    if (!give_back(q, st, row))
        err = unwritable(q);
    if (!err && st->kind <= SETTLE_DISCARD)
        err = settle_ended(q, l);
    else if (!err && !give_back(q, st, row))
        err = row_put(q, st);
    if (err)
        return err;
    FAULT_POINT("settle_after_write");
    l->spooled = 0;
    slot_retire(l->slot);
    unclaimed(q, st, row);
    if (st->kind == SETTLE_DEAD)
        source_mq_died(q);
    return 0;
}

/* settle_all - in one commit, which frees the slots
 * Crash before it: each message is HELD in its slot. After it, before the slot
 * is FREE: recovery finds the row by the receive sequence (or the row in the
 * slot) and frees the slot.
 * Not inline: the usual way has a small frame.
 */
__attribute__((noinline)) static int settle_all(struct source_mq *q,
                                                struct settle *list, size_t n)
{
    struct store_row rows[SETTLE_MOST] = {{0}};
    int err;

    for (size_t i = 0; i < n; i++)
        row_of(&rows[i], &list[i]);
    err = unwritable(q);
    if (!err)
        err = store_put_all(q->store, rows, n);
    for (size_t i = 0; i < n; i++) {
        list[i].err = err;
        if (err)
            continue;
        lent_of(list[i].m)->spooled = 0;
        unclaimed(q, &list[i], rows[i].row);
        mq_lane_keep(q, list[i].lane, lent_of(list[i].m));
    }
    return err;
}

/* Free the unique key of a cancelled message, in a separate commit before the
 * end of the message. If the process is killed between the two, the message is
 * still in its slot, or its row is marked. If the message runs, it claims its
 * key again, unless another message holds the key by then. */
static int key_free(struct source_mq *q, const struct settle *st)
{
    int err = unwritable(q);

    return err ? err : store_key_free(q->store, st->m->seq);
}

/* A message that is parked is written like many, but for the number. A row of
 * the spool is deleted later, with others. */
int mq_settle(struct source *s, struct settle *list, size_t n)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = lent_of(list->m);
    bool ran = slot_word(l->slot).state == SLOT_RUNNING;
    int err = list->unkey ? key_free(q, list) : 0;

    if (!err && (n > 1 || list->kind == SETTLE_PARK))
        return settle_all(q, list, n);
    if (!err && (list->kind > SETTLE_DISCARD || l->slot->row != 0))
        err = settle_stored(q, list);
    else if (!err && l->spooled)
        err = spool_end(q->spool, l);
    else if (!err)
        slot_retire(l->slot);
    if (err)
        lent_unrun(l, ran);
    else
        mq_lane_keep(q, list->lane, l);
    return list->err = err;
}

/* End a message of which there is a row after all. Not inline, because mq_done
 * is short. */
__attribute__((noinline)) static int
done_listed(struct source *s, struct message *m, unsigned lane)
{
    struct settle st = {.m = m, .kind = SETTLE_DONE, .lane = lane};

    return mq_settle(s, &st, 1);
}

/* End a message in the usual way: nobody but the queue has heard of it, so one
 * store to its slot is enough. */
int mq_done(struct source *s, struct message *m, unsigned lane)
{
    struct lent *l = lent_of(m);

    if ((l->slot->row | l->spooled) != 0)
        return done_listed(s, m, lane);
    slot_retire(l->slot);
    mq_lane_keep(source_mq_of(s), lane, l);
    return 0;
}
