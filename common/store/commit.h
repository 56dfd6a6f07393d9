/* commit.h - group commit: one transaction for all writers that come at once
 *
 * WHAT   Runs write operations on the one writing connection. While a leader
 *        syncs, others queue up; the oldest of them leads next and takes all
 *        that are there into its transaction. Nobody waits for more to come.
 * WHO    Any thread; it blocks until its own operation is on the disk or
 *        failed.
 * OWNS   Borrows the connection; nobody else may use it meanwhile.
 * FAILS  What the operation returned (it alone is undone), or what the whole
 *        transaction failed with: then all in it get that error and none of it
 *        has happened.
 */
#ifndef COMMON_STORE_COMMIT_H
#define COMMON_STORE_COMMIT_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/store/sql.h"

struct commit; /* opaque; body in commit.c */

/* An operation: 0 or -errno. It runs on any of the waiting threads, inside a
 * transaction, and may run again after it was undone (disk full), so it sets
 * all its results each time. It must not write through the store. */
typedef int commit_apply(struct sql *sql, void *arg);
/* Called once it is on the disk, before any later operation runs; on any of the
 * waiting threads. Short; does not use the store. */
typedef void commit_durable(void *arg);

int commit_open(struct commit **out, struct sql *writer); /* -ENOMEM */
void commit_close(struct commit **commit); /* NULL-safe; no call is under way */
/* `durable`: NULL for none. */
int commit_run(struct commit *c, commit_apply *apply, commit_durable *durable,
               void *arg);
/* No thread commits between the two calls, and the caller may use or replace
 * the connection. New writers wait, and earlier leaders have finished. Another
 * thread that calls commit_stop waits for commit_go. */
void commit_stop(struct commit *c);
void commit_go(struct commit *c);
/* Give commits numbers from *last + 1 on; *last is the number of the last one
 * that is on the disk. Nothing is under way. */
void commit_number(struct commit *c, _Atomic uint64_t *last);
/* Use another connection as the writer, with the same wait for locks. */
void commit_patience(struct commit *c);
/* Prepare for the end of the worker: from now on wait at most 2 s for another
 * program's lock, and after one such wait has failed, do not wait again. */
void commit_hurry(struct commit *c);
void commit_stats(struct commit *c, struct store_stats *out);

#endif
