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
#include "common/base/folder.h"
#include "common/base/log.h"
#include "worker/operate/control.h"
#include "worker/source/dead_queue.h"
#include "worker/flow/cap.h"
#include "worker/source/file_watch.h"
#include "worker/flow/keep.h"
#include "worker/source/lock.h"
#include "worker/loop/loop.h"
#include "worker/flow/ordered.h"
#include "worker/loop/peeker.h"
#include "worker/flow/schedule.h"
#include "worker/flow/totals.h"
#include "worker/flow/recover.h"
#include "worker/source/release.h"
#include "worker/source/reopen.h"
#include "worker/source/pending.h"
#include "worker/config/slots.h"

/* queue_ready - open the queue, tell what differs from what was asked for */
static int queue_ready(struct engine *e, struct problem *p)
{
    const struct settings *set = e->set;
    struct queue_attr attr;
    bool created = false;
    char text[256];
    int err;

    settings_attr(set, &attr);
    if (set->passed_fd)
        err = queue_adopt(&e->queue, set->queue, set->passed_fd, p);
    else
        err = queue_open(&e->queue, set->queue, settings_queue_flags(set),
                         &attr, &created, p);
    if (err)
        return err;
    if (created)
        log_info("queue_created", F_STR("queue", set->queue),
                 F_UINT("depth", queue_depth(e->queue)),
                 F_UINT("message_size", queue_message_size(e->queue)));
    else if (queue_differs(e->queue, &attr, text, sizeof text))
        log_warn("queue_differs", F_STR("queue", set->queue),
                 F_STR("what", text));
    return 0;
}

