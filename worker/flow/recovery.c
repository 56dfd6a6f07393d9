/* recovery.c - from one worker to the next: what the last one left, and what
 * this one leaves (see recovery.h) */
#include "worker/flow/recovery.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "common/state/counters.h"
#include "worker/config/settings.h"
#include "worker/flow/crashes.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/receive.h"
#include "worker/flow/settle.h"
#include "worker/flow/unsettled.h"
#include "worker/handlers/handler.h"
#include "worker/process/leftovers.h"

/* ---- at a start: what the last worker had ---- */

/* The source knows what they are, and whether a crash is counted. Each step may
 * be cut off by a kill and is done again by the next start with the same
 * result: leftovers are killed before anything is changed.
 */

#define UNSEEN_NS      (2 * NS_PER_S) /* time for dying handlers to disappear */
#define UNSEEN_LOOK_MS 10

#define TORN \
    "the machine went down while it was in flight; the body may be damaged"

struct found {
    struct flow *flow;
    struct stale_handler *runs; /* of those that ran */
    struct message **lent;      /* that run, in the source's order */
    size_t run_count, count;
    bool torn; /* the machine went down */
};

static void on_run(void *arg, const struct source_run *run)
{
    struct found *found = arg;

    found->runs[found->run_count++] = (struct stale_handler){
        .mark = run->mark, .pgid = run->group, .start = run->start};
}

/* seeing - a handler that may be left over would be found
 * A message whose handler nobody can see might run beside it. So it does not
 * run, nor does any other: a start that is refused is noticed, and changes
 * nothing. Where nothing was running there is nothing to look for yet.
 */
static int seeing(const struct found *found, struct problem *p)
{
    const struct flow *f = found->flow;
    const char *blind = process_search_blind();

    if (blind && found->run_count == 0 && !f->ops->within)
        log_warn("proc_not_seen", F_STR("queue", f->set->queue),
                 F_STR("why", blind),
                 F_STR("next", "mount it (mount -t proc proc /proc): without "
                               "it what a handler leaves outside of its "
                               "process group is not found, and a start after "
                               "a kill is refused"));
    if (!blind || found->run_count == 0)
        return 0;
    return problem_set(p, EX_OSERR, ENOENT,
                       "cannot look for handlers left over from a killed "
                       "worker of %s, which had %zu message%s running: /proc: "
                       "%s; nothing was lost, mount it (mount -t proc proc "
                       "/proc) and start again",
                       f->set->queue, found->run_count,
                       found->run_count == 1 ? "" : "s", blind);
}

/* kill_leftovers - before any of their messages runs again */
static int kill_leftovers(const struct found *found, struct problem *p)
{
    const struct flow *f = found->flow;
    int killed =
        stale_handlers_kill(f->source->nonce, found->runs, found->run_count);

    if (killed < 0)
        return problem_set(p, EX_OSERR, -killed,
                           "cannot look for handlers left over from a killed "
                           "worker: /proc: %s; %s",
                           errno_text(-killed),
                           killed == -ENOMEM ? "free some memory"
                                             : "mount /proc");
    if (killed > 0)
        log_warn("leftovers_killed", F_STR("queue", f->set->queue),
                 F_INT("processes", killed));
    return 0;
}

/* Wait until no handler of a killed worker is alive outside of /proc. Such a
 * handler is in another PID namespace, so this worker cannot kill the handler
 * and must not run its message beside it. If the killed worker was the first
 * process of that namespace, the kernel drops the worker's lock just before it
 * kills the other processes there (exit_files and zap_pid_ns_processes in
 * do_exit). */
static int unseen_wait(const struct found *found, struct problem *p)
{
    const struct flow *f = found->flow;
    uint64_t until = clock_mono_ns() + UNSEEN_NS;
    int key = alive_key(f->source->nonce), count;

    if (found->run_count == 0)
        return 0;
    while ((count = alive_unseen(key)) > 0 && clock_mono_ns() < until)
        (void)poll(NULL, 0, UNSEEN_LOOK_MS);
    return count == 0
               ? 0
               : problem_set(p, EX_UNAVAILABLE, EBUSY,
                             "queue %s: a killed worker left %d handler%s "
                             "running in another PID namespace, where %s "
                             "cannot be killed from here, and no message may "
                             "run twice. Nothing was lost: stop the container "
                             "in which that worker ran, and start again",
                             f->set->queue, count, count == 1 ? "" : "s",
                             count == 1 ? "it" : "they");
}

/* read_left - the delivery of a message that is lent, and whether it is known:
 * 0, or -errno */
static int read_left(struct flow *f, struct message *m, struct delivery *d)
{
    delivery_read(d, m, f->set->group_separator);
    d->place = LANE_NONE;
    return known_look(f, d);
}

/* settle_crashed - dead by crashes, or by a machine that went down under it;
 * its letter becomes this one, no second one */
