/* file.h - the file of a store, and its -wal, as files
 *
 * WHAT   Says whether a file is a store of this version without touching it,
 *        and why one cannot be used. Makes an empty store, or a copy of one, in
 *        one step: it appears complete or not at all. What SQLite leaves to us
 *        of a -wal: one that somebody removed while others have it open, and a
 *        commit that was cut off.
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
/* The same by what SQLite makes of the file, its -wal included. */
int store_file_verify(sqlite3 *db, const char *path, struct problem *p);
/* Mode 0600 for the file, its -wal and its -shm. */
int store_file_modes(const char *path, struct problem *p);
/* The problem for a SQLite result `rc` that kept us from opening the file. */
int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p);
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

/* Is the -wal there, if somebody has the store open? 73 if not. Before anything
 * else of this process looks into the file. */
int store_wal_whole(sqlite3 *db, const char *path, struct problem *p);
/* A commit that was cut off in its sync, by a kill or an error, never comes
 * back. Waits up to 5 s for readers. A SQLite result code. */
int store_wal_bury(sqlite3 *db);

#endif
