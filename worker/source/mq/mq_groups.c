/* mq_groups.c - groups of a POSIX queue in the store (see source_mq.h)
 *
 * worker/flow/dispatch.c reads the groups once, at the start, and calls
 * mq_letters and mq_watch for held groups, on any thread.
 *
 * With --on-group-dead hold, a group whose head died waits until it has no dead
 * or replayed letter any more. A replayed letter comes through the queue and is
 * noticed when it is taken. Discarding a letter only writes to the store, so
 * inotify watches the store's write-ahead log while a group is held: the loop
 * reads the event, and a chore in the pool asks for the letters again. A commit
 * can become readable some time after it was written, so the watch also waits
 * for the writer to close the file.
 */
#include "worker/source/mq/source_mq.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/state/statedir.h"
#include "worker/loop/loop.h"

/* SQLite writes a commit, then syncs it; after that, the commit is readable. A
 * program that changes letters closes the file after its last commit. */
#define EVENTS   (IN_MODIFY | IN_CLOSE_WRITE)
#define LOOK_NS  (100 * NS_PER_MS) /* our own writes cause events as well */
#define AGAIN_NS NS_PER_S          /* after a failure */

/* c = constant after open   a = atomic */
struct group_watch {
    struct source_mq *q;       /* c */
    struct loop_source source; /* c  inotify */
    struct chore chore;        /* rereads the store */
    atomic_bool watching;      /* a  the source is armed, or the chore runs */
};

int mq_groups(struct source *s,
              int (*visit)(void *arg, const struct source_group *group),
              void *arg)
{
    struct source_mq *q = source_mq_of(s);
    char key[HEADER_VALUE_MAX];
    struct store_group g;
    size_t size = 0;
    int err;

    while ((err = store_next_group(q->store, key, &size, &g)) == 0) {
        struct source_group one = {.key = {.at = key, .size = size},
                                   .parked = g.parked,
                                   .letters = g.letters};
        struct store_row head = {0};

        /* The group waits for this row, unless the row is gone. */
        if (g.head)
            err = store_get(q->store, g.head, &head, NULL, 0, NULL);
        one.head = head.receive_seq;
        if (!err || err == -ENOENT)
            err = visit(arg, &one);
        if (err)
            return err;
    }
    return err == -ENOENT ? 0 : err;
}

int mq_letters(struct source *s, struct header_text key)
{
    int64_t row;
    int err =
        store_group_letter(source_mq_of(s)->store, key.at, key.size, &row);

    return err == -ENOENT ? NO : err ? err : YES;
}

/* ---- held groups ---- */

/* Start to watch. No write is missed: an event since the last read is still in
 * the descriptor, so that the chore runs once more for it. */
static void group_watch_start(struct group_watch *w)
{
    if (!atomic_exchange(&w->watching, true) &&
        loop_watch(w->q->loop, &w->source, EPOLLIN) < 0)
        chore_after(&w->chore, AGAIN_NS);
}

/* Chore: release the held groups that have no letter any more. If the store
 * cannot be read, the error repeats the chore, because there may be no further
 * write to wait for. The watch starts after the store was read. */
static int group_watch_run(struct chore *chore)
{
    struct group_watch *w = CONTAINER_OF(chore, struct group_watch, chore);
    const struct source_events *events = &w->q->events;
    int err = events->letters_gone(events->flow);

    if (err && err != chore->err)
        log_error("groups_not_asked", F_STR("queue", w->q->set->queue),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "held groups stay held until the store can be "
                                "read; it is tried again each second"));
    if (err)
        return err;
    atomic_store(&w->watching, false);
    if (events->held(events->groups) > 0)
        group_watch_start(w);
    return 0;
}

/* Run the chore soon, once for many writes. */
static void store_written(struct loop_source *source)
{
    struct group_watch *w = CONTAINER_OF(source, struct group_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    chore_after(&w->chore, LOOK_NS);
}

int group_watch_open(struct source_mq *q, struct problem *p)
{
    struct group_watch *w = calloc(1, sizeof *w);
    char path[PATH_MAX];
    const char *limit;
    int err;

    if (!w)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    w->q = q;
    source_mq_chore(q, &w->chore, group_watch_run, AGAIN_NS, AGAIN_NS);
    w->source.ready = store_written;
    w->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    /* Each change of the store writes this file, which is there as long as we
     * have the store open. */
    snprintf(path, sizeof path, "%.4000s/" STATEDIR_STORE "-wal", q->folder);
    if (w->source.fd >= 0 &&
        inotify_add_watch(w->source.fd, path, EVENTS) >= 0) {
        q->group_watch = w;
        return 0;
    }
    err = errno;
    if (w->source.fd >= 0)
        close(w->source.fd);
    free(w);
    /* An errno stands for several limits: name the one that was reached.
     * problem_set names a limit on open files by itself. */
    limit = err == EMFILE && !problem_descriptors_gone()
                ? "fs.inotify.max_user_instances"
            : err == ENOSPC ? "fs.inotify.max_user_watches"
                            : NULL;
    if (!limit)
        return problem_set(p, EX_OSERR, err,
                           "--on-group-dead hold: cannot watch %s: %s", path,
                           errno_text(err));
    return problem_set(p, EX_OSERR, err,
                       "--on-group-dead hold: cannot watch %s: user id %u is "
                       "at the limit %s; as root, set it with `sysctl %s=N` "
                       "to more than `sysctl %s` prints now",
                       path, (unsigned)getuid(), limit, limit, limit);
}

void group_watch_close(struct source_mq *q)
{
    struct group_watch *w = q->group_watch;

    if (!w)
        return;
    q->group_watch = NULL;
    timers_cancel_sync(q->timers, &w->chore.timer);
    close(w->source.fd);
    free(w);
}

void mq_watch(struct source *s, bool soon)
{
    struct group_watch *w = source_mq_of(s)->group_watch;

    if (w && soon)
        chore_after(&w->chore, AGAIN_NS);
    else if (w)
        group_watch_start(w);
}
