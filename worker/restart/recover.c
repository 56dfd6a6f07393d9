/* recover.c - what the last worker left in custody (see recover.h)
 *
 * Each step may be cut off by a kill and is done again by the next start with
 * the same result: leftovers are killed before anything is changed; a crash is
 * counted in the one store that also takes the slot out of RUNNING.
 */
#include "worker/restart/recover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/process/leftovers.h"
#include "worker/process/process_search.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/settle.h"
#include "worker/config/slots.h"
#include "worker/source/mq/source_mq.h"

#define CRASHED "the worker died while a handler had it"

/* Not an error: the message runs from its slot. */
#define RUNS_ON 1

struct found {
    struct source_mq *mq;
    struct slot **slots; /* in receive order */
    size_t count;
    unsigned ran; /* of them were RUNNING */
};

static void collect(struct slot *slot, void *arg)
{
    struct found *found = arg;

    found->slots[found->count++] = slot;
    found->ran += slot_word(slot).state == SLOT_RUNNING;
}

/* crashed_last - whether that was a crash too many
 * A handler that is a process did not end the worker: whatever ran counts, and
 * HELD with that many is a letter that the last start could not write. A
 * function may have, and only one that ran alone is to blame for sure. What ran
 * beside others is a suspect: it runs alone now, so that its next crash
 * decides. (A kill of the recovery itself, between two of them, leaves the
 * second one alone.)
 */
static bool crashed_last(const struct flow *f, const struct found *found,
                         bool ran, unsigned crashes)
{
    return crashes >= f->set->max_crashes &&
           (!f->ops->within || (ran && found->ran == 1));
}

/* seeing - a handler that may be left over would be found
 * A message whose handler nobody can see might run beside it. So it does not
 * run, nor does any other: a start that is refused is noticed, and changes
 * nothing.
 */
static int seeing(const struct flow *f, const struct found *found,
                  struct problem *p)
{
    const char *blind = found->ran > 0 ? process_search_blind() : NULL;

    if (!blind)
        return 0;
    return problem_set(p, EX_OSERR, ENOENT,
                       "cannot look for handlers left over from a killed "
                       "worker of %s, which had %u message%s running: /proc: "
                       "%s; nothing was lost, mount it (mount -t proc proc "
                       "/proc) and start again",
                       f->set->queue, found->ran, found->ran == 1 ? "" : "s",
                       blind);
}

/* kill_leftovers - before any of their messages runs again */
static int kill_leftovers(struct flow *f, const struct found *found,
                          struct problem *p)
{
    struct stale_handler *list = calloc(found->count + 1, sizeof *list);
    size_t n = 0;
    int killed;

    if (!list)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    for (size_t i = 0; i < found->count; i++) {
        const struct slot *slot = found->slots[i];

        if (slot_word(slot).state == SLOT_RUNNING)
            list[n++] = (struct stale_handler){
                .mark = slot->handler_mark ? slot->handler_mark : slot->seq,
                .pgid = atomic_load(&slot->handler_pgid),
                .start = slot->handler_start,
            };
    }
    killed = stale_handlers_kill(custody_nonce(found->mq->custody), list, n);
    free(list);
    if (killed < 0)
        return problem_set(p, EX_OSERR, -killed,
                           "cannot look for handlers left over from a killed "
                           "worker: /proc: %s; %s",
                           strerror(-killed),
                           killed == -ENOMEM ? "free some memory"
                                             : "mount /proc");
    if (killed > 0)
        log_warn("leftovers_killed", F_STR("queue", f->set->queue),
                 F_INT("processes", killed));
    return 0;
}

/* settled_already - whether the verdict is in the store, only the slot was not
 * freed: 1 yes, 0 no, or -errno
 * A run of a waiting or parked row: done or discarded deletes the row; a
 * failure counts its attempt or changes its state. A replayed letter that runs
 * under a new receive sequence: settling writes that sequence to the row. A
 * fresh message: settling stores a row with its sequence, or leaves no trace
 * (then the slot was freed by the very same store, or it runs again).
 */
