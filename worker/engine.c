/* engine.c - the worker: owns the parts, starts and ends them (see engine.h) */
#include "worker/engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/custody/custody_look.h"
#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/file/folder.h"
#include "common/base/log.h"
#include "worker/operate/control.h"
#include "worker/source/mq/dead_queue.h"
#include "worker/operate/cap.h"
#include "worker/restart/file_watch.h"
#include "worker/restart/keep.h"
#include "worker/source/mq/pid_file.h"
#include "worker/loop/loop.h"
#include "worker/flow/group_dispatch.h"
#include "worker/loop/peeker.h"
#include "worker/flow/schedule.h"
#include "worker/flow/settle.h"
#include "worker/restart/totals.h"
#include "worker/restart/recover.h"
#include "worker/source/mq/group_hold_watch.h"
#include "worker/source/mq/mq_reopen.h"
#include "worker/flow/unsettled.h"
#include "worker/config/slots.h"

/* queue_ready - open the queue, tell what differs from what was asked for */
static int queue_ready(struct engine *e, struct problem *p)
{
    const struct settings *set = e->flow.set;
    struct queue_attr attr;
    bool created = false;
    char text[256];
    int err;

    settings_attr(set, &attr);
    if (set->passed_fd)
        err = queue_adopt(&e->flow.queue, set->queue, set->passed_fd, p);
    else
        err = queue_open(&e->flow.queue, set->queue, settings_queue_flags(set),
                         &attr, &created, p);
    if (err)
        return err;
    if (created)
        log_info("queue_created", F_STR("queue", set->queue),
                 F_UINT("depth", queue_depth(e->flow.queue)),
                 F_UINT("message_size", queue_message_size(e->flow.queue)));
    else if (queue_differs(e->flow.queue, &attr, text, sizeof text))
        log_warn("queue_differs", F_STR("queue", set->queue),
                 F_STR("what", text));
    return 0;
}

/* past_tell - what became of the messages that the last worker had in hand */
static void past_tell(const struct engine *e)
{
    const struct runtimedir *r = &e->runtime;

    if (r->strange[0])
        log_warn("custody_stranger", F_STR("queue", e->flow.set->queue),
                 F_STR("folder", r->strange),
                 F_STR("next", "messages in flight of another state directory, "
                               "which is gone; they stay there. How to run "
                               "them is in docs/runbook.md"));
    if (r->past == RUNTIMEDIR_GONE)
        log_warn("custody_missing", F_STR("queue", e->flow.set->queue),
                 F_STR("folder", r->was),
                 F_STR("next", "a worker was killed, and what it had in hand "
                               "there is gone: the folder was removed, or its "
                               "container ended. Retries and letters are in "
                               "the store"));
    if (r->past == RUNTIMEDIR_REBOOT)
        log_warn("custody_rebooted", F_STR("queue", e->flow.set->queue),
                 F_STR("folder", r->was),
                 F_STR("next", "the machine went down under a worker: what it "
                               "had in hand is gone, as is the queue. Retries "
                               "and letters are in the store"));
}

/* carry - what is in the custody of another folder */
static int carry(const char *path, const char *folder, bool truth,
                 const struct custody_spec *spec, struct problem *p)
{
    char other[PATH_MAX];

    if (!folder[0] || !folder_join(other, folder, "/" RUNTIMEDIR_CUSTODY, ""))
        return 0; /* it was looked at by that name, so it fits */
    return custody_carry(path, other, truth, spec, p);
}

/* custody_ready - in memory, with what the last worker left wherever it was
 * What is carried counts where it was until the note names the new place; the
 * head of runtimedir.c has the steps.
 */
static int custody_ready(struct engine *e, struct custody_spec *spec,
                         struct problem *p)
{
    struct runtimedir *r = &e->runtime;
    char path[PATH_MAX];
    bool doubtful;
    int err = runtimedir_path(r, RUNTIMEDIR_CUSTODY, path, p);

    past_tell(e);
    if (!err)
        err = carry(path, r->from, true, spec, p);
    if (!err && r->old[0] && !r->old_true)
        err = runtimedir_settle(r, &e->dir, p);
    if (!err)
        err = carry(path, r->old, r->old_true, spec, p);
    if (!err)
        err = custody_open(&e->flow.custody, path, spec, p);
    if (!err)
        err = runtimedir_settle(r, &e->dir, p);
    if (err)
        return err;
    runtimedir_old_remove(r);
    e->flow.on_disk = custody_disk(e->flow.custody, &doubtful);
    return 0;
}

