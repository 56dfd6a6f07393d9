/* sql.h - one SQLite connection of the store, and its statements
 *
 * WHAT   Opens a connection with the settings that durability rests on, keeps
 *        every statement prepared, turns SQLite's results into -errno.
 * WHO    Inside the store only.
 *        One thread at a time on a connection.
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

/* A step of the clock below this is not worth a commit (rows.c), ns. */
#define SQL_CLOCK_SMALL_NS INT64_C(10000000)

enum sql_role { SQL_READER, SQL_WRITER };

/* Open an existing file; nothing is read yet. A SQLite result code. */
int sql_open(struct sql *sql, const char *path);
/* The settings of a role; the first thing that reads the file. A SQLite result
 * code, SQLITE_CANTOPEN where WAL is not to be had (a network file system). */
int sql_setup(struct sql *sql, enum sql_role role);
void sql_close(struct sql *sql); /* safe on zeroed memory */

/* A SQLite result code as -errno; SQLITE_OK is 0. */
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
/* A count or a time; above INT64_MAX (the year 2262) it becomes INT64_MAX. */
static inline struct sql_value value_u64(uint64_t n)
{
    return value_int(n > INT64_MAX ? INT64_MAX : (int64_t)n);
}
/* NULL is NULL. */
static inline struct sql_value value_text(const char *text, size_t size)
{
    return (struct sql_value){.type = VALUE_TEXT, .bytes = text, .size = size};
}
struct sql_value value_string(const char *text); /* up to its NUL */
/* Never NULL: no bytes are an empty blob. */
static inline struct sql_value value_blob(const void *bytes, size_t size)
{
    return (struct sql_value){.type = VALUE_BLOB, .bytes = bytes, .size = size};
}
#define VALUE_NULL value_text(NULL, 0)
#define VALUE_NONE ((struct sql_value){.type = VALUE_END})
/* What ?1, ?2, ... of a statement are; NULL: it has none. */
#define SQL_VALUES(...)         \
    (const struct sql_value[])  \
    {                           \
        __VA_ARGS__, VALUE_NONE \
    }

/* The statement, ready to step; give it back with sql_done. */
int sql_bind(struct sql *sql, enum sql_id id, sqlite3_stmt **st,
             const struct sql_value *values);
/* What a step came to; or -errno. */
enum sql_step { STEP_END, STEP_ROW };
int sql_step(sqlite3_stmt *st);
/* Give the statement back: ends its read transaction, forgets the values. */
void sql_done(sqlite3_stmt *st);
/* A statement whose rows do not matter, from bind to done. */
int sql_run(struct sql *sql, enum sql_id id, const struct sql_value *values);
/* The same; -ENOENT when it found no row to change. */
int sql_change(struct sql *sql, enum sql_id id, const struct sql_value *values);
/* Read the first column of the first row: STEP_ROW, STEP_END and *number as it
 * was if there is none, or -errno. */
int sql_number(struct sql *sql, int64_t *number, enum sql_id id,
               const struct sql_value *values);

/* Columns of a row, as SQL_GET, SQL_LETTER and the lists give them. */
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
    COL_DATA,   /* NULL in SQL_GET if it is larger than asked for */
    COL_STDERR, /* of the last attempt; not in SQL_GET, nor is what follows */
    COL_BOOT,
    COL_TOKEN, /* of the last replay; NULL if there was none, as the next */
    COL_MARKED,
    COL_SENT,
    COL_ERROR_TEXT, /* NULL if there is none */
};
/* All fields but `data`; group and error point into the statement. -EUCLEAN if
 * the store cannot have written such a row. */
int sql_read_row(sqlite3_stmt *st, struct store_row *out);
/* Bytes with a NUL behind them; NULL is NULL. */
struct sql_bytes {
    const char *at;
    size_t size;
};
/* Copy columns of the row that a statement stands on into one block of memory,
 * behind `head` bytes for a struct of the caller's: out[i] is columns[i]. NULL:
 * out of memory. */
void *sql_copy(sqlite3_stmt *st, size_t head, const int *columns, size_t count,
               struct sql_bytes *out);
/* A number that was never negative. */
uint64_t sql_column_u64(sqlite3_stmt *st, int column);

#define STORE_GROUP_MAX 256 /* bytes, as a header's value */
/* Whether the row can be stored and read back as it is. */
bool sql_row_valid(const struct store_row *m);
/* Insert a row, or if m->row is not 0 update that one but for its body (-ENOENT
 * when it is gone); its number goes to *row. `boot` is kept with a replayed
 * one. */
int sql_put_row(struct sql *sql, const struct store_row *m, const char *boot,
                int64_t *row);
/* The state of a row; 0: there is none; -errno. */
int sql_row_state(struct sql *sql, int64_t row);
/* One more failed delivery of a row. */
int sql_insert_attempt(struct sql *sql, int64_t row,
                       const struct store_attempt *a);

/* As store_key_claim, in the transaction that is open. */
int sql_key_claim(struct sql *sql, const struct store_key *key,
                  struct ulid *first);
/* Free the unique key of the message with that receive sequence; 0: no
 * message. */
int sql_key_free(struct sql *sql, uint64_t seq);
/* A message of the spool that came to its end, or went on to the messages:
 * *more is one less if it was there. */
int sql_spool_out(struct sql *sql, int64_t key, int64_t *more);
/* So many more rows of the spool, in the same transaction. */
int sql_spool_counted(struct sql *sql, int64_t more);

/* ---- what the files of the store share ---- */

