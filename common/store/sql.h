/* sql.h - one SQLite connection of the store, and its statements
 *
 * WHAT   Opens a connection with the settings that durability needs, prepares
 *        each statement once, and turns SQLite's results into -errno. Also
 *        declares what the files of this room share.
 * WHO    The files of this room only. One thread at a time uses a connection.
 * OWNS   The connection and its statements.
 * FAILS  disk_is_full, -EIO, -EUCLEAN damaged, -EBUSY, -ENOMEM, -EEXIST
 *        (receive_seq, or a key of the spool, is taken), -ENOENT (an attempt of
 *        a row that is gone).
 */
#ifndef COMMON_STORE_SQL_H
#define COMMON_STORE_SQL_H

#include <sqlite3.h>

#include "common/store/store.h"

enum sql_id {
#define STATEMENT(id, text) id,
#include "common/store/statements.h"
#undef STATEMENT
    SQL_IDS
};

struct sql {
    sqlite3 *db;
    sqlite3_stmt *stmts[SQL_IDS]; /* prepared at their first use */
};

/* Smaller steps of the clock are ignored, because each costs a commit (rows.c),
 * ns. */
#define SQL_CLOCK_SMALL_NS INT64_C(10000000)

enum sql_role { SQL_READER, SQL_WRITER };

/* Open an existing file without reading it. Returns a SQLite result code. */
int sql_open(struct sql *sql, const char *path);
/* Apply the settings of a role, which reads the file for the first time.
 * Returns a SQLite result code; SQLITE_CANTOPEN if the file system cannot have
 * a WAL (a network file system). */
int sql_setup(struct sql *sql, enum sql_role role);
void sql_close(struct sql *sql); /* safe on zeroed memory */

/* Convert a SQLite result code to -errno; SQLITE_OK is 0. */
int sql_error(sqlite3 *db, int rc);

/* A value of a statement. Bytes are borrowed until the statement is done. */
struct sql_value {
    enum { VALUE_END, VALUE_NUMBER, VALUE_TEXT, VALUE_BLOB } type;
    int64_t number;
    const void *bytes;
    size_t size;
};
static inline struct sql_value value_int(int64_t number)
{
    return (struct sql_value){.type = VALUE_NUMBER, .number = number};
}
/* Make a value of a count or a time, at most INT64_MAX (the year 2262). */
static inline struct sql_value value_u64(uint64_t n)
{
    return value_int(n > INT64_MAX ? INT64_MAX : (int64_t)n);
}
/* Make a text; a NULL pointer becomes SQL's NULL. */
static inline struct sql_value value_text(const char *text, size_t size)
{
    return (struct sql_value){.type = VALUE_TEXT, .bytes = text, .size = size};
}
struct sql_value value_string(const char *text); /* up to its NUL */
/* Make a blob, which is never SQL's NULL: no bytes are an empty blob. */
static inline struct sql_value value_blob(const void *bytes, size_t size)
{
    return (struct sql_value){.type = VALUE_BLOB, .bytes = bytes, .size = size};
}
#define VALUE_NULL value_text(NULL, 0)
#define VALUE_NONE ((struct sql_value){.type = VALUE_END})
/* The values ?1, ?2, ... of a statement. A statement without any takes NULL. */
#define SQL_VALUES(...)         \
    (const struct sql_value[])  \
    {                           \
        __VA_ARGS__, VALUE_NONE \
    }

/* Bind the values of a statement, for sql_step. Call sql_done at the end. */
int sql_bind(struct sql *sql, enum sql_id id, sqlite3_stmt **st,
             const struct sql_value *values);
/* Step to the next row. Returns enum sql_step, or -errno. */
enum sql_step { STEP_END, STEP_ROW };
int sql_step(sqlite3_stmt *st);
/* End the statement's read transaction and drop its values. */
void sql_done(sqlite3_stmt *st);
/* Run a statement from bind to done and ignore its rows. */
int sql_run(struct sql *sql, enum sql_id id, const struct sql_value *values);
/* Run a statement like sql_run; -ENOENT if it changed no row. */
int sql_change(struct sql *sql, enum sql_id id, const struct sql_value *values);
/* Read the first column of the first row. Returns STEP_ROW; STEP_END, with
 * *number unchanged, if there is no row; or -errno. */
int sql_number(struct sql *sql, int64_t *number, enum sql_id id,
               const struct sql_value *values);

