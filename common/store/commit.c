/* commit.c - group commit; see commit.h
 *
 * What a crash leaves, step by step of one batch:
 *   before COMMIT           SQLite drops the unfinished transaction at the next
 *                           open. No caller was told anything, so each slot
 *                           still holds its message, which runs again.
 *   inside COMMIT           the frames with the commit mark are in the -wal or
 *                           are not: all of the batch or nothing. Nobody was
 *                           told; a slot whose message is in the store already
 *                           is found at recovery by its receive sequence.
 *   after COMMIT            everything is on the disk (synchronous=FULL). The
 *                           slots of callers that were not woken yet are found
 *                           at recovery, as above.
 * Rows that a commit wrote can be read, and used, before its callers are awake:
 * a retry that is due runs to its end. But nothing of that is written by this
 * process before the slots that the commit settled are FREE (`durable`), so the
 * worker leaves no slot whose row has come and gone. (An operator who discards
 * the row between its death and the next start does.)
 * A COMMIT that fails, as its sync did: the batch is undone in this process and
 * everyone gets the error; nothing is tried again here. But its frames are in
 * the file, and a message of it may run from its slot and be done, which writes
 * nothing here. So the frames are made worthless first (store_wal_bury). If the
 * process dies before that, its slots are as they were, and the receive
 * sequence tells, as above.
 * The number of a worker's commit (commit_number) is a row of the same
 * transaction, so the store has the number if and only if it has the commit;
 * *last gets it as soon as COMMIT says that it is on the disk, before anybody
 * is told. Crash between the two: the store is ahead. So it is behind *last
 * only if it lost what was durable. That a store to a mapped file is seen after
 * a kill of the process is the kernel's promise for this run of the machine.
 * A checkpoint that fails loses nothing: frames leave the -wal only after a
 * checkpoint whose sync succeeded.
 */
#include <bsd/sys/queue.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/fault_point.h"
#include "common/base/problem.h"
#include "common/store/commit.h"
#include "common/store/file.h"

#define PATIENCE_MS 5000
#define HURRY_MS    2000
#define LOOK_MS     10

/* One waiting call; lives on its caller's stack. */
struct op {
    TAILQ_ENTRY(op) link;
    commit_apply *apply;
    commit_durable *durable; /* NULL: none */
    void *arg;
    int result;
    bool done;           /* result is final */
    bool lead;           /* this one runs the next batch */
    pthread_cond_t wake; /* done or lead came true */
};
TAILQ_HEAD(batch, op);

/* c = constant after open   m = under mtx   l = used by the leader only
 * a = atomic */
struct commit {
    struct sql *writer;     /* l */
    _Atomic uint64_t *last; /* l  commit_number; NULL: no numbers */
    pthread_mutex_t mtx;    /* never held while waiting for a disk */
    struct batch queue;     /* m  in order of arrival */
    bool leading;           /* m  a leader is at work or was named */
    unsigned stoppers;      /* m calls of commit_stop waiting to lead */
    bool stopped;           /* m one of these may lead now */
    atomic_uint
        patience_ms;     /* a  longest wait for another program's lock, ms */
    pthread_cond_t stop; /* stopped came true */
    struct store_stats stats; /* m */
};

/* Run as SQLite's busy handler: decide whether to wait for another program's
 * lock after `n` tries. */
static int lock_wait(void *arg, int n)
{
    const struct commit *c = arg;

    if ((unsigned)n * LOOK_MS >= atomic_load(&c->patience_ms))
        return 0;
    sqlite3_sleep(LOOK_MS);
    return 1;
}

void commit_patience(struct commit *c)
{
    sqlite3_busy_handler(c->writer->db, lock_wait, c);
}

int commit_open(struct commit **out, struct sql *writer)
{
    struct commit *c = calloc(1, sizeof *c);

    if (!c)
        return -ENOMEM;
    c->writer = writer;
    atomic_store(&c->patience_ms, PATIENCE_MS);
    commit_patience(c);
    pthread_mutex_init(&c->mtx, NULL);
    pthread_cond_init(&c->stop, NULL);
    TAILQ_INIT(&c->queue);
    *out = c;
    return 0;
}

void commit_close(struct commit **commit)
{
    if (!*commit)
        return;
    pthread_cond_destroy(&(*commit)->stop);
    pthread_mutex_destroy(&(*commit)->mtx);
    free(*commit);
    *commit = NULL;
}

/* Run one operation so that it can be undone alone. An error here is one of the
 * transaction, not of the operation: SQLite rolls everything back by itself on
 * some errors (disk full while the cache spills). */
static int op_apply(struct sql *sql, struct op *op)
{
    int err = sql_run(sql, SQL_SAVE, NULL);

    if (err)
        return err;
    op->result = op->apply(sql, op->arg);
    if (sqlite3_get_autocommit(sql->db))
        return op->result ? op->result : -EIO;
    if (op->result)
        err = sql_run(sql, SQL_UNDO, NULL);
    return err ? err : sql_run(sql, SQL_RELEASE, NULL);
}

/* Commit the operations from `first` up to `end` in one transaction, with its
 * number (an insert writes the same page). 0: each op->result holds. Else:
 * nothing of any of them has happened. */