/* store_ready - what the last worker wrote is there, or it is told that it is
 * not; before anything is written, as that may overwrite what is left of it
 * Crash before it is told: the next start finds, copies and tells the same.
 */
static int store_ready(struct engine *e, struct problem *p)
{
    _Atomic uint64_t *last = counters_commits(e->flow.counters);
    uint64_t was = atomic_load(last), commits = store_commits(e->flow.store);
    char copy[PATH_MAX];
    int err;

    if (commits < was) {
        err = store_set_aside(e->flow.store, copy);
        log_error("store_behind", F_STR("queue", e->flow.set->queue),
                  F_UINT("commits", was - commits),
                  F_STR("copy", err ? strerror(-err) : copy),
                  F_STR("next",
                        "the last worker's commits, as many, are not in "
                        "the store: its files were damaged, or "
                        "replaced by older ones. Look at the disk; "
                        "keep the copy, it has what is left of them"));
    }
    if (commits == UINT64_MAX)
        last = NULL;
    else
        atomic_store(last, commits);
    return store_claim(e->flow.store, last, p);
}

/* files_ready - lock first: from then on the last owner is known to be dead
 * The queue is made only when both folders are known to be good: a start that
 * is refused leaves none. What comes after it may still be refused for want of
 * room: custody is as large as the queue's messages, and a store must not be
 * left by a start whose queue cannot be had, as happens more often.
 */
static int files_ready(struct engine *e, struct problem *p)
{
    const struct settings *set = e->flow.set;
    struct custody_spec spec = {
        .slots = slots_for(set, (unsigned)set->concurrency),
        .slots_max = slots_for(set, CONCURRENCY_MAX),
        .slots_more = slots_more(set),
        .aside = e->dir.folder,
    };
    const struct runtimedir_wish wish = {
        .dir = set->runtime_dir,
        .allow_disk = set->allow_disk_custody,
        .holds = custody_holds,
    };
    char path[PATH_MAX];
    int err;

    err = statedir_open(&e->dir, set->state_dir, set->queue, true, p);
    if (!err)
        err = statedir_path(&e->dir, STATEDIR_PIDFILE, path, p);
    if (!err)
        err = pid_file_open(&e->lock, path, set->queue, p);
    if (!err)
        err = runtimedir_open(&e->runtime, &wish, &e->dir, p);
    if (!err)
        err = queue_ready(e, p);
    if (!err)
        err = statedir_path(&e->dir, STATEDIR_STORE, path, p);
    if (!err)
        err = store_open(&e->flow.store, path, true, p);
    if (err)
        return err;
    spec.body_bytes = queue_message_size(e->flow.queue);
    err = custody_ready(e, &spec, p);
    if (!err)
        err = totals_open(&e->flow.counters, &e->runtime, &e->dir, p);
    return err ? err : store_ready(e, p);
}

/* on_gate - the gate says that something has changed */
static void on_gate(void *arg, enum gate_event event)
{
    struct engine *e = arg;

    if (event == GATE_CHANGED)
        schedule_poke(&e->flow);
    else if (event == GATE_WIDER)
        peeker_look_soon(e->flow.peeker);
    else if (e->flow.ops->coprocesses)
        items_wake_all(&e->flow.items, e->flow.ops->coprocesses->wake);
}

/* on_letters - there are more of them than before */
static void on_letters(void *arg)
{
    struct engine *e = arg;

    if (e->flow.dead_queue)
        dead_queue_poke(e->flow.dead_queue);
}

/* ask_held - whether held groups go on */
static int ask_held(void *arg)
{
    struct engine *e = arg;
    int released = dispatch_release(&e->flow);

    if (released != 0)
        gate_changed(&e->flow.gate);
    return released;
}

static size_t held(void *arg)
{
    const struct engine *e = arg;

    return dispatch_held(&e->flow);
}

/* on_gone - the queue's name is; what is left in it is to be taken */
static void on_gone(void *arg)
{
    struct engine *e = arg;

    schedule_poke(&e->flow);
}

static void on_ended(void *arg, const char *why, int status)
{
    struct engine *e = arg;

    gate_finish(&e->flow.gate, why, status);
}

static void row_due(void *arg)
{
    struct engine *e = arg;

    schedule_poke(&e->flow);
}

/* on_message - the queue has one, and peek mode is off */
static void on_message(void *arg)
{
    struct engine *e = arg;

    (void)schedule_start(&e->flow);
}

static void on_trouble(void *arg, const char *what, int err)
{
    struct engine *e = arg;

    gate_trouble(&e->flow.gate, what, err);
}

