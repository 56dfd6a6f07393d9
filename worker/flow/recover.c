/* recover.c - what the last worker left in custody (see recover.h)
 *
 * Each step may be cut off by a kill and is done again by the next start with
 * the same result: leftovers are killed before anything is changed; a crash is
 * counted in the one store that also takes the slot out of RUNNING.
 */
#include "worker/flow/recover.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/process/leftover.h"
#include "worker/flow/ordered.h"
#include "worker/source/replay.h"
#include "worker/flow/settle.h"
#include "worker/config/slots.h"

#define CRASHED "the worker died while a handler had it"

/* Not an error: the message runs from its slot. */
#define RUNS_ON 1

struct found {
    struct slot **slots; /* in receive order */
    size_t count;
    unsigned ran; /* of them were RUNNING */
};

static void collect(struct slot *slot, void *arg)
{
    struct found *f = arg;

    f->slots[f->count++] = slot;
    f->ran += slot_word(slot).state == SLOT_RUNNING;
}

/* crashed_last - whether that was a crash too many
 * A handler that is a process did not end the worker: whatever ran counts, and
 * HELD with that many is a letter that the last start could not write. A
 * function may have, and only one that ran alone is to blame for sure. What ran
 * beside others is a suspect: it runs alone now, so that its next crash
 * decides. (A kill of the recovery itself, between two of them, leaves the
 * second one alone.)
 */
static bool crashed_last(const struct engine *e, const struct found *f,
                         bool ran, unsigned crashes)
{
    return crashes >= e->set->max_crashes &&
           (!e->ops->within || (ran && f->ran == 1));
}

/* seeing - a handler that may be left over would be found
 * A message whose handler nobody can see might run beside it. So it does not
 * run, nor does any other: a start that is refused is noticed, and changes
 * nothing.
 */
static int seeing(const struct engine *e, const struct found *f,
                  struct problem *p)
{
    const char *blind = f->ran > 0 ? leftover_blind() : NULL;

    if (!blind)
        return 0;
    return problem_set(p, EX_OSERR, ENOENT,
                       "cannot look for handlers left over from a killed "
                       "worker of %s, which had %u message%s running: /proc: "
                       "%s; nothing was lost, mount it (mount -t proc proc "
                       "/proc) and start again",
                       e->set->queue, f->ran, f->ran == 1 ? "" : "s", blind);
}

/* kill_leftovers - before any of their messages runs again */
static int kill_leftovers(struct engine *e, const struct found *f,
                          struct problem *p)
{
    struct leftover *list = calloc(f->count + 1, sizeof *list);
    size_t n = 0;
    int killed;

