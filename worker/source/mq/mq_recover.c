/* mq_recover.c - hands the messages in slots from one worker to the next (see
 * source_mq.h)
 *
 * worker/flow/recovery.c calls all three operations on the engine's thread:
 * mq_runs and mq_recover at the start, after the last worker was killed, and
 * mq_keep at an orderly end.
 *
 * If a kill interrupts any step of the recovery, the next start repeats the
 * step with the same result. A crash is counted by the same write to the slot
 * that ends its state RUNNING, and what is written to a row before that is
 * computed from the slot.
 *
 * mq_keep leaves no message in a slot: one commit writes all messages, then
 * their slots become FREE (store_put_all).
 * Crash before the commit: each message is in its slot, HELD, and marked as
 * redelivered if a handler may have seen it; recovery runs it from there.
 * Crash after the commit, before a slot is FREE: recovery finds the row in one
 * of two ways. If it finds the row by the receive sequence, the message is
 * settled. If the slot is a run of the row, with the same number of attempts,
 * recovery writes the row once more with the same numbers. It frees the slot in
 * both cases. So the message exists once, and its mark was on the disk before
 * its slot was FREE.
 * This relies on two facts: a commit that returned is on the disk (fsync(2)),
 * and a write to the mapped file survives a kill of the process. The caller
 * makes sure that no handler is running or can still settle.
 */
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"

/* Contents of a slot. */
enum left {
    LEFT_SETTLED,   /* a message whose verdict is in the store already */
    LEFT_FRESH,     /* a message from the queue */
    LEFT_LETTER,    /* a replayed letter, from the queue */
    LEFT_ROW,       /* a run of a row that waits, or is parked */
    LEFT_SPOOLED,   /* a run of a row of the spool */
    LEFT_CANCELLED, /* a run of a cancelled row, which will be discarded */
};

int mq_runs(struct source *s,
            void (*visit)(void *arg, const struct source_run *run), void *arg,
            struct problem *p)
{
    struct source_mq *q = source_mq_of(s);
    int err;

    q->left = calloc(custody_slots(q->custody), sizeof(struct slot *));
    if (!q->left)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_recover(q->custody, p);
    if (err)
        return err;
    q->left_count = custody_busy(q->custody, q->left);
    for (size_t i = 0; i < q->left_count; i++) {
        const struct slot *slot = q->left[i];

        if (slot_word(slot).state == SLOT_RUNNING)
            visit(arg, &(struct source_run){
                           .mark = slot->handler_mark ? slot->handler_mark
                                                      : slot->seq,
                           .start = slot->handler_start,
                           .group = atomic_load(&slot->handler_pgid)});
    }
    return 0;
}

/* Find out what the message of a slot is, by what settling it would have left:
 * - A run of a waiting or parked row: the row is deleted, or has one attempt
 *   more, or another state.
 * - A replayed letter, which runs under a new receive sequence: its row has
 *   that sequence. After a torn stop it is recalled from its row.
 * - A fresh message: a row with its sequence, or no row. If it left no row, the
 *   write that settled it also freed the slot, so a slot in use runs again. */
static int left_of(const struct source_mq *q, const struct slot *slot,
                   struct store_row *m, char *group, enum left *is)
{
    static const enum left spooled[] = {
        [SPOOL_AT_NOT] = LEFT_FRESH,
        [SPOOL_AT_ROW] = LEFT_SPOOLED,
        [SPOOL_AT_CANCELLED] = LEFT_CANCELLED,
        [SPOOL_AT_ENDED] = LEFT_SETTLED,
    };
    enum spool_at at = SPOOL_AT_NOT;
    int64_t row;
    int err;

    *is = LEFT_SETTLED;
    if (slot->row == 0) {
        err = store_find_seq(q->store, slot->seq, &row);
        if (err != -ENOENT)
            return err;
        err = q->spool ? spool_find(q->spool, slot, &at) : 0;
        *is = spooled[at];
        return err;
    }
    err = store_get(q->store, slot->row, m, NULL, 0, group);
    if (err)
        return err == -ENOENT ? 0 : err;
    if (m->receive_seq != slot->seq)
        *is = custody_torn(q->custody) ? LEFT_SETTLED : LEFT_LETTER;
    else if (m->state < STORE_DEAD && m->attempts == slot->failures)
        *is = m->flags & STORE_CANCELLED ? LEFT_CANCELLED : LEFT_ROW;
    return 0;
}

/* Recover one slot: free it if its message is settled, return the message to
 * the spool if it was never lent, or lend the message again. */