/* on_last - handlers that are threads of ours end with the process
 * Custody stays mapped, as they read there; the lock of the state directory,
 * and so any other worker, waits for the end of the process.
 */
static void on_last(void *arg)
{
    struct engine *e = arg;

    if (keep_quiet(&e->flow)) {
        file_watch_last(e->file_watch);
        unsettled_fini(&e->flow.unsettled);
        keep_all(&e->flow);
        totals_ended(e->flow.counters, e->flow.started, &e->runtime, &e->dir);
        runtimedir_close(&e->runtime, &e->dir, custody_empty(e->flow.custody));
    }
    _exit(EX_OK);
}

/* on_signal - what an operator's signals mean */
static void on_signal(void *arg, int signal)
{
    struct engine *e = arg;

    switch (signal) {
    case SIGUSR2:
        gate_pause(&e->flow.gate, true);
        break;
    case SIGCONT:
        gate_pause(&e->flow.gate, false);
        break;
    case SIGTTIN:
        cap_change(&e->cap, +1);
        break;
    case SIGTTOU:
        cap_change(&e->cap, -1);
        break;
    default:
        stop_worker(&e->stop, signal);
    }
}

/* source_ready - what else there is between the worker and where its messages
 * come from and go to */
static int source_ready(struct engine *e, struct problem *p)
{
    size_t room = custody_body_bytes(e->flow.custody);
    const struct mq_reopen_setup reopen = {.set = e->flow.set,
                                           .queue = e->flow.queue,
                                           .peeker = e->flow.peeker,
                                           .timers = e->flow.timers,
                                           .loop = e->flow.loop,
                                           .room = room,
                                           .gone = on_gone,
                                           .ended = on_ended,
                                           .arg = e};
    const struct group_hold_watch_setup release = {.queue = e->flow.set->queue,
                                                   .folder = e->dir.folder,
                                                   .timers = e->flow.timers,
                                                   .loop = e->flow.loop,
                                                   .pool = e->flow.pool,
                                                   .ask = ask_held,
                                                   .held = held,
                                                   .arg = e};
    const struct dead_queue_setup letters = {
        .set = e->flow.set,
        .store = e->flow.store,
        .due_rows = e->flow.due_rows,
        .timers = e->flow.timers,
        .loop = e->flow.loop,
        .pool = &e->flow.pool,
        .dirty = &e->flow.dirty,
        .message_size = queue_message_size(e->flow.queue),
        .room = room};
    int err = mq_reopen_open(&e->flow.mq_reopen, &reopen, p);

    if (!err && e->flow.set->on_group_dead == GROUP_DEAD_HOLD)
        err = group_hold_watch_open(&e->flow.group_hold_watch, &release, p);
    if (!err && e->flow.set->dead_letter_queue[0])
        err = dead_queue_open(&e->flow.dead_queue, &letters, p);
    return err;
}

/* borrow - what parts that cannot fail to open work on */
static void borrow(struct engine *e)
{
    e->flow.dirty.timers = e->flow.timers;
    e->flow.dirty.loop = e->flow.loop;
    e->flow.gate.timers = e->flow.timers;
    e->flow.gate.dirty = &e->flow.dirty;
    e->flow.gate.counters = e->flow.counters;
    e->flow.items.counters = e->flow.counters;
    e->flow.row_restore =
        (struct row_restore){.store = e->flow.store,
                             .room = custody_body_bytes(e->flow.custody),
                             .died = settle_died,
                             .arg = &e->flow};
    e->board.chore.timers = e->flow.timers;
    e->recall.queue = e->flow.set->queue;
    e->recall.folder = e->dir.folder;
    e->recall.store = e->flow.store;
    e->recall.due_rows = e->flow.due_rows;
    e->recall.timers = e->flow.timers;
    e->recall.pool = e->flow.pool;
    e->recall.dirty = &e->flow.dirty;
    e->recall.letters = on_letters;
    e->recall.arg = e;
}

/* on_there - its folder is there, so the socket can be; on a pool thread */
static void on_there(void *arg)
{
    struct engine *e = arg;

    control_put_back(e->control);
}

