/* release.h - held groups go on when an operator has dealt with their letter
 *
 * WHAT   With --on-group-dead hold, a group whose head died waits until no dead
 *        or replayed letter of it is left. A letter that was sent again comes
 *        through the queue and is noticed there; one that was discarded leaves
 *        no trace but a write to the store, so that is watched (inotify on its
 *        write-ahead log), while any group is held.
 * WHO    open, close: the engine.
 * OWNS   The inotify descriptor.
 * FAILS  open: a problem.
 */
#ifndef WORKER_RELEASE_H
#define WORKER_RELEASE_H

#include "common/problem.h"

struct engine;
struct release; /* opaque; body in release.c */

int release_open(struct release **out, struct engine *e, struct problem *p);
/* A group is held now: start to watch. Any thread. */
void release_watch(struct release *r);
/* The store did not tell of a group that is held: look soon. */
void release_again(struct release *r);
/* It is another file now, under the same name; in the peeker. */
void release_store_changed(struct release *r);
void release_close(struct release **r); /* after the pool; sets NULL */

#endif