static int recover_one(struct source_mq *q, struct slot *slot,
                       int (*visit)(void *arg, const struct source_left *left),
                       void *arg)
{
    char group[HEADER_VALUE_MAX + 1];
    struct slot_word w = slot_word(slot);
    struct store_row m = {0}, row_was;
    struct source_left left;
    struct lent *l;
    enum left is;
    int err = left_of(q, slot, &m, group, &is);
    bool ran;

    if (err)
        return err;
    if (slot->received_ns == 0) /* killed before it was written */
        slot->received_ns = clock_wall_ns();
    if (is == LEFT_FRESH && q->spool && w.state == SLOT_HELD && !w.crashes &&
        !(w.flags & SLOT_REDELIVERED) && !custody_torn(q->custody)) {
        spool_adopt(q->spool, slot);
        return 0;
    }
    /* Write the slot's crash and mark to its row. Crash after it: the slot is
     * as before, and the next start writes the same numbers again. */
    ran = w.state == SLOT_RUNNING;
    row_was = m;
    m.crashes = w.crashes + ran;
    if (ran || w.flags & SLOT_REDELIVERED)
        m.flags |= STORE_REDELIVERED;
    if (is == LEFT_SPOOLED)
        err = spool_note(q->spool, slot);
    else if (is == LEFT_ROW &&
             (m.crashes != row_was.crashes || m.flags != row_was.flags))
        err = store_put(q->store, &m, NULL, NULL);
    /* -ENOENT: an operator discarded the row meanwhile. */
    if (is == LEFT_SETTLED || is == LEFT_CANCELLED || err == -ENOENT) {
        FAULT_POINT("recover_settled_before_retire");
        slot_retire(slot);
        if (slot->row)
            due_rows_release(q->due_rows, slot->row);
        custody_release(q->custody, slot);
        return 0;
    }
    if (err)
        return err;
    /* Count the crash, unless the machine went down while a fresh message ran,
     * because the message did not cause that. */
    l = source_mq_lent(q, slot);
    left.waits = is == LEFT_ROW || is == LEFT_SPOOLED;
    left.torn = custody_torn(q->custody);
    left.ran = ran && (left.waits || !left.torn);
    if (left.ran)
        slot_crashed(slot);
    lent_fill(l);
    /* A row does not record whether others were running at its last crash. */
    if ((left.ran || !left.waits) && !(slot_word(slot).flags & SLOT_BESIDE))
        l->m.flags |= MESSAGE_CRASHED_ALONE;
    if (is == LEFT_ROW && m.group)
        lent_group(l, m.group, m.group_size);
    if (is == LEFT_SPOOLED) {
        l->spooled = spool_key_of(slot);
        l->m.flags |= MESSAGE_KEYED;
    }
    if (left.waits)
        FAULT_POINT("recover_row_before_retire");
    left.m = &l->m;
    return visit(arg, &left);
}

/* Claim all rows before recovering any slot. So if there are two copies of a
 * letter, the copy that is linked to the letter's row is kept, and the order of
 * the slots does not matter. */
int mq_recover(struct source *s,
               int (*visit)(void *arg, const struct source_left *left),
               void *arg)
{
    struct source_mq *q = source_mq_of(s);
    const char *copy;
    unsigned damaged;
    size_t ran = 0;
    uint64_t seq;
    int err = store_max_seq(q->store, &seq);

    if (!err)
        custody_seq_raise(q->custody, seq + 1);
    /* Mark the running messages if there was more than one. */
    for (size_t i = 0; i < q->left_count; i++)
        ran += slot_word(q->left[i]).state == SLOT_RUNNING;
    for (size_t i = 0; i < q->left_count && ran > 1; i++)
        if (slot_word(q->left[i]).state == SLOT_RUNNING)
            slot_mark(q->left[i], SLOT_BESIDE);
    for (size_t i = 0; i < q->left_count; i++)
        if (q->left[i]->row)
            (void)due_rows_claim(q->due_rows, q->left[i]->row, CLAIM_LEND);
    for (size_t i = 0; i < q->left_count && !err; i++)
        err = recover_one(q, q->left[i], visit, arg);
    damaged = custody_damaged(q->custody, &copy);
    if (!err && (damaged || copy[0]))
        log_error("custody_damaged", F_STR("queue", q->set->queue),
                  F_UINT("slots", damaged), F_STR("copy", copy),
                  F_STR("next", "these slots, or numbers of the file, could "
                                "not be read; the file as it was is kept in "
                                "the copy"));
    free(q->left);
    q->left = NULL;
    q->left_count = 0;
    return err;
}

/* ---- at an orderly end ---- */