static int settled_already(const struct found *found, const struct slot *slot)
{
    struct store_row m;
    int64_t row;
    int err;

    if (slot->row == 0) {
        err = store_find_seq(found->mq->store, slot->seq, &row);
        return err == 0 ? 1 : err == -ENOENT ? 0 : err;
    }
    err = store_get(found->mq->store, slot->row, &m, NULL, 0, NULL);
    if (err)
        return err == -ENOENT ? 1 : err;
    if (m.receive_seq != slot->seq)
        return 0;
    return m.state >= STORE_DEAD || m.attempts != slot->failures;
}

/* count_crash - and what that made of a row */
static void count_crash(struct flow *f, const struct store_row *m)
{
    struct counters_block *b = counters_rest(f->counters);

    counters_add(&b->crashes, 1);
    if (m && m->state == STORE_DEAD) {
        counters_add(&b->dead, 1);
        counters_settled(f->counters, COUNTERS_DEAD, &m->id, m->died_ns);
    }
    counters_rest_done(f->counters);
}

/* read_slot - the message in a slot, as it is lent, and whether it is a letter:
 * enum source_link, or -errno */
static int read_slot(struct flow *f, const struct found *found,
                     struct slot *slot, struct delivery *d)
{
    struct lent *l = source_mq_lent(found->mq, slot);
    int is = LINK_NONE;

    lent_fill(l);
    delivery_read(d, &l->m, f->set->group_separator);
    d->place = LANE_NONE;
    if (d->header.fields & HEADER_LETTER)
        is = f->source->ops->link(f->source, &l->m, &d->header);
    return is;
}

/* bury - dead by crashes, or by a machine that went down under it; its letter
 * becomes this one, no second one */
static int bury(struct flow *f, const struct found *found, struct slot *slot,
                const char *error)
{
    struct delivery d = {0};
    int is = read_slot(f, found, slot, &d);

    if (is < 0)
        return is;
    FAULT_POINT("recover_before_bury");
    if (is == LINK_REPEAT)
        settle_repeat(f, &d);
    else
        settle_dead(f, &d, REASON_CRASHED, error);
    return 0;
}

/* tell_crash - a worker died under it, and it runs again */
static void tell_crash(struct flow *f, const struct ulid *ulid,
                       unsigned crashes)
{
    char id[ULID_TEXT];

    log_warn("crashed", F_STR("msg", ulid_print(*ulid, id)),
             F_UINT("crashes", crashes), F_UINT("of", f->set->max_crashes),
             F_STR("next", f->ops->within
                               ? "it runs again, with nothing beside it"
                               : "it runs again"));
}

/* tell_row - the same of a row, or that it is dead */
static void tell_row(struct flow *f, const struct store_row *m)
{
    char id[ULID_TEXT];

    if (m->state == STORE_DEAD)
        log_warn("dead", F_STR("msg", ulid_print(m->id, id)),
                 F_INT("letter", m->row),
                 F_STR("reason", dead_reason_text(m->reason)),
                 F_STR("error", m->error), F_UINT("attempts", m->attempts));
    else
        tell_crash(f, &m->id, m->crashes);
}

/* row_crashed - the row takes the crash and waits again, or is dead
 * It is a suspect as long as this worker runs: the next start does not know of
 * those that have not run again by then, but nothing ran beside the one that
 * crashed.
 */
