/* store_row.c - rows and attempts as values of statements; see sql.h */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/store/sql.h"

#define STDERR_MAX 4096 /* kept of an attempt: its end */

bool sql_row_valid(const struct store_row *m)
{
    return m->state >= STORE_WAITING && m->state <= STORE_REPLAYED &&
           m->group_size <= STORE_GROUP_MAX && m->header_size <= m->size;
}

/* Convert the due time of a delay to the clock that the table is kept by, into
 * *due_ns: the clock may have been set since the worker looked last. While that
 * is not so, the time stays as it is to the ns, so that equal times stay equal.
 * 0 or -errno. */
static int delay_due(struct sql *sql, const struct store_row *m,
                     uint64_t *due_ns)
{
    int64_t apart = -clock_ahead_ns();
    sqlite3_stmt *st;
    int err = sql_bind(sql, SQL_CLOCK, &st, NULL);

    *due_ns = m->due_ns;
    if (err)
        return err;
    err = sql_step(st);
    if (err == STEP_ROW)
        apart += sqlite3_column_int64(st, 0);
    sql_done(st);
    if (err == STEP_ROW && llabs(apart) >= SQL_CLOCK_SMALL_NS)
        *due_ns += (uint64_t)apart;
    return err < 0 ? err : 0;
}

/* row_write - insert or update: they share their first 16 values */
static int row_write(struct sql *sql, enum sql_id id, const struct store_row *m,
                     const char *boot)
{
    uint64_t due_ns = m->due_ns;
    int err = m->delay_ns && !m->due_boot_ns ? delay_due(sql, m, &due_ns) : 0;
    struct sql_value values[] = {
        value_int(m->state),
        value_u64(m->receive_seq),
        value_blob(m->id.bytes, sizeof m->id.bytes),
        value_int(m->priority),
        value_int(m->attempts),
        value_int(m->crashes),
        value_int(m->flags),
        value_text(m->group, m->group_size),
        value_u64(due_ns),
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

    if (id == SQL_UPDATE) {
        values[16] = value_int(m->row);
        values[17] = VALUE_NONE;
    }
    return err ? err : sql_change(sql, id, values);
}

int sql_insert_row(struct sql *sql, const struct store_row *m, const char *boot,
                   int64_t *row)
{
    int err = row_write(sql, SQL_INSERT, m, boot);

    if (!err)
        *row = sqlite3_last_insert_rowid(sql->db);
    return err;
}

int sql_update_row(struct sql *sql, const struct store_row *m, const char *boot)
{
    return row_write(sql, SQL_UPDATE, m, boot);
}

int sql_row_state(struct sql *sql, int64_t row)
{
    sqlite3_stmt *st;
    int err = sql_bind(sql, SQL_STATE, &st, SQL_VALUES(value_int(row)));

    if (err)
        return err;
    err = sql_step(st);
    if (err == STEP_ROW)
        err = sqlite3_column_int(st, 0);
    sql_done(st);
    return err;
}

int sql_insert_attempt(struct sql *sql, int64_t row,
                       const struct store_attempt *a)
{
    size_t cut = a->stderr_size > STDERR_MAX ? a->stderr_size - STDERR_MAX : 0;
    const char *tail = a->stderr_size ? a->stderr_tail + cut : NULL;

    return sql_run(sql, SQL_ADD_ATTEMPT,
                   SQL_VALUES(value_int(row), value_u64(a->started_ns),
                              value_u64(a->duration_ns), value_string(a->error),
                              value_blob(tail, a->stderr_size - cut),
                              value_int(a->said)));
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
        .size = sql_column_u64(st, COL_SIZE),
        .header_size = sql_column_u64(st, COL_HEADER_SIZE),
    };
    memcpy(out->id.bytes, id, sizeof out->id.bytes);
    return out->header_size <= out->size ? 0 : -EUCLEAN;
}

const char *sql_copy(char **at, const void *bytes, size_t size)
{
    char *start = *at;

    if (!bytes)
        return NULL;
    memcpy(start, bytes, size);
    start[size] = '\0';
    *at += size + 1;
    return start;
}
