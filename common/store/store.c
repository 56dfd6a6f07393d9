/* store.c - rows that wait and dead letters; see store.h
 *
 * Writes go through commit (one transaction for all that come at once), reads
 * through a connection of their own: in WAL mode a reader sees the last commit
 * and never waits for a writer, nor for its sync.
 * Lock order: the commit's lock and read_mtx are never held together.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/boot_id.h"
#include "common/store/commit.h"
#include "common/base/fault_point.h"
#include "common/store/store_file.h"
#include "common/store/store_wal.h"

#define BOOT_MAX 128
#define WAL_HEAD 32 /* bytes; a -wal that is no longer holds nothing */

/* c = constant after open   r = under read_mtx   l = the commit's leader
 * only   a = atomic */
struct store {
    struct sql writer;        /* l */
    struct sql reader;        /* r */
    pthread_mutex_t read_mtx; /* held for one query; no callback under it */
    struct commit *commit;    /* c */
    _Atomic int64_t waits;    /* a  rows that are no letters */
    char boot[BOOT_MAX];      /* c  "" if not known */
    uint8_t identity[8];      /* c  random; of this file */
};

/* ---- opening ---- */

/* boot_read - what the queues of now die with: the run of the machine, and the
 * IPC namespace, since a container that is started again has empty queues
 * too */
static void boot_read(char boot[BOOT_MAX])
{
    char text[BOOT_TEXT], ipc[40] = "";
    struct boot now;
    ssize_t size;
    boot_now(&now);
    if (!now.id[0])
        return;
    size = readlink("/proc/self/ns/ipc", ipc, sizeof ipc - 1);
    ipc[size > 0 ? size : 0] = '\0';
    snprintf(boot, BOOT_MAX, "%s/%s", boot_print(&now, text), ipc);
}

/* connection_open - connect in one of the two roles; nothing of a file that is
 * not ours is changed, not even by a checkpoint as it is closed again */