static int row_crashed(struct flow *f, const struct found *found,
                       const struct slot *slot, struct store_row *m)
{
    struct slot_word w = slot_word(slot);
    int err;

    if (m->state != STORE_PARKED)
        m->state = STORE_WAITING;
    m->crashes = w.crashes + (w.state == SLOT_RUNNING);
    if (w.state == SLOT_RUNNING || w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (w.state == SLOT_RUNNING && crashed_last(f, found, true, m->crashes)) {
        m->state = STORE_DEAD;
        m->reason = REASON_CRASHED;
        m->error = CRASHED;
        m->died_ns = clock_wall_ns();
    }
    if (w.state == SLOT_RUNNING)
        count_crash(f, m);
    err = store_put(found->mq->store, m, NULL, NULL);
    if (err || w.state != SLOT_RUNNING)
        return err;
    tell_row(f, m);
    return f->ops->within && m->state != STORE_DEAD
               ? suspects_add(&f->gate.suspects, m->receive_seq)
               : 0;
}

/* let_go - nothing is left to do from the slot */
static void let_go(const struct found *found, struct slot *slot)
{
    slot_retire(slot);
    if (slot->row)
        due_rows_release(found->mq->due_rows, slot->row);
    custody_release(found->mq->custody, slot);
}

/* put_back - a run of a stored row: the row takes the crash, the slot is free
 * Crash between the two: the next start writes the same numbers again, as they
 * come from the slot.
 * A letter that was sent again runs on from its slot: until it is settled its
 * row is a letter, which holds its group. Torn, it is recalled from that row.
 */
static int put_back(struct flow *f, const struct found *found,
                    struct slot *slot)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err = store_get(found->mq->store, slot->row, &m, NULL, 0, group);

    if (err)
        return err;
    if (m.receive_seq != slot->seq && !custody_torn(found->mq->custody))
        return RUNS_ON;
    if (m.receive_seq == slot->seq)
        err = row_crashed(f, found, slot, &m);
    if (err && err != -ENOENT) /* discarded meanwhile */
        return err;
    FAULT_POINT("recover_row_before_retire");
    let_go(found, slot);
    return 0;
}

/* unreadable - the store says no; the slot stays as it is */
static int unreadable(struct flow *f, int err, struct problem *p)
{
    if (err == -ENOMEM)
        return problem_set(p, EX_OSERR, ENOMEM,
                           "out of memory while looking for what the last "
                           "worker left in %s; nothing was lost, free some and "
                           "start again",
                           f->set->queue);
    return problem_set(p, EX_CANTCREAT, -err,
                       "store of %s: %s; nothing was lost, fix it and start "
                       "again",
                       f->set->queue, strerror(-err));
}

/* settle_old - what needs no run of its own any more. True: the slot is
 * free. */
static int settle_old(struct flow *f, const struct found *found,
                      struct slot *slot, bool *freed, struct problem *p)
{
    bool ran = slot_word(slot).state == SLOT_RUNNING;
    int err = settled_already(found, slot);

    if (slot->received_ns == 0) /* the kill came first; --retry-for asks */
        slot->received_ns = clock_wall_ns();
    *freed = true;
    if (err < 0)
        return unreadable(f, err, p);
    if (err == 1) {
        FAULT_POINT("recover_settled_before_retire");
        let_go(found, slot);
        return 0;
    }
    if (slot->row) {
        err = put_back(f, found, slot);
        if (err != RUNS_ON)
            return err ? unreadable(f, err, p) : 0;
    }
    if (custody_torn(found->mq->custody)) {
        err = bury(f, found, slot,
                   "the machine went down while it was in flight; the body may "
                   "be damaged");
        return err ? unreadable(f, err, p) : 0;
    }
    if (ran) {
        slot_crashed(slot);
        count_crash(f, NULL);
    }
    *freed = crashed_last(f, found, ran, slot_word(slot).crashes);
    err = 0;
    if (*freed)
        err = bury(f, found, slot, CRASHED);
    else if (ran)
        tell_crash(f, &slot->id, slot_word(slot).crashes);
    return err ? unreadable(f, err, p) : 0;
}

/* revive - a message that runs: to its group, or to the ready list */
static int revive(struct flow *f, const struct found *found, struct slot *slot)
{
    struct delivery d = {0};
    int err = read_slot(f, found, slot, &d);

    if (err < 0)
        return err;
    if (err == LINK_REPEAT) {
        settle_repeat(f, &d);
        return 0;
    }
    err = d.group.at ? dispatch_add(f, &d) : TAKEN;
    if (err == TAKEN)
        ready_put(&f->ready, d.message, false);
    if (err >= 0 && f->ops->within && d.message->crashes > 0)
        err = suspects_add(&f->gate.suspects, d.message->seq);
    return err < 0 ? err : 0;
}

/* rows_fly - before any slot is looked at: of two copies of a letter the one
 * that was linked to its row is the message, wherever the other one is */
static void rows_fly(const struct found *found)
{
    for (size_t i = 0; i < found->count; i++)
        if (found->slots[i]->row)
            (void)due_rows_try_claim(found->mq->due_rows, found->slots[i]->row);
}

