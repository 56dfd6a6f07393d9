/* sql.c - statements and settings of a connection (see sql.h)
 *
 * Only the files of common/store call these functions, on any thread that has
 * the lock of the connection.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/message/error_text.h"
#include "common/store/sql.h"

#define BUSY_MS 5000 /* longest wait for another program's lock */

/* synchronous=FULL: each commit is on the disk before COMMIT returns.
 * temp_store: savepoints are undone from memory, so that a full /tmp does not
 * matter. journal_size_limit: after a burst the -wal is cut to 8 MiB.
 * secure_delete=FAST: deleted bodies are wiped if that costs no extra write. */
#define WRITER_SETTINGS            \
    "PRAGMA synchronous = FULL;"   \
    "PRAGMA cache_size = -512;"    \
    "PRAGMA foreign_keys = ON;"    \
    "PRAGMA trusted_schema = OFF;" \
    "PRAGMA secure_delete = FAST;" \
    "PRAGMA temp_store = MEMORY;"  \
    "PRAGMA journal_size_limit = 8388608;"
#define READER_SETTINGS         \
    "PRAGMA query_only = ON;"   \
    "PRAGMA cache_size = -512;" \
    "PRAGMA trusted_schema = OFF;"

static const char *const sql_texts[SQL_IDS] = {
#define STATEMENT(id, text) [id] = (text),
#include "common/store/statements.h"
#undef STATEMENT
};

_Static_assert(STORE_WAITING == 1 && STORE_PARKED == 2 && STORE_DEAD == 3 &&
                   STORE_REPLAYED == 4 && STORE_FRONT == 4 &&
                   STORE_CANCELLED == 8,
               "the statements and the file's indexes name these numbers");

/* The SQL function error_like(like, error, text): error_text_like. */
static void error_like(sqlite3_context *context, int n, sqlite3_value **args)
{
    const char *like = (const char *)sqlite3_value_text(args[0]);
    const char *error = (const char *)sqlite3_value_text(args[1]);
    const char *text = (const char *)sqlite3_value_text(args[2]);

    (void)n;
    sqlite3_result_int(context, error_text_like(like, error, text));
}

/* The SQL function error_text(error, said, stderr). */
static void error_text_sql(sqlite3_context *context, int n,
                           sqlite3_value **args)
{
    const char *error = (const char *)sqlite3_value_text(args[0]);
    bool said = sqlite3_value_int(args[1]) != 0;
    const void *tail = sqlite3_value_blob(args[2]);
    size_t size = (size_t)sqlite3_value_bytes(args[2]);
    char text[ERROR_TEXT];

    (void)n;
    error_text(text, error, said, tail ? tail : "", size);
    sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT);
}

/* The SQL function body_has(data, header_size, bytes). */
static void body_has(sqlite3_context *context, int n, sqlite3_value **args)
{
    const char *data = sqlite3_value_blob(args[0]);
    int64_t size = sqlite3_value_bytes(args[0]);
    int64_t skip = sqlite3_value_int64(args[1]);
    const void *bytes = sqlite3_value_blob(args[2]);
    size_t bytes_size = (size_t)sqlite3_value_bytes(args[2]);
    bool hit = bytes_size == 0;

    (void)n;
    if (!hit && data && bytes && skip >= 0 && skip < size)
        hit = memmem(data + skip, (size_t)(size - skip), bytes, bytes_size);
    sqlite3_result_int(context, hit);
}

bool sql_elsewhere(const char *then, const char *now)
{
    const char *text[2] = {then, now}, *rest[2];
    struct boot boot[2];

    for (int i = 0; i < 2; i++) {
        rest[i] = strchrnul(text[i], '/');
        boot_parse(&boot[i], text[i], (size_t)(rest[i] - text[i]));
    }
    return strcmp(rest[0], rest[1]) != 0 || !boot_same(&boot[0], &boot[1]);
}

/* The SQL function elsewhere(boot, now): sql_elsewhere. */
static void elsewhere_sql(sqlite3_context *context, int n, sqlite3_value **args)
{
    const char *then = (const char *)sqlite3_value_text(args[0]);
    const char *now = (const char *)sqlite3_value_text(args[1]);

    (void)n;
    sqlite3_result_int(context,
                       sql_elsewhere(then ? then : "", now ? now : ""));
}

