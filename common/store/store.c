/* store.c - connections, group commit, the -wal (see store.h)
 *
 * Reads have a connection of their own: in WAL mode a reader sees the last
 * commit and never waits for a writer or its sync. Writes share a transaction:
 * while a leader syncs, other writers queue up; the oldest of them leads next
 * and commits the whole queue in one transaction. A leader does not wait for
 * more writers.
 * Lock order: mtx and read_mtx are never held together.
 *
 * What a crash leaves, step by step of one batch:
 *   before COMMIT           SQLite drops the unfinished transaction at the next
 *                           open. No caller has a result yet, so each slot
 *                           still holds its message, which runs again.
 *   inside COMMIT           the frames with the commit mark are in the -wal or
 *                           are not: all of the batch or nothing. No caller has
 *                           a result yet; recovery finds a slot whose message
 *                           is in the store by its receive sequence.
 *   after COMMIT            everything is on the disk (synchronous=FULL). The
 *                           slots of callers that were not woken yet are found
 *                           at recovery, as above.
 * Other threads can read and use the rows of a commit before its callers are
 * awake: a due retry may even run to its end. But this process writes nothing
 * that follows from these rows before the slots that the commit settled are
 * FREE (`durable`). So a killed worker leaves no slot whose row was written and
 * deleted again, unless an operator discards the row before the next start.
 * If COMMIT fails because its sync failed, the batch is undone in this process,
 * every caller gets the error, and nothing is tried again here. But the frames
 * of the batch are in the -wal. A message of the batch may run from its slot
 * and be done, which writes nothing to the store, and the frames must not bring
 * it back. So they are made invalid first (store_wal_bury). If the process dies
 * before that, its slots are as they were, and recovery finds such a message by
 * its receive sequence, as above.
 * Each commit of a worker has a number (store_claim), which is a row of the
 * same transaction, so the store has the number if and only if it has the
 * commit. *last gets the number as soon as COMMIT has succeeded, before any
 * caller is woken. Crash between the two: the store is ahead of *last. So the
 * store is behind *last only if it lost a durable commit. *last is in a mapped
 * file: the kernel keeps what a killed process wrote there until the machine
 * goes down.
 * A checkpoint that fails loses nothing: frames leave the -wal only after a
 * checkpoint whose sync succeeded.
 */
#include <bsd/sys/queue.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/boot_id.h"
#include "common/base/fault_point.h"
#include "common/store/spool.h"
#include "common/store/sql.h"

#define WAL_COPY 1000 /* frames after which a commit checkpoints the -wal */
#define WAL_MOST 2048 /* frames; a longer -wal is emptied */
/* Longest time that emptying the -wal waits for readers, and writers wait for
 * emptying, ms. */
#define SHRINK_MS 100

#define PATIENCE_MS   5000 /* longest wait for another program's lock */
#define HURRY_MS      2000 /* the same wait while the worker is stopping */
#define LOCK_RETRY_MS 10   /* between two tries */

/* One waiting call of store_write; lives on its caller's stack. */
struct op {
    TAILQ_ENTRY(op) link;
    int (*apply)(struct sql *sql, void *arg);
    void (*durable)(void *arg); /* NULL: none */
    void *arg;
    int result;
    bool done;           /* result is final */
    bool lead;           /* this call runs the next batch */
    pthread_cond_t wake; /* signalled when `done` or `lead` is set */
};
TAILQ_HEAD(batch, op);

/* c = constant after open   r = under read_mtx   m = under mtx   l = the
 * leader only   a = atomic */