static int connection_open(struct sql *sql, const char *path,
                           enum sql_role role, struct problem *p)
{
    int rc = sql_open(sql, path);
    if (rc != SQLITE_OK)
        return store_file_refuse(sql->db, rc, path, p);
    if (sqlite3_db_readonly(sql->db, "main"))
        return store_file_refuse(sql->db, SQLITE_READONLY, path, p);
    int err = store_file_check(sql->db, path, p);
    if (!err && role == SQL_WRITER) /* which is the first one */
        err = store_wal_whole(sql->db, path, p);
    if (err)
        return err;
    sqlite3_db_config(sql->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    rc = sql_setup(sql, role);
    if (rc != SQLITE_OK)
        return store_file_refuse(sql->db, rc, path, p);
    err = store_file_verify(sql->db, path, p);
    if (err)
        return err;
    sqlite3_db_config(sql->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return role == SQL_WRITER ? store_file_upgrade(sql->db, path, p) : 0;
}

/* orphan - a -wal whose store is gone: SQLite would take it for that of a new
 * one, and lay its pages over it */
static int orphan(const char *path, struct problem *p)
{
    char wal[PATH_MAX + 8];
    struct stat st;
    snprintf(wal, sizeof wal, "%s-wal", path);
    if (stat(wal, &st) < 0 || st.st_size <= WAL_HEAD)
        return 0;
    return problem_set(p, EX_CANTCREAT, ENOENT,
                       "%s is missing, but its -wal is there: somebody removed "
                       "it; put it back, or move %s away to begin with an "
                       "empty store",
                       path, wal);
}

/* file_wanted - there is a file at `path`, or one is made */
static int file_wanted(const char *path, bool create, struct problem *p)
{
    struct stat st;
    if (stat(path, &st) == 0)
        return 0;
    int err = errno;
    if (err == ENOENT && create) {
        err = orphan(path, p);
        return err ? err : store_file_create(path, p);
    }
    return problem_set(p, EX_CANTCREAT, err, "%s: %s", path, strerror(err));
}

/* identity_read - what the tokens of this store begin with */
static int identity_read(struct store *s, const char *path, struct problem *p)
{
    sqlite3 *db = s->reader.db;
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, "SELECT id FROM identity", -1, &st, NULL);
    if (rc != SQLITE_OK)
        return store_file_refuse(db, rc, path, p);
    rc = sqlite3_step(st);
    const void *id = rc == SQLITE_ROW ? sqlite3_column_blob(st, 0) : NULL;
    if (id && sqlite3_column_bytes(st, 0) == sizeof s->identity)
        memcpy(s->identity, id, sizeof s->identity);
    else
        rc = rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? 0 : store_file_refuse(db, rc, path, p);
}

/* store_fill - open what a store is made of; undone by store_close */
static int store_fill(struct store *s, const char *path, struct problem *p)
{
    int err = connection_open(&s->writer, path, SQL_WRITER, p);
    if (!err)
        err = connection_open(&s->reader, path, SQL_READER, p);
    if (!err)
        err = identity_read(s, path, p);
    if (!err)
        err = store_file_modes(path, p);
    if (!err && commit_open(&s->commit, &s->writer) < 0)
        err = problem_set(p, EX_OSERR, ENOMEM, "%s: out of memory", path);
    return err;
}

/* store_open - open the store, or make it */
int store_open(struct store **out, const char *path, bool create,
               struct problem *p)
{
    int err = file_wanted(path, create, p);
    if (err)
        return err;
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return problem_set(p, EX_OSERR, ENOMEM, "%s: out of memory", path);
    pthread_mutex_init(&s->read_mtx, NULL);
    boot_read(s->boot);
    err = store_fill(s, path, p);
    if (err)
        store_close(&s);
    *out = s;
    return err;
}

/* waits_count - what is there before the first write of ours
 * A store that cannot be counted, as it is damaged somewhere, counts as empty:
 * whoever needs what cannot be read says so. */
static void waits_count(struct store *s)
{
    int64_t waiting = store_count(s, STORE_WAITING);
    int64_t parked = store_count(s, STORE_PARKED);
    s->waits = (waiting > 0 ? waiting : 0) + (parked > 0 ? parked : 0);
}

int64_t store_waits(const struct store *s)
{
    return atomic_load(&s->waits);
}

/* swap - new connections in place of the old ones; the caller has stopped
 * both */
static int swap(struct store *s, const char *path, struct problem *p)
{
    struct sql writer = {0}, reader = {0};
    int err = connection_open(&writer, path, SQL_WRITER, p);
    if (!err)
        err = connection_open(&reader, path, SQL_READER, p);
    if (!err)
        err = store_file_modes(path, p);
    if (err) {
        sql_close(&reader);
        sql_close(&writer);
        return err;
    }
    sql_replace(&s->reader, &reader);
    sql_replace(&s->writer, &writer);
    return 0;
}

/* store_put_back - no commit comes between the copy and the swap
 * SQLite leaves the names alone when it closes a file that has lost its own, so
 * what is closed here takes nothing of the new one away; and as they are two
 * files, closing one drops no lock of the other (fcntl(2)).
 * If the copy cannot be opened it stays, for whoever comes if this process
 * dies; what is open here holds all of it still, and the next try replaces
 * it. */
int store_put_back(struct store *s, const char *path, bool replace,
                   struct problem *p)
{
    commit_stop(s->commit);
    pthread_mutex_lock(&s->read_mtx);
    int err = store_file_copy(s->writer.db, path, replace);
    if (err)
        err =
            problem_set(p, EX_CANTCREAT, -err, "%s: %s", path, strerror(-err));
    else
        err = swap(s, path, p);
    pthread_mutex_unlock(&s->read_mtx);
    commit_go(s->commit);
    return err;
}

/* store_copy - beside the store, which stays the one that is used */
int store_copy(struct store *s, const char *path)
{
    commit_stop(s->commit);
    int err = store_file_copy(s->writer.db, path, false);
    commit_go(s->commit);
    return err;
}

/* store_number - first column of a statement with up to two values; -ENOENT
 * where it gives no row */
int store_number(struct store *s, enum sql_id id, uint64_t a, int64_t b,
                 int64_t *number)
{
    struct sql *sql = store_read_begin(s);
    sqlite3_stmt *st;
    int err = sql_use(sql, id, &st);
    if (!err) {
        if (sqlite3_bind_parameter_count(st) > 0)
            sql_bind_u64(st, 1, a);
        if (sqlite3_bind_parameter_count(st) > 1)
            sqlite3_bind_int64(st, 2, b);
        err = sql_step(sql, st);
        if (err > 0)
            *number = sqlite3_column_int64(st, 0);
        sql_done(st);
        err = err > 0 ? 0 : err < 0 ? err : -ENOENT;
    }
    store_read_end(s);
    return err;
}

/* store_count - how many rows are in a state */
int64_t store_count(struct store *s, enum store_state state)
{
    int64_t number = 0;
    enum sql_id id = state == STORE_WAITING  ? SQL_COUNT_WAITING
                     : state == STORE_PARKED ? SQL_COUNT_PARKED
                                             : SQL_COUNT_LETTERS;
    int err = store_number(s, id, (uint64_t)state, 0, &number);
    return err ? err : number;
}

/* store_claim - the last worker's commit that was cut off never comes back, or
 * is here to stay
 * Where nobody else had the store open, we have taken over what there was; its
 * sync may not have ended, and a checkpoint begins with one. A disk that is
 * full now was when the commit was written: it has no room for a whole one.
 * Crash before it is done: the next start does it. */
int store_claim(struct store *s, _Atomic uint64_t *last, struct problem *p)
{
    sqlite3 *db = s->writer.db;
    int rc = store_wal_bury(db);
    if (rc != SQLITE_OK && sql_error(db, rc) != -ENOSPC)
        return store_file_refuse(db, rc, sqlite3_db_filename(db, "main"), p);
    commit_number(s->commit, last);
    waits_count(s);
    return 0;
}

/* store_close - copy the -wal into the file as far as nobody is in the way
 * Nothing depends on it: what is in the -wal is durable. The last of all
 * programs that closes takes the -wal away. A store that wrote nothing leaves
 * the copying to the others, so that a list costs a running worker no sync. */
void store_close(struct store **store)
{
    struct store *s = *store;
    struct store_stats stats = {0};
    if (!s)
        return;
    if (s->commit)
        commit_stats(s->commit, &stats);
    sql_close(&s->reader);
    if (stats.commits > 0)
        sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                  NULL, NULL);
    sql_close(&s->writer);
    commit_close(&s->commit);
    pthread_mutex_destroy(&s->read_mtx);
    free(s);
    *store = NULL;
}

