/* mq_recover.c - what the last owner left in custody (see source_mq.h)
 *
 * Each step may be cut off by a kill and is done again by the next start with
 * the same result: a crash is counted in the one store that also takes the slot
 * out of RUNNING, and what is written to a row before that comes from the slot.
 */
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"

/* What a slot has. */
enum left {
    LEFT_SETTLED,   /* a message whose verdict is in the store already */
    LEFT_FRESH,     /* one that came from the queue */
    LEFT_LETTER,    /* the same, and a letter that was sent again */
    LEFT_ROW,       /* a run of a row that waits, or is parked */
    LEFT_SPOOLED,   /* the same of a row of the spool */
    LEFT_CANCELLED, /* a run of a row that is not to run: the row is taken
                     * again, and comes to its end then */
};

static void collect(struct slot *slot, void *arg)
{
    struct source_mq *q = arg;

    q->left[q->left_count++] = slot;
}

int mq_runs(struct source *s,
            void (*visit)(void *arg, const struct source_run *run), void *arg,
            struct problem *p)
{
    struct source_mq *q = source_mq_of(s);
    int err;

    q->left = calloc(custody_slots(q->custody), sizeof(struct slot *));
    if (!q->left)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_recover(q->custody, collect, q, p);
    for (size_t i = 0; i < q->left_count && !err; i++) {
        const struct slot *slot = q->left[i];

        if (slot_word(slot).state == SLOT_RUNNING)
            visit(arg, &(struct source_run){
                           .mark = slot->handler_mark ? slot->handler_mark
                                                      : slot->seq,
                           .start = slot->handler_start,
                           .group = atomic_load(&slot->handler_pgid)});
    }
    return err;
}

/* spooled_of - the same of one that came from the queue, maybe by the spool */
static int spooled_of(const struct source_mq *q, const struct slot *slot)
{
    struct spool *sp = q->spool;
    enum spool_at at = SPOOL_AT_NOT;
    int err = sp ? spool_find(sp, slot, &at) : 0;

    return err                        ? err
           : at == SPOOL_AT_ENDED     ? LEFT_SETTLED
           : at == SPOOL_AT_CANCELLED ? LEFT_CANCELLED
           : at == SPOOL_AT_ROW       ? LEFT_SPOOLED
                                      : LEFT_FRESH;
}

/* left_of - what a slot has: enum left, or -errno
 * A run of a waiting or parked row: done or discarded deletes the row; a
 * failure counts its attempt or changes its state. A replayed letter that runs
 * under a new receive sequence: settling writes that sequence to the row; torn,
 * it is recalled from that row. A fresh message: settling stores a row with its
 * sequence, or leaves no trace (then the slot was freed by the very same store,
 * or it runs again).
 */
static int left_of(const struct source_mq *q, const struct slot *slot,
                   struct store_row *m, char *group)
{
    int64_t row;
    int err;

    if (slot->row == 0) {
        err = store_find_seq(q->store, slot->seq, &row);
        return err == 0         ? LEFT_SETTLED
               : err == -ENOENT ? spooled_of(q, slot)
                                : err;
    }
    err = store_get(q->store, slot->row, m, NULL, 0, group);
    if (err)
        return err == -ENOENT ? LEFT_SETTLED : err;
    if (m->receive_seq != slot->seq)
        return custody_torn(q->custody) ? LEFT_SETTLED : LEFT_LETTER;
    if (m->state >= STORE_DEAD || m->attempts != slot->failures)
        return LEFT_SETTLED;
    return m->flags & STORE_CANCELLED ? LEFT_CANCELLED : LEFT_ROW;
}

/* let_go - nothing is left to do from the slot */
static int let_go(const struct source_mq *q, struct slot *slot)
{
    FAULT_POINT("recover_settled_before_retire");
    slot_retire(slot);
    if (slot->row)
        due_rows_release(q->due_rows, slot->row);
    custody_release(q->custody, slot);
    return 0;
}

/* row_crashed - the row takes what the slot knows: 0, or -ENOENT: it was
 * discarded meanwhile
 * Crash after it: the slot is as before, and the next start writes the same
 * numbers again.
 */
static int row_crashed(const struct source_mq *q, const struct slot *slot,
                       struct store_row *m)
{
    struct slot_word w = slot_word(slot);
    bool ran = w.state == SLOT_RUNNING;
    uint32_t crashes = w.crashes + ran, flags = m->flags;

    if (ran || w.flags & SLOT_REDELIVERED)
        flags |= STORE_REDELIVERED;
    if (m->crashes == crashes && m->flags == flags)
        return 0;
    m->crashes = crashes;
    m->flags = flags;
    return store_put(q->store, m, NULL, NULL);
}

