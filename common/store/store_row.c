/* store_row.c - rows and attempts as values of statements; see store_sql.h */
#include <errno.h>
#include <string.h>

#include "common/store/store_sql.h"

#define STDERR_MAX 4096 /* kept of an attempt: its end */

/* sql_row_valid - can the row be stored and read back as it is? */
bool sql_row_valid(const struct store_row *m)
{
    return m->state >= STORE_WAITING && m->state <= STORE_REPLAYED &&
           m->group_size <= STORE_GROUP_MAX && m->header_size <= m->size;
}

/* row_bind - the columns that an insert and an update share, 1 to 14 */
static void row_bind(sqlite3_stmt *st, const struct store_row *m,
                     const char *boot)
{
    bool replayed = m->state == STORE_REPLAYED;
    sqlite3_bind_int(st, 1, (int)m->state);
    sql_bind_u64(st, 2, m->receive_seq);
    sql_bind_blob(st, 3, m->id.bytes, sizeof m->id.bytes);
    sqlite3_bind_int64(st, 4, m->priority);
    sqlite3_bind_int64(st, 5, m->attempts);
    sqlite3_bind_int64(st, 6, m->crashes);
    sqlite3_bind_int64(st, 7, m->flags);
    sql_bind_text(st, 8, m->group, m->group_size);
    sql_bind_u64(st, 9, m->due_ns);
    sql_bind_u64(st, 10, m->first_received_ns);
    sql_bind_u64(st, 11, m->died_ns);
    sqlite3_bind_int(st, 12, (int)m->reason);
    sql_bind_text(st, 13, m->error, m->error ? strlen(m->error) : 0);
    sql_bind_text(st, 14, replayed ? boot : NULL, replayed ? strlen(boot) : 0);
}

/* sql_insert_row - a new row */
int sql_insert_row(struct sql *sql, const struct store_row *m, const char *boot,
                   int64_t *row)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_INSERT, &st);
    if (err)
        return err;
    row_bind(st, m, boot);
    sql_bind_u64(st, 15, m->header_size);
    sql_bind_blob(st, 16, m->data, m->size);
    err = sql_run(sql, st);
    if (!err)
        *row = sqlite3_last_insert_rowid(sql->db);
    return err;
}

/* sql_update_row - all of a row but its body */
int sql_update_row(struct sql *sql, const struct store_row *m, const char *boot)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_UPDATE, &st);
    if (err)
        return err;
    row_bind(st, m, boot);
    sqlite3_bind_int64(st, 15, m->row);
    err = sql_run(sql, st);
    return !err && sqlite3_changes(sql->db) == 0 ? -ENOENT : err;
}

/* sql_row_state - what it is before it is changed */
int sql_row_state(struct sql *sql, int64_t row)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_STATE, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, row);
    err = sql_step(sql, st);
    if (err > 0)
        err = sqlite3_column_int(st, 0);
    sql_done(st);
    return err;
}

/* sql_insert_attempt - one more failed delivery of a row */
int sql_insert_attempt(struct sql *sql, int64_t row,
                       const struct store_attempt *a)
{
    size_t cut = a->stderr_size > STDERR_MAX ? a->stderr_size - STDERR_MAX : 0;
    const char *tail = a->stderr_size ? a->stderr_tail + cut : NULL;
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_ADD_ATTEMPT, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, row);
    sql_bind_u64(st, 2, a->started_ns);
    sql_bind_u64(st, 3, a->duration_ns);
    sql_bind_text(st, 4, a->error, a->error ? strlen(a->error) : 0);
    sql_bind_blob(st, 5, tail, a->stderr_size - cut);
    return sql_run(sql, st);
}

/* sql_column_u64 - a number that was never negative */
uint64_t sql_column_u64(sqlite3_stmt *st, int column)
{
    return (uint64_t)sqlite3_column_int64(st, column);
}

/* sql_read_row - the row a statement stands on */
int sql_read_row(sqlite3_stmt *st, struct store_row *out)
{
    const void *id = sqlite3_column_blob(st, COL_ID);
    if (!id || sqlite3_column_bytes(st, COL_ID) != sizeof out->id.bytes)
        return -EIO;
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
        .first_received_ns = sql_column_u64(st, COL_RECEIVED),
        .died_ns = sql_column_u64(st, COL_DIED),
        .reason = (enum dead_reason)sqlite3_column_int(st, COL_REASON),
        .error = (const char *)sqlite3_column_text(st, COL_ERROR),
        .size = sql_column_u64(st, COL_SIZE),
        .header_size = sql_column_u64(st, COL_HEADER_SIZE),
    };
    memcpy(out->id.bytes, id, sizeof out->id.bytes);
    return out->header_size <= out->size ? 0 : -EIO;
}