struct store {
    struct sql writer;        /* l */
    struct sql reader;        /* r */
    pthread_mutex_t read_mtx; /* held for one query; no callback under it */
    pthread_mutex_t mtx;      /* never held while waiting for a disk */
    struct batch queue;       /* m  in order of arrival */
    bool leading;             /* m  a leader is at work or was named */
    unsigned stoppers;        /* m  calls of commit_stop waiting to lead */
    bool stopped;             /* m  one caller of commit_stop may lead now */
    pthread_cond_t stop;      /* signalled when `stopped` is set */
    uint64_t commits;         /* m  transactions since the store was opened */
    atomic_uint patience_ms;  /* a  longest wait for another program's lock */
    _Atomic uint64_t *last;   /* l  number of the last commit on the disk;
                                    NULL: commits get no numbers */
    _Atomic int64_t waiting;  /* a  rows in state WAITING */
    _Atomic int64_t parked;   /* a  rows in state PARKED */
    _Atomic int64_t spooled;  /* a  rows of the spool */
    atomic_int wal_frames;    /* a  of the -wal at the last commit */
    void (*wal_large)(void *arg); /* c  NULL: nobody empties the -wal */
    void *wal_arg;                /* c */
    char boot[STORE_BOOT];        /* c  "" if not known */
    uint8_t identity[8];          /* c  random; of this file */
};

/* ---- opening ---- */

void store_boot_read(const char *space, char boot[STORE_BOOT])
{
    char text[BOOT_TEXT], link[40], is[40] = "";
    struct boot now;
    ssize_t size;

    boot[0] = '\0';
    boot_now(&now);
    if (!now.id[0])
        return;
    snprintf(link, sizeof link, "/proc/self/ns/%s", space);
    size = readlink(link, is, sizeof is - 1);
    is[size > 0 ? size : 0] = '\0';
    snprintf(boot, STORE_BOOT, "%s/%s", boot_print(&now, text), is);
}

/* Connect in one of the two roles. Closing the connection does not
 * checkpoint. */
static int connection_open(struct sql *sql, const char *path,
                           enum sql_role role, struct problem *p)
{
    int rc = sql_open(sql, path), err;

