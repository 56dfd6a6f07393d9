/* mq_keep.c - what an orderly end leaves in slots goes to the store (see
 * source_mq.h)
 *
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

#include <errno.h>
#include <stdlib.h>

#include "common/base/fault_point.h"

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

static void collect(struct slot *slot, void *arg)
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

/* hold - HELD from here on, as after its handler was ended; one that was half
 * received is what recovery would make of it: true */
static bool hold(const struct source_mq *q, struct lent *l)
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
 * A delayed message that got in line in its group stays in line.
 */
static bool old_row(struct store_row *m, const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    struct store_row was = *m;

    if (m->state >= STORE_DEAD || m->attempts != slot->failures)
        return false; /* its verdict is there */
    m->crashes = w.crashes;
    if (w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (m->state == STORE_WAITING && m->group && m->attempts == 0 &&
        !(m->flags & STORE_FRONT))
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
    else if (!old_row(m, slot))
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
        bool half = hold(k->q, x->lent);
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
        custody_each(q->custody, collect, &k);
        qsort(k.all, k.count, sizeof *k.all, by_seq);
        err = place_all(&k, place, arg);
        if (!err)
            err = write_rows(&k);
    }
    free(k.all);
    free(k.rows);
    return err;
}
