/* store_file.h - the store's file: making it, telling it from others
 *
 * WHAT   Makes a new store in one step (it appears complete or not at all);
 *        says whether a file is a store of this version without touching it.
 * WHO    store_open. Any process may make a store at the same time.
 * OWNS   Nothing after it returns.
 * FAILS  A problem: 73 cannot be used, 78 of another version.
 */
#ifndef COMMON_STORE_STORE_FILE_H
#define COMMON_STORE_STORE_FILE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "common/base/problem.h"

#define STORE_MAGIC   0x4d515753 /* "MQWS", SQLite's application_id */
#define STORE_VERSION 2          /* SQLite's user_version */
#define STORE_OLDEST  1          /* version that is brought up to it */

/* Make an empty store, mode 0600, owned by the owner of its folder. A file that
 * is there already (another program was first) is left alone: 0. */
int store_file_create(const char *path, struct problem *p);
/* All that `db` holds as a store at `path`, durably; its -wal and -shm there
 * must be those of `db`, and go. -EEXIST if there is a file; with `replace` it
 * is replaced. -errno: nothing has changed, or the copy is there and was not
 * synced. */
int store_file_copy(sqlite3 *db, const char *path, bool replace);
/* Is the file behind `db`, from which nothing was read yet, a store of ours? */
int store_file_check(sqlite3 *db, const char *path, struct problem *p);
/* The same by what SQLite makes of the file, its -wal included. */
int store_file_verify(sqlite3 *db, const char *path, struct problem *p);
/* A store that was verified is of STORE_VERSION on 0. `db` writes. */
int store_file_upgrade(sqlite3 *db, const char *path, struct problem *p);
/* Mode 0600 for the file, its -wal and its -shm. */
int store_file_modes(const char *path, struct problem *p);
/* The problem for a SQLite result `rc` that kept us from opening the file. */
int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p);

#endif