    if (rc != SQLITE_OK)
        return store_file_refuse(sql->db, rc, path, p);
    if (sqlite3_db_readonly(sql->db, "main"))
        return store_file_refuse(sql->db, SQLITE_READONLY, path, p);
    err = store_file_check(sql->db, path, p);
    if (!err && role == SQL_WRITER) /* the first of the two */
        err = store_wal_check(sql->db, path, p);
    if (err)
        return err;
    sqlite3_db_config(sql->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    rc = sql_setup(sql, role);
    return rc == SQLITE_OK ? 0 : store_file_refuse(sql->db, rc, path, p);
}

/* Open both connections, the writer first. The caller closes both, also after
 * an error. A file that is no store of this version is not changed, not even by
 * a checkpoint when a connection is closed. The version is read through SQLite,
 * because the -wal may have another version than the file. */
static int connections_open(struct sql *writer, struct sql *reader,
                            const char *path, struct problem *p)
{
    int64_t version = 0;
    int err = connection_open(writer, path, SQL_WRITER, p), found;

    if (err)
        return err;
    found = sql_number(writer, &version, SQL_VERSION, NULL);
    if (found < 0)
        return store_file_refuse(writer->db,
                                 sqlite3_extended_errcode(writer->db), path, p);
    if (version != STORE_VERSION)
        return store_version_refuse(path, version, p);
    err = connection_open(reader, path, SQL_READER, p);
    if (err)
        return err;
    sqlite3_db_config(writer->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    sqlite3_db_config(reader->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return store_file_modes(path, p);
}

/* Run as SQLite's busy handler: decide whether to wait for another program's
 * lock after `n` tries. */
static int lock_wait(void *arg, int n)
{
    const struct store *s = arg;

    if ((unsigned)n * LOCK_RETRY_MS >= atomic_load(&s->patience_ms))
        return 0;
    sqlite3_sleep(LOCK_RETRY_MS);
    return 1;
}

int store_open(struct store **out, const char *path, bool create,
               struct problem *p)
{
    int err = store_file_require(path, create, p), found;
    struct store *s = NULL;
    sqlite3_stmt *st;
    const void *id;

    *out = NULL;
    if (err)
        return err;
    s = calloc(1, sizeof *s);
    if (!s)
        return problem_set(p, EX_OSERR, ENOMEM, "%s: out of memory", path);
    pthread_mutex_init(&s->read_mtx, NULL);
    pthread_mutex_init(&s->mtx, NULL);
    pthread_cond_init(&s->stop, NULL);
    TAILQ_INIT(&s->queue);
    atomic_store(&s->patience_ms, PATIENCE_MS);
    /* Queues disappear with their IPC namespace as well: a container that is
     * started again has empty queues. */
    store_boot_read("ipc", s->boot);
    err = connections_open(&s->writer, &s->reader, path, p);
    if (!err) {
        sqlite3_busy_handler(s->writer.db, lock_wait, s);
        found = store_ask(s, &st, SQL_IDENTITY, NULL);
        id = found > 0 ? sqlite3_column_blob(st, 0) : NULL;
        if (id && sqlite3_column_bytes(st, 0) == sizeof s->identity)
            memcpy(s->identity, id, sizeof s->identity);
        else
            err = store_file_refuse(s->reader.db,
                                    found < 0
                                        ? sqlite3_extended_errcode(s->reader.db)
                                        : SQLITE_CORRUPT,
                                    path, p);
        (void)store_answered(s, st, found);
    }
    if (err)
        store_close(&s);
    *out = s;
    return err;
}

struct sql *store_read_begin(struct store *s)
{
    pthread_mutex_lock(&s->read_mtx);
    return &s->reader;
}

void store_read_end(struct store *s)
{
    pthread_mutex_unlock(&s->read_mtx);
}

int store_ask(struct store *s, sqlite3_stmt **st, enum sql_id id,
              const struct sql_value *values)
{
    struct sql *sql = store_read_begin(s);
    int err = sql_bind(sql, id, st, values);

    if (err)
        *st = NULL;
    return err ? err : sql_step(*st);
}

int store_answered(struct store *s, sqlite3_stmt *st, int found)
{
    if (st)
        sql_done(st);
    store_read_end(s);
    return found == STEP_ROW ? 0 : found < 0 ? found : -ENOENT;
}

int store_number(struct store *s, int64_t *number, enum sql_id id,
                 const struct sql_value *values)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, id, values);

    if (found > 0)
        *number = sqlite3_column_int64(st, 0);
    return store_answered(s, st, found);
}

int64_t store_tally(struct store *s, enum sql_id id,
                    const struct sql_value *values)
{
    int64_t number = 0;
    int err = store_number(s, &number, id, values);

    return err && err != -ENOENT ? err : number;
}

int64_t store_count(struct store *s, enum store_state state)
{
    static const enum sql_id counts[] = {
        [STORE_WAITING] = SQL_COUNT_WAITING,
        [STORE_PARKED] = SQL_COUNT_PARKED,
        [STORE_DEAD] = SQL_COUNT_DEAD,
        [STORE_REPLAYED] = SQL_COUNT_REPLAYED,
    };

    return store_tally(s, counts[state], NULL);
}

int64_t store_count_cancelled(struct store *s, enum store_state state)
{
    return state ? store_tally(s, SQL_COUNT_CANCELLED,
                               SQL_VALUES(value_int(state)))
                 : store_tally(s, SQL_SPOOL_COUNT_CANCELLED, NULL);
}

/* Return when the first row that is not lent was received; 0: there is none, or
 * it cannot be read. */
static uint64_t unlent_age(struct store *s, enum sql_id first,
                           const int64_t *lent, size_t count)
{
    sqlite3_stmt *st;
    int found =
        store_ask(s, &st, first, SQL_VALUES(value_int((int64_t)count + 1)));
    uint64_t ns = 0;
    size_t i;

    for (; found > 0 && !ns; found = ns ? found : sql_step(st)) {
        for (i = 0; i < count && lent[i] != sqlite3_column_int64(st, 0);)
            i++;
        if (i == count)
            ns = sql_column_u64(st, 1);
    }
    (void)store_answered(s, st, found);
    return ns;
}

void store_ages(struct store *s, const struct store_lent *lent,
                struct store_ages *out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_AGES, NULL);