    if (!list)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    for (size_t i = 0; i < f->count; i++) {
        const struct slot *slot = f->slots[i];

        if (slot_word(slot).state == SLOT_RUNNING)
            list[n++] = (struct leftover){
                .mark = slot->handler_mark ? slot->handler_mark : slot->seq,
                .pgid = atomic_load(&slot->handler_pgid),
                .start = slot->handler_start,
            };
    }
    killed = leftover_kill(custody_nonce(e->custody), list, n);
    free(list);
    if (killed < 0)
        return problem_set(p, EX_OSERR, -killed,
                           "cannot look for handlers left over from a killed "
                           "worker: /proc: %s; %s",
                           strerror(-killed),
                           killed == -ENOMEM ? "free some memory"
                                             : "mount /proc");
    if (killed > 0)
        log_warn("leftovers_killed", F_STR("queue", e->set->queue),
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
static int settled_already(struct engine *e, const struct slot *slot)
{
    struct store_row m;
    int64_t row;
    int err;

    if (slot->row == 0) {
        err = store_find_seq(e->store, slot->seq, &row);
        return err == 0 ? 1 : err == -ENOENT ? 0 : err;
    }
    err = store_get(e->store, slot->row, &m, NULL, 0, NULL);
    if (err)
        return err == -ENOENT ? 1 : err;
    if (m.receive_seq != slot->seq)
        return 0;
    return m.state >= STORE_DEAD || m.attempts != slot->failures;
}

/* count_crash - and what that made of a row */
static void count_crash(struct engine *e, const struct store_row *m)
{
    struct counters_block *b = counters_rest(e->counters);

    counters_add(&b->crashes, 1);
    if (m && m->state == STORE_DEAD) {
        counters_add(&b->dead, 1);
        counters_settled(e->counters, COUNTERS_DEAD, &m->id, m->died_ns);
    }
    counters_rest_done(e->counters);
}

/* drop - a second copy of a letter */
static void drop(struct engine *e, struct delivery *d)
{
    (void)settle_repeat(e, d);
    custody_release(e->custody, d->slot);
}

/* bury - dead by crashes, or by a machine that went down under it */
static int bury(struct engine *e, struct slot *slot, const char *error)
{
    struct delivery d = {0};
    int err;

    delivery_read(&d, slot, e->set->group_separator);
    err = replay_link(e, &d); /* its letter becomes this one, no second one */
    if (err)
        return err;
    FAULT_POINT("recover_before_bury");
    if (d.repeat)
        drop(e, &d);
    else if (settle_dead(e, &d, REASON_CRASHED, error) == SETTLED_FREE)
        custody_release(e->custody, slot);
    return 0;
}

/* tell_crash - a worker died under it, and it runs again */
static void tell_crash(struct engine *e, const struct ulid *ulid,
                       unsigned crashes)
{
    char id[ULID_TEXT];

    log_warn("crashed", F_STR("msg", ulid_print(*ulid, id)),
             F_UINT("crashes", crashes), F_UINT("of", e->set->max_crashes),
             F_STR("next", e->ops->within
                               ? "it runs again, with nothing beside it"
                               : "it runs again"));
}

/* tell_row - the same of a row, or that it is dead */
static void tell_row(struct engine *e, const struct store_row *m)
{
    char id[ULID_TEXT];

    if (m->state == STORE_DEAD)
        log_warn("dead", F_STR("msg", ulid_print(m->id, id)),
                 F_STR("reason", store_reason_text(m->reason)),
                 F_STR("error", m->error), F_UINT("attempts", m->attempts));
    else
        tell_crash(e, &m->id, m->crashes);
}

/* row_crashed - the row takes the crash and waits again, or is dead
 * It is a suspect as long as this worker runs: the next start does not know of
 * those that have not run again by then, but nothing ran beside the one that
 * crashed.
 */
static int row_crashed(struct engine *e, const struct found *f,
                       const struct slot *slot, struct store_row *m)
{
    struct slot_word w = slot_word(slot);
    int err;

    if (m->state != STORE_PARKED)
        m->state = STORE_WAITING;
    m->crashes = w.crashes + (w.state == SLOT_RUNNING);
    if (w.state == SLOT_RUNNING || w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (w.state == SLOT_RUNNING && crashed_last(e, f, true, m->crashes)) {
        m->state = STORE_DEAD;
        m->reason = REASON_CRASHED;
        m->error = CRASHED;
        m->died_ns = clock_wall_ns();
    }
    if (w.state == SLOT_RUNNING)
        count_crash(e, m);
    err = store_put(e->store, m, NULL, NULL);
    if (err || w.state != SLOT_RUNNING)
        return err;
    tell_row(e, m);
    return e->ops->within && m->state != STORE_DEAD
               ? suspects_add(&e->gate.suspects, NULL, m->row)
               : 0;
}

/* let_go - nothing is left to do from the slot */
static void let_go(struct engine *e, struct slot *slot)
{
    slot_retire(slot);
    if (slot->row)
        retries_land(e->retries, slot->row);
    custody_release(e->custody, slot);
}

/* put_back - a run of a stored row: the row takes the crash, the slot is free
 * Crash between the two: the next start writes the same numbers again, as they
 * come from the slot.
 * A letter that was sent again runs on from its slot: until it is settled its
 * row is a letter, which holds its group. Torn, it is recalled from that row.
 */
static int put_back(struct engine *e, const struct found *f, struct slot *slot)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err = store_get(e->store, slot->row, &m, NULL, 0, group);

    if (err)
        return err;
    if (m.receive_seq != slot->seq && !custody_torn(e->custody))
        return RUNS_ON;
    if (m.receive_seq == slot->seq)
        err = row_crashed(e, f, slot, &m);
    if (err && err != -ENOENT) /* discarded meanwhile */
        return err;
    FAULT_POINT("recover_row_before_retire");
    let_go(e, slot);
    return 0;
}

/* unreadable - the store says no; the slot stays as it is */
static int unreadable(struct engine *e, int err, struct problem *p)
{
    if (err == -ENOMEM)
        return problem_set(p, EX_OSERR, ENOMEM,
                           "out of memory while looking for what the last "
                           "worker left in %s; nothing was lost, free some and "
                           "start again",
                           e->set->queue);
    return problem_set(p, EX_CANTCREAT, -err,
                       "store of %s: %s; nothing was lost, mend it and start "
                       "again",
                       e->set->queue, strerror(-err));
}

/* settle_old - what needs no run of its own any more. True: the slot is
 * free. */
static int settle_old(struct engine *e, const struct found *f,
                      struct slot *slot, bool *freed, struct problem *p)
{
    bool ran = slot_word(slot).state == SLOT_RUNNING;
    int err = settled_already(e, slot);

    if (slot->received_ns == 0) /* the kill came first; --retry-for asks */
        slot->received_ns = clock_wall_ns();
    *freed = true;
    if (err < 0)
        return unreadable(e, err, p);
    if (err == 1) {
        FAULT_POINT("recover_settled_before_retire");
        let_go(e, slot);
        return 0;
    }
    if (slot->row) {
        err = put_back(e, f, slot);
        if (err != RUNS_ON)
            return err ? unreadable(e, err, p) : 0;
    }
    if (custody_torn(e->custody)) {
        err = bury(e, slot,
                   "the machine went down while it was in flight; the body may "
                   "be damaged");
        return err ? unreadable(e, err, p) : 0;
    }
    if (ran) {
        slot_crashed(slot);
        count_crash(e, NULL);
    }
    *freed = crashed_last(e, f, ran, slot_word(slot).crashes);
    err = 0;
    if (*freed)
        err = bury(e, slot, CRASHED);
    else if (ran)
        tell_crash(e, &slot->id, slot_word(slot).crashes);
    return err ? unreadable(e, err, p) : 0;
}

/* revive - a message that runs: to its group, or to the ready list */
static int revive(struct engine *e, struct slot *slot)
{
    struct delivery d = {0};
    int err;

    delivery_read(&d, slot, e->set->group_separator);
    err = replay_link(e, &d);
    if (err)
        return err;
    if (d.repeat) {
        drop(e, &d);
        return 0;
    }
    if (d.group.at)
        err = ordered_add(e, &d);
    if (err == 0)
        ready_put(&e->ready, slot, false);
    if (err >= 0 && e->ops->within && slot_word(slot).crashes > 0)
        err = suspects_add(&e->gate.suspects, slot, 0);
    return err < 0 ? err : 0;
}

/* rows_fly - before any slot is looked at: of two copies of a letter the one
 * that was linked to its row is the message, wherever the other one is */
static void rows_fly(struct engine *e, const struct found *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->slots[i]->row)
            (void)retries_fly(e->retries, f->slots[i]->row);
}

/* revive_all - stored rows first: groups are restored from the store before
 * messages are added to them */
static int revive_all(struct engine *e, struct found *f, struct problem *p)
{
    size_t n = 0;
    bool freed;
    int err = 0;

    rows_fly(e, f);
    for (size_t i = 0; i < f->count && !err; i++) {
        err = settle_old(e, f, f->slots[i], &freed, p);
        if (!err && !freed)
            f->slots[n++] = f->slots[i];
    }
    if (err)
        return err;
    f->count = n;
    FAULT_POINT("recover_before_restore");
    err = ordered_restore(e);
    FAULT_POINT("recover_before_revive");
    for (size_t i = 0; i < n && !err; i++)
        err = revive(e, f->slots[i]);
    FAULT_POINT("recover_after_revive");
    return err ? unreadable(e, err, p) : 0;
}

/* goes_on - without a free slot, as one becomes free by and by: a message on
 * the ready list runs in its own, a verdict is written, groups are parked */
static bool goes_on(const struct engine *e)
{
    return ready_waiting(&e->ready) > 0 || atomic_load(&e->unsettled) > 0 ||
           ordered_stuck(e);
}

/* room_make - what waits in its group is taken by way of a free slot, too
 * What was on its way to the store when the kill came may have filled them all.
 * With room in the file all may run beside each other from the start. Without,
 * a start is refused only if nothing would ever run.
 */
static int room_make(struct engine *e, struct problem *p)
{
    struct problem why;
    int err;

    if (custody_free_slots(e->custody) > 0)
        return 0;
    err = custody_grow(e->custody,
                       custody_slots(e->custody) + slots_more(e->set), &why);
    if (!err)
        return 0;
    if (!goes_on(e)) {
        if (p)
            *p = why;
        return err;
    }
    log_warn("slots_full", F_STR("queue", e->set->queue),
             F_STR("error", why.text),
             F_STR("next", "it goes on with the slots that there are; fewer "
                           "run at once until some of them are free"));
    return 0;
}

/* report - what recovery found, where it found anything */
static void report(struct engine *e, const struct found *f)
{
    const char *copy;
    unsigned damaged = custody_damaged(e->custody, &copy);

    if (damaged || copy[0])
        log_error("custody_damaged", F_STR("queue", e->set->queue),
                  F_UINT("slots", damaged), F_STR("copy", copy),
                  F_STR("next", "these slots, or numbers of the file, could "
                                "not be read; the file as it was is kept in "
                                "the copy"));
    if (f->count)
        log_info("recovered", F_STR("queue", e->set->queue),
                 F_UINT("messages", f->count));
}

/* recover - make ready what the last worker left */
int recover(struct engine *e, struct problem *p)
{
    struct found f = {0};
    uint64_t seq;
    int err;

    f.slots = reallocarray(NULL, custody_slots(e->custody) + 1,
                           sizeof(struct slot *));
    if (!f.slots)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = custody_recover(e->custody, collect, &f, p);
    FAULT_POINT("recover_before_leftovers");
    if (!err)
        err = seeing(e, &f, p);
    if (!err)
        err = kill_leftovers(e, &f, p);
    FAULT_POINT("recover_after_leftovers");
    if (!err) {
        err = store_max_seq(e->store, &seq);
        if (err)
            err = unreadable(e, err, p);
        else
            custody_seq_raise(e->custody, seq + 1);
    }
    if (!err)
        err = revive_all(e, &f, p);
    if (!err)
        err = room_make(e, p);
    if (!err && custody_torn(e->custody) && atomic_load(&e->unsettled))
        err = problem_set(p, EX_CANTCREAT, EIO,
                          "store of %s cannot be written, and what was in "
                          "flight when the machine went down must go there; "
                          "free some space and start again",
                          e->set->queue);
    if (!err) {
        custody_mend(e->custody);
        report(e, &f);
    }
    free(f.slots);
    return err;
}
