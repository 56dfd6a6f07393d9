/* ends.h - the file of messages that ended and are on the disk still
 *
 * WHAT   Keys of messages whose end a kill must not undo before their rows are
 *        deleted, many at a time: a mapped file beside that of custody. To note
 *        one is one store to it.
 * WHO    open, reset, close: one thread, which has the lock of the state
 *        directory. put: any thread. peek and drop: one thread at a time.
 *        look: any program.
 * OWNS   The file, its mapping.
 * FAILS  open: a problem, 73, or 78 where another version wrote the file. One
 *        that is none of ours is replaced.
 *        look: -errno.
 */
#ifndef COMMON_CUSTODY_ENDS_H
#define COMMON_CUSTODY_ENDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"

#define ENDS_MOST 8192

struct ends; /* opaque; body in ends.c */
struct slot; /* slot.h */

int ends_open(struct ends **out, const char *path, struct problem *p);
/* Whether ends_open would take the file for another version's; 0: no, or there
 * is none. Nothing is written. */
int ends_known(const char *path, struct problem *p);
/* NULL-safe; sets NULL. `remove`: nothing is noted, and the file goes. */
void ends_close(struct ends **ends, bool remove);
/* The number that the last reset gave the file; 0: it is new. */
uint64_t ends_run(const struct ends *e);
/* Nothing is noted any more, and the file has that number. */
void ends_reset(struct ends *e, uint64_t run);

/* The message ended; key > 0. Its slot is FREE before anybody can peek at it,
 * or the slot would be all that is left of it. How many are noted then; 0:
 * there is no room, and nothing has happened. */
size_t ends_put(struct ends *e, int64_t key, struct slot *slot);

/* The first of those that are noted; how many. */
size_t ends_peek(struct ends *e, int64_t *keys, size_t room);
/* The first n of them are not on the disk any more. */
void ends_drop(struct ends *e, size_t n);
size_t ends_count(const struct ends *e);
/* Whether it is noted; looks at all of them. */
bool ends_has(struct ends *e, int64_t key);

/* For others, while no worker has the lock: the keys that are noted in a file
 * with that number. How many; or -ENOENT: there is none with it. */
int ends_look(const char *path, uint64_t run, int64_t keys[ENDS_MOST]);

#endif
