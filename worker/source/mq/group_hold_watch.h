/* group_hold_watch.h - held groups go on when an operator has dealt with their
 * letter
 *
 * WHAT   With --on-group-dead hold, a group whose head died waits until no dead
 *        or replayed letter of it is left. A letter that was sent again comes
 *        through the queue and is noticed there; one that was discarded leaves
 *        no trace but a write to the store, so that is watched (inotify on its
 *        write-ahead log), while any group is held. A commit can be read some
 *        time after it was written, so the end of the writer is watched, too.
 * WHO    open, close: the engine. watch, again, store_changed: any thread.
 * OWNS   The inotify descriptor.
 * FAILS  open: a problem.
 */
#ifndef WORKER_SOURCE_MQ_GROUP_HOLD_WATCH_H
#define WORKER_SOURCE_MQ_GROUP_HOLD_WATCH_H

#include <stddef.h>

#include "common/base/problem.h"

struct loop;
struct pool;
struct timers;
struct group_hold_watch; /* opaque; body in group_hold_watch.c */

/* What it works on, and whom it asks; all of it outlives it. */
struct group_hold_watch_setup {
    const char *queue, *folder; /* the worker's, of the store */
    struct timers *timers;
    struct loop *loop;
    struct pool *pool;
    /* Ask the store about each held group, on a pool thread: how many go on
     * now, or -errno: of one it could not be asked. */
    int (*ask)(void *arg);
    size_t (*held)(void *arg); /* groups that are held now; any thread */
    void *arg;
};

int group_hold_watch_open(struct group_hold_watch **out,
                          const struct group_hold_watch_setup *setup,
                          struct problem *p);
/* Start to watch, because a group is held. */
void group_hold_watch_watch(struct group_hold_watch *r);
/* The store did not tell of a group that is held: look soon. */
void group_hold_watch_again(struct group_hold_watch *r);
/* Watch the store file that was put back under the same name. Called by the
 * pool thread that put the store back. */
void group_hold_watch_store_changed(struct group_hold_watch *r);
void group_hold_watch_close(
    struct group_hold_watch **r); /* after the pool; sets NULL */

#endif
