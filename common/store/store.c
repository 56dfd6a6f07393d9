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
#include <bsd/string.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/problem.h"
#include "common/store/commit.h"
#include "common/store/file.h"
#include "common/store/spool.h"
#include "common/store/sql.h"

#define WAL_HEAD 32   /* bytes; a -wal of this size or less is empty */
#define WAL_COPY 1000 /* frames after which a commit checkpoints the -wal */
#define WAL_MOST 2048 /* frames; a longer -wal is emptied */
/* Longest time that emptying the -wal waits for readers, and writers wait for
 * emptying, ms. */
#define SHRINK_MS 100

/* c = constant after open   r = under read_mtx   l = the commit's leader
 * only   a = atomic */
struct store {
    struct sql writer;            /* l */
    struct sql reader;            /* r */
    pthread_mutex_t read_mtx;     /* held for one query; no callback under it */
    struct commit *commit;        /* c */
    _Atomic int64_t waits;        /* a  rows other than letters */
    _Atomic int64_t parked;       /* a  of these, PARKED */
    atomic_bool hooks;            /* a  each death is noted for --on-dead */
    _Atomic int64_t spooled;      /* a  rows of the spool */
    atomic_int wal_frames;        /* a  of the -wal at the last commit */
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

/* Connect in one of the two roles. Closing it again copies no -wal. */
static int connection_open(struct sql *sql, const char *path,
                           enum sql_role role, struct problem *p)
{
    int rc = sql_open(sql, path), err;

    if (rc != SQLITE_OK)
        return store_file_refuse(sql->db, rc, path, p);
    if (sqlite3_db_readonly(sql->db, "main"))
        return store_file_refuse(sql->db, SQLITE_READONLY, path, p);
    err = store_file_check(sql->db, path, p);
    if (err)
        return err;
    sqlite3_db_config(sql->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    rc = sql_setup(sql, role);
    return rc == SQLITE_OK ? 0 : store_file_refuse(sql->db, rc, path, p);
}

/* Make sure that there is a whole store at `path`, or make one. No store is
 * made beside a -wal whose store is gone: SQLite would take it for that of the
 * new one, and lay its pages over it. And none is opened that another program
 * has open with a -wal that was removed: this process would make a new -wal,
 * which does not fit the index that both share. */
static int file_wanted(const char *path, bool create, struct problem *p)
{
    /* Each user of a store in WAL mode holds this lock of its -shm
     * (UNIX_SHM_DMS in os_unix.c of SQLite). */
    const struct lock_look user = {.kind = "POSIX", .at = 128};
    char wal[PATH_MAX + 8], shm[PATH_MAX + 8];
    struct stat st;
    int err;

    snprintf(wal, sizeof wal, "%s-wal", path);
    snprintf(shm, sizeof shm, "%s-shm", path);
    if (stat(path, &st) == 0) {
        if (stat(wal, &st) == 0 || stat(shm, &st) < 0 ||
            !lock_find(&st, &user) || stat(wal, &st) == 0)
            return 0;
        return problem_set(p, EX_CANTCREAT, ENOENT,
                           "%s was removed while another program has the store "
                           "open: a second one would damage it; a worker "
                           "writes it again within seconds, try again then "
                           "(its log: event=file_gone)",
                           wal);
    }
    err = errno;
    if (err != ENOENT || !create)
        return problem_set(p, EX_CANTCREAT, err, "%s: %s", path,
                           errno_text(err));
    if (stat(wal, &st) < 0 || st.st_size <= WAL_HEAD)
        return store_make(path, p);
    return problem_set(p, EX_CANTCREAT, ENOENT,
                       "%s is missing, but its -wal is there: somebody removed "
                       "it; put it back, or move %s away to begin with an "
                       "empty store",
                       path, wal);
}

/* Read what the tokens of this store begin with. */
static int identity_read(struct store *s, const char *path, struct problem *p)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_IDENTITY, NULL);
    int rc =
        found < 0 ? sqlite3_extended_errcode(s->reader.db) : SQLITE_CORRUPT;
    const void *id = found > 0 ? sqlite3_column_blob(st, 0) : NULL;
    bool whole = id && sqlite3_column_bytes(st, 0) == sizeof s->identity;

    if (whole)
        memcpy(s->identity, id, sizeof s->identity);
    (void)store_answered(s, st, found);
    return whole ? 0 : store_file_refuse(s->reader.db, rc, path, p);
}