/* store_stats - how well writers share commits */
void store_stats(struct store *s, struct store_stats *out)
{
    commit_stats(s->commit, out);
}

/* store_read_begin - take the reading connection */
struct sql *store_read_begin(struct store *s)
{
    pthread_mutex_lock(&s->read_mtx);
    return &s->reader;
}

/* store_read_end - give it back */
void store_read_end(struct store *s)
{
    pthread_mutex_unlock(&s->read_mtx);
}

/* store_write - run an operation in a shared commit */
int store_write(struct store *s, int (*apply)(struct sql *sql, void *arg),
                void *arg)
{
    return commit_run(s->commit, apply, NULL, arg);
}

/* store_boot - what replayed letters are marked with */
const char *store_boot(const struct store *s)
{
    return s->boot;
}

/* store_identity - what the store's tokens begin with */
const uint8_t *store_identity(const struct store *s)
{
    return s->identity;
}

/* ---- the worker's writes ---- */

/* waits - whether a row in that state is one that store_waits counts */
static int waits(int state)
{
    return state == STORE_WAITING || state == STORE_PARKED;
}

struct put {
    struct store *store;
    const struct store_row *m;
    const struct store_attempt *attempt;
    int64_t row;
    int more; /* rows that wait; -1: one less */
};

/* put_apply - insert or update a row, and add to its history */
static int put_apply(struct sql *sql, void *arg)
{
    struct put *put = arg;
    const char *boot = put->store->boot;
    int was = put->m->row ? sql_row_state(sql, put->m->row) : 0;
    int err;
    if (was < 0)
        return was;
    put->row = put->m->row;
    put->more = waits((int)put->m->state) - waits(was);
    if (put->row)
        err = sql_update_row(sql, put->m, boot);
    else
        err = sql_insert_row(sql, put->m, boot, &put->row);
    if (!err && put->attempt)
        err = sql_insert_attempt(sql, put->row, put->attempt);
    return err;
}

