/* mq_recover.c - from one owner of custody to the next (see source_mq.h)
 *
 * Recovery:
 * Each step may be cut off by a kill and is done again by the next start with
 * the same result: a crash is counted in the one store that also takes the slot
 * out of RUNNING, and what is written to a row before that comes from the slot.
 *
 * An orderly end, which leaves nothing in slots:
 * One commit for all, then the slots are FREE (store_put_all).
 * Crash before the commit: each message is in its slot, HELD, and marked as
 * redelivered if a handler may have seen it; recovery runs it from there.
 * Crash between the commit and a slot's store: recovery finds the row, by the
 * receive sequence or as the row that the slot is a run of, with the attempts
 * that the slot has. The first is taken for settled, the second is written once
 * more with the same numbers (mq_recover.c); both free the slot. So there is
 * one message whatever happens, and the mark was on the disk before its slot
 * was free.
 * Assumed of the kernel: that a commit that returned is on the disk (fsync(2)),
 * and that a store to the mapped file before a kill is seen after it. No
 * handler runs any more, or can still settle: the caller sees to that.
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

static void left_collect(struct slot *slot, void *arg)
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
    err = custody_recover(q->custody, left_collect, q, p);
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

/* slot_let_go - nothing is left to do from the slot */
static int slot_let_go(const struct source_mq *q, struct slot *slot)
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

/* Lend the message of a slot that is HELD, and count the crash, but not of a
 * fresh message that may be damaged: it is not blamed for the machine's end. */
static struct source_left left_lend(struct source_mq *q, struct slot *slot,
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

/* Put a message in line again that was not lent, behind those that came before
 * it. Returns false if it is not such a message. */
static bool queue_again(struct source_mq *q, struct slot *slot)
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
    if (is == LEFT_FRESH && queue_again(q, slot))
        return 0;
    err = is == LEFT_ROW       ? row_crashed(q, slot, &m)
          : is == LEFT_SPOOLED ? spool_note(q->spool, slot)
                               : 0;
    if (is == LEFT_SETTLED || is == LEFT_CANCELLED || err == -ENOENT)
        return slot_let_go(q, slot);
    if (err)
        return err;
    left = left_lend(q, slot, is == LEFT_ROW || is == LEFT_SPOOLED ? &m : NULL);
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
            (void)due_rows_claim(q->due_rows, q->left[i]->row);
    for (size_t i = 0; i < q->left_count && !err; i++)
        err = recover_one(q, q->left[i], visit, arg);
    if (!err)
        tell_damaged(q);
    free(q->left);
    q->left = NULL;
    q->left_count = 0;
    return err;
}

/* ---- at an orderly end ---- */

/* A message in a slot, and where it is to wait. */
struct kept {
    struct lent *lent;
    struct settle place;
    bool settled;                     /* there is nothing to keep */
    char group[HEADER_VALUE_MAX + 1]; /* of a row */
};

struct keep {
    struct source_mq *q;
    struct kept *all; /* in receive order */
    struct store_row *rows;
    size_t count, row_count;
};

static void count_slot(struct slot *slot, void *arg)
{
    struct keep *k = arg;

    (void)slot;
    k->count++;
}

static void kept_collect(struct slot *slot, void *arg)
{
    struct keep *k = arg;

    k->all[k->count++].lent = source_mq_lent(k->q, slot);
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const struct kept *)a)->lent->slot->seq;
    uint64_t y = ((const struct kept *)b)->lent->slot->seq;

    return (x > y) - (x < y);
}

/* Make a slot HELD, as after its handler was ended. Returns true if its message
 * was half received; the slot is then what recovery would make of it. */
static bool slot_hold_again(const struct source_mq *q, struct lent *l)
{
    struct slot *slot = l->slot;
    bool half = slot_word(slot).state == SLOT_RECEIVING;
    unsigned cancelled = l->spooled ? l->m.flags & MESSAGE_CANCELLED : 0;

    if (half)
        slot_resolve(slot, custody_fill(q->custody),
                     custody_body_bytes(q->custody));
    if (slot_word(slot).state == SLOT_RUNNING)
        slot_unrun(slot, true);
    lent_fill(l);
    l->m.flags |= cancelled;
    return half;
}

