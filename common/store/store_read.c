/* store_read.c - questions to the store, one row or page each; see store.h
 *
 * Each call is one short read transaction on the reading connection, and no
 * callback runs inside it.
 */
#include <errno.h>
#include <string.h>

#include "common/store/sql.h"

int store_page(struct store *s, enum sql_id id,
               const struct store_cursor *after, struct sql_value last,
               struct store_cursor page[STORE_PAGE])
{
    sqlite3_stmt *st;
    int n = 0;
    int more = store_ask(s, &st, id,
                         SQL_VALUES(value_u64(after->ns), value_int(after->row),
                                    value_int(STORE_PAGE), last));

    for (; more == STEP_ROW && n < STORE_PAGE; more = sql_step(st))
        page[n++] = (struct store_cursor){sql_column_u64(st, 0),
                                          sqlite3_column_int64(st, 1)};
    (void)store_answered(s, st, more);
    return more < 0 ? more : n;
}

/* A waiting row, which is also a position in the order of a priority. */
struct due_row {
    int64_t due_ns, seq, row;
    uint64_t boot_ns; /* due time by CLOCK_BOOTTIME */
};

/* due_page - Read the rows of a priority after a position; returns their
 * number. */
static int due_page(struct store *s, int64_t priority,
                    const struct due_row *after,
                    struct due_row page[STORE_PAGE])
{
    sqlite3_stmt *st;
    int n = 0;
    int more =
        store_ask(s, &st, SQL_DUE,
                  SQL_VALUES(value_int(priority), value_int(after->due_ns),
                             value_int(after->seq), value_int(after->row),
                             value_int(STORE_PAGE)));

    for (; more == STEP_ROW && n < STORE_PAGE; more = sql_step(st))
        page[n++] = (struct due_row){
            sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
            sqlite3_column_int64(st, 2), sql_column_u64(st, 3)};
    (void)store_answered(s, st, more);
    return more < 0 ? more : n;
}

/* Parameters and results of store_due. */
struct due_look {
    uint64_t boot_ns;
    int64_t *rows;
    size_t room, found;
    bool (*skip)(int64_t row, void *arg);
    void *arg;
};

/* due_priority - Add the due rows of one priority: 0 or -errno. */
static int due_priority(struct store *s, int64_t priority,
                        struct due_look *look)
{
    struct due_row page[STORE_PAGE], after = {.due_ns = -1};
    int n;

    do {
        n = due_page(s, priority, &after, page);
        for (int i = 0; i < n; i++) {
            if (look->found == look->room || page[i].boot_ns > look->boot_ns)
                return 0;
            if (!look->skip || !look->skip(page[i].row, look->arg))
                look->rows[look->found++] = page[i].row;
        }
        if (n > 0)
            after = page[n - 1];
    } while (n == STORE_PAGE);
    return n < 0 ? n : 0;
}

/* Search the priorities from the highest one down; `skip` is called without a
 * lock. */
int store_due(struct store *s, uint64_t boot_ns, int64_t *rows, size_t room,
              bool (*skip)(int64_t row, void *arg), void *arg,
              uint64_t *next_ns)
{
    struct due_look look = {boot_ns, rows, room, 0, skip, arg};
    int64_t priority = INT64_MAX, next;
    int err =
        store_number(s, &next, SQL_DUE_NEXT, SQL_VALUES(value_u64(boot_ns)));

    *next_ns = err ? UINT64_MAX : (uint64_t)next;
    if (err == -ENOENT)
        err = 0;
    while (!err && look.found < room) {
        err = store_number(s, &priority, SQL_DUE_PRIORITY,
                           SQL_VALUES(value_int(priority)));
        if (!err)
            err = due_priority(s, priority, &look);
    }
    return err && err != -ENOENT ? err : (int)look.found;
}

