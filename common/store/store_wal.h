/* store_wal.h - the store's -wal, judged before SQLite recovers from it
 *
 * WHAT   SQLite takes what a -wal holds up to the first frame that does not
 *        match its checksum, and drops the rest without a word. This tells
 *        commits that were damaged from a commit that was cut off.
 * WHO    store_open, before its first read. Other processes may have the store
 *        open: it looks under SQLite's own lock of writers.
 * OWNS   Nothing after it returns.
 * FAILS  A problem: 73 damaged or not to be read, left as it is; 71 out of
 *        memory or descriptors.
 */
#ifndef COMMON_STORE_STORE_WAL_H
#define COMMON_STORE_STORE_WAL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/problem.h"

#define STORE_WAL_HEAD 32 /* bytes; a file that is no longer holds nothing */

/* What became of a file. All 0: nothing is wrong with it. */
struct store_wal {
    bool damaged;
    uint64_t frames;  /* whole ones in the file */
    uint64_t bad;     /* first one that SQLite drops, from 1; 0: the header */
    uint64_t commits; /* from there on, as far as they can be told */
    uint64_t keep;    /* bytes up to the end of the last commit before it */
};

/* Read the file at `path`, which nobody writes meanwhile. None: all 0. -errno
 * when it cannot be read. */
int store_wal_read(struct store_wal *out, const char *path);
/* What a check found out. */
struct store_wal_state {
    bool torn;   /* commits lie in it that never ended (store_wal_reset) */
    bool others; /* they judged it who have the store open: it was not read */
};
/* Refuse the store at `path` if its -wal is damaged. */
int store_wal_check(sqlite3 *db, const char *path,
                    struct store_wal_state *state, struct problem *p);
/* Once SQLite has recovered: begin the -wal anew, so that what never ended is
 * not held against the commits that come. */
void store_wal_reset(sqlite3 *db);
/* A commit that was cut off in its sync, by a kill or an error, never comes
 * back. Waits up to 5 s for readers. A SQLite result code. */
int store_wal_bury(sqlite3 *db);

#endif