static int range_commit(struct commit *c, struct op *first, struct op *end)
{
    struct sql *sql = c->writer;
    uint64_t n = c->last ? atomic_load(c->last) + 1 : 0;
    int err = sql_run(sql, SQL_BEGIN, NULL), rc;
    bool written, whole;

    for (struct op *op = first; !err && op != end; op = TAILQ_NEXT(op, link))
        err = op_apply(sql, op);
    if (!err && c->last) {
        err = sql_change(sql, SQL_NUMBER, SQL_VALUES(value_u64(n)));
        if (err == -ENOENT)
            err = sql_run(sql, SQL_FIRST_NUMBER, SQL_VALUES(value_u64(n)));
    }
    FAULT_POINT("commit_before");
    written = !err;
    if (!err)
        err = sql_run(sql, SQL_COMMIT, NULL);
    FAULT_POINT("commit_after");
    if (!err && c->last)
        atomic_store(c->last, n);
    if (err == -EBUSY && atomic_load(&c->patience_ms) < PATIENCE_MS)
        atomic_store(&c->patience_ms, 0);
    /* The transaction may be whole in the -wal, unless there was no room for it
     * there. SQLite writes the -shm last. */
    rc = sqlite3_extended_errcode(sql->db);
    whole = written && err &&
            (!disk_is_full(err) || rc == SQLITE_IOERR_SHMSIZE ||
             rc == SQLITE_IOERR_SHMMAP);
    if (err && !sqlite3_get_autocommit(sql->db))
        sql_run(sql, SQL_ROLLBACK, NULL);
    if (whole)
        (void)store_wal_bury(sql->db); /* or the disk takes nothing at all */
    for (struct op *op = first; !err && op != end; op = TAILQ_NEXT(op, link))
        if (op->result == 0 && op->durable)
            op->durable(op->arg);
    return err;
}

/* Give every operation of the batch its result; return how many transactions
 * were committed for that.
 * On a full disk each operation gets a transaction of its own: a large message
 * must not take small ones along, nor stop deletes, which make room. A
 * checkpoint first, since a -wal that is copied over starts from its beginning
 * again and needs no new block. */
static unsigned batch_commit(struct commit *c, struct batch *batch)
{
    unsigned commits = 0;
    struct op *op;
    int err = range_commit(c, TAILQ_FIRST(batch), NULL);

    if (!err)
        return 1;
    if (disk_is_full(err))
        sqlite3_wal_checkpoint_v2(c->writer->db, NULL,
                                  SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    TAILQ_FOREACH (op, batch, link) {
        int failed =
            disk_is_full(err) ? range_commit(c, op, TAILQ_NEXT(op, link)) : err;

        if (failed)
            op->result = failed;
        else
            commits++;
    }
    return commits;
}

/* Name the next leader, after the last one has finished. The caller holds mtx.
 * A caller of commit_stop goes first, or a steady load would keep it waiting
 * for ever. */
static void lead_next_locked(struct commit *c)
{
    struct op *next = TAILQ_FIRST(&c->queue);

    if (c->stoppers > 0) {
        c->stoppers--;
        c->stopped = true;
        pthread_cond_signal(&c->stop);
        return;
    }
    c->leading = next != NULL;
    if (next) {
        next->lead = true;
        pthread_cond_signal(&next->wake);
    }
}

/* Settle all that wait, then name the next leader. The caller holds mtx.
 * Invariant: leading is false only while the queue is empty, so each op in the
 * queue has a leader who will take it, or commit_go names one. The caller's own
 * op is in the queue. */
static void lead_locked(struct commit *c)
{
    struct batch batch = TAILQ_HEAD_INITIALIZER(batch);
    struct op *op;
    unsigned commits;

    c->leading = true;
    TAILQ_CONCAT(&batch, &c->queue, link);
    c->stats.waiting = 0;
    pthread_mutex_unlock(&c->mtx);
    commits = batch_commit(c, &batch);
    pthread_mutex_lock(&c->mtx);
    c->stats.commits += commits;
    /* Another caller's op goes away as soon as the lock is free. */
    TAILQ_FOREACH (op, &batch, link) {
        op->done = true;
        pthread_cond_signal(&op->wake);
    }
    lead_next_locked(c);
}

/* Lead without a batch. Several threads may call this: whoever leads hands over
 * to one of them (lead_next_locked), and `leading` stays set meanwhile. */
void commit_stop(struct commit *c)
{
    pthread_mutex_lock(&c->mtx);
    if (c->leading) {
        c->stoppers++;
        while (!c->stopped)
            pthread_cond_wait(&c->stop, &c->mtx);
        c->stopped = false;
    }
    c->leading = true;
    pthread_mutex_unlock(&c->mtx);
}

/* The first call that waits leads next. */
void commit_go(struct commit *c)
{
    pthread_mutex_lock(&c->mtx);
    lead_next_locked(c);
    pthread_mutex_unlock(&c->mtx);
}

void commit_hurry(struct commit *c)
{
    atomic_store(&c->patience_ms, HURRY_MS);
}

int commit_run(struct commit *c, commit_apply *apply, commit_durable *durable,
               void *arg)
{
    struct op op = {.apply = apply, .durable = durable, .arg = arg};

    pthread_cond_init(&op.wake, NULL);
    pthread_mutex_lock(&c->mtx);
    TAILQ_INSERT_TAIL(&c->queue, &op, link);
    c->stats.waiting++;
    while (c->leading && !op.done && !op.lead)
        pthread_cond_wait(&op.wake, &c->mtx);
    if (!op.done)
        lead_locked(c);
    pthread_mutex_unlock(&c->mtx);
    pthread_cond_destroy(&op.wake);
    return op.result;
}

void commit_number(struct commit *c, _Atomic uint64_t *last)
{
    c->last = last;
}

void commit_stats(struct commit *c, struct store_stats *out)
{
    pthread_mutex_lock(&c->mtx);
    *out = c->stats;
    pthread_mutex_unlock(&c->mtx);
}
