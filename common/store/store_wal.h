/* store_wal.h - what SQLite leaves to us of a -wal
 *
 * WHAT   A -wal that somebody removed while others have it open; a commit that
 *        was cut off.
 * WHO    store_open and store_claim, and the commit's leader.
 * OWNS   Nothing after it returns.
 * FAILS  As each says.
 */
#ifndef COMMON_STORE_STORE_WAL_H
#define COMMON_STORE_STORE_WAL_H

#include <sqlite3.h>

#include "common/base/problem.h"

/* Is the -wal there, if somebody has the store open? 73 if not. Before anything
 * else of this process looks into the file. */
int store_wal_whole(sqlite3 *db, const char *path, struct problem *p);
/* A commit that was cut off in its sync, by a kill or an error, never comes
 * back. Waits up to 5 s for readers. A SQLite result code. */
int store_wal_bury(sqlite3 *db);

#endif