/* revive_all - stored rows first: groups are restored from the store before
 * messages are added to them */
static int revive_all(struct flow *f, struct found *found, struct problem *p)
{
    size_t n = 0;
    bool freed;
    int err = 0;

    rows_fly(found);
    for (size_t i = 0; i < found->count && !err; i++) {
        err = settle_old(f, found, found->slots[i], &freed, p);
        if (!err && !freed)
            found->slots[n++] = found->slots[i];
    }
    if (err)
        return err;
    found->count = n;
    FAULT_POINT("recover_before_restore");
    err = dispatch_restore(f);
    FAULT_POINT("recover_before_revive");
    for (size_t i = 0; i < n && !err; i++)
        err = revive(f, found, found->slots[i]);
    FAULT_POINT("recover_after_revive");
    return err ? unreadable(f, err, p) : 0;
}

/* goes_on - without a free slot, as one becomes free by and by: a message on
 * the ready list runs in its own, a verdict is written, groups are parked */
static bool goes_on(const struct flow *f)
{
    return ready_waiting(&f->ready) > 0 || unsettled_count(&f->unsettled) > 0 ||
           dispatch_stuck(f);
}

/* room_make - what waits in its group is taken by way of a free slot, too
 * What was on its way to the store when the kill came may have filled them all.
 * With room in the file all may run beside each other from the start. Without,
 * a start is refused only if nothing would ever run.
 */
static int room_make(struct flow *f, const struct found *found,
                     struct problem *p)
{
    struct problem why;
    int err;

    if (custody_free_slots(found->mq->custody) > 0)
        return 0;
    err = custody_grow(found->mq->custody,
                       custody_slots(found->mq->custody) + slots_more(f->set),
                       &why);
    if (!err)
        return 0;
    if (!goes_on(f)) {
        if (p)
            *p = why;
        return err;
    }
    log_warn("slots_full", F_STR("queue", f->set->queue),
             F_STR("error", why.text),
             F_STR("next", "it goes on with the slots that there are; fewer "
                           "run at once until some of them are free"));
    return 0;
}

/* report - what recovery found, where it found anything */
static void report(struct flow *f, const struct found *found)
{
    const char *copy;
    unsigned damaged = custody_damaged(found->mq->custody, &copy);

    if (damaged || copy[0])
        log_error("custody_damaged", F_STR("queue", f->set->queue),
                  F_UINT("slots", damaged), F_STR("copy", copy),
                  F_STR("next", "these slots, or numbers of the file, could "
                                "not be read; the file as it was is kept in "
                                "the copy"));
    if (found->count)
        log_info("recovered", F_STR("queue", f->set->queue),
                 F_UINT("messages", found->count));
}

/* recover - make ready what the last worker left */
int recover(struct flow *f, struct source_mq *mq, struct problem *p)
{
    struct found found = {.mq = mq};
    uint64_t seq;
    int err;

    found.slots = reallocarray(NULL, custody_slots(mq->custody) + 1,
                               sizeof(struct slot *));
    if (!found.slots)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_recover(mq->custody, collect, &found, p);
    FAULT_POINT("recover_before_leftovers");
    if (!err)
        err = seeing(f, &found, p);
    if (!err)
        err = kill_leftovers(f, &found, p);
    FAULT_POINT("recover_after_leftovers");
    if (!err) {
        err = store_max_seq(mq->store, &seq);
        if (err)
            err = unreadable(f, err, p);
        else
            custody_seq_raise(mq->custody, seq + 1);
    }
    if (!err)
        err = revive_all(f, &found, p);
    if (!err)
        err = room_make(f, &found, p);
    if (!err && custody_torn(mq->custody) && unsettled_count(&f->unsettled))
        err = problem_set(p, EX_CANTCREAT, EIO,
                          "store of %s cannot be written, and what was in "
                          "flight when the machine went down must go there; "
                          "free some space and start again",
                          f->set->queue);
    if (!err) {
        custody_fix(mq->custody);
        report(f, &found);
    }
    free(found.slots);
    return err;
}