int sql_open(struct sql *sql, const char *path)
{
    int rc;

    *sql = (struct sql){0};
    rc = sqlite3_open_v2(path, &sql->db,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!sql->db)
        return SQLITE_NOMEM;
    sqlite3_extended_result_codes(sql->db, 1);
    return rc == SQLITE_OK ? rc : sqlite3_extended_errcode(sql->db);
}

int sql_setup(struct sql *sql, enum sql_role role)
{
    static const struct {
        const char *name;
        int values;

        void (*call)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {
        {"elsewhere", 2, elsewhere_sql}, /* the writer's only one */
        {"error_like", 3, error_like},
        {"error_text", 3, error_text_sql},
        {"body_has", 3, body_has}};
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY;
    sqlite3 *db = sql->db;
    sqlite3_stmt *st = NULL;
    const char *mode;
    int rc = sqlite3_busy_timeout(db, BUSY_MS);

    for (size_t i = 0; rc == SQLITE_OK && i < (role == SQL_WRITER ? 1 : 4); i++)
        rc =
            sqlite3_create_function(db, functions[i].name, functions[i].values,
                                    flags, NULL, functions[i].call, NULL, NULL);
    /* The file is in WAL mode already, unless somebody changed that by hand or
     * the file system has no shared memory. */
    if (rc == SQLITE_OK && role == SQL_WRITER) {
        rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &st, NULL);
        if (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
            mode = (const char *)sqlite3_column_text(st, 0);
            rc = mode && !strcmp(mode, "wal") ? SQLITE_OK : SQLITE_CANTOPEN;
        }
        sqlite3_finalize(st);
    }
    if (rc != SQLITE_OK)
        return rc;
    return sqlite3_exec(db,
                        role == SQL_WRITER ? WRITER_SETTINGS : READER_SETTINGS,
                        NULL, NULL, NULL);
}

void sql_close(struct sql *sql)
{
    for (int i = 0; i < SQL_IDS; i++)
        sqlite3_finalize(sql->stmts[i]);
    sqlite3_close(sql->db);
    *sql = (struct sql){0};
}

/* Translate an SQLITE_IOERR. SQLite reports ENOSPC of a write as SQLITE_FULL,
 * but a quota, a file size limit and trouble with the -shm file as I/O errors
 * (disk_is_full). A failed sync stays an I/O error with any errno, because the
 * contents of the disk are unknown after it. */
static int io_error(sqlite3 *db, int rc)
{
    sqlite3_file *wal = NULL;
    int err;

    if (rc == SQLITE_IOERR_NOMEM)
        return -ENOMEM;
    if (rc == SQLITE_IOERR_FSYNC || rc == SQLITE_IOERR_DIR_FSYNC)
        return -EIO;
    err = sqlite3_system_errno(db);
    if (rc == SQLITE_IOERR_WRITE && err == 0) { /* COMMIT writes the -wal */
        sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
        if (wal && wal->pMethods)
            wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO, &err);
    }
    if (disk_is_full(-err))
        return -err;
    return rc == SQLITE_IOERR_SHMSIZE && err != EIO ? -ENOSPC : -EIO;
}

int sql_error(sqlite3 *db, int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_IOERR:
        return io_error(db, rc);
    case SQLITE_TOOBIG:
        return -EMSGSIZE;
    case SQLITE_CONSTRAINT:
        if (rc == SQLITE_CONSTRAINT_UNIQUE ||
            rc == SQLITE_CONSTRAINT_PRIMARYKEY)
            return -EEXIST;
        return rc == SQLITE_CONSTRAINT_FOREIGNKEY ? -ENOENT : -EINVAL;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EUCLEAN;
    default: /* READONLY, CANTOPEN, ...: unusable */
        return -EIO;
    }
}

struct sql_value value_string(const char *text)
{
    return value_text(text, text ? strlen(text) : 0);
}

int sql_bind(struct sql *sql, enum sql_id id, sqlite3_stmt **st,
             const struct sql_value *values)
{
    int rc = SQLITE_OK, err;

    if (!sql->stmts[id])
        rc = sqlite3_prepare_v3(sql->db, sql_texts[id], -1,
                                SQLITE_PREPARE_PERSISTENT, &sql->stmts[id],
                                NULL);
    *st = sql->stmts[id];
    if (!*st) {
        err = sql_error(sql->db, rc);
        return err ? err : -EIO;
    }
    for (int i = 1; values && values->type != VALUE_END; i++, values++)
        if (values->type == VALUE_NUMBER)
            sqlite3_bind_int64(*st, i, values->number);
        else if (values->type == VALUE_TEXT)
            sqlite3_bind_text64(*st, i, values->bytes, values->size,
                                SQLITE_STATIC, SQLITE_UTF8);
        else
            sqlite3_bind_blob64(*st, i, values->size ? values->bytes : "",
                                values->size, SQLITE_STATIC);
    return 0;
}

