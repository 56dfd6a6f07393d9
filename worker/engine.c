/* engine.c - the worker: owns the parts, starts and ends them (see engine.h) */
#include "worker/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "common/broker/broker_engine.h"
#include "common/state/counters.h"
#include "worker/files/file_watch.h"
#include "worker/files/inherit.h"
#include "worker/files/pid_file.h"
#include "worker/flow/settle.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/items.h"
#include "worker/flow/unsettled.h"
#include "worker/hooks/on_dead.h"
#include "worker/loop/peeker.h"
#include "worker/operate/control.h"
#include "worker/process/process.h"
#include "worker/flow/recovery.h"
#include "worker/source/mq/spool.h"
#include "worker/source/source.h"

/* Longest wait for the confirms of a broker when the worker stops. */
#define CONFIRM_NS (10 * NS_PER_S)

/* ---- the source ---- */

/* Wait until the broker has confirmed the last verdicts, for CONFIRM_NS at
 * most. After this, the source reports no events. Does nothing for a POSIX
 * queue. */
static void broker_stop(struct engine *e)
{
    if (e->broker && e->flow.source)
        e->broker->source_stop(e->flow.source, CONFIRM_NS);
}

/* Open the POSIX queue or the queue on a broker that the settings name, with
 * its watches and its spool. */
static int source_open(struct engine *e, struct problem *p)
{
    int err;

    e->mq.events = (struct source_events){.flow = &e->flow,
                                          .gate = &e->flow.gate,
                                          .groups = e->flow.groups,
                                          .on_dead = &e->on_dead,
                                          .changed = schedule_wake,
                                          .settled = unsettled_on_settled,
                                          .died = decision_died,
                                          .duplicate = settle_duplicate,
                                          .delayed = settle_delayed,
                                          .letters_gone = dispatch_release,
                                          .held = groups_held,
                                          .hooks = on_dead_wake,
                                          .wants = gate_wants,
                                          .ended = gate_finish};
    if (e->broker)
        return e->broker->source_open(
            &e->flow.source,
            &(struct broker_source_setup){.set = e->flow.set,
                                          .runs = e->runs,
                                          .attention = &e->flow.gate.attention,
                                          .events = e->mq.events},
            p);
    e->mq.set = e->flow.set;
    e->mq.folder = e->dir.folder;
    e->mq.timers = e->flow.timers;
    e->mq.loop = e->flow.loop;
    e->mq.pool = &e->flow.pool;
    e->mq.dirty = &e->flow.dirty;
    e->mq.counters = e->flow.counters;
    e->mq.peeker = e->flow.peeker;
    e->mq.take_lock = &e->flow.take_lock;
    e->flow.source = &e->mq.source;
    e->mq.source.attention = &e->flow.gate.attention;
    err = source_mq_open(&e->mq, p);
    if (!err)
        err = source_mq_watch(&e->mq, p);
    return err ? err : spool_open(&e->mq, p);
}

/* ---- events of other parts ---- */

/* Handle a change of the gate's holds or cap. Any thread. GATE_SHUT may come
 * under a lock of the source or of unsettled. */
static void on_gate(void *arg, enum gate_event event)
{
    struct engine *e = arg;

    if (event == GATE_CHANGED) {
        source_wanted(e->flow.source);
        schedule_wake(&e->flow);
    } else if (event == GATE_WIDER)
        peeker_look_soon(e->flow.peeker);
    else if (e->flow.ops->coprocesses)
        items_wake_all(&e->flow.items, e->flow.ops->coprocesses->wake);
}

/* Return the descriptor on which the peeker waits for messages. */
static int queue_poll_fd(const struct flow *f)
{
    return f->source->poll_fd;
}

bool engine_restarts(const struct engine *e)
{
    return e->flow.gate.status == -ESTALE && e->stop.signals == 0 &&
           !e->stop.drained;
}

/* Return the exit status, or -ESTALE if the worker has to restart. */
static int engine_status(const struct engine *e)
{
    int status = e->flow.gate.status;

    return status == -ESTALE && !engine_restarts(e) ? EX_OK : status;
}