/* parts_ready - threads and descriptors */
static int parts_ready(struct engine *e, struct problem *p)
{
    unsigned most = custody_slots_most(e->flow.custody);
    int err;

    err = ready_open(&e->flow.ready, e->flow.custody);
    if (!err)
        err = timers_open(&e->flow.timers);
    if (!err)
        err = pool_open(&e->flow.pool,
                        (unsigned)e->flow.set->concurrency + SPARE_THREADS);
    if (!err)
        err = due_rows_open(&e->flow.due_rows, e->flow.store, e->flow.timers,
                            2 * most, row_due, e);
    if (!err)
        err = dispatch_open(&e->flow.dispatch, &e->flow, most);
    if (!err)
        err = loop_open(&e->flow.loop, e->flow.timers);
    if (!err && e->flow.set->take_signals)
        err = signals_open(&e->signals, e->flow.loop, on_signal, e);
    if (!err)
        err = peeker_open(&e->flow.peeker,
                          &(struct peeker_setup){.loop = e->flow.loop,
                                                 .timers = e->flow.timers,
                                                 .queue = e->flow.queue,
                                                 .ready = on_message,
                                                 .trouble = on_trouble,
                                                 .arg = e});
    if (err)
        return problem_set(p, EX_OSERR, -err, "cannot start: %s",
                           strerror(-err));
    borrow(e);
    stderr_limit_init(&e->stderr_limit, e->flow.set, e->flow.timers);
    err = e->flow.ops->open(
        &e->flow.handler,
        &(struct handler_setup){.settings = e->flow.set,
                                .nonce = custody_nonce(e->flow.custody),
                                .timers = e->flow.timers,
                                .loop = e->flow.loop,
                                .stderr_limit = &e->stderr_limit},
        p);
    if (!err)
        err = source_ready(e, p);
    if (!err)
        err = file_watch_open(&e->file_watch,
                              &(struct file_watch_setup){.flow = &e->flow,
                                                         .dir = &e->dir,
                                                         .runtime = &e->runtime,
                                                         .lock = e->lock,
                                                         .there = on_there,
                                                         .arg = e},
                              p);
    if (!err)
        e->control = control_open(&e->orders);
    e->orders.file_watch = e->board.file_watch = e->file_watch;
    return err;
}

/* engine_init - what cannot fail */
static void engine_init(struct engine *e, struct settings *set,
                        const struct handler_ops *ops)
{
    e->flow.set = set;
    e->flow.folder = e->dir.folder;
    e->signals.source.fd = -1;
    e->flow.ops = ops;
    e->runtime.lock = -1;
    (void)clock_steady_ns(); /* its first call fixes what it starts from */
    pthread_mutex_init(&e->flow.receive_mtx, NULL);
    items_init(&e->flow.items, ops->guess_ns);
    gate_init(&e->flow.gate, set, on_gate, e);
    stop_init(&e->stop, &e->flow, on_last, e);
    e->orders = (struct orders){
        .flow = &e->flow, .live = set, .stop = &e->stop, .cap = &e->cap};
    cap_init(&e->cap, &e->flow, set);
    unsettled_init(&e->flow.unsettled, &e->flow);
    lost_replays_init(&e->recall);
    run_limits_init(&e->flow);
    status_init(&e->board, &e->flow);
}

/* engine_open - everything ready, the last worker's leavings on the held
 * list */
int engine_open(struct engine **out, struct settings *set,
                const struct handler_ops *ops, struct problem *p)
{
    struct engine *e = calloc(1, sizeof *e);
    int err;

    *out = NULL;
    if (!e)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    engine_init(e, set, ops);
    err = files_ready(e, p);
    if (!err)
        err = parts_ready(e, p);
    if (!err)
        err = recover(&e->flow, p);
    /* What the last one kept at its end, and it had no more slots. */
    atomic_store(&e->flow.rows_first, err ? 0 : custody_slots(e->flow.custody));
    if (err) {
        engine_close(&e);
        return err;
    }
    *out = e;
    return 0;
}

/* hello - what runs, where, and what could go wrong with it */
static void hello(struct engine *e)
{
    bool doubtful;
    const char *disk = custody_disk(e->flow.custody, &doubtful);

    log_info(
        "started", F_STR("queue", e->flow.set->queue), F_INT("pid", getpid()),
        F_UINT("max_concurrency", atomic_load(&e->flow.gate.cap)),
        F_STR("handler", e->flow.ops->name), F_STR("state_dir", e->dir.folder),
        F_STR("runtime_dir", e->runtime.folder),
        F_INT("in_queue", queue_length(e->flow.queue)));
    if (disk)
        log_warn("custody_on_disk", F_STR("folder", e->runtime.folder),
                 F_STR("type", disk),
                 F_STR("next",
                       doubtful
                           ? "this file system may move or lose mapped pages: "
                             "a kill can lose messages in flight; give a "
                             "--runtime-dir on a tmpfs"
                           : "a kill while the file is written back loses the "
                             "message in hand; give a --runtime-dir on a "
                             "tmpfs"));
    cap_tell_unlocked(&e->flow);
}