int sql_step(sqlite3_stmt *st)
{
    int rc = sqlite3_step(st);

    return rc == SQLITE_ROW ? STEP_ROW : sql_error(sqlite3_db_handle(st), rc);
}

void sql_done(sqlite3_stmt *st)
{
    sqlite3_reset(st); /* repeats the result that step gave already */
    sqlite3_clear_bindings(st);
}

int sql_run(struct sql *sql, enum sql_id id, const struct sql_value *values)
{
    sqlite3_stmt *st;
    int more = sql_bind(sql, id, &st, values);

    if (more)
        return more;
    do {
        more = sql_step(st);
    } while (more == STEP_ROW);
    sql_done(st);
    return more;
}

int sql_change(struct sql *sql, enum sql_id id, const struct sql_value *values)
{
    int err = sql_run(sql, id, values);

    return !err && sqlite3_changes(sql->db) == 0 ? -ENOENT : err;
}

int sql_number(struct sql *sql, int64_t *number, enum sql_id id,
               const struct sql_value *values)
{
    sqlite3_stmt *st;
    int found = sql_bind(sql, id, &st, values);

    if (found)
        return found;
    found = sql_step(st);
    if (found == STEP_ROW)
        *number = sqlite3_column_int64(st, 0);
    sql_done(st);
    return found;
}

/* ---- rows and attempts as values of statements ---- */

#define STDERR_MAX 4096 /* bytes kept of an attempt, from the end */

bool sql_row_valid(const struct store_row *m)
{
    return m->state >= STORE_WAITING && m->state <= STORE_REPLAYED &&
           m->group_size <= STORE_GROUP_MAX && m->header_size <= m->size;
}

int sql_put_row(struct sql *sql, const struct store_row *m, const char *boot,
                int64_t *row)
{
    int64_t ahead = 0, apart = 0;
    int err = m->delay_ns && !m->due_boot_ns
                  ? sql_number(sql, &ahead, SQL_CLOCK, NULL)
                  : STEP_END;

    /* If the clock was set since the worker last checked, convert the due time
     * of a delay to the clock that the rows still follow. Otherwise keep the
     * time as it is, to the ns, so that equal times stay equal. */
    if (err == STEP_ROW)
        apart = ahead - clock_ahead_ns();
    if (llabs(apart) < SQL_CLOCK_SMALL_NS)
        apart = 0;
    /* An insert and an update share their first 16 values. */
    struct sql_value values[] = {
        value_int(m->state),
        value_u64(m->receive_seq),
        value_blob(m->id.bytes, sizeof m->id.bytes),
        value_int(m->priority),
        value_int(m->attempts),
        value_int(m->crashes),
        value_int(m->flags),
        value_text(m->group, m->group_size),
        value_u64(m->due_ns + (uint64_t)apart),
        value_u64(m->due_boot_ns),
        value_u64(m->delay_ns),
        value_u64(m->first_received_ns),
        value_u64(m->died_ns),
        value_int(m->reason),
        value_string(m->error),
        value_string(m->state == STORE_REPLAYED ? boot : NULL),
        value_u64(m->header_size),
        value_blob(m->data, m->size),
        VALUE_NONE,
    };

    if (m->row) {
        values[16] = value_int(m->row);
        values[17] = VALUE_NONE;
    }
    if (err >= 0)
        err = sql_change(sql, m->row ? SQL_UPDATE : SQL_INSERT, values);
    if (!err)
        *row = m->row ? m->row : sqlite3_last_insert_rowid(sql->db);
    return err;
}

int sql_row_state(struct sql *sql, int64_t row)
{
    int64_t state = 0;
    int err = sql_number(sql, &state, SQL_STATE, SQL_VALUES(value_int(row)));

    return err < 0 ? err : (int)state;
}

