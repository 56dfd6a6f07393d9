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

/* The source decides which messages were left, and whether a crash counts. A
 * kill may interrupt any step; the next start repeats it, with the same result.
 * Leftover handlers are killed before anything is changed. */

#define UNSEEN_NS      (2 * NS_PER_S) /* time for dying handlers to disappear */
#define UNSEEN_LOOK_MS 10

#define TORN \
    "the machine went down while it was in flight; the body may be damaged"

struct found {
    struct flow *flow;
    struct stale_handler *runs; /* handlers that were running */
    struct message **lent;      /* messages to run, in the source's order */
    size_t run_count, count;
    bool torn; /* the machine went down while a message was in flight */
};

static void on_run(void *arg, const struct source_run *run)
{
    struct found *found = arg;

    found->runs[found->run_count++] = (struct stale_handler){
        .mark = run->mark, .pgid = run->group, .start = run->start};
}

/* Kill the handlers that are left over, before any of their messages runs
 * again.
 *
 * Without /proc a leftover handler cannot be found, and its message would run
 * a second time beside it. So the start is refused, unless no handler was
 * running. A refusal changes nothing, and the operator notices it.
 *
 * A handler alive outside of /proc is in another PID namespace, so this worker
 * cannot kill it. If the killed worker was the first process of that namespace,
 * the kernel drops the worker's lock just before it kills the other processes
 * there (exit_files and zap_pid_ns_processes in do_exit). So wait UNSEEN_NS.
 */
static int leftovers_kill(const struct found *found, struct problem *p)
{
    const struct flow *f = found->flow;
    const char *blind = process_search_blind();
    int key = alive_key(f->source->nonce), killed, unseen;
    uint64_t until;

    if (blind && found->run_count > 0)
        return problem_set(p, EX_OSERR, ENOENT,
                           "cannot look for handlers left over from a killed "
                           "worker of %s, which had %zu message%s running: "
                           "/proc: %s; nothing was lost, mount /proc (mount "
                           "-t proc proc /proc) and start again",
                           f->set->queue, found->run_count,
                           found->run_count == 1 ? "" : "s", blind);
    if (blind && !f->ops->within)
        log_warn("proc_not_seen", F_STR("queue", f->set->queue),
                 F_STR("why", blind),
                 F_STR("next", "mount /proc (mount -t proc proc /proc). "
                               "Without it, processes that a handler leaves "
                               "outside of its process group are not found, "
                               "and a start after a kill is refused"));
    killed =
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
    if (found->run_count == 0)
        return 0;
    until = clock_mono_ns() + UNSEEN_NS;
    while ((unseen = alive_unseen(key)) > 0 && clock_mono_ns() < until)
        (void)poll(NULL, 0, UNSEEN_LOOK_MS);
    if (unseen == 0)
        return 0;
    return problem_set(p, EX_UNAVAILABLE, EBUSY,
                       "queue %s: a killed worker left %d handler%s "
                       "running in another PID namespace, where %s "
                       "cannot be killed from here, and no message may "
                       "run twice. Nothing was lost: stop the container "
                       "in which that worker ran, and start again",
                       f->set->queue, unseen, unseen == 1 ? "" : "s",
                       unseen == 1 ? "it" : "they");
}

/* Read a lent message. Returns TAKEN; TAKEN_NONE if it was a second copy of a
 * letter or a duplicate, which is settled now; or -errno. */
static int left_read(struct flow *f, struct message *m, struct delivery *d)
{
    int err;

    delivery_read(d, m, f->set->group_separator);
    d->place = LANE_NONE;
    err = known_look(f, d);
    if (err || (!d->repeat && !d->duplicate))
        return err;
    settle_repeat(f, d);
    return TAKEN_NONE;
}

/* Make a message a dead letter because of its crashes, or of a machine that
 * went down under it. A replayed letter becomes that letter again. */
static int settle_crashed(struct flow *f, struct message *m, const char *error)
{
    struct delivery d = {0};
    int err = left_read(f, m, &d);

    if (err)
        return err < 0 ? err : 0;
    FAULT_POINT("recover_before_dead");
    settle_dead(f, &d, REASON_CRASHED, error);
    return 0;
}

/* Settle a message that will not run, or not now. Remember each other message
 * in found->lent: it runs after the groups are restored. Called by the source's
 * `recover` for each message that is left. */
