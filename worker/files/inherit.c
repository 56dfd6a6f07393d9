/* inherit.c - opens the files that a worker inherits from the last one
 *
 * The engine calls inherit_open, or inherit_broker_open for a queue on a
 * broker, before it starts threads (see inherit.h).
 */
#include "worker/files/inherit.h"

#include <errno.h>
#include <limits.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/folder.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/custody/custody.h"
#include "common/custody/ends.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/store/spool.h"
#include "worker/config/settings.h"
#include "worker/files/pid_file.h"
#include "worker/files/store_look.h"
#include "worker/flow/flow.h"
#include "worker/source/mq/source_mq.h"

#define FOLDER_TRIES 100 /* while another program removes the folder */

void inherit_totals_keep(struct counters *c, bool ran,
                         const struct runtimedir *runtime,
                         const struct statedir *dir)
{
    char path[PATH_MAX];

    if (!ran && counters_give_back(c))
        return;
    counters_gauge(c, COUNTERS_ENDED_NS, clock_wall_ns());
    if (ran && !counters_private(c) &&
        statedir_path(dir, RUNTIMEDIR_COUNTERS, path, NULL) == 0 &&
        (runtime->lock >= 0 || access(path, F_OK) < 0))
        (void)counters_save(c, path);
}

/* Open the counters, with the numbers of the last worker. If the runtime folder
 * has none, use the copy that an orderly stop left in the state folder. Remove
 * the copy, because it would be out of date after this run. If the counters
 * cannot be in a file, the worker runs with private ones. */