/* Write all messages in flight into the store. If the custody file was removed,
 * its messages are lost when this process exits, so try until the write
 * succeeds. Each try checks the files, because the store may be gone, too. */
static void engine_keep(struct engine *e)
{
    const struct timespec pause = {.tv_sec = 1};
    bool again = false;

    while (keep_all(&e->flow, again) < 0 && e->file_watch &&
           custody_is_unnamed(e->mq.custody)) {
        again = true;
        if (e->waiting)
            e->waiting(e->waiting_arg);
        nanosleep(&pause, NULL);
        file_watch_last(e->file_watch);
    }
    if (e->file_watch) /* a file may have been removed meanwhile */
        file_watch_last(e->file_watch);
}

/* Exit, or start again, without closing the engine, because the handlers are
 * threads that do not return. Called in the loop, where handlers that are
 * processes would be killed. Custody stays mapped, because the threads read
 * messages there. The kernel drops the lock of the state directory when the
 * process has exited, so no other worker starts before that. */
static void on_exit_with_threads(void *arg)
{
    struct engine *e = arg;
    bool quiet;

    on_dead_close(&e->on_dead);
    while (!(quiet = keep_quiet(&e->flow)) && e->file_watch &&
           custody_is_unnamed(e->mq.custody))
        if (e->waiting)
            e->waiting(e->waiting_arg);
    if (quiet) {
        broker_stop(e);
        if (e->file_watch)
            file_watch_last(e->file_watch);
        unsettled_fini(&e->flow);
        spool_stop(e->mq.spool_there);
        engine_keep(e);
        alive_remove(alive_key(e->flow.source->nonce));
        inherit_totals_keep(e->flow.counters, e->flow.started, &e->runtime,
                            &e->dir);
        runtimedir_close(&e->runtime, &e->dir,
                         e->mq.custody && custody_empty(e->mq.custody));
    }
    log_flush();
    if (engine_status(e) == -ESTALE)
        e->restart(e->restart_arg);
    _exit(EX_OK);
}

/* Handle a change of the wall clock or a resume of the machine, in the loop. */
static void on_clock_set(void *arg)
{
    struct engine *e = arg;

    e->flow.source->ops->clock_set(e->flow.source);
    pause_clock_set(&e->pause);
}

/* Start the threads and open the descriptors. */
static int parts_ready(struct engine *e, struct problem *p)
{
    const struct file_watch_setup watch = {.flow = &e->flow,
                                           .mq = &e->mq,
                                           .dir = &e->dir,
                                           .runtime = &e->runtime,
                                           .lock = &e->lock,
                                           .there = pause_put_back,
                                           .pause = &e->pause,
                                           .again = &e->stop.again};
    /* The most messages that can be lent, whatever the settings are. */
    unsigned lent_most =
        e->mq.custody ? custody_slots_most(e->mq.custody) : BROKER_LENT;
    int err = timers_open(&e->flow.timers), unwatched;

    if (!err)
        err = pool_open(&e->flow.pool,
                        (unsigned)e->flow.set->concurrency + SPARE_THREADS);
    if (!err)
        err = dispatch_open(&e->flow, lent_most);
    if (!err)
        err = loop_open(&e->flow.loop, e->flow.timers);
    if (!err && e->flow.set->take_signals)
        err =
            signals_open(&e->signals, e->flow.loop, orders_signal, &e->orders);
    /* Some kernels and sandboxes lack this timer; the worker then runs without
     * it, and waiting messages run late or early after the clock was set. */
    unwatched =
        err ? 0
            : clock_watch_open(&e->clock_watch, e->flow.loop, on_clock_set, e);
    if (unwatched)
        log_warn("clock_not_watched", F_STR("queue", e->flow.set->queue),
                 F_STR("error", errno_text(-unwatched)),
                 F_STR("next", "restart the worker whenever the clock was set "
                               "or the machine was suspended; otherwise "
                               "waiting messages run too early or too late"));
    if (!err)
        err = peeker_open(&e->flow.peeker,
                          &(struct peeker_setup){.loop = e->flow.loop,
                                                 .timers = e->flow.timers,
                                                 .flow = &e->flow,
                                                 .fd = queue_poll_fd,
                                                 .ready = schedule_start,
                                                 .gate = &e->flow.gate,
                                                 .trouble = gate_trouble});
    if (err)
        return problem_set(p, EX_OSERR, -err, "cannot start: %s",
                           errno_text(-err));
    flow_lend(&e->flow);
    e->status.chore.timers = e->flow.timers;
    e->pause.chore.timers = e->flow.timers;
    err = source_open(e, p);
    if (err)
        return err;
    stderr_limit_init(&e->stderr_limit, e->flow.set, e->flow.timers);
    err = e->flow.ops->open(
        &e->flow.handler,
        &(struct handler_setup){.settings = e->flow.set,
                                .nonce = e->flow.source->nonce,
                                .timers = e->flow.timers,
                                .loop = e->flow.loop,
                                .stderr_limit = &e->stderr_limit},
        p);
    if (!err)
        e->control = control_open(&e->orders);
    if (!err)
        err = e->broker ? 0 : file_watch_open(&e->file_watch, &watch, p);
    e->orders.file_watch = e->status.file_watch = e->file_watch;
    return err;
}