    *out = (struct store_ages){0};
    if (found > 0)
        *out = (struct store_ages){
            .waiting = sql_column_u64(st, 0),
            .parked = sql_column_u64(st, 1),
            .spooled = sql_column_u64(st, 2),
            .newest = sql_column_u64(st, 3),
            .due = sql_column_u64(st, 4),
        };
    (void)store_answered(s, st, found);
    if (lent->row_count && out->waiting)
        out->waiting =
            unlent_age(s, SQL_FIRST_WAITING, lent->rows, lent->row_count);
    if (lent->row_count && out->parked)
        out->parked =
            unlent_age(s, SQL_FIRST_PARKED, lent->rows, lent->row_count);
    if (lent->key_count && out->spooled)
        out->spooled =
            unlent_age(s, SQL_FIRST_SPOOLED, lent->keys, lent->key_count);
}

struct store_waits store_waits(const struct store *s)
{
    return (struct store_waits){.waiting = atomic_load(&s->waiting),
                                .parked = atomic_load(&s->parked),
                                .spooled = atomic_load(&s->spooled)};
}

void store_waits_add(struct store *s, const struct store_waits *more)
{
    atomic_fetch_add(&s->waiting, more->waiting);
    atomic_fetch_add(&s->parked, more->parked);
    atomic_fetch_add(&s->spooled, more->spooled);
}

const char *store_boot(const struct store *s)
{
    return s->boot;
}

uint64_t store_id(const struct store *s)
{
    uint64_t id;

    memcpy(&id, s->identity, sizeof id);
    return id ? id : 1;
}

const uint8_t *store_identity(const struct store *s)
{
    return s->identity;
}

/* ---- group commit ---- */

/* Commit the operations from `first` up to, but not including, `end` in one
 * transaction, with its number, for which no page is written that an insert
 * does not write anyway. Returns 0 if each op->result is valid; else no
 * operation has had any effect. */
static int range_commit(struct store *s, struct op *first, struct op *end)
{
    struct sql *sql = &s->writer;
    uint64_t n = s->last ? atomic_load(s->last) + 1 : 0;
    int err = sql_run(sql, SQL_BEGIN, NULL), rc;
    bool written, whole;

    for (struct op *op = first; !err && op != end; op = TAILQ_NEXT(op, link)) {
        err = sql_run(sql, SQL_SAVE, NULL);
        if (err)
            break;
        op->result = op->apply(sql, op->arg);
        /* SQLite rolls the whole transaction back by itself on some errors
         * (disk full while the cache spills). */
        if (sqlite3_get_autocommit(sql->db))
            err = op->result ? op->result : -EIO;
        else if (op->result) /* undo this operation alone */
            err = sql_run(sql, SQL_UNDO, NULL);
        if (!err)
            err = sql_run(sql, SQL_RELEASE, NULL);
    }
    if (!err && s->last) {
        err = sql_change(sql, SQL_NUMBER, SQL_VALUES(value_u64(n)));
        if (err == -ENOENT)
            err = sql_run(sql, SQL_FIRST_NUMBER, SQL_VALUES(value_u64(n)));
    }
    FAULT_POINT("commit_before");
    written = !err;
    if (!err)
        err = sql_run(sql, SQL_COMMIT, NULL);
    FAULT_POINT("commit_after");
    if (!err && s->last)
        atomic_store(s->last, n);
    if (err == -EBUSY && atomic_load(&s->patience_ms) < PATIENCE_MS)
        atomic_store(&s->patience_ms, 0);
    /* The transaction may be complete in the -wal, unless there was no room for
     * it. SQLite writes the -shm last, so an error there comes after a complete
     * write. store_wal_bury fails only if the disk accepts no write at all. */
    rc = sqlite3_extended_errcode(sql->db);
    whole = written && err &&
            (!disk_is_full(err) || rc == SQLITE_IOERR_SHMSIZE ||
             rc == SQLITE_IOERR_SHMMAP);
    if (err && !sqlite3_get_autocommit(sql->db))
        sql_run(sql, SQL_ROLLBACK, NULL);
    if (whole)
        (void)store_wal_bury(sql->db);
    for (struct op *op = first; !err && op != end; op = TAILQ_NEXT(op, link))
        if (op->result == 0 && op->durable)
            op->durable(op->arg);
    return err;
}