/* Open both connections, the writer first. The caller closes both, also after
 * an error. Nothing of a file that is not ours is changed, not even by a
 * checkpoint as a connection is closed. The version counts as SQLite reads it,
 * because the -wal may have another one than the file. */
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

int store_open(struct store **out, const char *path, bool create,
               struct problem *p)
{
    int err = file_wanted(path, create, p);
    struct store *s;

    if (err)
        return err;
    s = calloc(1, sizeof *s);
    if (!s)
        return problem_set(p, EX_OSERR, ENOMEM, "%s: out of memory", path);
    pthread_mutex_init(&s->read_mtx, NULL);
    /* Queues die with the IPC namespace, too: a container that is started again
     * has empty ones. */
    store_boot_read("ipc", s->boot);
    err = connections_open(&s->writer, &s->reader, path, p);
    if (!err)
        err = identity_read(s, path, p);
    if (!err && commit_open(&s->commit, &s->writer) < 0)
        err = problem_set(p, EX_OSERR, ENOMEM, "%s: out of memory", path);
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
    return store_tally(s,
                       state == STORE_PARKED ? SQL_COUNT_PARKED_CANCELLED
                                             : SQL_COUNT_WAITING_CANCELLED,
                       NULL);
}

void store_ages(struct store *s, struct store_ages *out)
{
    const struct {
        enum sql_id id;
        uint64_t *at;
    } all[] = {{SQL_OLDEST_WAITING, &out->waiting},
               {SQL_OLDEST_PARKED, &out->parked},
               {SQL_OLDEST_SPOOLED, &out->spooled},
               {SQL_NEWEST, &out->newest}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t ns = store_tally(s, all[i].id, NULL);

        *all[i].at = ns > 0 ? (uint64_t)ns : 0;
    }
}

int64_t store_waits(const struct store *s)
{
    return atomic_load(&s->waits);
}

int64_t store_parked(const struct store *s)
{
    return atomic_load(&s->parked);
}

/* A row may be parked between the two reads. If that makes more rows parked
 * than there were in all, 0 is the best answer. */
int64_t store_waiting(const struct store *s)
{
    int64_t waits = atomic_load(&s->waits), parked = atomic_load(&s->parked);

    return waits > parked ? waits - parked : 0;
}

/* Checkpoint the -wal as SQLite would do without a hook, and record its number
 * of frames. A reader can keep frames from being copied or overwritten; then
 * the -wal grows.
 */
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

    commit_stop(s->commit);
    if (atomic_load(&s->wal_frames) > WAL_MOST) {
        sqlite3_busy_timeout(s->writer.db, SHRINK_MS);
        rc = sqlite3_wal_checkpoint_v2(s->writer.db, NULL,
                                       SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        commit_patience(s->commit);
    }
    if (rc == SQLITE_OK)
        atomic_store(&s->wal_frames, 0);
    err = sql_error(s->writer.db, rc);
    commit_go(s->commit);
    return err;
}

/* No commit comes between the copy and the change of connections.
 * SQLite leaves the names alone when it closes a file that has lost its own, so
 * closing the old connections removes nothing of the new file; and as the two
 * are different files, closing one drops no lock of the other (fcntl(2)).
 * A copy that cannot be opened stays, for the next start should this process
 * die; the old connections still hold everything, and the next try replaces the
 * copy. */
int store_put_back(struct store *s, const char *path,
                   const struct stat replace[2], struct problem *p)
{
    struct sql writer = {0}, reader = {0};
    int err;

    commit_stop(s->commit);
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
        commit_patience(s->commit);
        if (s->wal_large)
            store_watch_wal(s, s->wal_large, s->wal_arg);
    }
    pthread_mutex_unlock(&s->read_mtx);
    commit_go(s->commit);
    return err;
}

int store_copy(struct store *s, const char *path)
{
    int err;

    commit_stop(s->commit);
    err = store_file_make(path, s->writer.db, NULL);
    commit_go(s->commit);
    return err;
}

/* Make sure that a commit of the last worker that was cut off never comes back,
 * or is here to stay. If no other program had the store open, opening it has
 * taken the commit over; its sync may not have finished, and a checkpoint
 * begins with one. If the disk is full now, it was full when the commit was
 * written, and has no whole commit. Crash before it is done: the next start
 * does it. */
