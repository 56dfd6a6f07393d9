/* keep.c - what a stop leaves in slots goes to the store (see keep.h)
 *
 * One commit for all, then the slots are FREE (store_put_all).
 * Crash before the commit: each message is in its slot, HELD, and marked as
 * redelivered if a handler may have seen it; recovery runs it from there.
 * Crash between the commit and a slot's store: recovery finds the row, by the
 * receive sequence or as the row that the slot is a run of, with the attempts
 * that the slot has. The first is taken for settled, the second is written once
 * more with the same numbers (recover.c); both free the slot. So there is one
 * message whatever happens, and the mark was on the disk before its slot was
 * free.
 * What this assumes of the kernel: that a commit that returned is on the disk
 * (fsync(2)), and that a store to the mapped file before a kill is seen after
 * it. No handler runs any more, or can still settle: the caller sees to that.
 */
#include "worker/restart/keep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/handlers/handler.h"
#include "worker/flow/unsettled.h"
#include "worker/flow/receive.h"
#include "worker/source/mq/replay.h"
#include "worker/source/mq/row.h"
#include "worker/flow/settle.h"

#define TICK_NS NS_PER_MS

/* A message in a slot, and what it becomes. */
struct left {
    struct delivery d;
    struct lent *lent;
    char group[HEADER_VALUE_MAX + 1]; /* of a row */
    bool half;                        /* it was half received */
};

struct keep {
    struct source_mq *mq;
    struct left *all; /* in receive order */
    struct store_row *rows;
    size_t count, row_count;
    unsigned ran; /* may have run */
};

static void count_slot(struct slot *slot, void *arg)
{
    struct keep *k = arg;

    (void)slot;
    k->count++;
}

/* collect - as it is after its handler was ended
 * One that was half received is what recovery would make of it: nobody else has
 * the slot.
 */
static void collect(struct slot *slot, void *arg)
{
    struct keep *k = arg;
    struct left *l = &k->all[k->count];

    l->lent = source_mq_lent(k->mq, slot);
    l->half = slot_word(slot).state == SLOT_RECEIVING;
    k->count++;
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const struct left *)a)->lent->slot->seq;
    uint64_t y = ((const struct left *)b)->lent->slot->seq;

    return (x > y) - (x < y);
}

/* name - its header, id and group; HELD from here on. Nobody may have looked
 * yet whether it is a letter that was sent again. */
static int name(struct flow *f, struct source_mq *mq, struct left *l)
{
    struct slot *slot = l->lent->slot;
    int is;

    if (l->half)
        slot_resolve(slot, custody_fill(mq->custody),
                     custody_body_bytes(mq->custody));
    if (slot_word(slot).state == SLOT_RUNNING)
        slot_unrun(slot, true);
    lent_fill(l->lent);
    delivery_read(&l->d, &l->lent->m, f->set->group_separator);
    l->d.place = LANE_NONE;
    if (!(l->d.header.fields & HEADER_LETTER))
        return 0;
    is = mq->source.ops->link(&mq->source, &l->lent->m, &l->d.header);
    l->d.repeat = is == LINK_REPEAT;
    return is < 0 ? is : 0;
}

/* name_all - all but second copies of letters, which come to nothing */
static int name_all(struct flow *f, struct keep *k)
{
    size_t n = 0;
    int err = 0;

    for (size_t i = 0; i < k->count; i++) {
        struct left *l = &k->all[i];
        int failed = name(f, k->mq, l);

        err = err ? err : failed;
        if (l->d.repeat) {
            settle_repeat(f, &l->d);
            continue;
        }
        k->ran += (slot_word(l->lent->slot).flags & SLOT_REDELIVERED) != 0;
        k->all[n++] = *l;
    }
    k->count = n;
    return err;
}

/* fresh_row - of a message that has none
 * A group's messages are parked: its order is theirs, and what comes after them
 * waits for them.
 */
static void fresh_row(const struct flow *f, struct store_row *m,
                      const struct left *l)
{
    const struct delivery *d = &l->d;

    row_make(m, l->lent, d->group, d->header.bytes);
    if (receive_delayed(f, d)) {
        m->state = STORE_WAITING;
        m->due_ns = settle_due(d);
    } else if (d->group.at) {
        m->state = STORE_PARKED;
    } else {
        m->state = STORE_WAITING;
        m->due_ns = clock_steady_ns();
    }
}

/* letter_row - of a letter that was sent again: it waits for its turn, and is
 * the first of its group */
static void letter_row(struct store_row *m, const struct left *l)
{
    row_make(m, l->lent, l->d.group, l->d.header.bytes);
    m->state = STORE_WAITING;
    m->due_ns = clock_steady_ns();
    if (m->group)
        m->flags |= STORE_FRONT;
}

/* old_row - of a run of a row that waited or was parked: 1 it is to be written,
 * 0 it need not be
 * What was delayed and got in line in its group stays in line.
 */