/* Make a relative path absolute, for readers with another working directory.
 * Returns false if it is too long, or if the working directory was removed. */
static bool path_absolute(char path[PATH_MAX])
{
    char folder[PATH_MAX], relative[PATH_MAX];
    const char *at = relative;

    if (path[0] == '/')
        return true;
    strlcpy(relative, path, sizeof relative);
    while (strncmp(at, "./", 2) == 0)
        at += 2;
    return getcwd(folder, sizeof folder) &&
           snprintf(path, PATH_MAX, "%s/%s", folder, at) < PATH_MAX;
}

/* Initialize the parts that cannot fail. */
static void engine_init(struct engine *e, struct settings *set,
                        const struct handler_ops *ops)
{
    e->flow.set = set;
    e->started = *set;
    e->flow.folder = e->dir.folder;
    e->signals.source.fd = -1;
    e->clock_watch.source.fd = -1;
    e->flow.ops = ops;
    e->runtime.lock = -1;
    flow_init(&e->flow, on_gate, e);
    stop_init(&e->stop, &e->flow, on_exit_with_threads, e);
    e->orders = (struct orders){.flow = &e->flow,
                                .live = set,
                                .started = &e->started,
                                .stop = &e->stop,
                                .cap = &e->cap,
                                .pause = &e->pause,
                                .store_look = &e->store_look};
    /* The path of the command or the plugin, for mqctl status. */
    if (!set->inproc && !set->forward) {
        e->orders.path = e->path;
        if (set->command ? process_find(set->command[0], e->path) < 0 ||
                               !path_absolute(e->path)
                         : set->plugin && !realpath(set->plugin, e->path))
            e->path[0] = '\0';
    }
    cap_init(&e->cap, &e->flow, set);
    pause_init(&e->pause, &e->flow);
    status_init(&e->status, &e->flow);
}