/* Columns of a row in SQL_GET, SQL_LETTER and the lists. */
enum sql_column {
    COL_ROW,
    COL_STATE,
    COL_SEQ,
    COL_ID,
    COL_PRIORITY,
    COL_ATTEMPTS,
    COL_CRASHES,
    COL_FLAGS,
    COL_GROUP,
    COL_DUE,
    COL_DELAY,
    COL_RECEIVED,
    COL_DIED,
    COL_REASON,
    COL_ERROR,
    COL_HEADER_SIZE,
    COL_SIZE,
    COL_DATA, /* in SQL_GET: NULL if it is larger than the caller's room */
    /* Not in SQL_GET: */
    COL_STDERR, /* of the last attempt */
    COL_BOOT,
    COL_TOKEN, /* this and the next two: of the last replay; NULL: none */
    COL_MARKED,
    COL_SENT,
    COL_ERROR_TEXT, /* NULL: none */
};
/* Columns of SQL_HISTORY, in the order of the table. */
enum attempt_column {
    ATTEMPT_ROW,
    ATTEMPT_N,
    ATTEMPT_STARTED,
    ATTEMPT_DURATION,
    ATTEMPT_ERROR,
    ATTEMPT_STDERR,
    ATTEMPT_SAID,
    /* The store of an older version gets these with its next attempt: */
    ATTEMPT_CPU,
    ATTEMPT_PEAK,
};
/* Read all fields but `data`; group and error point into the statement.
 * -EUCLEAN: the store never writes such a row. */
int sql_read_row(sqlite3_stmt *st, struct store_row *out);
/* Bytes, followed by a NUL; `at` is NULL for SQL's NULL. */
struct sql_bytes {
    const char *at;
    size_t size;
};
/* Copy columns of the current row into one block of memory, after `head` bytes
 * for a struct of the caller. out[i] is columns[i]. Returns NULL if memory is
 * out. */
void *sql_copy(sqlite3_stmt *st, size_t head, const int *columns, size_t count,
               struct sql_bytes *out);
/* Read a number that is never negative. */
uint64_t sql_column_u64(sqlite3_stmt *st, int column);

/* Return true if the row can be stored and read back unchanged. */
bool sql_row_valid(const struct store_row *m);
/* Insert a row; or if m->row is not 0, update that row but for its body
 * (-ENOENT: it is gone). *row gets its number. `boot` is stored if the row is
 * REPLAYED. */
int sql_put_row(struct sql *sql, const struct store_row *m, const char *boot,
                int64_t *row);
/* Return the state of a row, 0 if there is no row, or -errno. */
int sql_row_state(struct sql *sql, int64_t row);
/* Add a failed delivery to the history of a row. */
int sql_insert_attempt(struct sql *sql, int64_t row,
                       const struct store_attempt *a);

/* A claim of a unique key, as in store_key_claim. */
struct key_claim {
    const struct store_key *key;
    struct ulid *first; /* out: the message that has the key, if another has */
    bool taken;         /* out: another message has it */
};
/* Claim a key in the open transaction. `claim` is a struct key_claim; the type
 * is that of store_write. */
int sql_key_claim(struct sql *sql, void *claim);
/* Free the unique key of the message with that receive sequence; 0: no
 * message. */
int sql_key_free(struct sql *sql, uint64_t seq);
/* Delete a row of the spool. If the row was there, lower *more by 1. */
int sql_spool_out(struct sql *sql, int64_t key, int64_t *more);
/* Add `more` to the stored number of spool rows, in the open transaction. */
int sql_spool_counted(struct sql *sql, int64_t more);

/* ---- what the files of the store share ---- */

/* Return the reading connection, which is locked until store_read_end. */
struct sql *store_read_begin(struct store *s);
void store_read_end(struct store *s);
/* Lock the reading connection and step to the first row of a statement. Returns
 * the result of sql_step. Call store_answered in any case, with the result of
 * the last step; it unlocks, and returns 0 for a row, -ENOENT, or -errno. */
int store_ask(struct store *s, sqlite3_stmt **st, enum sql_id id,
              const struct sql_value *values);
int store_answered(struct store *s, sqlite3_stmt *st, int found);
/* Read the first column of the first row; -ENOENT if there is no row. */
int store_number(struct store *s, int64_t *number, enum sql_id id,
                 const struct sql_value *values);
/* Read the next rows after *after by a statement that returns time and row. Its
 * values are after->ns, after->row, STORE_PAGE and `last`. Returns how many. */
int store_cursors(struct store *s, enum sql_id id,
                  const struct store_cursor *after, struct sql_value last,
                  struct store_cursor page[STORE_PAGE]);