static int on_left(void *arg, const struct source_left *left)
{
    struct found *found = arg;
    struct flow *f = found->flow;
    struct message *m = left->m;
    char id[ULID_TEXT];

    found->torn |= left->torn;
    if (left->ran) {
        counters_add(&counters_rest(f->counters)->crashes, 1);
        counters_rest_done(f->counters);
    }
    if (left->torn && !left->waits)
        return settle_crashed(f, m, TORN);
    if (crashes_too_many(f, m))
        return settle_crashed(f, m, CRASHES_ERROR);
    if (left->ran)
        log_warn("crashed", F_STR("msg", ulid_print(*message_name(m), id)),
                 F_UINT("crashes", m->crashes),
                 F_UINT("of", f->set->max_crashes),
                 F_STR("next", crashes_is_suspect(f, m)
                                   ? "it runs again, with nothing beside it"
                                   : "it runs again"));
    if (left->waits) {
        source_return(f->source, m, LANE_NONE, 0);
        f->source->ops->release(f->source, m);
        return 0;
    }
    found->lent[found->count++] = m;
    return 0;
}

/* Put each message that runs again into its group, or on the ready list. The
 * groups are restored from the source before that. If the source fails, lent
 * messages stay as they are. */
static int left_revive_all(struct found *found, struct problem *p)
{
    struct flow *f = found->flow;
    int err = f->source->ops->recover(f->source, on_left, found);

    if (!err) {
        FAULT_POINT("recover_before_restore");
        if (f->source->local)
            err = f->source->local->groups(f->source, dispatch_restore, f);
        FAULT_POINT("recover_before_revive");
    }
    for (size_t i = 0; i < found->count && err >= 0; i++) {
        struct delivery d = {0};

        err = left_read(f, found->lent[i], &d);
        if (err == TAKEN && d.group.at)
            err = dispatch_add(f, &d);
        else if (err == TAKEN)
            ready_put(&f->ready, found->lent[i], false);
    }
    err = err < 0 ? err : 0; /* TAKEN_NONE and HANDED_OVER are results, too */
    FAULT_POINT("recover_after_revive");
    if (err == -ENOMEM)
        return problem_set(
            p, EX_OSERR, ENOMEM,
            "out of memory while recovering messages of the last "
            "worker of %s; nothing was lost. Free some memory and "
            "start again",
            f->set->queue);
    return err ? problem_set(p, EX_CANTCREAT, -err,
                             "store of %s: %s; nothing was lost, fix it and "
                             "start again",
                             f->set->queue, errno_text(-err))
               : 0;
}

/* Make room for one more lent message, because a message that waits in its
 * group must be lent before it can run. Recovered messages may have taken all
 * the room. If no room can be made now, the start is refused only if no room
 * would become free later: no message on the ready list will run, no verdict
 * will be written, and no group will be parked. */
static int room_make(struct flow *f, struct problem *p)
{
    struct source *s = f->source;
    unsigned slots = (unsigned)s->ops->count(s, COUNT_SLOTS);
    struct problem why;
    int err;

    if (s->ops->count(s, COUNT_FREE) > 0)
        return 0;
    err = s->ops->resize(s, slots + slots_more(f->set), &why);
    if (!err)
        return 0;
    if (!(s->local && s->local->pending(s)) && ready_waiting(&f->ready) == 0 &&
        unsettled_count(&f->unsettled) == 0 && !dispatch_must_park(f)) {
        if (p)
            *p = why;
        return err;
    }
    log_warn("slots_full", F_STR("queue", f->set->queue),
             F_STR("error", why.text),
             F_STR("next", "the worker continues with the existing slots; "
                           "fewer messages run at once until some are free"));
    return 0;
}

int recovery_run(struct flow *f, struct problem *p)
{
    size_t most = (size_t)f->source->ops->count(f->source, COUNT_SLOTS);
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
        err = leftovers_kill(&found, p);
    FAULT_POINT("recover_after_leftovers");
    if (!err)
        err = left_revive_all(&found, p);
    if (!err)
        err = room_make(f, p);
    /* A message under which the machine went down has to be a dead letter in
     * the store before any message is taken. */
    if (!err && found.torn && unsettled_count(&f->unsettled) > 0)
        err = problem_set(p, EX_CANTCREAT, EIO,
                          "cannot write the store of %s: messages that were "
                          "in flight when the machine went down must be saved "
                          "there first; free some space and start again",
                          f->set->queue);
    if (!err && found.count > 0)
        log_info("recovered", F_STR("queue", f->set->queue),
                 F_UINT("messages", found.count));
    free(found.runs);
    free(found.lent);
    return err;
}

/* ---- at a stop: what is left unfinished ---- */

#define TICK_NS NS_PER_MS

/* What is logged of a message that was not finished. */
struct unfinished {
    char id[ULID_TEXT];
    bool half; /* it was half received */
    bool ran;  /* it may have run */
};

struct keep {
    struct flow *flow;
    struct unfinished *all; /* in the source's order; NULL: no memory */
    size_t count;
    unsigned ran; /* messages that may have run */
};