static int settle_crashed(struct flow *f, struct message *m, const char *error)
{
    struct delivery d = {0};
    int err = read_left(f, m, &d);

    if (err)
        return err;
    FAULT_POINT("recover_before_dead");
    if (d.repeat || d.duplicate)
        settle_repeat(f, &d);
    else
        settle_dead(f, &d, REASON_CRASHED, error);
    return 0;
}

/* count_crash - a worker died under it */
static void count_crash(struct flow *f)
{
    counters_add(&counters_rest(f->counters)->crashes, 1);
    counters_rest_done(f->counters);
}

/* tell_crash - and it runs again */
static void tell_crash(const struct flow *f, struct message *m)
{
    char id[ULID_TEXT];

    log_warn("crashed", F_STR("msg", ulid_print(*message_name(m), id)),
             F_UINT("crashes", m->crashes), F_UINT("of", f->set->max_crashes),
             F_STR("next", crashes_is_suspect(f, m)
                               ? "it runs again, with nothing beside it"
                               : "it runs again"));
}

/* on_left - what needs no run of its own is settled, the others wait until the
 * groups are restored */
static int on_left(void *arg, const struct source_left *left)
{
    struct found *found = arg;
    struct flow *f = found->flow;

    found->torn |= left->torn;
    if (left->ran)
        count_crash(f);
    if (left->torn && !left->waits)
        return settle_crashed(f, left->m, TORN);
    if (crashes_too_many(f, left->m))
        return settle_crashed(f, left->m, CRASHES_ERROR);
    if (left->ran)
        tell_crash(f, left->m);
    if (left->waits) {
        source_return(f->source, left->m, LANE_NONE, 0);
        f->source->ops->release(f->source, left->m);
        return 0;
    }
    found->lent[found->count++] = left->m;
    return 0;
}

/* revive - a message that runs: to its group, or to the ready list */
static int revive(struct flow *f, struct message *m)
{
    struct delivery d = {0};
    int err = read_left(f, m, &d);

    if (err)
        return err;
    if (d.repeat || d.duplicate) {
        settle_repeat(f, &d);
        return 0;
    }
    err = d.group.at ? dispatch_add(f, &d) : TAKEN;
    if (err == TAKEN)
        ready_put(&f->ready, m, false);
    return err < 0 ? err : 0;
}

/* unreadable - the source says no; lent messages stay as they are */
static int unreadable(const struct flow *f, int err, struct problem *p)
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
                       f->set->queue, errno_text(-err));
}

/* revive_all - what waits in the source first: groups are restored from there
 * before messages are added to them */
static int revive_all(struct found *found, struct problem *p)
{
    struct flow *f = found->flow;
    int err = f->source->ops->recover(f->source, on_left, found);

    if (err)
        return unreadable(f, err, p);
    FAULT_POINT("recover_before_restore");
    err = dispatch_restore(f);
    FAULT_POINT("recover_before_revive");
    for (size_t i = 0; i < found->count && !err; i++)
        err = revive(f, found->lent[i]);
    FAULT_POINT("recover_after_revive");
    return err ? unreadable(f, err, p) : 0;
}

/* goes_on - without room for one more, as there is some by and by: a message on
 * the ready list runs, a verdict is written, groups are parked */
static bool goes_on(const struct flow *f)
{
    return f->source->ops->pending(f->source) || ready_waiting(&f->ready) > 0 ||
           unsettled_count(&f->unsettled) > 0 || dispatch_must_park(f);
}

/* room_make - what waits in its group must be lent to be run
 * Messages on their way to the source when the kill came may have taken all the
 * room. With more of it all may run beside each other from the start. Without,
 * a start is refused only if nothing would ever run.
 */