/* put_durable - the slot that it came from is FREE */
static void put_durable(void *arg)
{
    const struct put *put = arg;
    atomic_fetch_add(&put->store->waits, put->more);
    if (put->m->slot)
        put->m->retire(put->m->slot);
}

/* store_put - bring a message to the disk */
int store_put(struct store *s, const struct store_row *m,
              const struct store_attempt *attempt, int64_t *row)
{
    struct put put = {.store = s, .m = m, .attempt = attempt};
    if (!sql_row_valid(m))
        return -EINVAL;
    FAULT_POINT("store_put_before");
    int err = commit_run(s->commit, put_apply, put_durable, &put);
    FAULT_POINT("store_put_after");
    if (!err && row)
        *row = put.row;
    return err;
}

struct put_all {
    struct store *store;
    const struct store_row *rows;
    size_t n;
    int64_t more;
};

/* put_all_apply - all rows of one call
 * Crash before the commit: each message is in its slot as before. After it:
 * recovery finds the row by the slot's receive sequence (or row) and frees the
 * slot. */
static int put_all_apply(struct sql *sql, void *arg)
{
    struct put_all *all = arg;
    int err = 0;
    all->more = 0;
    for (size_t i = 0; i < all->n && !err; i++) {
        struct put put = {.store = all->store, .m = &all->rows[i]};
        err = put_apply(sql, &put);
        if (!err)
            all->more += put.more;
        else if (err == -EEXIST || err == -ENOENT)
            err = 0;
    }
    return err;
}

/* put_all_durable - all slots that they came from are FREE */
static void put_all_durable(void *arg)
{
    const struct put_all *all = arg;
    atomic_fetch_add(&all->store->waits, all->more);
    for (size_t i = 0; i < all->n; i++)
        if (all->rows[i].slot)
            all->rows[i].retire(all->rows[i].slot);
}

/* store_put_all - several messages, one commit */
int store_put_all(struct store *s, const struct store_row *rows, size_t n)
{
    struct put_all all = {.store = s, .rows = rows, .n = n};
    for (size_t i = 0; i < n; i++)
        if (!sql_row_valid(&rows[i]))
            return -EINVAL;
    FAULT_POINT("store_put_all_before");
    int err = commit_run(s->commit, put_all_apply, put_all_durable, &all);
    FAULT_POINT("store_put_all_after");
    return err;
}

struct delete
{
    struct store *store;
    int64_t row;
    int was;
};

/* delete_apply - remove a row; its history goes with it */
static int delete_apply(struct sql *sql, void *arg)
{
    struct delete *d = arg;
    sqlite3_stmt *st;
    int err;
    d->was = sql_row_state(sql, d->row);
    err = d->was < 0 ? d->was : sql_use(sql, SQL_DELETE, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, d->row);
    return sql_run(sql, st);
}

static void delete_durable(void *arg)
{
    const struct delete *d = arg;
    atomic_fetch_sub(&d->store->waits, waits(d->was));
}

/* store_delete - forget a message */
int store_delete(struct store *s, int64_t row)
{
    struct delete d = {.store = s, .row = row};
    FAULT_POINT("store_delete_before");
    int err = commit_run(s->commit, delete_apply, delete_durable, &d);
    FAULT_POINT("store_delete_after");
    return err;
}