int engine_open(struct engine **out, struct settings *set,
                const struct handler_ops *ops, struct problem *p)
{
    struct engine *e = calloc(1, sizeof *e);
    struct inherit inherit;
    int err;

    *out = NULL;
    if (!e)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    inherit = (struct inherit){.flow = &e->flow,
                               .mq = &e->mq,
                               .dir = &e->dir,
                               .runtime = &e->runtime,
                               .lock = &e->lock,
                               .look = &e->store_look};
    engine_init(e, set, ops);
    err = ops->check ? ops->check(set, p) : 0;
    if (!err && settings_on_broker(set)) {
        e->broker = broker_engine_of(set->queue, p);
        err = e->broker ? 0 : -ENOTSUP;
    }
    /* Take the lock and open what the last worker left. */
    if (!err)
        err = e->broker ? inherit_broker_open(&inherit, e->runs, p)
                        : inherit_open(&inherit, p);
    if (!err)
        err = parts_ready(e, p);
    if (!err)
        err = recovery_run(&e->flow, p);
    if (!err && set->on_dead)
        err = on_dead_open(
            &e->on_dead,
            &(struct on_dead_setup){.set = set,
                                    .source = e->flow.source,
                                    .stderr_limit = &e->stderr_limit,
                                    .failing = status_on_dead,
                                    .arg = &e->status},
            p);
    if (!err)
        err = spool_recovered(e->mq.spool_there, p);
    /* Take due rows first: they include the messages in flight that the last
     * worker stored when it stopped, which are at most as many as slots. */
    atomic_store(&e->flow.due_first,
                 err || e->broker ? 0 : custody_slots(e->mq.custody));
    if (err) {
        engine_close(&e);
        return err;
    }
    *out = e;
    return 0;
}

/* Count the messages in the queue itself, without the spool; -1: not known. */
static long queue_left(const struct engine *e)
{
    return e->broker
               ? (long)e->flow.source->ops->count(e->flow.source, COUNT_FRESH)
               : queue_length(e->mq.queue);
}

/* Return the log field with the number of spooled messages; while the spool is
 * off, an empty field. */
static struct log_field spooled_field(const struct engine *e)
{
    return e->mq.spool ? F_UINT("spooled", spool_waits(e->mq.spool))
                       : F_STR("spooled", NULL);
}

/* Log the start, and warn if custody is not on a tmpfs. */
static void started_log(struct engine *e)
{
    bool doubtful = false;
    const char *disk =
        e->mq.custody ? custody_disk(e->mq.custody, &doubtful) : NULL;

    log_info(
        "started", F_STR("queue", e->flow.set->queue), F_INT("pid", getpid()),
        F_UINT("max_concurrency", gate_cap(&e->flow.gate)),
        F_STR("handler", e->flow.ops->name), F_STR("state_dir", e->dir.folder),
        F_STR("runtime_dir", e->runtime.folder),
        F_INT("in_queue", queue_left(e)), spooled_field(e));
    if (disk)
        log_warn("custody_on_disk", F_STR("folder", e->runtime.folder),
                 F_STR("type", disk),
                 F_STR("next",
                       doubtful
                           ? "this file system may move or lose mapped pages: "
                             "a kill can lose messages in flight; give a "
                             "--runtime-dir on a tmpfs"
                           : "a kill while the file is written back loses the "
                             "message that is being received; give a "
                             "--runtime-dir on a tmpfs"));
}

/* The values of the last log line of a run. */
struct summary {
    struct items_stats items;
    struct counters_sum sum;
    int64_t in_queue;
    struct log_field spooled;
};

static void summary_log(const struct engine *e, const struct summary *s)
{
    uint64_t n = s->items.deliveries;
    uint64_t mean_us = n ? s->items.took_ns / n / NS_PER_US : 0;

    log_info(
        "stopped", F_STR("queue", e->flow.set->queue),
        F_STR("why", atomic_load(&e->flow.gate.why)),
        F_DURATION("ran", (clock_mono_ns() - e->flow.run_limits.started_ns) /
                              NS_PER_MS * NS_PER_MS),
        F_UINT("deliveries", n), F_UINT("done", s->sum.done),
        F_UINT("retried", s->sum.retried), F_UINT("dead", s->sum.dead),
        F_UINT("discarded", s->sum.discarded),
        F_DURATION("mean", mean_us * NS_PER_US),
        F_DURATION("longest", s->items.longest_ns / NS_PER_US * NS_PER_US),
        F_INT("in_queue", s->in_queue), s->spooled);
}