static int room_make(struct flow *f, struct problem *p)
{
    const struct source_ops *ops = f->source->ops;
    struct problem why;
    int err;

    if (ops->room(f->source) > 0)
        return 0;
    err =
        ops->resize(f->source, ops->lent(f->source) + slots_more(f->set), &why);
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

/* all_written - what was torn is in the source for good, and nowhere else */
static int all_written(const struct found *found, struct problem *p)
{
    const struct flow *f = found->flow;

    if (!found->torn || unsettled_count(&f->unsettled) == 0)
        return 0;
    return problem_set(p, EX_CANTCREAT, EIO,
                       "store of %s cannot be written, and what was in "
                       "flight when the machine went down must go there; "
                       "free some space and start again",
                       f->set->queue);
}

/* recover - end what is left over, then run what was left */
int recover(struct flow *f, struct problem *p)
{
    unsigned most = f->source->ops->lent(f->source);
    struct found found = {.flow = f};
    int err;

    found.runs = calloc(most, sizeof *found.runs);
    found.lent = calloc(most, sizeof(struct message *));
    if (found.runs && found.lent)
        err = f->source->ops->runs(f->source, on_run, &found, p);
    else
        err = problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    FAULT_POINT("recover_before_leftovers");
    if (!err)
        err = seeing(&found, p);
    if (!err)
        err = kill_leftovers(&found, p);
    if (!err)
        err = unseen_wait(&found, p);
    FAULT_POINT("recover_after_leftovers");
    if (!err)
        err = revive_all(&found, p);
    if (!err)
        err = room_make(f, p);
    if (!err)
        err = all_written(&found, p);
    if (!err && found.count > 0)
        log_info("recovered", F_STR("queue", f->set->queue),
                 F_UINT("messages", found.count));
    free(found.runs);
    free(found.lent);
    return err;
}

/* ---- at a stop: what is left unfinished ---- */

#define TICK_NS NS_PER_MS

/* Of each message, for the log. */
struct unfinished {
    char id[ULID_TEXT];
    bool half; /* it was half received */
};

struct keep {
    struct flow *flow;
    struct unfinished *all; /* in the source's order; NULL: no memory */
    size_t count;
    unsigned ran; /* may have run */
};

/* place_of - where it waits for the next worker
 * A group's messages are parked: its order is theirs, and messages after them
 * wait for them. A letter that was sent again is before those.
 * A message that was to be forwarded before its time waits for that time: the
 * next worker may run it.
 */
static void place_of(const struct flow *f, const struct delivery *d,
                     struct settle *out)
{
    bool delayed = delivery_delayed(d, f->set->forward ? UINT64_MAX
                                                       : f->set->max_delay_ns);

    out->group = d->group;
    out->header_size = d->header.bytes;
    out->kind = SETTLE_RETRY;
    if (delayed)
        out->due_ns = delivery_due(d, &out->due_boot_ns, &out->delay_ns);
    else
        settle_wait(out, 0);
    if (!delayed && d->group.at && !(d->message->flags & MESSAGE_STORED))
        out->kind = SETTLE_PARK;
}

/* place - it gets its id, for who is told of it. Nobody may have looked yet
 * whether it is a letter that was sent again: a second copy of one comes to
 * nothing. enum source_place, or -errno */
static int place(void *arg, struct message *m, bool half, struct settle *out)
{
    struct keep *k = arg;
    struct flow *f = k->flow;
    struct delivery d = {0};
    int err;

    delivery_read(&d, m, f->set->group_separator);
    d.place = LANE_NONE;
    err = known_look(f, &d);
    if (!err && (d.repeat || d.duplicate)) {
        settle_repeat(f, &d);
        return PLACE_SETTLED;
    }
    k->ran += (m->flags & MESSAGE_REDELIVERED) != 0;
    if (k->all) {
        ulid_print(*m->id, k->all[k->count].id);
        k->all[k->count].half = half;
    }
    k->count++;
    place_of(f, &d, out);
    return err < 0 ? err : PLACE_WAITS;
}

/* tell_each - where it is, by its id */
static void tell_each(const struct keep *k, bool kept)
{
    for (size_t i = 0; k->all && i < k->count; i++)
        log_warn("unfinished", F_STR("msg", k->all[i].id),
                 F_STR("what", k->all[i].half ? "was half received" : NULL),
                 F_STR("next", kept ? "it is in the store; the next worker "
                                      "goes on with it, no attempt counted"
                                    : "stays in custody; the next worker goes "
                                      "on with it, no attempt counted"));
}

/* tell - one line for all */
static void tell(const struct keep *k, int err)
{
    const struct flow *f = k->flow;
    char next[512];

    snprintf(next, sizeof next,
             "%s, then start a worker. Until then these messages exist only in "
             "custody: do not delete it",
             disk_advice(err));
    if (err)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("count", k->count), F_STR("error", errno_text(-err)),
                  F_STR("store", f->folder), F_STR("next", next));
    else if (k->count > 0) /* not only second copies of letters */
        log_info("kept", F_STR("queue", f->set->queue),
                 F_UINT("count", k->count), F_UINT("may_have_run", k->ran),
                 F_STR("next", "all are in the store, none in custody; the "
                               "next worker goes on with them"));
}

/* keep_all - without memory for their names they are kept all the same */
int keep_all(struct flow *f, bool again)
{
    struct keep k = {.flow = f};
    int err;

    if (!f->source->local) /* the broker has its messages still */
        return 0;
    k.all = calloc(f->source->ops->lent(f->source), sizeof *k.all);
    err = f->source->local->keep(f->source, place, &k);
    if (!again || !err) {
        tell_each(&k, err == 0);
        tell(&k, err);
    }
    free(k.all);
    return err;
}

/* busy - a thread may settle something still: each work item that runs is in a
 * handler that will never be heard of again, and no verdict is written again */
static bool busy(struct flow *f)
{
    unsigned taken = f->ops->seize(f->handler);

    return atomic_load(&f->growing) || atomic_load(&f->gate.running) > taken ||
           !unsettled_is_quiet(&f->unsettled) || !items_others_over(&f->items);
}

/* keep_quiet - what a handler of ours returns from here on is not asked for
 * Crash anywhere: a slot that was seized is HELD, and runs again from there.
 * A thread that is about to settle is waited for, as long as a handler is
 * after SIGTERM: a message that it writes must not be written by us as well.
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