/* Decide how a message waits for the next worker. Returns an enum source_place
 * or -errno. A second copy of a letter that was not recognized before is
 * settled here. Messages of a group are parked, which keeps their order and
 * makes the group's later messages wait. A replayed letter goes before these,
 * so it becomes due. A message with a not-before waits for that in the store,
 * even if this worker forwards and leaves it to the broker, because the next
 * worker may run a command. */
static int message_place(void *arg, struct message *m, bool half,
                         struct settle *out)
{
    struct keep *k = arg;
    struct flow *f = k->flow;
    struct delivery d = {0};
    int err = left_read(f, m, &d);

    if (err == TAKEN_NONE)
        return PLACE_SETTLED;
    k->ran += (m->flags & MESSAGE_REDELIVERED) != 0;
    if (k->all) {
        ulid_print(*m->id, k->all[k->count].id);
        k->all[k->count].half = half;
        k->all[k->count].ran = m->flags & MESSAGE_REDELIVERED;
    }
    k->count++;
    out->group = d.group;
    out->header_size = d.header.bytes;
    out->kind = SETTLE_RETRY;
    if (delivery_delayed(&d,
                         f->set->forward ? UINT64_MAX : f->set->max_delay_ns)) {
        out->due_ns = delivery_due(&d, &out->due_boot_ns, &out->delay_ns);
    } else {
        settle_wait(out, 0);
        if (d.group.at && !(m->flags & MESSAGE_STORED))
            out->kind = SETTLE_PARK;
    }
    return err < 0 ? err : PLACE_WAITS;
}

int keep_all(struct flow *f, bool again)
{
    struct keep k = {.flow = f};
    char next[512];
    int err;

    if (!f->source->local) /* the broker still has its messages */
        return 0;
    /* Without memory, the messages are kept but their ids are not logged. */
    k.all = calloc((size_t)f->source->ops->count(f->source, COUNT_SLOTS),
                   sizeof *k.all);
    err = f->source->local->keep(f->source, message_place, &k);
    if (again && err) {
        free(k.all);
        return err;
    }
    /* Log where each message is, by its id, and one line for all. A stop that
     * let all handlers finish leaves only messages that never ran, and is not
     * worth a warning. */
    for (size_t i = 0; k.all && i < k.count; i++)
        LOG_AT(err || k.all[i].half || k.all[i].ran ? LOG_WARN : LOG_INFO,
               "unfinished", F_STR("msg", k.all[i].id),
               F_STR("what", k.all[i].half ? "was half received" : NULL),
               F_STR("next", err ? "stays in custody; the next worker runs it, "
                                   "no attempt counted"
                             : k.all[i].ran
                                 ? "it is in the store; the next worker runs "
                                   "it again, no attempt counted"
                                 : "it is in the store; the next worker runs "
                                   "it"));
    free(k.all);
    snprintf(next, sizeof next,
             "%s, then start a worker. Until then these messages exist only in "
             "custody: do not delete it",
             disk_advice(err));
    if (err)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("count", k.count), F_STR("error", errno_text(-err)),
                  F_STR("store", f->folder), F_STR("next", next));
    else if (k.count > 0) /* not only second copies of letters */
        log_info("kept", F_STR("queue", f->set->queue),
                 F_UINT("count", k.count), F_UINT("may_have_run", k.ran),
                 F_STR("next", "all are in the store, none in custody; the "
                               "next worker runs them"));
    return err;
}

/* Wait for each thread that may still settle a message, because keep_all must
 * not store that message as well. Wait at most kill_after_ns, the time that a
 * handler gets after SIGTERM. Such threads are: work items, except items in a
 * seized handler, whose answer is ignored; the chore that writes refused
 * verdicts again; and jobs that change a message (settle_cancel).
 * Crash anywhere: the slot of a seized message is HELD, and the message runs
 * again from there. */
bool keep_quiet(struct flow *f)
{
    const struct timespec tick = {.tv_nsec = TICK_NS};
    uint64_t end = ns_add(clock_mono_ns(), f->set->kill_after_ns);
    bool busy;

    for (;;) {
        unsigned seized = f->ops->seize(f->handler);
        unsigned others = atomic_fetch_or(&f->items.others, ITEMS_OTHERS_OVER);

        busy = atomic_load(&f->growing) || gate_running(&f->gate) > seized ||
               !chore_quiet(&f->unsettled.retry_chore) ||
               (others & ~ITEMS_OTHERS_OVER) > 0;
        if (!busy || clock_mono_ns() >= end)
            break;
        nanosleep(&tick, NULL);
    }
    if (busy)
        log_error("not_kept", F_STR("queue", f->set->queue),
                  F_UINT("running", gate_running(&f->gate)),
                  F_STR("error", "a thread of the worker is still busy"),
                  F_STR("next", "the messages stay in custody; start a "
                                "worker, which runs them again"));
    return !busy;
}