static int old_row(struct store_row *m, const struct slot *slot)
{
    struct slot_word w = slot_word(slot);
    struct store_row was = *m;

    if (m->state >= STORE_DEAD || m->attempts != slot->failures)
        return 0; /* its verdict is there */
    m->crashes = w.crashes;
    if (w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (m->state == STORE_WAITING && m->group && m->attempts == 0 &&
        !(m->flags & STORE_FRONT))
        m->state = STORE_PARKED;
    return m->state != was.state || m->flags != was.flags ||
           m->crashes != was.crashes;
}

/* row_of - what becomes of one message: 1 `m` is to be written, 0 the store has
 * all of it, or an operator discarded it; -errno: the store cannot be read */
static int row_of(struct flow *f, struct source_mq *mq, struct left *l,
                  struct store_row *m)
{
    struct slot *slot = l->lent->slot;
    int err;

    if (slot->row == 0) {
        fresh_row(f, m, l);
        return 1;
    }
    err = store_get(mq->store, slot->row, m, NULL, 0, l->group);
    if (err)
        return err == -ENOENT ? 0 : err;
    m->slot = slot;
    m->retire = slot_retire;
    if (m->receive_seq == slot->seq)
        return old_row(m, slot);
    letter_row(m, l);
    return 1;
}

/* write_rows - all rows in one commit, all slots free after it; nothing has
 * happened if it fails */
static int write_rows(struct flow *f, struct keep *k)
{
    int err = atomic_load(&k->mq->store_gone) ? -EBADFD : 0;

    for (size_t i = 0; i < k->count && err >= 0; i++) {
        err = row_of(f, k->mq, &k->all[i], &k->rows[k->row_count]);
        k->row_count += err > 0;
    }
    FAULT_POINT("keep_before_put");
    if (err >= 0 && k->row_count > 0)
        err = store_put_all(k->mq->store, k->rows, k->row_count);
    FAULT_POINT("keep_after_put");
    for (size_t i = 0; i < k->count && err >= 0; i++)
        slot_retire(k->all[i].lent->slot);
    return err < 0 ? err : 0;
}

/* tell_each - where it is, by its id */
static void tell_each(struct keep *k, bool kept)
{
    for (size_t i = 0; i < k->count; i++) {
        struct left *l = &k->all[i];

        log_warn("unfinished", F_STR("msg", delivery_id(&l->d)),
                 F_STR("what", l->half ? "was half received" : NULL),
                 F_STR("next", kept ? "it is in the store; the next worker "
                                      "goes on with it, no attempt counted"
                                    : "stays in custody; the next worker goes "
                                      "on with it, no attempt counted"));
    }
}

/* tell - one line for all */
static void tell(const struct flow *f, const struct keep *k, int err)
{
    if (err)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("count", k->count), F_STR("error", strerror(-err)),
                  F_STR("store", f->folder),
                  F_STR("next",
                        err == -ENOSPC
                            ? "free some space and start a worker; until then "
                              "these messages are in custody only, and must "
                              "not be lost with it"
                            : "check the disk and start a worker; until then "
                              "these messages are in custody only, and must "
                              "not be lost with it"));
    else if (k->count > 0) /* not only second copies of letters */
        log_info("kept", F_STR("queue", f->set->queue),
                 F_UINT("count", k->count), F_UINT("may_have_run", k->ran),
                 F_STR("next", "all are in the store, none in custody; the "
                               "next worker goes on with them"));
}

/* keep_all - see the head of this file */
void keep_all(struct flow *f, struct source_mq *mq)
{
    struct keep k = {.mq = mq};
    size_t most;
    int err = 0;

    custody_each(mq->custody, count_slot, &k);
    most = k.count;
    if (most == 0)
        return;
    k.all = calloc(most, sizeof *k.all);
    k.rows = calloc(most, sizeof *k.rows);
    if (!k.all || !k.rows) {
        tell(f, &k, -ENOMEM);
        goto out;
    }
    k.count = 0;
    custody_each(mq->custody, collect, &k);
    qsort(k.all, k.count, sizeof *k.all, by_seq);
    err = name_all(f, &k);
    if (!err)
        err = write_rows(f, &k);
    tell_each(&k, err == 0);
    tell(f, &k, err);
out:
    free(k.all);
    free(k.rows);
}

/* busy - a thread may settle something still: each work item that runs is in a
 * handler that will never be heard of again, and no verdict is written again */
static bool busy(struct flow *f)
{
    unsigned taken = f->ops->seize(f->handler);

    return atomic_load(&f->growing) || atomic_load(&f->gate.running) > taken ||
           !unsettled_quiet(&f->unsettled);
}

/* keep_quiet - what a handler of ours returns from here on is not asked for
 * Crash anywhere: a slot that was seized is HELD, and runs again from there.
 * Whoever is about to settle is waited for, as long as a handler is after
 * SIGTERM: a message that he writes must not be written by us as well.
 */
bool keep_quiet(struct flow *f)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    uint64_t end = ns_add(clock_mono_ns(), f->set->kill_after_ns);
    bool wait = busy(f);

    while (wait && clock_mono_ns() < end) {
        nanosleep(&tick, NULL);
        wait = busy(f);
    }
    if (wait)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("running", gate_running(&f->gate)),
                  F_STR("error", "a thread of the worker is still busy"),
                  F_STR("next", "their messages stay in custody; start a "
                                "worker, which goes on with them"));
    return !wait;
}
