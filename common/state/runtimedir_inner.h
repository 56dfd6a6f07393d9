/* runtimedir_inner.h - inside of runtimedir.c, runtimedir_folder.c and
 * runtimedir_look.c
 *
 * WHAT   A folder in the runtime directory: whose it is, and its lock.
 * WHO    As runtimedir.h.
 * OWNS   Nothing.
 * FAILS  A problem, or -errno.
 */
#ifndef COMMON_STATE_RUNTIMEDIR_INNER_H
#define COMMON_STATE_RUNTIMEDIR_INNER_H

#include "common/state/runtimedir.h"
#include "common/state/runtimedir_note.h"

#define RUNTIMEDIR_FLAG "--runtime-dir"

/* Whether two paths are the same directory. */
bool runtimedir_same(const char *a, const char *b);
/* Whether the state folder that `owner` names agrees that `folder` is its own;
 * one that we cannot read may. */
bool runtimedir_claimed(const struct runtimedir_note *owner,
                        const char *folder);
/* A problem: a system call on a folder failed. */
int runtimedir_unusable(int err, const char *path, struct problem *p);
/* The lock of the folder at `path`: 0, -EWOULDBLOCK, -ESTALE where somebody
 * removed it meanwhile, or another -errno. */
int runtimedir_lock(int *lock, const char *path);
/* Its files are removed: nothing in them is in flight. */
void runtimedir_clear(const char *folder);
/* The first of NAME, NAME.2, ... that is ours or free: r->folder, r->lock.
 * `state`: the state folder, also below. */
int runtimedir_take(struct runtimedir *r, const char *root, const char *name,
                    const char *state, struct problem *p);
/* Whose the folder is from now on. */
int runtimedir_owner_write(const struct runtimedir *r, const char *state,
                           struct problem *p);

#endif
