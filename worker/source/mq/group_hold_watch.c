/* group_hold_watch.c - held groups go on when their letter is gone (see
 * group_hold_watch.h) */
#include "worker/source/mq/group_hold_watch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/state/statedir.h"
#include "worker/loop/chore.h"
#include "worker/loop/loop.h"

/* A commit is written, synced, and there to read after that, whenever the disk
 * is done. A program that deals with letters closes the file after its last
 * one. */
#define EVENTS   (IN_MODIFY | IN_CLOSE_WRITE)
#define LOOK_NS  (100 * NS_PER_MS) /* our own writes are seen as well */
#define AGAIN_NS NS_PER_S          /* after a failure */

/* c = constant after open   a = atomic */
struct group_hold_watch {
    struct group_hold_watch_setup with; /* c */
    struct loop_source source;          /* c  inotify */
    struct chore chore;                 /* asks the store */
    atomic_bool watching; /* a  the source is armed, or a look is to come */
};

/* group_hold_watch_again - when it could not be asked, or watched */
void group_hold_watch_again(struct group_hold_watch *r)
{
    chore_after(&r->chore, AGAIN_NS);
}

static void tell(struct chore *chore, int err)
{
    struct group_hold_watch *r =
        CONTAINER_OF(chore, struct group_hold_watch, chore);

    if (err)
        log_error("groups_not_asked", F_STR("queue", r->with.queue),
                  F_STR("error", errno_text(-err)),
                  F_STR("next", "held groups stay held until the store can be "
                                "read; it is tried again each second"));
}

/* look - ask the store about each held group
 * If it cannot be read, nobody need ever write there again: the chore asks once
 * more by itself, and watches when the store has answered.
 */
static int look(struct chore *chore)
{
    struct group_hold_watch *r =
        CONTAINER_OF(chore, struct group_hold_watch, chore);
    int released = r->with.ask(r->with.arg);

    if (released < 0)
        return released;
    atomic_store(&r->watching, false);
    if (r->with.held(r->with.arg) > 0)
        group_hold_watch_watch(r);
    return 0;
}

/* written - somebody wrote, or is done with it; look soon, once for many */
static void written(struct loop_source *source)
{
    struct group_hold_watch *r =
        CONTAINER_OF(source, struct group_hold_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    chore_after(&r->chore, LOOK_NS);
}

/* not_watched - of the limits that an errno stands for, the one it was; a limit
 * on open files problem_set knows by itself */
static int not_watched(const char *path, int err, struct problem *p)
{
    const char *limit = err == EMFILE && !problem_descriptors_gone()
                            ? "fs.inotify.max_user_instances"
                        : err == ENOSPC ? "fs.inotify.max_user_watches"
                                        : NULL;

    if (!limit)
        return problem_set(p, EX_OSERR, err,
                           "--on-group-dead hold: cannot watch %s: %s", path,
                           errno_text(err));
    return problem_set(p, EX_OSERR, err,
                       "--on-group-dead hold: cannot watch %s: user id %u is "
                       "at the limit %s; raise it as root: `sysctl %s=N`, N "
                       "over what `sysctl %s` says now",
                       path, (unsigned)getuid(), limit, limit, limit);
}

/* wal_path - the file that each change of the store writes */
static void wal_path(const struct group_hold_watch *r, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.4000s/" STATEDIR_STORE "-wal", r->with.folder);
}

int group_hold_watch_open(struct group_hold_watch **out,
                          const struct group_hold_watch_setup *setup,
                          struct problem *p)
{
    struct group_hold_watch *r = calloc(1, sizeof *r);
    char path[PATH_MAX];

    *out = NULL;
    if (!r)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    r->with = *setup;
    r->chore = (struct chore){.run = look,
                              .tell = tell,
                              .first_ns = AGAIN_NS,
                              .most_ns = AGAIN_NS,
                              .timers = setup->timers,
                              .pool = &r->with.pool};
    chore_init(&r->chore);
    r->source.ready = written;
    r->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    /* The log is there as long as we have the store open. */
    wal_path(r, path);
    if (r->source.fd < 0 || inotify_add_watch(r->source.fd, path, EVENTS) < 0) {
        int err = errno;

        if (r->source.fd >= 0)
            close(r->source.fd);
        free(r);
        return not_watched(path, err, p);
    }
    *out = r;
    return 0;
}

/* group_hold_watch_watch - one look first: the letter may be gone already
 * Of the events since the last read at least one is still in the descriptor, so
 * a write between that look and the wait is not missed.
 */
void group_hold_watch_watch(struct group_hold_watch *r)
{
    if (!atomic_exchange(&r->watching, true) &&
        loop_watch(r->with.loop, &r->source, EPOLLIN) < 0)
        group_hold_watch_again(r);
}

void group_hold_watch_close(struct group_hold_watch **release)
{
    struct group_hold_watch *r = *release;

    if (!r)
        return;
    *release = NULL;
    timers_cancel_sync(r->with.timers, &r->chore.timer);
    close(r->source.fd);
    free(r);
}
