/* file.h - the file of a store, and its -wal, as files
 *
 * WHAT   Says whether a file is a store of this version without touching it,
 *        and why one cannot be used. Makes an empty store, or a copy of one, in
 *        one step: it appears complete or not at all. Empties a -wal that may
 *        hold a commit that was cut off.
 * WHO    store.c, commit.c. Any process may make a store at the same time.
 * OWNS   Nothing after it returns.
 * FAILS  A problem: 73 cannot be used or made, 78 of another version.
 */
#ifndef COMMON_STORE_FILE_H
#define COMMON_STORE_FILE_H

#include <sqlite3.h>
#include <sys/stat.h>

#include "common/base/problem.h"

#define STORE_MAGIC   0x4d515753 /* "MQWS", SQLite's application_id */
#define STORE_VERSION 1          /* SQLite's user_version */

/* Is the file behind `db`, from which nothing was read yet, a store of ours? */
int store_file_check(sqlite3 *db, const char *path, struct problem *p);
/* Mode 0600 for the file, its -wal and its -shm. */
int store_file_modes(const char *path, struct problem *p);
/* The problem for a SQLite result `rc` that kept us from opening the file. */
int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p);
/* The problem for a store that another version of mqworker wrote. */
int store_version_refuse(const char *path, int64_t version, struct problem *p);
/* An empty store, mode 0600, owned by the owner of its folder. A file that is
 * there already (another program was first) is left alone: 0. */
int store_make(const char *path, struct problem *p);
/* Write an empty store, or all that `from` holds, to `path`, durably: it
 * appears complete or not at all. Existing -wal and -shm files there must be
 * those of `from`, and are removed. -EEXIST if there is a file, unless
 * `replace` (NULL: none) names it. -errno: nothing has changed, or the copy is
 * there and was not synced. */
int store_file_make(const char *path, sqlite3 *from,
                    const struct stat replace[2]);
/* Remove what processes that were killed in one of these left at `path`. */
void store_make_tidy(const char *path);

/* A commit that was cut off in its sync, by a kill or an error, never comes
 * back. Waits up to 5 s for readers. A SQLite result code. */
int store_wal_bury(sqlite3 *db);

#endif