/* A store of an older version, which has the same number, lacks two columns.
 * They are added in the transaction of the attempt. Crash before its commit:
 * the store is as the older version left it. After it: the older version can
 * still read and write the store, because it names the columns that it
 * knows. */
int sql_insert_attempt(struct sql *sql, int64_t row,
                       const struct store_attempt *a)
{
    size_t cut = a->stderr_size > STDERR_MAX ? a->stderr_size - STDERR_MAX : 0;
    const char *tail = a->stderr_size ? a->stderr_tail + cut : NULL;
    const struct sql_value *values =
        SQL_VALUES(value_int(row), value_u64(a->started_ns),
                   value_u64(a->duration_ns), value_string(a->error),
                   value_blob(tail, a->stderr_size - cut), value_int(a->said),
                   value_u64(a->usage.cpu_ns), value_u64(a->usage.peak_bytes));
    int err = sql_run(sql, SQL_ADD_ATTEMPT, values);

    if (!err || sqlite3_errcode(sql->db) != SQLITE_ERROR)
        return err;
    err = sql_error(sql->db,
                    sqlite3_exec(sql->db,
                                 "ALTER TABLE attempts ADD COLUMN cpu_ns"
                                 " INTEGER; ALTER TABLE attempts ADD COLUMN"
                                 " peak_bytes INTEGER",
                                 NULL, NULL, NULL));
    return err ? err : sql_run(sql, SQL_ADD_ATTEMPT, values);
}

uint64_t sql_column_u64(sqlite3_stmt *st, int column)
{
    return (uint64_t)sqlite3_column_int64(st, column);
}

int sql_read_row(sqlite3_stmt *st, struct store_row *out)
{
    const void *id = sqlite3_column_blob(st, COL_ID);

    if (!id || sqlite3_column_bytes(st, COL_ID) != sizeof out->id.bytes)
        return -EUCLEAN;
    *out = (struct store_row){
        .row = sqlite3_column_int64(st, COL_ROW),
        .state = (enum store_state)sqlite3_column_int(st, COL_STATE),
        .receive_seq = sql_column_u64(st, COL_SEQ),
        .priority = (uint32_t)sql_column_u64(st, COL_PRIORITY),
        .attempts = (uint32_t)sql_column_u64(st, COL_ATTEMPTS),
        .crashes = (uint32_t)sql_column_u64(st, COL_CRASHES),
        .flags = (uint32_t)sql_column_u64(st, COL_FLAGS),
        .group = (const char *)sqlite3_column_text(st, COL_GROUP),
        .group_size = (size_t)sqlite3_column_bytes(st, COL_GROUP),
        .due_ns = sql_column_u64(st, COL_DUE),
        .delay_ns = sql_column_u64(st, COL_DELAY),
        .first_received_ns = sql_column_u64(st, COL_RECEIVED),
        .died_ns = sql_column_u64(st, COL_DIED),
        .reason = (enum dead_reason)sqlite3_column_int(st, COL_REASON),
        .error = (const char *)sqlite3_column_text(st, COL_ERROR),
        .size = (size_t)sql_column_u64(st, COL_SIZE),
        .header_size = (size_t)sql_column_u64(st, COL_HEADER_SIZE),
    };
    memcpy(out->id.bytes, id, sizeof out->id.bytes);
    return out->header_size <= out->size ? 0 : -EUCLEAN;
}

void *sql_copy(sqlite3_stmt *st, size_t head, const int *columns, size_t count,
               struct sql_bytes *out)
{
    size_t size = head;
    char *block, *at;

    for (size_t i = 0; i < count; i++) {
        bool null = sqlite3_column_type(st, columns[i]) == SQLITE_NULL;

        out[i].at = null ? NULL : sqlite3_column_blob(st, columns[i]);
        out[i].size = (size_t)sqlite3_column_bytes(st, columns[i]);
        if (!null && !out[i].at && out[i].size > 0)
            return NULL; /* SQLite had no memory to put the blob together */
        if (!null && !out[i].at)
            out[i].at = ""; /* an empty blob */
        size += out[i].size + 1;
    }
    block = malloc(size);
    at = block ? block + head : NULL;
    for (size_t i = 0; block && i < count; i++) {
        if (!out[i].at)
            continue;
        memcpy(at, out[i].at, out[i].size);
        at[out[i].size] = '\0';
        out[i].at = at;
        at += out[i].size + 1;
    }
    return block;
}
