/* file_restore.c - files that were removed are written again (see
 * file_watch_inner.h)
 *
 * Only the worker can bring back a file that no name leads to: it makes another
 * one with the same content, under the same name. A file that was moved may
 * come back: nothing is written in its place, and no file that has come there
 * is replaced.
 */
#include "worker/files/file_watch_inner.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/state/counters.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "worker/files/pid_file.h"
#include "worker/flow/flow.h"
#include "worker/source/mq/source_mq.h"

bool files_may_restore(const struct file_watch *w)
{
    for (enum part i = STORE; i < PIDFILE; i++) {
        const struct file *f = &w->files[i];

        if (f->state == AWAY ||
            (f->state == TAKEN && !file_same(&w->copy, &f->name)))
            return false;
    }
    return true;
}

/* folders_ready - there again, and ours alone; or a problem */
static int folders_ready(struct file_watch *w, struct problem *p)
{
    const struct settings *set = w->with.flow->set;
    struct statedir dir;
    int err = statedir_open(&dir, set->state_dir, set->queue, true, p);

    if (err)
        return err;
    err = pid_file_put_back(w->with.lock);
    if (err == -EEXIST)
        return problem_set(p, EX_UNAVAILABLE, EEXIST,
                           "another worker has %s; stop that one", dir.folder);
    if (err)
        return problem_set(p, EX_CANTCREAT, -err, "the pidfile in %s: %s",
                           dir.folder, errno_text(-err));
    file_again(&w->files[PIDFILE]);
    if (!files_gone(w, STORE, ENDS))
        return 0;
    err = runtimedir_put_back(w->with.runtime, w->with.dir, p);
    if (err)
        return err;
    file_again(&w->files[NOTE]);
    file_again(&w->files[OWNER]);
    return 0;
}

/* go_on - start the items that were refused meanwhile, show the gauges again */
static void go_on(struct flow *flow)
{
    items_go_on(&flow->items);
    dirty_state_now(&flow->dirty);
    gate_changed(&flow->gate);
}

/* stop - no work item has a slot but to wait with, and no verdict waits to be
 * written: true, and none gets one before go_on
 * A verdict that waits (unsettled.h) frees its slot before it is counted out.
 */
static bool stop(struct flow *flow)
{
    if (!items_stop(&flow->items))
        return false;
    if (unsettled_count(&flow->unsettled) == 0)
        return true;
    go_on(flow);
    return false;
}

/* custody_again - while no work item has a slot; else at a later look */
static int custody_again(struct file_watch *w, struct problem *p)
{
    struct flow *flow = w->with.flow;
    int err;

    if (!stop(flow))
        return 0;
    err = custody_put_back(w->with.mq->custody, p);
    go_on(flow);
    if (!err)
        file_again(&w->files[CUSTODY]);
    return err;
}

/* counters_again - likewise; others see no numbers meanwhile, so nothing is
 * held and nothing more is told of it */
static void counters_again(struct file_watch *w)
{
    struct file *f = &w->files[COUNTERS];

    if (f->state != REMOVED || !stop(w->with.flow))
        return;
    if (counters_put_back(w->with.flow->counters, f->path) == 0)
        file_again(f);
    go_on(w->with.flow);
}

/* ends_again - messages run meanwhile */
static void ends_again(struct file_watch *w)
{
    struct file *f = &w->files[ENDS];

    if (f->state == REMOVED && source_mq_ends_put_back(w->with.mq) == 0)
        file_again(f);
}

/* store_again - the copy takes as long as the store is large
 * It may replace the store itself, of which the -wal or -shm is gone, or a copy
 * that could not be opened. */
static int store_again(struct file_watch *w, struct problem *p)
{
    struct file *f = w->files;
    const struct stat replace[2] = {f[STORE].id, w->copy};
    int err = store_put_back(w->with.mq->store, f[STORE].path, replace, p);

    if (err) {
        if (err == -EEXIST || stat(f[STORE].path, &w->copy) < 0)
            w->copy = (struct stat){0};
        return err;
    }
    for (enum part i = STORE; i <= STORE_SHM; i++)
        file_again(&f[i]);
    source_mq_store_changed(w->with.mq);
    return 0;
}

void files_restore(struct file_watch *w)
{
    const struct file *store = files_gone(w, STORE, STORE_SHM);
    const struct file *custody = files_gone(w, CUSTODY, CUSTODY);
    struct problem p = {0};

    if (folders_ready(w, &p) < 0) {
        if (store || custody)
            file_not_written(w, w->with.dir->folder, p.text);
        return;
    }
    counters_again(w);
    ends_again(w);
    if (custody && custody_again(w, &p) < 0)
        file_not_written(w, custody->path, p.text);
    if (store && store_again(w, &p) < 0)
        file_not_written(w, w->files[STORE].path, p.text);
}

/* store_save - the last thing that can be done for it */
static void store_save(struct file_watch *w)
{
    const char *path = w->files[STORE].path, *queue = w->with.flow->set->queue;
    char saved[PATH_MAX];
    int err;

    snprintf(saved, sizeof saved, "%.4000s.saved-%d", path, (int)getpid());
    err = store_copy(w->with.mq->store, saved);
    if (err)
        log_error("store_lost", F_STR("queue", queue), F_STR("file", path),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "retries and dead letters are lost; those of "
                                "which a verdict was waiting are in custody"));
    else
        log_error("store_saved", F_STR("queue", queue), F_STR("file", saved),
                  F_STR("next", "it has all retries and dead letters: move it "
                                "to store.db before the next start"));
}

/* files_restore_last - no slot is in use by a thread, and nobody writes
 * A file that was moved away has all that was written: the operator puts it
 * back before the next start.
 */
void files_restore_last(struct file_watch *w)
{
    struct file *f = w->files;
    struct problem p = {0};
    bool ready = files_may_restore(w) && folders_ready(w, &p) == 0;

    if (ready && f[CUSTODY].state == REMOVED &&
        custody_put_back(w->with.mq->custody, &p) < 0)
        file_not_written(w, f[CUSTODY].path, p.text);
    if (ready && files_gone(w, STORE, STORE_SHM))
        ready = store_again(w, &p) == 0;
    if (!ready && file_unnamed(&f[STORE]))
        store_save(w);
}