/* past_tell - what became of the messages that the last worker had in hand */
static void past_tell(const struct engine *e)
{
    const struct runtimedir *r = &e->runtime;

    if (r->strange[0])
        log_warn("custody_stranger", F_STR("queue", e->set->queue),
                 F_STR("folder", r->strange),
                 F_STR("next", "messages in flight of another state directory, "
                               "which is gone; they stay there. How to run "
                               "them is in docs/runbook.md"));
    if (r->past == RUNTIMEDIR_GONE)
        log_warn("custody_missing", F_STR("queue", e->set->queue),
                 F_STR("folder", r->was),
                 F_STR("next", "a worker was killed, and what it had in hand "
                               "there is gone: the folder was removed, or its "
                               "container ended. Retries and letters are in "
                               "the store"));
    if (r->past == RUNTIMEDIR_REBOOT)
        log_warn("custody_rebooted", F_STR("queue", e->set->queue),
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
    const struct runtimedir_wish wish = {
        .dir = e->set->runtime_dir,
        .allow_disk = e->set->allow_disk_custody,
        .holds = custody_holds,
    };
    char path[PATH_MAX];
    bool doubtful;
    int err = runtimedir_open(r, &wish, &e->dir, p);

    if (err)
        return err;
    past_tell(e);
    err = runtimedir_path(r, RUNTIMEDIR_CUSTODY, path, p);
    if (!err)
        err = carry(path, r->from, true, spec, p);
    if (!err && r->old[0] && !r->old_true)
        err = runtimedir_settle(r, &e->dir, p);
    if (!err)
        err = carry(path, r->old, r->old_true, spec, p);
    if (!err)
        err = custody_open(&e->custody, path, spec, p);
    if (!err)
        err = runtimedir_settle(r, &e->dir, p);
    if (err)
        return err;
    runtimedir_old_remove(r);
    e->on_disk = custody_disk(e->custody, &doubtful);
    return 0;
}

/* store_ready - what the last worker wrote is there, or it is told that it is
 * not; before anything is written, as that may overwrite what is left of it
 * Crash before it is told: the next start finds, copies and tells the same.
 */
static int store_ready(struct engine *e, struct problem *p)
{
    _Atomic uint64_t *last = counters_commits(e->counters);
    uint64_t was = atomic_load(last), commits = store_commits(e->store);
    char copy[PATH_MAX];
    int err;

    if (commits < was) {
        err = store_set_aside(e->store, copy);
        log_error("store_behind", F_STR("queue", e->set->queue),
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
    return store_claim(e->store, last, p);
}

/* files_ready - lock first: from then on the last owner is known to be dead */
static int files_ready(struct engine *e, struct problem *p)
{
    const struct settings *set = e->set;
    struct custody_spec spec = {
        .slots = slots_for(set, (unsigned)set->concurrency),
        .slots_max = slots_for(set, CONCURRENCY_MAX),
        .slots_more = slots_more(set),
        .aside = e->dir.folder,
    };
    char path[PATH_MAX];
    int err;

    err = statedir_open(&e->dir, set->state_dir, set->queue, true, p);
    if (!err)
        err = statedir_path(&e->dir, STATEDIR_PIDFILE, path, p);
    if (!err)
        err = lock_open(&e->lock, path, set->queue, p);
    if (!err)
        err = queue_ready(e, p);
    if (!err)
        err = statedir_path(&e->dir, STATEDIR_STORE, path, p);
    if (!err)
        err = store_open(&e->store, path, true, p);
    if (err)
        return err;
    spec.body_bytes = queue_message_size(e->queue);
    err = custody_ready(e, &spec, p);
    if (!err)
        err = totals_open(e, p);
    return err ? err : store_ready(e, p);
}

/* on_gate - the gate says that something has changed */
static void on_gate(void *arg, enum gate_event event)
{
    struct engine *e = arg;

    if (event == GATE_CHANGED)
        schedule_poke(e);
    else if (event == GATE_WIDER)
        peeker_look_soon(e->peeker);
    else if (e->ops->lanes)
        items_wake_all(&e->items, e->ops->lanes->wake);
}

/* on_letters - there are more of them than before */
static void on_letters(void *arg)
{
    struct engine *e = arg;

    if (e->dead_queue)
        dead_queue_poke(e->dead_queue);
}

/* ask_held - whether held groups go on */
static int ask_held(void *arg)
{
    struct engine *e = arg;
    int released = ordered_release(e);

    if (released != 0)
        gate_changed(&e->gate);
    return released;
}

static size_t held(void *arg)
{
    return ordered_held(arg);
}

/* on_gone - the queue's name is; what is left in it is to be taken */
static void on_gone(void *arg)
{
    schedule_poke(arg);
}

static void on_ended(void *arg, const char *why, int status)
{
    struct engine *e = arg;

    gate_finish(&e->gate, why, status);
}

static void row_due(void *arg)
{
    schedule_poke(arg);
}

/* on_message - the queue has one, and peek mode is off */
static void on_message(void *arg)
{
    (void)schedule_start(arg);
}

static void on_trouble(void *arg, const char *what, int err)
{
    struct engine *e = arg;

    gate_trouble(&e->gate, what, err);
}

/* on_signal - what an operator's signals mean */
static void on_signal(void *arg, int signal)
{
    struct engine *e = arg;

    switch (signal) {
    case SIGUSR2:
        gate_pause(&e->gate, true);
        break;
    case SIGCONT:
        gate_pause(&e->gate, false);
        break;
    case SIGTTIN:
        cap_change(e, +1);
        break;
    case SIGTTOU:
        cap_change(e, -1);
        break;
    default:
        stop_worker(e, signal);
    }
}

/* source_ready - what else there is between the worker and where its messages
 * come from and go to */
static int source_ready(struct engine *e, struct problem *p)
{
    size_t room = custody_body_bytes(e->custody);
    const struct reopen_setup reopen = {.set = e->set,
                                        .queue = e->queue,
                                        .peeker = e->peeker,
                                        .timers = e->timers,
                                        .loop = e->loop,
                                        .room = room,
                                        .gone = on_gone,
                                        .ended = on_ended,
                                        .arg = e};
    const struct release_setup release = {.queue = e->set->queue,
                                          .folder = e->dir.folder,
                                          .timers = e->timers,
                                          .loop = e->loop,
                                          .pool = e->pool,
                                          .ask = ask_held,
                                          .held = held,
                                          .arg = e};
    const struct dead_queue_setup letters = {.set = e->set,
                                             .store = e->store,
                                             .retries = e->retries,
                                             .timers = e->timers,
                                             .loop = e->loop,
                                             .pool = &e->pool,
                                             .dirty = &e->dirty,
                                             .message_size =
                                                 queue_message_size(e->queue),
                                             .room = room};
    int err = reopen_open(&e->reopen, &reopen, p);

    if (!err && e->set->on_group_dead == GROUP_DEAD_HOLD)
        err = release_open(&e->release, &release, p);
    if (!err && e->set->dead_letter_queue[0])
        err = dead_queue_open(&e->dead_queue, &letters, p);
    return err;
}

/* borrow - what parts that cannot fail to open work on */
static void borrow(struct engine *e)
{
    e->dirty.timers = e->timers;
    e->dirty.loop = e->loop;
    e->gate.timers = e->timers;
    e->gate.dirty = &e->dirty;
    e->gate.counters = e->counters;
    e->items.counters = e->counters;
    e->load = (struct load){.store = e->store,
                            .room = custody_body_bytes(e->custody),
                            .died = settle_died,
                            .arg = e};
    e->recall.queue = e->set->queue;
    e->recall.folder = e->dir.folder;
    e->recall.store = e->store;
    e->recall.retries = e->retries;
    e->recall.timers = e->timers;
    e->recall.pool = e->pool;
    e->recall.dirty = &e->dirty;
    e->recall.letters = on_letters;
    e->recall.arg = e;
}

/* parts_ready - threads and descriptors */
static int parts_ready(struct engine *e, struct problem *p)
{
    unsigned most = custody_slots_most(e->custody);
    int err;

    err = ready_open(&e->ready, e->custody);
    if (!err)
        err = timers_open(&e->timers);
    if (!err)
        err =
            pool_open(&e->pool, (unsigned)e->set->concurrency + SPARE_THREADS);
    if (!err)
        err = retries_open(&e->retries, e->store, e->timers, 2 * most, row_due,
                           e);
    if (!err)
        err = ordered_open(&e->ordered, e, most);
    if (!err)
        err = loop_open(&e->loop, e->timers);
    if (!err && e->set->take_signals)
        err = signals_open(&e->signals, e->loop, on_signal, e);
    if (!err)
        err = peeker_open(&e->peeker,
                          &(struct peeker_setup){.loop = e->loop,
                                                 .timers = e->timers,
                                                 .queue = e->queue,
                                                 .ready = on_message,
                                                 .trouble = on_trouble,
                                                 .arg = e});
    if (err)
        return problem_set(p, EX_OSERR, -err, "cannot start: %s",
                           strerror(-err));
    borrow(e);
    stderr_limit_init(&e->stderr_limit, e->set, e->timers);
    err =
        e->ops->open(&e->handler,
                     &(struct handler_setup){.settings = e->set,
                                             .nonce = custody_nonce(e->custody),
                                             .timers = e->timers,
                                             .loop = e->loop,
                                             .stderr_limit = &e->stderr_limit},
                     p);
    if (!err)
        err = source_ready(e, p);
    if (!err)
        e->control = control_open(e);
    if (!err)
        err = file_watch_open(&e->file_watch, e, p);
    return err;
}

/* engine_init - what cannot fail */
static void engine_init(struct engine *e, struct settings *set,
                        const struct handler_ops *ops)
{
    e->set = set;
    e->live = set;
    e->signals.source.fd = -1;
    e->ops = ops;
    e->runtime.lock = -1;
    (void)clock_steady_ns(); /* its first call fixes what it starts from */
    pthread_mutex_init(&e->receive_mtx, NULL);
    items_init(&e->items, ops->guess_ns);
    gate_init(&e->gate, set, on_gate, e);
    stop_init(&e->stop);
    pending_init(e);
    recall_init(&e->recall);
    bounds_init(e);
    board_init(e);
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
        err = recover(e, p);
    /* What the last one kept at its end, and it had no more slots. */
    atomic_store(&e->rows_first, err ? 0 : custody_slots(e->custody));
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
    const char *disk = custody_disk(e->custody, &doubtful);

    log_info("started", F_STR("queue", e->set->queue), F_INT("pid", getpid()),
             F_UINT("max_concurrency", atomic_load(&e->gate.cap)),
             F_STR("handler", e->ops->name), F_STR("state_dir", e->dir.folder),
             F_STR("runtime_dir", e->runtime.folder),
             F_INT("in_queue", queue_length(e->queue)));
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
    if (!custody_locked(e->custody))
        log_warn("custody_not_locked", F_STR("folder", e->runtime.folder),
                 F_UINT("kib", (custody_bytes(e->custody) + 1023) / 1024),
                 F_STR("next", "pages that are swapped out have the same risk "
                               "as a disk: let so many KiB be locked (ulimit "
                               "-l, LimitMEMLOCK=, docker --ulimit memlock=)"));
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

    items_stats(&e->items, &s);
    counters_sum(e->counters, &n);
    log_info("stopped", F_STR("queue", e->set->queue),
             F_STR("why", atomic_load(&e->gate.why)),
             F_DURATION("ran", (clock_mono_ns() - e->bounds.started_ns) /
                                   NS_PER_MS * NS_PER_MS),
             F_UINT("deliveries", s.deliveries), F_UINT("done", n.done),
             F_UINT("retried", n.retried), F_UINT("dead", n.dead),
             F_UINT("discarded", n.discarded),
             F_DURATION("mean",
                        whole_us(s.deliveries ? s.took_ns / s.deliveries : 0)),
             F_DURATION("longest", whole_us(s.longest_ns)),
             F_INT("in_queue", queue_length(e->queue)));
}

static bool finished(void *arg)
{
    const struct engine *e = arg;

    return gate_finished(&e->gate);
}

static int wait_ms(void *arg)
{
    return schedule_wait_ms(arg);
}

static void quiet(void *arg)
{
    schedule_quiet(arg);
}

static void show(void *arg)
{
    board_show(arg);
}

static const struct loop_hooks rounds = {
    .finished = finished, .wait_ms = wait_ms, .quiet = quiet, .round = show};

/* engine_run - the calling thread becomes the peeker */
int engine_run(struct engine *e)
{
    e->started = true;
    hello(e);
    backlog_look(e);
    recall_start(&e->recall);
    if (e->dead_queue)
        dead_queue_poke(e->dead_queue);
    if (e->release && ordered_held(e) > 0)
        release_watch(e->release);
    board_count(e);
    bounds_start(e);
    file_watch_start(e->file_watch);
    for (unsigned n = ready_waiting(&e->ready); n > 0; n--)
        schedule_poke(e);
    schedule_poke(e);
    loop_run(e->loop, &rounds, e);
    stderr_limit_tell(&e->stderr_limit);
    summary(e);
    return e->gate.status;
}

/* engine_close - in the order that lets each part finish what it began */
void engine_close(struct engine **engine)
{
    struct engine *e = *engine;
    bool empty;

    if (!e)
        return;
    *engine = NULL;
    if (e->peeker)
        peeker_release(e->peeker);
    pool_close(&e->pool);
    if (e->file_watch && e->started)
        file_watch_last(e->file_watch);
    file_watch_close(&e->file_watch);
    if (e->store)
        pending_fini(e);
    dead_queue_close(&e->dead_queue);
    reopen_close(&e->reopen);
    release_close(&e->release);
    ordered_close(&e->ordered);
    if (e->handler)
        e->ops->close(&e->handler);
    stderr_limit_fini(&e->stderr_limit);
    if (e->started)
        keep_all(e);
    retries_close(&e->retries);
    control_close(&e->control);
    peeker_close(&e->peeker);
    signals_close(&e->signals);
    loop_close(&e->loop);
    timers_close(&e->timers);
    totals_ended(e);
    counters_close(&e->counters);
    empty = e->custody && custody_empty(e->custody);
    custody_close(&e->custody);
    runtimedir_close(&e->runtime, &e->dir, empty);
    store_close(&e->store);
    queue_close(&e->queue);
    lock_close(&e->lock);
    if (!e->started)
        (void)rmdir(e->dir.folder); /* if this call made it, it is empty */
    items_fini(&e->items);
    gate_fini(&e->gate);
    pthread_mutex_destroy(&e->receive_mtx);
    ready_close(&e->ready);
    free(e);
}
