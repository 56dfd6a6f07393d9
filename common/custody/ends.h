/* ends.h - the file of finished messages whose rows are still in the spool
 *
 * WHAT   A message of the spool ends long before its row is deleted, because
 *        rows are deleted many at a time. Until then its key is in this mapped
 *        file, beside that of custody, so that a kill does not undo the end.
 *        Adding a key is one store to memory.
 * WHO    The worker's spool. ends_open, _known, _run, _reset, _has, _close: the
 *        engine's thread, which has the lock of the state directory. ends_put,
 *        _count: any thread. ends_peek, _drop: one at a time. ends_look: mqctl.
 * OWNS   The file, its mapping.
 * FAILS  ends_open: a problem, status 73, or 78 if another version of mqworker
 *        wrote the file. A file of another kind is overwritten.
 *        ends_look: -errno.
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
/* Check a file without writing to it: fails with status 78 if another version
 * of mqworker wrote it. Returns 0 if there is no file. */
int ends_known(const char *path, struct problem *p);
/* Close the file; `remove`: it has no key, and is removed. NULL-safe; sets
 * NULL. */
void ends_close(struct ends **ends, bool remove);
/* Return the number that the last reset gave the file; 0: the file is new. */
uint64_t ends_run(const struct ends *e);
/* Empty the file and give it a number. */
void ends_reset(struct ends *e, uint64_t run);

/* Add the key (> 0) of a finished message and free its slot. The slot is FREE
 * before ends_peek can return the key: once the row is deleted, a slot in use
 * would run the message again. Returns how many keys there are then; 0: there
 * is no room, and nothing has changed. */
size_t ends_put(struct ends *e, int64_t key, struct slot *slot);

/* Copy the oldest keys, up to `room`. Returns how many. */
size_t ends_peek(struct ends *e, int64_t *keys, size_t room);
/* Drop the n oldest keys, whose rows were deleted. */
void ends_drop(struct ends *e, size_t n);
size_t ends_count(const struct ends *e);
/* Return true if the file has the key. Searches all of them. */
bool ends_has(struct ends *e, int64_t key);

/* Read the keys of a file that has this number, while no worker has the lock.
 * Returns how many, or -ENOENT if there is no such file. */
int ends_look(const char *path, uint64_t run, int64_t keys[ENDS_MOST]);

#endif