/* Commit the batch, and give each operation its result. Returns the number of
 * transactions.
 * On a full disk each operation gets a transaction of its own, so that a large
 * message does not make small ones fail, nor deletes, which free space. A
 * checkpoint comes first, because a -wal that was copied completely is
 * overwritten from its beginning and needs no new block. */
static unsigned batch_commit(struct store *s, struct batch *batch)
{
    unsigned commits = 0;
    struct op *op;
    int err = range_commit(s, TAILQ_FIRST(batch), NULL);

    if (!err)
        return 1;
    if (disk_is_full(err))
        sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                  NULL, NULL);
    TAILQ_FOREACH (op, batch, link) {
        int failed =
            disk_is_full(err) ? range_commit(s, op, TAILQ_NEXT(op, link)) : err;

        if (failed)
            op->result = failed;
        else
            commits++;
    }
    return commits;
}

/* Name the next leader, after the last one has finished. The caller holds mtx.
 * A caller of commit_stop goes first, because it would wait forever under a
 * steady load. */
static void lead_next_locked(struct store *s)
{
    struct op *next = TAILQ_FIRST(&s->queue);

    if (s->stoppers > 0) {
        s->stoppers--;
        s->stopped = true;
        pthread_cond_signal(&s->stop);
        return;
    }
    s->leading = next != NULL;
    if (next) {
        next->lead = true;
        pthread_cond_signal(&next->wake);
    }
}

/* Become the leader without a batch, so that nothing is committed until
 * commit_go. Several threads may call this: the leader hands over to one of
 * them (lead_next_locked), and `leading` stays set in between. */
static void commit_stop(struct store *s)
{
    pthread_mutex_lock(&s->mtx);
    if (s->leading) {
        s->stoppers++;
        while (!s->stopped)
            pthread_cond_wait(&s->stop, &s->mtx);
        s->stopped = false;
    }
    s->leading = true;
    pthread_mutex_unlock(&s->mtx);
}

/* End commit_stop: the oldest waiting writer leads next. */
static void commit_go(struct store *s)
{
    pthread_mutex_lock(&s->mtx);
    lead_next_locked(s);
    pthread_mutex_unlock(&s->mtx);
}

void store_hurry(struct store *s)
{
    if (s)
        atomic_store(&s->patience_ms, HURRY_MS);
}

/* Queue the operation. Unless a leader commits it, lead: commit all queued
 * operations, then name the next leader. Invariant: `leading` is false only
 * while the queue is empty, so each op in the queue has a leader that will take
 * it, or commit_go names one. */