/* row_copy - move what the statement lends into the caller's buffers */
static int row_copy(sqlite3_stmt *st, struct store_row *out, void *data,
                    size_t room, char *group)
{
    const void *bytes;

    if (group && out->group) {
        if (out->group_size > STORE_GROUP_MAX)
            return -EUCLEAN;
        memcpy(group, out->group, out->group_size);
    }
    out->group = out->group ? group : NULL;
    out->error = NULL;
    if (!data)
        return 0;
    if (out->size > room)
        return -EMSGSIZE;
    bytes = sqlite3_column_blob(st, COL_DATA);
    if (out->size > 0 && !bytes)
        return -ENOMEM;
    if (out->size > 0)
        memcpy(data, bytes, out->size);
    out->data = data;
    return 0;
}

int store_get(struct store *s, int64_t row, struct store_row *out, void *data,
              size_t room, char *group)
{
    sqlite3_stmt *st;
    int err = store_ask(
        s, &st, SQL_GET,
        SQL_VALUES(value_int(row), data ? value_u64(room) : value_int(-1)));

    if (err == STEP_ROW) {
        err = sql_read_row(st, out);
        if (!err)
            err = row_copy(st, out, data, room, group);
        err = err ? err : STEP_ROW;
    }
    return store_answered(s, st, err);
}

int store_find_seq(struct store *s, uint64_t receive_seq, int64_t *row)
{
    return store_number(s, row, SQL_FIND_SEQ,
                        SQL_VALUES(value_u64(receive_seq)));
}

int store_find_id(struct store *s, const struct ulid *id, int64_t *row)
{
    return store_number(s, row, SQL_FIND_ID,
                        SQL_VALUES(value_blob(id, sizeof *id)));
}

int store_max_seq(struct store *s, uint64_t *receive_seq)
{
    int64_t number = 0;
    int err = store_number(s, &number, SQL_MAX_SEQ, NULL);

    if (!err)
        *receive_seq = (uint64_t)number;
    return err;
}

int store_next_dead(struct store *s, uint64_t after_ns, int64_t after,
                    int64_t *row)
{
    return store_number(s, row, SQL_NEXT_DEAD,
                        SQL_VALUES(value_u64(after_ns), value_int(after)));
}

/* ---- rows of ordered groups ---- */

int store_next_parked(struct store *s, const char *group, size_t size, bool low,
                      struct store_parked *out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, low ? SQL_PARKED_LOW : SQL_PARKED_HIGH,
                          SQL_VALUES(value_text(group, size)));

    if (found > 0)
        *out = (struct store_parked){
            .row = sqlite3_column_int64(st, 0),
            .priority = (uint32_t)sql_column_u64(st, 1),
            .receive_seq = sql_column_u64(st, 2),
        };
    return store_answered(s, st, found);
}

int store_group_letter(struct store *s, const char *group, size_t size,
                       int64_t *row)
{
    return store_number(s, row, SQL_GROUP_LETTER,
                        SQL_VALUES(value_text(group, size)));
}

/* group_read - what a statement says of a group */
static int group_read(sqlite3_stmt *st, struct store_group *out)
{
    *out = (struct store_group){
        .parked = sql_column_u64(st, 1),
        .letters = sqlite3_column_int(st, 2),
        .head = sqlite3_column_int64(st, 3),
    };
    return sqlite3_column_bytes(st, 0) > STORE_GROUP_MAX ? -EUCLEAN : STEP_ROW;
}

int store_next_group(struct store *s, char *key, size_t *size,
                     struct store_group *out)
{
    sqlite3_stmt *st;
    int found =
        store_ask(s, &st, SQL_GROUPS, SQL_VALUES(value_text(key, *size)));

    if (found > 0)
        found = group_read(st, out);
    if (found > 0) {
        *size = (size_t)sqlite3_column_bytes(st, 0);
        memcpy(key, sqlite3_column_text(st, 0), *size);
    }
    return store_answered(s, st, found);
}

int store_get_group(struct store *s, const char *key, size_t size,
                    struct store_group *out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_GROUP, SQL_VALUES(value_text(key, size)));

    if (found > 0)
        found = group_read(st, out);
    return store_answered(s, st, found);
}