int engine_run(struct engine *e)
{
    /* The calling thread becomes the peeker. */
    e->flow.started = true;
    e->flow.wants_settled =
        e->flow.ops->settled && (!e->flow.ops->wants_settled ||
                                 e->flow.ops->wants_settled(e->flow.handler));
    if (!e->flow.source->local)
        attention_on(&e->flow.gate.attention, ATTEND_LATE);
    pause_recall(&e->pause);
    started_log(e);
    backlog_look(&e->flow);
    e->flow.source->ops->start(e->flow.source);
    /* Finish the first check of the files before taking a message. status_count
     * requests such a check on another thread, so call it afterwards. */
    if (e->file_watch)
        file_watch_start(e->file_watch);
    status_count(&e->status);
    run_limits_busy(&e->flow);
    run_limits_left(&e->flow);
    store_look_start(&e->store_look);
    for (unsigned n = ready_waiting(&e->flow.ready); n > 0; n--)
        schedule_wake(&e->flow);
    schedule_wake(&e->flow);
    while (!gate_finished(&e->flow.gate)) {
        if (!loop_wait(e->flow.loop, schedule_wait_ms(&e->flow)))
            schedule_quiet(&e->flow);
        status_show(&e->status);
    }
    counters_gauge(e->flow.counters, COUNTERS_HOLDS,
                   atomic_load(&e->flow.gate.holds) | COUNTERS_STOPPING);
    return engine_status(e);
}

/* Close the parts in the order that lets each finish what it began. */
void engine_close(struct engine **engine)
{
    struct engine *e = *engine;
    struct summary end = {0};
    bool empty;

    if (!e)
        return;
    *engine = NULL;
    if (e->flow.started) { /* before its parts are closed */
        items_stats(&e->flow.items, &end.items);
        counters_sum(e->flow.counters, false, &end.sum);
    }
    broker_stop(e);
    if (e->flow.peeker)
        peeker_release(e->flow.peeker);
    atomic_store(&e->store_look.stop, true);
    if (e->flow.started)
        store_hurry(e->mq.store);
    pool_close(&e->flow.pool);
    if (e->file_watch && e->flow.started)
        file_watch_last(e->file_watch);
    if (e->mq.store || (e->broker && e->flow.source))
        unsettled_fini(&e->flow);
    on_dead_close(&e->on_dead);
    if (e->flow.started) {
        spool_stop(e->mq.spool_there);
        end.in_queue = queue_left(e);
        end.spooled = spooled_field(e);
    }
    source_mq_stop(&e->mq);
    dispatch_close(&e->flow);
    if (e->flow.handler)
        e->flow.ops->close(&e->flow.handler);
    if (e->flow.source)
        alive_remove(alive_key(e->flow.source->nonce));
    stderr_limit_fini(&e->stderr_limit);
    if (e->flow.started)
        engine_keep(e);
    file_watch_close(&e->file_watch);
    spool_close(&e->mq);
    source_mq_close(&e->mq);
    if (e->broker && e->flow.source)
        e->broker->source_close(e->flow.source);
    control_close(&e->control);
    peeker_close(&e->flow.peeker);
    if (e->signals.source.fd >= 0)
        close(e->signals.source.fd);
    clock_watch_close(&e->clock_watch);
    loop_close(&e->flow.loop);
    timers_close(&e->flow.timers);
    /* Close the files and the queue, then release the lock, so that the next
     * worker may start. */
    empty = e->mq.custody && custody_empty(e->mq.custody);
    if (e->flow.counters)
        inherit_totals_keep(e->flow.counters, e->flow.started, &e->runtime,
                            &e->dir);
    counters_close(&e->flow.counters);
    custody_close(&e->mq.custody);
    runtimedir_close(&e->runtime, &e->dir, empty);
    store_close(&e->mq.store);
    queue_close(&e->mq.queue);
    if (!e->flow.started)
        pid_file_give_back(e->lock);
    pid_file_close(&e->lock);
    if (!e->flow.started)
        (void)rmdir(e->dir.folder); /* removes it only if it is empty */
    if (e->flow.started)
        summary_log(e, &end);
    flow_fini(&e->flow);
    free(e);
    log_flush();
}