int store_write(struct store *s, int (*apply)(struct sql *sql, void *arg),
                void (*durable)(void *arg), void *arg)
{
    struct op op = {.apply = apply, .durable = durable, .arg = arg}, *each;
    struct batch batch = TAILQ_HEAD_INITIALIZER(batch);
    unsigned commits;

    pthread_cond_init(&op.wake, NULL);
    pthread_mutex_lock(&s->mtx);
    TAILQ_INSERT_TAIL(&s->queue, &op, link);
    while (s->leading && !op.done && !op.lead)
        pthread_cond_wait(&op.wake, &s->mtx);
    if (!op.done) {
        s->leading = true;
        TAILQ_CONCAT(&batch, &s->queue, link);
        pthread_mutex_unlock(&s->mtx);
        commits = batch_commit(s, &batch);
        pthread_mutex_lock(&s->mtx);
        s->commits += commits;
        /* An op is on the stack of its caller, which may return as soon as the
         * lock is free. */
        TAILQ_FOREACH (each, &batch, link) {
            each->done = true;
            pthread_cond_signal(&each->wake);
        }
        lead_next_locked(s);
    }
    pthread_mutex_unlock(&s->mtx);
    pthread_cond_destroy(&op.wake);
    if (s->wal_large && atomic_load(&s->wal_frames) > WAL_MOST)
        s->wal_large(s->wal_arg);
    return op.result;
}

/* A statement to run for each of `rows`, or once. */
struct statement {
    enum sql_id id;
    const struct sql_value *values; /* if `rows` is NULL */
    const int64_t *rows;
    size_t n;
    struct sql_value also;
    int64_t changed;
};

static int statement_apply(struct sql *sql, void *arg)
{
    struct statement *st = arg;
    int err = 0;

    st->changed = 0;
    for (size_t i = 0; i < st->n && !err; i++) {
        err = sql_run(sql, st->id,
                      st->rows ? SQL_VALUES(value_int(st->rows[i]), st->also)
                               : st->values);
        if (!err)
            st->changed += sqlite3_changes(sql->db);
    }
    return err;
}

int store_run(struct store *s, enum sql_id id, const struct sql_value *values,
              int64_t *changed)
{
    struct statement st = {.id = id, .values = values, .n = 1};
    int err = store_write(s, statement_apply, NULL, &st);

    if (changed)
        *changed = st.changed;
    return err;
}

int64_t store_run_rows(struct store *s, enum sql_id id, const int64_t *rows,
                       size_t n, struct sql_value also)
{
    struct statement st = {.id = id, .rows = rows, .n = n, .also = also};
    int err = store_write(s, statement_apply, NULL, &st);

    return err ? err : st.changed;
}

/* ---- the -wal, and the end of a store ---- */

/* Checkpoint the -wal as SQLite would do without a hook, and record its number
 * of frames. A reader can keep frames from being copied or overwritten; then
 * the -wal grows. */
static int wal_grown(void *arg, sqlite3 *db, const char *name, int frames)
{
    struct store *s = arg;

    atomic_store(&s->wal_frames, frames);
    if (frames >= WAL_COPY)
        (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE,
                                        NULL, NULL);
    return SQLITE_OK;
}

void store_watch_wal(struct store *s, void (*large)(void *arg), void *arg)
{
    s->wal_large = large;
    s->wal_arg = arg;
    sqlite3_wal_hook(s->writer.db, wal_grown, s);
}

