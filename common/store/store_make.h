/* store_make.h - a new file for a store
 *
 * WHAT   Makes an empty store, or a copy of one, in one step: it appears
 *        complete or not at all.
 * WHO    store.c. Any process may make a store at the same time.
 * OWNS   Nothing after it returns.
 * FAILS  A problem: 73 cannot be made.
 */
#ifndef COMMON_STORE_STORE_MAKE_H
#define COMMON_STORE_STORE_MAKE_H

#include <sqlite3.h>
#include <sys/stat.h>

#include "common/base/problem.h"

/* An empty store, mode 0600, owned by the owner of its folder. A file that is
 * there already (another program was first) is left alone: 0. */
int store_make(const char *path, struct problem *p);
/* All that `db` holds as a store at `path`, durably; its -wal and -shm there
 * must be those of `db`, and go. -EEXIST if there is a file, but for two that
 * are replaced (NULL: none is). -errno: nothing has changed, or the copy is
 * there and was not synced. */
int store_make_copy(sqlite3 *db, const char *path,
                    const struct stat replace[2]);
/* Remove what processes that were killed in one of these left at `path`. */
void store_make_tidy(const char *path);

#endif
