/* file_watch.c - when the files of a worker are looked at, and what follows
 * (see file_watch.h)
 *
 * A look is a chore of the pool: a file system may take long to answer, and
 * what is gone is written again by the same run, while the loop goes on. That
 * waits a second before, so that it does not race with an `rm -r` that is still
 * at it.
 */
#include "worker/files/file_watch_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "worker/flow/flow.h"
#include "worker/source/mq/source_mq.h"

#define AGAIN_NS NS_PER_S        /* from one look to the next in trouble */
#define SLOW_NS  (60 * NS_PER_S) /* without inotify, when nothing is taken */

/* No ordinary write to a file is among them. */
#define FOLDER_EVENTS                                                  \
    (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define ABOVE_EVENTS (IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* Hold the gate while a file is gone or cannot be written (`on`), or let it go
 * where that is over. */
static void holds_set(struct file_watch *w, bool on)
{
    const struct {
        unsigned bit;
        bool held;
    } holds[] = {
        {HOLD_STORE_GONE, files_gone(w, STORE, STORE_SHM) != NULL},
        {HOLD_CUSTODY_GONE, files_gone(w, CUSTODY, CUSTODY) != NULL},
        {HOLD_READ_ONLY, w->read_only != NULL},
    };
    struct gate *g = &w->with.flow->gate;

    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
        if (holds[i].held != on || gate_held(g, holds[i].bit) == on)
            continue;
        if (on)
            gate_hold(g, holds[i].bit);
        else
            gate_unhold(g, holds[i].bit);
    }
}

/* look - each file; nothing is taken between a loss and the log line about it,
 * nor before the line that says that it is over */
static bool look(struct file_watch *w)
{
    unsigned lost = files_look(w);

    if (lost > w->lost) /* and maybe more soon */
        w->calm_ns = clock_mono_ns() + AGAIN_NS;
    w->lost = lost;
    file_notices_publish(w);
    source_mq_store_gone(w->with.mq, files_gone(w, STORE, STORE_SHM) != NULL);
    holds_set(w, true);
    file_notices_tell(w);
    holds_set(w, false);
    return lost == 0 && !w->read_only;
}

/* folder_watch - a folder, and each above it; it may be watched already */
static void folder_watch(struct file_watch *w, const char *folder)
{
    char path[PATH_MAX];
    char *slash;

    if (w->source.fd < 0)
        return;
    strlcpy(path, folder, sizeof path);
    (void)inotify_add_watch(w->source.fd, path, FOLDER_EVENTS);
    while ((slash = strrchr(path, '/')) != NULL && slash > path) {
        *slash = '\0';
        (void)inotify_add_watch(w->source.fd, path, ABOVE_EVENTS | IN_MASK_ADD);
    }
}

/* folders_watch - they may be other ones than before */
static void folders_watch(struct file_watch *w)
{
    folder_watch(w, w->with.dir->folder);
    folder_watch(w, w->with.runtime->folder);
}

/* look_run - and again while something is wrong */
static int look_run(struct chore *chore)
{
    struct file_watch *w = CONTAINER_OF(chore, struct file_watch, chore);
    bool fine = look(w);

    if (!fine && clock_mono_ns() >= w->calm_ns && files_may_restore(w)) {
        files_restore(w);
        fine = look(w);
    }
    if (!fine) {
        folders_watch(w);
        return -ENOENT;
    }
    w->with.there(w->with.arg);
    if (w->source.fd < 0)
        chore_after(chore, SLOW_NS);
    return 0;
}

/* changed - a name in a folder of ours, or of one above */
static void changed(struct loop_source *source)
{
    struct file_watch *w = CONTAINER_OF(source, struct file_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    chore_soon(&w->chore);
}

void file_watch_soon(struct file_watch *w)
{
    if (w)
        chore_soon(&w->chore);
}

/* The gate is held until the first look is over, which another thread may have
 * begun already: somebody may have asked for it. */
void file_watch_start(struct file_watch *w)
{
    gate_hold(&w->with.flow->gate, HOLD_READ_ONLY);
    chore_run(&w->chore);
}

int file_watch_open(struct file_watch **out,
                    const struct file_watch_setup *setup, struct problem *p)
{
    struct flow *flow = setup->flow;
    struct file_watch *w = calloc(1, sizeof *w);
    int err;

    *out = NULL;
    if (!w)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    w->with = *setup;
    w->chore = (struct chore){.run = look_run,
                              .first_ns = AGAIN_NS,
                              .most_ns = AGAIN_NS,
                              .timers = flow->timers,
                              .pool = &flow->pool};
    chore_init(&w->chore);
    pthread_mutex_init(&w->mtx, NULL);
    w->source.ready = changed;
    w->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    err = files_open(w, p);
    folders_watch(w);
    if (w->source.fd >= 0 && !err &&
        loop_add(flow->loop, &w->source, EPOLLIN) < 0) {
        close(w->source.fd);
        w->source.fd = -1;
    }
    if (w->source.fd < 0)
        log_info("files_not_watched", F_STR("queue", flow->set->queue),
                 F_STR("error", errno_text(errno)),
                 F_STR("next", "that a file of the worker is removed is "
                               "noticed within seconds while messages come "
                               "(later where millions of rows wait), else "
                               "within a minute; raise "
                               "fs.inotify.max_user_instances"));
    *out = w;
    if (err)
        file_watch_close(out);
    return err;
}

/* file_watch_last - a look that writes the store is waited for: what this
 * process has open is all there is of it */
void file_watch_last(struct file_watch *w)
{
    chore_stop(&w->chore);
    w->told_error = false;
    if (look(w))
        return;
    files_restore_last(w);
    (void)look(w);
}

void file_watch_close(struct file_watch **watch)
{
    struct file_watch *w = *watch;

    if (!w)
        return;
    *watch = NULL;
    timers_cancel_sync(w->with.flow->timers, &w->chore.timer);
    if (w->source.fd >= 0)
        close(w->source.fd);
    for (enum part i = 0; i < PARTS; i++)
        if (w->files[i].fd >= 0)
            close(w->files[i].fd);
    pthread_mutex_destroy(&w->mtx);
    free(w);
}