/* lend - the slot is HELD, and the crash counted, but of a fresh message that
 * may be damaged: it is not blamed for the machine's end */
static struct source_left lend(struct source_mq *q, struct slot *slot,
                               const struct store_row *m)
{
    struct lent *l = source_mq_lent(q, slot);
    struct source_left left = {
        .m = &l->m, .waits = m != NULL, .torn = custody_torn(q->custody)};

    left.ran = slot_word(slot).state == SLOT_RUNNING && (m || !left.torn);
    if (left.ran)
        slot_crashed(slot);
    lent_fill(l);
    /* A row does not record whether others were running at its last crash. */
    if ((left.ran || !m) && !(slot_word(slot).flags & SLOT_BESIDE))
        l->m.flags |= MESSAGE_CRASHED_ALONE;
    if (m && m->group)
        lent_group(l, m->group, m->group_size);
    return left;
}

/* in_line - one that was not lent gets in line again, behind those that came
 * before it */
static bool in_line(struct source_mq *q, struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    struct lent *l = source_mq_lent(q, slot);

    if (!q->spool || w.state != SLOT_HELD || w.crashes ||
        w.flags & SLOT_REDELIVERED || custody_torn(q->custody))
        return false;
    lent_fill(l);
    spool_adopt(q->spool, l);
    return true;
}

/* recover_one - settled already, or lent again */
static int recover_one(struct source_mq *q, struct slot *slot,
                       int (*visit)(void *arg, const struct source_left *left),
                       void *arg)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m = {0};
    struct source_left left;
    int is = left_of(q, slot, &m, group), err;

    if (is < 0)
        return is;
    if (slot->received_ns == 0) /* the kill came first; --retry-for asks */
        slot->received_ns = clock_wall_ns();
    if (is == LEFT_FRESH && in_line(q, slot))
        return 0;
    err = is == LEFT_ROW       ? row_crashed(q, slot, &m)
          : is == LEFT_SPOOLED ? spool_note(q->spool, slot)
                               : 0;
    if (is == LEFT_SETTLED || is == LEFT_CANCELLED || err == -ENOENT)
        return let_go(q, slot);
    if (err)
        return err;
    left = lend(q, slot, is == LEFT_ROW || is == LEFT_SPOOLED ? &m : NULL);
    if (is == LEFT_SPOOLED) {
        struct lent *l = lent_of(left.m);

        l->spooled = spool_key_of(slot);
        l->m.flags |= MESSAGE_KEYED;
    }
    if (left.waits)
        FAULT_POINT("recover_row_before_retire");
    return visit(arg, &left);
}

/* tell_damaged - what could not be lent */
static void tell_damaged(const struct source_mq *q)
{
    const char *copy;
    unsigned damaged = custody_damaged(q->custody, &copy);

    if (damaged || copy[0])
        log_error("custody_damaged", F_STR("queue", q->set->queue),
                  F_UINT("slots", damaged), F_STR("copy", copy),
                  F_STR("next", "these slots, or numbers of the file, could "
                                "not be read; the file as it was is kept in "
                                "the copy"));
}

/* Mark the running messages if there was more than one. */
static void beside_mark(const struct source_mq *q)
{
    size_t ran = 0;

    for (size_t i = 0; i < q->left_count; i++)
        ran += slot_word(q->left[i]).state == SLOT_RUNNING;
    for (size_t i = 0; i < q->left_count && ran > 1; i++)
        if (slot_word(q->left[i]).state == SLOT_RUNNING)
            slot_beside(q->left[i]);
}

/* mq_recover - all rows are claimed before any slot is looked at: of two copies
 * of a letter the one that was linked to its row is the message, wherever the
 * other one is */
int mq_recover(struct source *s,
               int (*visit)(void *arg, const struct source_left *left),
               void *arg)
{
    struct source_mq *q = source_mq_of(s);
    uint64_t seq;
    int err = store_max_seq(q->store, &seq);

    if (!err)
        custody_seq_raise(q->custody, seq + 1);
    beside_mark(q);
    for (size_t i = 0; i < q->left_count; i++)
        if (q->left[i]->row)
            (void)due_rows_try_claim(q->due_rows, q->left[i]->row);
    for (size_t i = 0; i < q->left_count && !err; i++)
        err = recover_one(q, q->left[i], visit, arg);
    if (!err)
        tell_damaged(q);
    free(q->left);
    q->left = NULL;
    q->left_count = 0;
    return err;
}