int store_claim(struct store *s, _Atomic uint64_t *last, struct problem *p)
{
    sqlite3 *db = s->writer.db;
    int rc = store_wal_bury(db);
    int64_t waiting, parked;

    store_make_tidy(sqlite3_db_filename(db, "main"));
    if (rc != SQLITE_OK && !disk_is_full(sql_error(db, rc)))
        return store_file_refuse(db, rc, sqlite3_db_filename(db, "main"), p);
    commit_number(s->commit, last);
    /* A store that cannot be counted counts as empty: the part that needs a row
     * it cannot read reports that. */
    waiting = store_count(s, STORE_WAITING);
    parked = store_count(s, STORE_PARKED);
    s->parked = parked > 0 ? parked : 0;
    s->waits = (waiting > 0 ? waiting : 0) + s->parked;
    return 0;
}

void store_hurry(struct store *s)
{
    if (s)
        commit_hurry(s->commit);
}

void store_stats(struct store *s, struct store_stats *out)
{
    commit_stats(s->commit, out);
}

/* Copy the -wal into the file as far as no reader is in the way. Nothing
 * depends on it: the -wal is durable. The last program that closes the store
 * removes the -wal, if it wrote something or there is nothing in it. A program
 * that wrote nothing leaves the copying to the others: SQLite copies and syncs
 * under a lock that keeps others from opening the store, so that a program
 * which only looks, between the kill of a worker and its next start, would have
 * that start refused; and a list costs a running worker no sync. */