/* whole_us - digits below a microsecond say nothing */
static uint64_t whole_us(uint64_t ns)
{
    return ns / NS_PER_US * NS_PER_US;
}

/* summary - the last line of a run */
static void summary(struct engine *e)
{
    struct items_stats s;
    struct counters_sum n;

    items_stats(&e->flow.items, &s);
    counters_sum(e->flow.counters, &n);
    log_info(
        "stopped", F_STR("queue", e->flow.set->queue),
        F_STR("why", atomic_load(&e->flow.gate.why)),
        F_DURATION("ran", (clock_mono_ns() - e->flow.run_limits.started_ns) /
                              NS_PER_MS * NS_PER_MS),
        F_UINT("deliveries", s.deliveries), F_UINT("done", n.done),
        F_UINT("retried", n.retried), F_UINT("dead", n.dead),
        F_UINT("discarded", n.discarded),
        F_DURATION("mean",
                   whole_us(s.deliveries ? s.took_ns / s.deliveries : 0)),
        F_DURATION("longest", whole_us(s.longest_ns)),
        F_INT("in_queue", queue_length(e->flow.queue)));
}

static bool finished(void *arg)
{
    const struct engine *e = arg;

    return gate_finished(&e->flow.gate);
}

static int wait_ms(void *arg)
{
    struct engine *e = arg;

    return schedule_wait_ms(&e->flow);
}

static void quiet(void *arg)
{
    struct engine *e = arg;

    schedule_quiet(&e->flow);
}

static void show(void *arg)
{
    struct engine *e = arg;

    status_show(&e->board);
}

static const struct loop_hooks rounds = {
    .finished = finished, .wait_ms = wait_ms, .quiet = quiet, .round = show};

/* engine_run - the calling thread becomes the peeker */
int engine_run(struct engine *e)
{
    e->flow.started = true;
    hello(e);
    backlog_look(&e->flow);
    lost_replays_start(&e->recall);
    if (e->flow.dead_queue)
        dead_queue_poke(e->flow.dead_queue);
    if (e->flow.group_hold_watch && dispatch_held(&e->flow) > 0)
        group_hold_watch_watch(e->flow.group_hold_watch);
    status_count(&e->board);
    run_limits_start(&e->flow);
    file_watch_start(e->file_watch);
    for (unsigned n = ready_waiting(&e->flow.ready); n > 0; n--)
        schedule_poke(&e->flow);
    schedule_poke(&e->flow);
    loop_run(e->flow.loop, &rounds, e);
    stderr_limit_tell(&e->stderr_limit);
    summary(e);
    return e->flow.gate.status;
}

/* engine_close - in the order that lets each part finish what it began */
void engine_close(struct engine **engine)
{
    struct engine *e = *engine;
    bool empty;

    if (!e)
        return;
    *engine = NULL;
    if (e->flow.peeker)
        peeker_release(e->flow.peeker);
    pool_close(&e->flow.pool);
    if (e->file_watch && e->flow.started)
        file_watch_last(e->file_watch);
    file_watch_close(&e->file_watch);
    if (e->flow.store)
        unsettled_fini(&e->flow.unsettled);
    dead_queue_close(&e->flow.dead_queue);
    mq_reopen_close(&e->flow.mq_reopen);
    group_hold_watch_close(&e->flow.group_hold_watch);
    dispatch_close(&e->flow.dispatch);
    if (e->flow.handler)
        e->flow.ops->close(&e->flow.handler);
    stderr_limit_fini(&e->stderr_limit);
    if (e->flow.started)
        keep_all(&e->flow);
    due_rows_close(&e->flow.due_rows);
    control_close(&e->control);
    peeker_close(&e->flow.peeker);
    signals_close(&e->signals);
    loop_close(&e->flow.loop);
    timers_close(&e->flow.timers);
    if (e->flow.counters)
        totals_ended(e->flow.counters, e->flow.started, &e->runtime, &e->dir);
    counters_close(&e->flow.counters);
    empty = e->flow.custody && custody_empty(e->flow.custody);
    custody_close(&e->flow.custody);
    runtimedir_close(&e->runtime, &e->dir, empty);
    store_close(&e->flow.store);
    queue_close(&e->flow.queue);
    if (!e->flow.started)
        pid_file_give_back(e->lock);
    pid_file_close(&e->lock);
    if (!e->flow.started)
        (void)rmdir(e->dir.folder); /* if this call made it, it is empty */
    items_fini(&e->flow.items);
    gate_fini(&e->flow.gate);
    pthread_mutex_destroy(&e->flow.receive_mtx);
    ready_close(&e->flow.ready);
    free(e);
}