/* Rows of a statement, each in one block of memory. */
struct store_page {
    void *rows[STORE_PAGE];
    size_t count;
};
/* Fill a page with up to STORE_PAGE rows or 1 MiB, and end the read
 * transaction, because an open one keeps the -wal of a running worker growing.
 * `copy` makes the block of one row. Returns STEP_ROW if there may be more,
 * STEP_END, or -errno. The caller frees the rows in the page in any case. */
int store_page_read(struct store *s, struct store_page *page,
                    int (*copy)(sqlite3_stmt *st, const void *arg, void **row,
                                size_t *bytes),
                    const void *arg, enum sql_id id,
                    const struct sql_value *values);
/* Return the first column of the first row, 0 if there is no row, or -errno. */
int64_t store_tally(struct store *s, enum sql_id id,
                    const struct sql_value *values);
/* Run one statement in a shared commit. *changed (may be NULL) is the number of
 * rows that it changed. */
int store_run(struct store *s, enum sql_id id, const struct sql_value *values,
              int64_t *changed);
/* Run a statement for each of `rows`, with the row and `also` as its values, in
 * one shared commit. Returns how many rows it changed, or -errno. */
int64_t store_run_rows(struct store *s, enum sql_id id, const int64_t *rows,
                       size_t n, struct sql_value also);
/* Run `apply` in a shared commit. Returns 0 when its changes are on the disk;
 * the error of `apply`, whose changes alone are undone; or the error of the
 * transaction, which changed nothing. `apply` runs on any of the waiting
 * threads. It may run again after it was undone (disk full), so it sets all its
 * results each time, and it must not write through the store. `durable` (NULL:
 * none) is called when the changes are on the disk, before any later operation
 * runs, on any of the waiting threads; it is short and does not use the
 * store. */
int store_write(struct store *s, int (*apply)(struct sql *sql, void *arg),
                void (*durable)(void *arg), void *arg);
/* Change the numbers that store_waits returns. */
void store_waits_add(struct store *s, const struct store_waits *more);
#define STORE_BOOT 128
/* Make a name of this boot and of our namespace of the kind `space` (ipc,
 * time): "" if it is not known. */
void store_boot_read(const char *space, char boot[STORE_BOOT]);
/* Return the name of this boot and IPC namespace: "" if it is not known. */
const char *store_boot(const struct store *s);
/* Return true if two names that store_boot_read made are not of one boot and
 * namespace: the queues of one do not exist in the other. */
bool sql_elsewhere(const char *then, const char *now);
/* Return the STORE_IDENTITY random bytes of the file. */
const uint8_t *store_identity(const struct store *s);

/* ---- the files of a store (file.c) ---- */

#define STORE_MAGIC   0x4d515753 /* "MQWS", SQLite's application_id */
#define STORE_VERSION 1          /* SQLite's user_version */

/* Check that the file behind `db` is a store of this version, before anything
 * is read from it. */
int store_file_check(sqlite3 *db, const char *path, struct problem *p);
/* Refuse a store that another program has open with a -wal that was removed,
 * before anything is read from `db`. */
int store_wal_check(sqlite3 *db, const char *path, struct problem *p);
/* Give the file, its -wal and its -shm the mode 0600. */
int store_file_modes(const char *path, struct problem *p);
/* Set the problem for a SQLite result `rc` of a failed open. */
int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p);
/* Set the problem for a store that another version of mqworker wrote. */
int store_version_refuse(const char *path, int64_t version, struct problem *p);
#define WAL_HEAD 32 /* bytes; a -wal of this size or less is empty */

/* Check that there is a file at `path`, or, with `create`, make an empty store,
 * with mode 0600 and the owner of its folder. Returns 0 also if another program
 * was first, and leaves its file alone. */
int store_file_require(const char *path, bool create, struct problem *p);
/* Write an empty store, or a copy of `from`, to `path`, durably: it appears
 * complete or not at all. Existing -wal and -shm files there must belong to
 * `from`, and are removed. -EEXIST: there is a file that `replace` (NULL: none)
 * does not name. After another error nothing has changed, or the copy is there
 * but was not synced. */
int store_file_make(const char *path, sqlite3 *from,
                    const struct stat replace[2]);
/* Remove temporary files of processes that were killed in store_file_make. */
void store_make_tidy(const char *path);

/* Make sure that a commit whose sync was cut off, by a kill or an error, never
 * comes back. Waits up to 5 s for readers. Returns a SQLite result code. */
int store_wal_bury(sqlite3 *db);

#endif