void store_close(struct store **store)
{
    struct store *s = *store;
    struct store_stats stats = {0};
    char wal[PATH_MAX + 8];
    struct stat st;

    if (!s)
        return;
    if (s->commit)
        store_stats(s, &stats);
    if (stats.commits == 0 && s->writer.db) {
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
    if (stats.commits > 0)
        sqlite3_wal_checkpoint_v2(s->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                  NULL, NULL);
    sql_close(&s->writer);
    commit_close(&s->commit);
    pthread_mutex_destroy(&s->read_mtx);
    free(s);
    *store = NULL;
}

int store_write(struct store *s, int (*apply)(struct sql *sql, void *arg),
                void (*durable)(void *arg), void *arg)
{
    int err = commit_run(s->commit, apply, durable, arg);

    if (s->wal_large && atomic_load(&s->wal_frames) > WAL_MOST)
        s->wal_large(s->wal_arg);
    return err;
}

/* One statement, run for each of `rows`, or once. */
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

void store_waits_add(struct store *s, const struct store_more *more)
{
    atomic_fetch_add(&s->waits, more->waits);
    atomic_fetch_add(&s->parked, more->parked);
    atomic_fetch_add(&s->spooled, more->spooled);
}

int64_t store_spooled(const struct store *s)
{
    return atomic_load(&s->spooled);
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

void store_hooks_note(struct store *s)
{
    atomic_store(&s->hooks, true);
}

bool store_hooks_noted(const struct store *s)
{
    return atomic_load(&s->hooks);
}

/* ---- checking the whole store ---- */

/* Without this check, damage shows only in a query that reads the damaged page,
 * or not at all: a flipped bit in an index hides the rows behind it, and the
 * query succeeds.
 */

/* Steps of SQLite's virtual machine between two looks at *stop. */
#define STEPS 10000

static int check_is_stopped(void *arg)
{
    const atomic_bool *stop = arg;

    return atomic_load(stop);
}

/* Copy the path of the store's file. */
static void path_copy(struct store *s, char path[PATH_MAX])
{
    struct sql *sql = store_read_begin(s);

    strlcpy(path, sqlite3_db_filename(sql->db, "main"), PATH_MAX);
    store_read_end(s);
}

/* Return SQLITE_OK for the answer of a check of a sound store, SQLITE_CORRUPT
 * if it found damage, or the error that kept it from reading a page. SQLite
 * reports both as a line of text: "unable to get the page. error code=7" is a
 * lack of memory, and "failed to get page 9", of a page in a list, has no code.
 */
static int check_result(const char *text)
{
    const char *code = text ? strstr(text, "error code=") : NULL;

    if (!text)
        return SQLITE_NOMEM;
    if (code)
        return (int)strtol(code + strlen("error code="), NULL, 10);
    if (strcmp(text, "ok") == 0)
        return SQLITE_OK;
    return strstr(text, "failed to get page") ? SQLITE_IOERR : SQLITE_CORRUPT;
}

/* Check the store at `path` once, over a connection of its own: 0 or -errno. */
static int check_file(const char *path, const atomic_bool *stop,
                      char found[STORE_FOUND])
{
    const char *text, *line;
    sqlite3_stmt *st = NULL;
    struct sql sql;
    int rc, err;

    found[0] = '\0';
    rc = sql_open(&sql, path);
    if (rc == SQLITE_OK)
        rc = sql_setup(&sql, SQL_READER);
    if (sql.db)
        sqlite3_db_config(sql.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (rc == SQLITE_OK && stop)
        sqlite3_progress_handler(sql.db, STEPS, check_is_stopped, (void *)stop);
    if (rc == SQLITE_OK)
        rc = sqlite3_prepare_v2(sql.db, "PRAGMA quick_check(1)", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        text = (const char *)sqlite3_column_text(st, 0);
        rc = check_result(text);
        if ((rc & 0xff) == SQLITE_CORRUPT) {
            /* A first line of "*** in database main ***" says nothing. */
            line = strncmp(text, "***", 3) == 0 ? strchr(text, '\n') : NULL;
            strlcpy(found, line ? line + 1 : text, STORE_FOUND);
        }
    } else if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) {
        strlcpy(found, sqlite3_errstr(rc), STORE_FOUND);
    }
    /* quick_check prints several lines per page; the first is enough for a
     * log. */
    found[strcspn(found, "\n")] = '\0';
    sqlite3_finalize(st);
    err = (rc & 0xff) == SQLITE_INTERRUPT ? -ECANCELED : sql_error(sql.db, rc);
    sql_close(&sql);
    return err;
}

int store_check(struct store *s, const atomic_bool *stop,
                char found[STORE_FOUND])
{
    char path[PATH_MAX];
    int err;

    path_copy(s, path);
    err = check_file(path, stop, found);
    /* A lack of memory can end the count of an index early, and SQLite 3.46
     * then reports a wrong number of entries. Damage is found again. */
    if (found[0])
        err = check_file(path, stop, found);
    return err;
}

uint64_t store_bytes(struct store *s)
{
    char path[PATH_MAX], wal[PATH_MAX + 8];
    uint64_t bytes = 0;
    struct stat st;

    path_copy(s, path);
    if (stat(path, &st) == 0)
        bytes += (uint64_t)st.st_size;
    snprintf(wal, sizeof wal, "%s-wal", path);
    if (stat(wal, &st) == 0)
        bytes += (uint64_t)st.st_size;
    return bytes;
}

/* ---- whether the store has lost commits ---- */

/* SQLite takes over what a -wal holds up to the first frame that does not match
 * its checksum, and drops the rest without a word. So each commit of a worker
 * has a number (commit.c), and the number of the last one that was durable is
 * kept where a damaged disk, or a store that was replaced, cannot change it.
 */

/* The number is a row of a table that each insert writes. */
uint64_t store_commits(struct store *s)
{
    int64_t n = store_tally(s, SQL_COMMITS, NULL);

    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

/* Copy a file through SQLite's own descriptor: closing one of ours would drop
 * the locks that this process has on the file (fcntl(2)). */
static int file_copy(sqlite3_file *from, const char *to)
{
    char data[65536];
    sqlite3_int64 size = 0, at = 0;
    int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), err = 0;

    if (fd < 0)
        return -errno;
    if (from->pMethods->xFileSize(from, &size) != SQLITE_OK)
        err = -EIO;
    while (!err && at < size) {
        int n =
            size - at < (int)sizeof data ? (int)(size - at) : (int)sizeof data;

        if (from->pMethods->xRead(from, data, n, at) != SQLITE_OK)
            err = -EIO;
        else
            err = file_write(fd, data, (size_t)n, at);
        at += n;
    }
    if (!err && fsync(fd) < 0)
        err = -errno;
    close(fd);
    return err;
}

/* sqlite3(1) opens the copy with its -wal. */
int store_set_aside(struct store *s, char copy[PATH_MAX])
{
    static const struct {
        int pointer;
        const char *tail;
    } files[] = {{SQLITE_FCNTL_FILE_POINTER, ""},
                 {SQLITE_FCNTL_JOURNAL_POINTER, "-wal"}};
    struct sql *sql = store_read_begin(s);
    char path[PATH_MAX + 8];
    int err = 0;

    if (snprintf(copy, PATH_MAX, "%s.behind.%llu",
                 sqlite3_db_filename(sql->db, "main"),
                 (unsigned long long)clock_wall_ns()) >= PATH_MAX)
        err = -ENAMETOOLONG;
    for (size_t i = 0; i < 2 && !err; i++) {
        sqlite3_file *file = NULL;

        sqlite3_file_control(sql->db, "main", files[i].pointer, &file);
        snprintf(path, sizeof path, "%s%s", copy, files[i].tail);
        if (file && file->pMethods)
            err = file_copy(file, path);
    }
    store_read_end(s);
    return err;
}