/* new_row - of a message that waits as its place says: one that has no row, or
 * a letter that was sent again, which is the first of its group */
static void new_row(struct store_row *m, const struct kept *x)
{
    const struct settle *to = &x->place;

    row_make(m, x->lent, to->group, to->header_size);
    m->state = to->kind == SETTLE_PARK ? STORE_PARKED : STORE_WAITING;
    m->due_ns = to->due_ns;
    m->due_boot_ns = to->due_boot_ns;
    m->delay_ns = to->delay_ns;
    if (m->row && m->group)
        m->flags |= STORE_FRONT;
}

/* old_row - of a run of a row that waited or was parked; whether it is to be
 * written
 * A delayed message that got in line in its group stays in line, but not one
 * that was to be forwarded before its time.
 */
static bool old_row(const struct source_mq *q, struct store_row *m,
                    const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    struct store_row was = *m;

    if (m->state >= STORE_DEAD || m->attempts != slot->failures)
        return false; /* its verdict is there */
    m->crashes = w.crashes;
    if (w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (m->state == STORE_WAITING && m->group && m->attempts == 0 &&
        !(m->flags & STORE_FRONT) &&
        !(q->set->forward && m->due_ns > clock_wall_ns()))
        m->state = STORE_PARKED;
    return m->state != was.state || m->flags != was.flags ||
           m->crashes != was.crashes;
}

/* row_add - what becomes of one message, if it is to be written: not if the
 * store has all of it, or an operator discarded it */
static int row_add(struct keep *k, struct kept *x)
{
    struct slot *slot = x->lent->slot;
    struct store_row *m = &k->rows[k->row_count];
    int err =
        slot->row ? store_get(k->q->store, slot->row, m, NULL, 0, x->group) : 0;
    bool old = slot->row && !err && m->receive_seq == slot->seq;

    if (err)
        return err == -ENOENT ? 0 : err;
    if (!old)
        new_row(m, x);
    else if (!old_row(k->q, m, slot))
        return 0;
    m->slot = slot;
    m->retire = slot_retire;
    k->row_count++;
    return 0;
}

/* write_rows - all rows in one commit, all slots free after it; nothing has
 * happened if it fails */
static int write_rows(struct keep *k)
{
    int err = atomic_load(&k->q->store_gone) ? -EBADFD : 0;

    for (size_t i = 0; i < k->count && !err; i++)
        if (!k->all[i].settled)
            err = row_add(k, &k->all[i]);
    FAULT_POINT("keep_before_put");
    if (!err && k->row_count > 0)
        err = store_put_all(k->q->store, k->rows, k->row_count);
    FAULT_POINT("keep_after_put");
    for (size_t i = 0; i < k->count && !err; i++)
        if (!k->all[i].settled)
            slot_retire(k->all[i].lent->slot);
    return err;
}

/* place_all - each is asked for, whatever the others said: so all are named */
static int place_all(struct keep *k,
                     int (*place)(void *arg, struct message *m, bool half,
                                  struct settle *out),
                     void *arg)
{
    int err = 0;

    for (size_t i = 0; i < k->count; i++) {
        struct kept *x = &k->all[i];
        bool half = slot_hold_again(k->q, x->lent);
        int is;

        x->place.m = &x->lent->m;
        is = place(arg, &x->lent->m, half, &x->place);
        x->settled = is == PLACE_SETTLED;
        if (is < 0 && !err)
            err = is;
    }
    return err;
}

int mq_keep(struct source *s,
            int (*place)(void *arg, struct message *m, bool half,
                         struct settle *out),
            void *arg)
{
    struct source_mq *q = source_mq_of(s);
    struct keep k = {.q = q};
    size_t most;
    int err = -ENOMEM;

    custody_each(q->custody, count_slot, &k);
    most = k.count;
    if (most == 0)
        return 0;
    k.all = calloc(most, sizeof *k.all);
    k.rows = calloc(most, sizeof *k.rows);
    if (k.all && k.rows) {
        k.count = 0;
        custody_each(q->custody, kept_collect, &k);
        qsort(k.all, k.count, sizeof *k.all, by_seq);
        err = place_all(&k, place, arg);
        if (!err)
            err = write_rows(&k);
    }
    free(k.all);
    free(k.rows);
    return err;
}