/* A message in a slot, and the place where it will wait. */
struct kept {
    struct lent *lent;
    struct settle place;
    bool settled;                     /* nothing has to be written */
    char group[HEADER_VALUE_MAX + 1]; /* of its row */
};

/* Make the row to write for a message. Returns YES; NO if the store has the
 * same row already or an operator discarded it; or -errno. */
static int kept_row(const struct source_mq *q, struct kept *x,
                    struct store_row *m)
{
    const struct settle *to = &x->place;
    struct slot *slot = x->lent->slot;
    struct slot_word w = slot_word(slot);
    int err =
        slot->row ? store_get(q->store, slot->row, m, NULL, 0, x->group) : 0;

    if (err)
        return err == -ENOENT ? NO : err;
    if (slot->row && m->receive_seq == slot->seq) {
        /* The row waited or was parked. A delayed message that has entered its
         * group keeps its place there, except a message that this worker would
         * have forwarded before its time. */
        struct store_row was = *m;

        if (m->state >= STORE_DEAD || m->attempts != slot->failures)
            return NO; /* the store has its verdict */
        m->crashes = w.crashes;
        if (w.flags & SLOT_REDELIVERED)
            m->flags |= STORE_REDELIVERED;
        if (m->state == STORE_WAITING && m->group && m->attempts == 0 &&
            !(m->flags & STORE_FRONT) &&
            !(q->set->forward && m->due_ns > clock_wall_ns()))
            m->state = STORE_PARKED;
        if (m->state == was.state && m->flags == was.flags &&
            m->crashes == was.crashes)
            return NO;
    } else {
        /* The message has no row, or it is a replayed letter, which is the
         * first of its group. */
        row_make(m, x->lent, to->group, to->header_size);
        m->state = to->kind == SETTLE_PARK ? STORE_PARKED : STORE_WAITING;
        m->due_ns = to->due_ns;
        m->due_boot_ns = to->due_boot_ns;
        m->delay_ns = to->delay_ns;
        if (m->row && m->group)
            m->flags |= STORE_FRONT;
    }
    m->slot = slot;
    m->retire = slot_retire;
    return YES;
}

/* Ask for the place of every message, write all rows in one commit, then free
 * the slots. `place` is called for the other messages even after an error, so
 * that it logs all of them. After an error nothing is written. */
int mq_keep(struct source *s,
            int (*place)(void *arg, struct message *m, bool half,
                         struct settle *out),
            void *arg)
{
    struct source_mq *q = source_mq_of(s);
    size_t most = custody_slots(q->custody), n = 0, row_count = 0;
    struct slot **busy;
    struct store_row *rows;
    struct kept *all;
    int err, is;

    if (custody_empty(q->custody))
        return 0;
    busy = calloc(most, sizeof(struct slot *));
    rows = calloc(most, sizeof *rows);
    all = calloc(most, sizeof *all);
    err = busy && rows && all ? 0 : -ENOMEM;
    if (!err)
        n = custody_busy(q->custody, busy);
    for (size_t i = 0; i < n; i++) {
        struct lent *l = source_mq_lent(q, busy[i]);
        bool half = slot_word(l->slot).state == SLOT_RECEIVING;
        unsigned cancelled = l->spooled ? l->m.flags & MESSAGE_CANCELLED : 0;

        /* Make the slot HELD, as after its handler was terminated. A half
         * received message gets its length and marks as in a recovery. */
        if (half)
            slot_resolve(l->slot, q->fill, custody_body_bytes(q->custody));
        if (slot_word(l->slot).state == SLOT_RUNNING)
            slot_unrun(l->slot, true);
        lent_fill(l);
        l->m.flags |= cancelled;
        all[i].lent = l;
        all[i].place.m = &l->m;
        is = place(arg, &l->m, half, &all[i].place);
        all[i].settled = is == PLACE_SETTLED;
        if (is < 0 && !err)
            err = is;
    }
    if (!err)
        err = source_mq_writable(q);
    for (size_t i = 0; i < n && !err; i++)
        if (!all[i].settled) {
            is = kept_row(q, &all[i], &rows[row_count]);
            row_count += is == YES;
            err = is < 0 ? is : 0;
        }
    FAULT_POINT("keep_before_put");
    if (!err && row_count > 0)
        err = store_put_all(q->store, rows, row_count);
    FAULT_POINT("keep_after_put");
    for (size_t i = 0; i < n && !err; i++)
        if (!all[i].settled)
            slot_retire(all[i].lent->slot);
    free(busy);
    free(rows);
    free(all);
    return err;
}
