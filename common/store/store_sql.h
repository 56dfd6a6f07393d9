/* store_sql.h - one SQLite connection of the store, and its statements
 *
 * WHAT   Opens a connection with the settings that durability rests on, keeps
 *        every statement prepared, turns SQLite's results into -errno.
 * WHO    Inside the store only: store*.c, commit.c, letters*.c.
 *        One thread at a time on a connection.
 * OWNS   The connection and its statements.
 * FAILS  -ENOSPC, -EIO (also for a damaged file), -EBUSY, -ENOMEM, -EEXIST
 *        (receive_seq is taken), -ENOENT (an attempt of a row that is gone).
 */
#ifndef COMMON_STORE_STORE_SQL_H
#define COMMON_STORE_STORE_SQL_H

#include <sqlite3.h>

#include "common/store/store.h"
#include "common/store/store_shm.h"

enum sql_id {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_SAVE,
    SQL_UNDO,
    SQL_RELEASE,
    SQL_INSERT,
    SQL_UPDATE,
    SQL_DELETE,
    SQL_ADD_ATTEMPT,
    SQL_STRAYS,
    SQL_RECALL,
    SQL_DUE,
    SQL_GET,
    SQL_STATE,
    SQL_STEPPED,
    SQL_FIND_SEQ,
    SQL_FIND_ID,
    SQL_MAX_SEQ,
    SQL_COUNT_WAITING,
    SQL_COUNT_PARKED,
    SQL_COUNT_LETTERS,
    SQL_NEXT_DEAD,
    SQL_PARKED_HIGH,
    SQL_PARKED_LOW,
    SQL_GROUPS,
    SQL_GROUP_LETTER,
    SQL_LIST_NEWEST,
    SQL_LIST_OLDEST,
    SQL_EDGE,
    SQL_SUMMARY,
    SQL_LETTER,
    SQL_HISTORY,
    SQL_MARK,
    SQL_MARK_AGAIN,
    SQL_MARKED,
    SQL_UNMARK,
    SQL_REPLAY_ADD,
    SQL_REPLAY_AGAIN,
    SQL_REPLAY_SENT,
    SQL_REPLAY_DROP,
    SQL_REPLAY_FIND,
    SQL_DISCARD,
    SQL_FREE_PAGES,
    SQL_SHRINK,
    SQL_NUMBER,
    SQL_FIRST_NUMBER,
    SQL_COMMITS,
    SQL_IDS
};

struct sql {
    sqlite3 *db;
    struct store_shm shm;         /* used by db's file until sql_close */
    sqlite3_stmt *stmts[SQL_IDS]; /* prepared at their first use */
};

enum sql_role { SQL_READER, SQL_WRITER };

/* Open an existing file; nothing is read yet. `sql` stays where it is until
 * sql_close. A SQLite result code. */
int sql_open(struct sql *sql, const char *path);
/* The settings of a role; the first thing that reads the file. A SQLite result
 * code, SQLITE_CANTOPEN where WAL is not to be had (a network file system). */
int sql_setup(struct sql *sql, enum sql_role role);
void sql_close(struct sql *sql); /* safe on zeroed memory */
/* `to` is closed and becomes `from`, which is zeroed. */
void sql_replace(struct sql *to, struct sql *from);

/* A SQLite result code as -errno; SQLITE_OK is 0. */
int sql_error(sqlite3 *db, int rc);
/* Whether it was the -shm that the last call failed for: a COMMIT is whole in
 * the -wal then, and on the disk. */
bool sql_index_failed(const struct sql *sql);

/* The statement, ready to bind. */
int sql_use(struct sql *sql, enum sql_id id, sqlite3_stmt **st);
/* 1 a row, 0 the end, -errno. */
int sql_step(struct sql *sql, sqlite3_stmt *st);
/* Give the statement back: ends its read transaction, forgets the values. */
void sql_done(sqlite3_stmt *st);
/* Step to the end and give back. */
int sql_run(struct sql *sql, sqlite3_stmt *st);
/* Use and run a statement without values. */
int sql_exec(struct sql *sql, enum sql_id id);

/* Values above INT64_MAX become INT64_MAX: the year 2262. */
void sql_bind_u64(sqlite3_stmt *st, int at, uint64_t value);
/* NULL binds NULL. Borrowed until sql_done. */
void sql_bind_text(sqlite3_stmt *st, int at, const char *text, size_t size);
/* A blob, never NULL. Borrowed until sql_done. */
void sql_bind_blob(sqlite3_stmt *st, int at, const void *data, size_t size);

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
};
/* All fields but `data`; group and error point into the statement. -EIO when
 * the row cannot be one of ours. */
int sql_read_row(sqlite3_stmt *st, struct store_row *out);

uint64_t sql_column_u64(sqlite3_stmt *st, int column);

#define STORE_GROUP_MAX 256 /* bytes, as a header's value */
bool sql_row_valid(const struct store_row *m);
/* New row in m->state, whatever m->row says; its number to *row. `boot` is kept
 * with a replayed one. */
int sql_insert_row(struct sql *sql, const struct store_row *m, const char *boot,
                   int64_t *row);
/* All of row m->row but its body; -ENOENT when it is gone. */
int sql_update_row(struct sql *sql, const struct store_row *m,
                   const char *boot);
/* The state of a row; 0: there is none; -errno. */
int sql_row_state(struct sql *sql, int64_t row);
int sql_insert_attempt(struct sql *sql, int64_t row,
                       const struct store_attempt *a);

/* Rows, and the time that they are in order of. */
#define SQL_PAGE 64
struct sql_place {
    int64_t row;
    uint64_t when_ns;
};
/* The next rows after *after. SQL_DUE: the waiting ones in order of due time.
 * SQL_STRAYS: letters that were sent in another boot than `boot`, in order of
 * death. How many, or -errno. */
int store_page(struct store *s, enum sql_id id, const char *boot,
               const struct sql_place *after, struct sql_place page[SQL_PAGE]);

/* ---- what letters.c uses of store.c ---- */

/* The reading connection, locked until store_read_end. */
struct sql *store_read_begin(struct store *s);
void store_read_end(struct store *s);
/* The first column of a statement with up to two values; -ENOENT where it gives
 * no row. */
int store_number(struct store *s, enum sql_id id, uint64_t a, int64_t b,
                 int64_t *number);
/* Run `apply` inside a shared commit; see commit_run. */
int store_write(struct store *s, int (*apply)(struct sql *sql, void *arg),
                void *arg);
/* Names this boot, and the kernel's set of queues in it. "" if not known. */
const char *store_boot(const struct store *s);
/* Whether what was sent then is in other queues than those of now. */
bool sql_elsewhere(const char *then, const char *now);
/* STORE_IDENTITY bytes. */
const uint8_t *store_identity(const struct store *s);

#endif