static int totals_open(const struct inherit *i, struct problem *p)
{
    struct counters **out = &i->flow->counters;
    char path[PATH_MAX], other[PATH_MAX];
    int err = runtimedir_path(i->runtime, RUNTIMEDIR_COUNTERS, path, p);

    if (err)
        return err;
    if (i->runtime->lock >= 0 &&
        statedir_path(i->dir, RUNTIMEDIR_COUNTERS, other, NULL) == 0) {
        if (access(path, F_OK) < 0)
            (void)counters_copy(path, other);
        (void)unlink(other);
    }
    if (counters_open(out, path, 1 + ITEMS_MAX) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    if (counters_private(*out))
        log_warn("counters_private", F_STR("path", path),
                 F_STR("error", counters_private(*out)),
                 F_STR("next",
                       "the worker is running, but mqctl cannot see its "
                       "numbers; fix the error, then restart the worker"));
    return 0;
}

/* Make sure that custody belongs to the store. A custody file that names
 * another store was left by a worker whose state directory had the same path:
 * that directory was removed, or the store was moved away, or another container
 * has the same tmpfs. The row numbers and receive sequences in its slots mean
 * nothing in our store: if our store has an equal number, a message would count
 * as settled, or would settle another message. So if our store has no rows, the
 * messages of the file run as new ones; otherwise the start is refused.
 * Since another worker has used the file, it is also unknown which messages of
 * our store have run, so the store marks all of them.
 * Crash before the marks are on disk, or before custody names our store: the
 * next start finds the other store's id in custody and does the same. */
static int custody_tie(const struct inherit *i, const char *path,
                       struct problem *p)
{
    struct custody *c = i->mq->custody;
    uint64_t id = store_id(i->mq->store), was = custody_store(c), seq;
    int err = 0;

    if (was != 0 && was != id) {
        err = store_max_seq(i->mq->store, &seq);
        if (!err && !custody_empty(c) &&
            (seq > 0 || store_spool_count(i->mq->store) != 0))
            return problem_set(
                p, EX_CONFIG, EBUSY,
                "%s has messages in flight of another store than %s/store.db; "
                "nothing was touched: start the worker of that store (another "
                "container with the same path, or the store that was moved "
                "away), or move the file away to start without them",
                path, i->dir->folder);
        if (!err && !custody_empty(c))
            log_warn("custody_of_other_store",
                     F_STR("queue", i->flow->set->queue), F_STR("file", path),
                     F_STR("next", "messages in flight that belong to another "
                                   "store run again, marked as redelivered; if "
                                   "that store is put back, the retries among "
                                   "them run once more"));
        FAULT_POINT("custody_tie_before_doubt");
        if (!err)
            err = store_doubt(i->mq->store);
        FAULT_POINT("custody_tie_after_doubt");
    }
    if (err)
        return problem_set(p, EX_CANTCREAT, -err,
                           "store of %s: %s. Nothing was lost; %s, and start "
                           "again",
                           i->flow->set->queue, errno_text(-err),
                           disk_advice(err));
    custody_bind(c, id);
    return 0;
}

/* Open custody, with the messages that the last worker left in it, and record
 * its folder in the state directory before the first message is received. */
static int custody_ready(const struct inherit *i, struct custody_spec *spec,
                         struct problem *p)
{
    struct runtimedir *r = i->runtime;
    char path[PATH_MAX];
    bool doubtful;
    int err = runtimedir_path(r, RUNTIMEDIR_CUSTODY, path, p);

    if (r->past == RUNTIMEDIR_GONE)
        log_warn("custody_missing", F_STR("queue", i->flow->set->queue),
                 F_STR("folder", r->was),
                 F_STR("next", "a worker was killed, and its in-flight "
                               "messages are gone: the folder was removed, or "
                               "its container ended. Retries and letters are "
                               "in the store"));
    if (r->past == RUNTIMEDIR_REBOOT)
        log_warn("custody_rebooted", F_STR("queue", i->flow->set->queue),
                 F_STR("folder", r->was),
                 F_STR("next", "the machine went down while a worker was "
                               "running: its in-flight messages and the queue "
                               "are gone. Retries and letters are in the "
                               "store"));
    if (!err)
        err = custody_open(&i->mq->custody, path, spec, p);
    if (!err)
        err = custody_tie(i, path, p);
    if (!err)
        err = runtimedir_settle(r, i->dir, p);
    if (err)
        return err;
    i->mq->on_disk = custody_disk(i->mq->custody, &doubtful);
    return 0;
}

/* Check that the store has all commits of the last worker. This comes before
 * the first write, because a write may destroy what is left of lost commits.
 * Crash before the loss is logged: the next start finds, copies and logs the
 * same. */
static int store_ready(const struct inherit *i, struct problem *p)
{
    _Atomic uint64_t *last = counters_commits(i->flow->counters);
    uint64_t was = atomic_load(last), commits = store_commits(i->mq->store);
    char copy[PATH_MAX];
    int err;

    if (commits < was) {
        err = store_set_aside(i->mq->store, copy);
        log_error("store_behind", F_STR("queue", i->flow->set->queue),
                  F_UINT("commits", was - commits),
                  F_STR("copy", err ? errno_text(-err) : copy),
                  F_STR("next",
                        "the store lacks that many commits of the last "
                        "worker: its files were damaged, or replaced by "
                        "older ones. Check the disk, and keep the copy of "
                        "the store: it has what is left of these commits"));
    }
    if (commits == UINT64_MAX)
        last = NULL;
    else
        atomic_store(last, commits);
    err = store_claim(i->mq->store, last, p);
    /* If the disk is full, due times stay as they are; mq_start tries again. */
    if (!err)
        (void)store_clock_follow(i->mq->store);
    return err;
}

/* Mark the waiting messages as redelivered if custody is gone, because any of
 * them may have run already.
 * Crash before the commit, or between it and the note that names this boot
 * (runtimedir_settle): the next start finds the old note and does the same.
 * Crash after the note: the marks are on disk. */
static int rows_doubt(const struct inherit *i, struct problem *p)
{
    int64_t keys;
    int err;

    if (i->runtime->past != RUNTIMEDIR_REBOOT &&
        i->runtime->past != RUNTIMEDIR_GONE)
        return 0;
    err = store_doubt(i->mq->store);
    if (err)
        return problem_set(
            p, EX_CANTCREAT, -err,
            "store of %s: waiting messages cannot be marked as redelivered: "
            "%s. Nothing was lost; %s, and start again",
            i->flow->set->queue, errno_text(-err), disk_advice(err));
    keys = store_keys_count(i->mq->store, clock_wall_ns());
    if (keys > 0)
        log_warn("keys_kept", F_STR("queue", i->flow->set->queue),
                 F_INT("count", keys),
                 F_STR("next",
                       "a message lost in the crash of the machine keeps its "
                       "unique key until the key expires. List keys with mqctl "
                       "keys, and free one with mqctl keys QUEUE --free KEY"));
    return 0;
}

/* Make the folder of the queue and take its locks. `mqctl forget` may remove
 * the folder between the two steps; then create the folder again. */
static int state_lock(const struct inherit *i, bool broker, struct problem *p)
{
    const struct settings *set = i->flow->set;
    char path[PATH_MAX];
    int err;

    for (int tries = 0; tries < FOLDER_TRIES; tries++) {
        err = broker
                  ? statedir_open_label(i->dir, set->state_dir,
                                        set->broker.folder, true, p)
                  : statedir_open(i->dir, set->state_dir, set->queue, true, p);
        if (!err)
            err = statedir_path(i->dir, STATEDIR_PIDFILE, path, p);
        if (!err)
            err = pid_file_open(i->lock, path, set->queue, p);
        if (err != -ENOENT)
            break;
    }
    return err;
}

/* The lock comes first: it proves that the last worker is dead. Custody and the
 * file of ends are checked before a queue or a store is created, so that a
 * refused start creates neither. The queue comes before the store, because most
 * refused starts are due to the queue, and they must not create a store.
 * Custody comes last, because its size depends on the queue and it must belong
 * to the store. */
int inherit_open(const struct inherit *i, struct problem *p)
{
    const struct settings *set = i->flow->set;
    struct custody_spec spec = {
        .slots = slots_for(set, (unsigned)set->concurrency),
        .slots_max = slots_for(set, CONCURRENCY_MAX) + SPOOL_SLOTS,
        .slots_more = slots_more(set),
        .aside = i->dir->folder,
    };
    const struct runtimedir_wish wish = {
        .dir = set->runtime_dir,
        .allow_disk = set->allow_disk_custody,
        .holds = custody_holds,
    };
    const char *folder = i->runtime->folder;
    struct queue_attr attr;
    char path[PATH_MAX], text[256];
    bool created = false;
    int err;

    err = state_lock(i, false, p);
    if (!err)
        err = runtimedir_open(i->runtime, &wish, i->dir, p);
    if (!err && folder_join(path, folder, "/" RUNTIMEDIR_CUSTODY, ""))
        err = custody_known(path, NULL, p);
    if (!err && folder_join(path, folder, "/" RUNTIMEDIR_ENDS, ""))
        err = ends_known(path, p);
    if (err)
        return err;
    settings_attr(set, &attr);
    err = set->passed_fd
              ? queue_adopt(&i->mq->queue, set->queue, set->passed_fd, p)
              : queue_open(&i->mq->queue, set->queue, settings_queue_flags(set),
                           &attr, &created, p);
    if (err == -ENOENT)
        return problem_set(p, EX_NOINPUT, ENOENT,
                           "queue %s does not exist; leave out --no-create, or "
                           "run `mqctl create %s`",
                           set->queue, SHELL_QUEUE(set->queue));
    if (err)
        return err;
    if (created)
        log_info("queue_created", F_STR("queue", set->queue),
                 F_UINT("depth", queue_depth(i->mq->queue)),
                 F_UINT("message_size", queue_message_size(i->mq->queue)));
    else if (queue_differs(i->mq->queue, &attr, text, sizeof text))
        log_warn("queue_differs", F_STR("queue", set->queue),
                 F_STR("what", text),
                 F_STR("next",
                       "the queue keeps what it was created with. To change "
                       "depth or size, see \"Moving a queue\" in the runbook; "
                       "the mode, use chmod in /dev/mqueue"));
    err = statedir_path(i->dir, STATEDIR_STORE, path, p);
    if (!err)
        err = store_open(&i->mq->store, path, true, p);
    if (!err)
        err = store_look_open(i->look, i->flow, i->mq->store, p);
    if (!err)
        err = rows_doubt(i, p);
    if (err)
        return err;
    spec.body_bytes = queue_message_size(i->mq->queue);
    err = custody_ready(i, &spec, p);
    if (!err)
        err = totals_open(i, p);
    return err ? err : store_ready(i, p);
}

int inherit_broker_open(const struct inherit *i, char runs[PATH_MAX],
                        struct problem *p)
{
    const struct settings *set = i->flow->set;
    /* The runtime folder may be on disk, because the broker keeps the messages
     * in flight. The run file records which messages were settled or crashed; a
     * kill during writeback may lose a record, and that message runs again. */
    const struct runtimedir_wish wish = {.dir = set->runtime_dir,
                                         .allow_disk = true};
    int err = state_lock(i, true, p);

    if (!err)
        err = runtimedir_open(i->runtime, &wish, i->dir, p);
    if (!err)
        err = runtimedir_settle(i->runtime, i->dir, p);
    if (!err)
        err = totals_open(i, p);
    return err ? err : runtimedir_path(i->runtime, RUNTIMEDIR_RUNS, runs, p);
}