int store_empty_wal(struct store *s)
{
    int rc = SQLITE_OK, err;

    commit_stop(s);
    if (atomic_load(&s->wal_frames) > WAL_MOST) {
        sqlite3_busy_timeout(s->writer.db, SHRINK_MS);
        rc = sqlite3_wal_checkpoint_v2(s->writer.db, NULL,
                                       SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        sqlite3_busy_handler(s->writer.db, lock_wait, s);
    }
    if (rc == SQLITE_OK)
        atomic_store(&s->wal_frames, 0);
    err = sql_error(s->writer.db, rc);
    commit_go(s);
    return err;
}

/* Write a copy of the store under its name again and use it. Nothing is
 * committed until both connections use the copy.
 * When SQLite closes a file whose name was removed, it removes no -wal and no
 * -shm, so closing the old connections does not harm the new file. The two are
 * different files, so closing one drops no lock of the other (fcntl(2)).
 * A copy that cannot be opened stays, so that the next start finds it if this
 * process dies. The old connections still have everything, and the next try
 * replaces the copy. */
int store_put_back(struct store *s, const char *path,
                   const struct stat replace[2], struct problem *p)
{
    struct sql writer = {0}, reader = {0};
    int err;

    commit_stop(s);
    pthread_mutex_lock(&s->read_mtx);
    err = store_file_make(path, s->writer.db, replace);
    if (err)
        err = problem_set(p, EX_CANTCREAT, -err, "%s: %s", path,
                          errno_text(-err));
    else
        err = connections_open(&writer, &reader, path, p);
    if (err) {
        sql_close(&reader);
        sql_close(&writer);
    } else {
        sql_close(&s->reader);
        sql_close(&s->writer);
        s->reader = reader;
        s->writer = writer;
        sqlite3_busy_handler(s->writer.db, lock_wait, s);
        if (s->wal_large)
            store_watch_wal(s, s->wal_large, s->wal_arg);
    }
    pthread_mutex_unlock(&s->read_mtx);
    commit_go(s);
    return err;
}

/* Decide about a commit that the last worker did not finish: after this call,
 * the commit is durable or can never come back. If no other program had the
 * store open, opening the store has accepted the commit. Its sync may not have
 * finished, but a checkpoint begins with a sync. If the disk is full now, it
 * was full when the commit was written, so the commit is not complete. Crash
 * before this is done: the next start does it. */
int store_claim(struct store *s, _Atomic uint64_t *last, struct problem *p)
{
    sqlite3 *db = s->writer.db;
    int rc = store_wal_bury(db);
    int64_t waiting, parked;

    store_make_tidy(sqlite3_db_filename(db, "main"));
    if (rc != SQLITE_OK && !disk_is_full(sql_error(db, rc)))
        return store_file_refuse(db, rc, sqlite3_db_filename(db, "main"), p);
    s->last = last;
    /* If the rows cannot be counted, begin with 0: the code that needs an
     * unreadable row reports the error. */
    waiting = store_count(s, STORE_WAITING);
    parked = store_count(s, STORE_PARKED);
    s->waiting = waiting > 0 ? waiting : 0;
    s->parked = parked > 0 ? parked : 0;
    return 0;
}

/* Checkpoint the -wal as far as no reader is in the way. Nothing depends on it,
 * because the -wal is durable. The last program to close the store removes the
 * -wal, if the program wrote something or the -wal is empty. A program that
 * wrote nothing leaves the checkpoint to others, for two reasons. SQLite
 * checkpoints under a lock that keeps others from opening the store, so a
 * program that only reads after a worker was killed could cause the next start
 * of the worker to be refused. And listing messages should not cost a running
 * worker a sync. */
void store_close(struct store **store)
{
    struct store *s = *store;
    uint64_t commits;
    char wal[PATH_MAX + 8];
    struct stat st;

    if (!s)
        return;
    commits = s->commits;
    if (commits == 0 && s->writer.db) {
        snprintf(wal, sizeof wal, "%s-wal",
                 sqlite3_db_filename(s->writer.db, "main"));
        if (stat(wal, &st) == 0 && st.st_size > WAL_HEAD) {
            sqlite3_db_config(s->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                              NULL);
            if (s->reader.db)
                sqlite3_db_config(s->reader.db,
                                  SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        }
    }
    sql_close(&s->reader);
    if (commits > 0)
        sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                  NULL, NULL);
    sql_close(&s->writer);
    pthread_cond_destroy(&s->stop);
    pthread_mutex_destroy(&s->mtx);
    pthread_mutex_destroy(&s->read_mtx);
    free(s);
    *store = NULL;
}

/* The number is in sqlite_sequence, a table that each insert writes anyway. */
uint64_t store_commits(struct store *s)
{
    int64_t n = store_tally(s, SQL_COMMITS, NULL);

    return n < 0 ? UINT64_MAX : (uint64_t)n;
}
