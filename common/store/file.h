/* file.h - telling a store from other files
 *
 * WHAT   Says whether a file is a store of this version without touching it,
 *        and why one cannot be used.
 * WHO    store.c, store_make.c, store_wal.c.
 * OWNS   Nothing after it returns.
 * FAILS  A problem: 73 cannot be used, 78 of another version.
 */
#ifndef COMMON_STORE_FILE_H
#define COMMON_STORE_FILE_H

#include <sqlite3.h>
#include <stdint.h>

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
/* Not for want of a disk. */
int store_memory_problem(const char *path, struct problem *p);

#endif