/* The reading connection, locked until store_read_end. */
struct sql *store_read_begin(struct store *s);
void store_read_end(struct store *s);
/* store_read_begin, and the first row of a statement, as sql_step says. Only
 * store_answered ends it; `found` is what became of it. 0, -ENOENT or
 * -errno. */
int store_ask(struct store *s, sqlite3_stmt **st, enum sql_id id,
              const struct sql_value *values);
int store_answered(struct store *s, sqlite3_stmt *st, int found);
/* The first column of the first row; -ENOENT where there is none. */
int store_number(struct store *s, int64_t *number, enum sql_id id,
                 const struct sql_value *values);
/* The next rows after *after, of a statement whose values are its two, the
 * number of rows and `last`, and which gives time and row. How many. */
int store_cursors(struct store *s, enum sql_id id,
                  const struct store_cursor *after, struct sql_value last,
                  struct store_cursor page[STORE_PAGE]);
/* Rows that a statement gave, each in one block of memory. */
struct store_page {
    void *rows[STORE_PAGE];
    size_t count;
};
/* Fill an empty page by `copy`, which makes the block of the row that the
 * statement stands on, up to STORE_PAGE rows or 1 MiB. The read transaction is
 * over then, as an open one keeps the -wal of a running worker from being used
 * again. STEP_ROW: there may be more; STEP_END, or -errno. In any case the
 * caller frees the rows that are in the page. */
int store_page_read(struct store *s, struct store_page *page,
                    int (*copy)(sqlite3_stmt *st, const void *arg, void **row,
                                size_t *bytes),
                    const void *arg, enum sql_id id,
                    const struct sql_value *values);
/* Count by a statement: its first column, 0 where it has no row; or -errno. */
int64_t store_tally(struct store *s, enum sql_id id,
                    const struct sql_value *values);
/* Run one statement as a shared commit. *changed (NULL: not wanted) is the
 * number of rows that it changed. */
int store_run(struct store *s, enum sql_id id, const struct sql_value *values,
              int64_t *changed);
/* Run a statement for each of `rows`, with the row and `also` as its values, as
 * one shared commit: how many rows it changed, or -errno. */
int64_t store_run_rows(struct store *s, enum sql_id id, const int64_t *rows,
                       size_t n, struct sql_value also);
/* Run `apply` inside a shared commit: 0 when it is on the disk, the error that
 * `apply` returned (it alone is undone), or that of the transaction (none of it
 * has happened). `apply` runs on any of the waiting threads, and may run again
 * after it was undone (disk full), so it sets all its results each time; it
 * must not write through the store. `durable` (NULL: none) is called once it is
 * on the disk, before any later operation runs, on any of the waiting threads;
 * it is short and does not use the store. */
int store_write(struct store *s, int (*apply)(struct sql *sql, void *arg),
                void (*durable)(void *arg), void *arg);
/* As store_hooks_note says. */
bool store_hooks_noted(const struct store *s);
/* Add to the rows that store_waits, store_parked and store_spooled count; below
 * 0: there are fewer. */
struct store_more {
    int64_t waiting, parked, spooled;
};
void store_waits_add(struct store *s, const struct store_more *more);
#define STORE_BOOT 128
/* Name this boot, and in it the namespace of that name: "" if not known. */
void store_boot_read(const char *space, char boot[STORE_BOOT]);
/* Names this boot, and the kernel's set of queues in it. "" if not known. */
const char *store_boot(const struct store *s);
/* Whether what was sent then is in other queues than those of now. */
bool sql_elsewhere(const char *then, const char *now);
/* STORE_IDENTITY bytes. */
const uint8_t *store_identity(const struct store *s);

/* ---- the file of a store, and its -wal, as files (file.c) ---- */

#define STORE_MAGIC   0x4d515753 /* "MQWS", SQLite's application_id */
#define STORE_VERSION 1          /* SQLite's user_version */

/* Is the file behind `db`, from which nothing was read yet, a store of ours? */
int store_file_check(sqlite3 *db, const char *path, struct problem *p);
/* The problem if another program has the store behind `db` open with a -wal
 * that was removed. Nothing was read from `db` yet. */
int store_wal_check(sqlite3 *db, const char *path, struct problem *p);
/* Mode 0600 for the file, its -wal and its -shm. */
int store_file_modes(const char *path, struct problem *p);
/* The problem for a SQLite result `rc` that kept us from opening the file. */
int store_file_refuse(sqlite3 *db, int rc, const char *path, struct problem *p);
/* The problem for a store that another version of mqworker wrote. */
int store_version_refuse(const char *path, int64_t version, struct problem *p);
/* An empty store, mode 0600, owned by the owner of its folder. A file that is
 * there already (another program was first) is left alone: 0. */
int store_make(const char *path, struct problem *p);
/* Write an empty store, or all that `from` holds, to `path`, durably: it
 * appears complete or not at all. Existing -wal and -shm files there must be
 * those of `from`, and are removed. -EEXIST if there is a file, unless
 * `replace` (NULL: none) names it. -errno: nothing has changed, or the copy is
 * there and was not synced. */
int store_file_make(const char *path, sqlite3 *from,
                    const struct stat replace[2]);
/* Remove what processes that were killed in one of these left at `path`. */
void store_make_tidy(const char *path);

/* A commit that was cut off in its sync, by a kill or an error, never comes
 * back. Waits up to 5 s for readers. A SQLite result code. */
int store_wal_bury(sqlite3 *db);

#endif
