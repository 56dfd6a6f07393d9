/* store_read.c - the worker's reads; see store.h
 *
 * Each call is one short read transaction on the reading connection, and no
 * callback runs inside it.
 */
#include <errno.h>
#include <string.h>

#include "common/store/store_sql.h"

int store_page(struct store *s, enum sql_id id, const char *boot,
               const struct sql_place *after, struct sql_place page[SQL_PAGE])
{
    struct sql *sql = store_read_begin(s);
    sqlite3_stmt *st;
    int n = 0, more = sql_use(sql, id, &st);

    if (!more) {
        sql_bind_u64(st, 1, after->when_ns);
        sqlite3_bind_int64(st, 2, after->row);
        sqlite3_bind_int(st, 3, SQL_PAGE);
        if (boot)
            sql_bind_text(st, 4, boot, strlen(boot));
        while (n < SQL_PAGE && (more = sql_step(sql, st)) > 0)
            page[n++] = (struct sql_place){
                .row = sqlite3_column_int64(st, 0),
                .when_ns = sql_column_u64(st, 1),
            };
        sql_done(st);
    }
    store_read_end(s);
    return more < 0 ? more : n;
}

/* store_due - what may run now; `skip` is called with no lock held */
int store_due(struct store *s, uint64_t now_ns, int64_t *rows, size_t room,
              bool (*skip)(int64_t row, void *arg), void *arg,
              uint64_t *next_ns)
{
    struct sql_place page[SQL_PAGE], after = {0};
    size_t found = 0;
    int n;
    *next_ns = UINT64_MAX;
    do {
        n = store_page(s, SQL_DUE, NULL, &after, page);
        for (int i = 0; i < n; i++) {
            if (skip && skip(page[i].row, arg))
                continue;
            if (found == room || page[i].when_ns > now_ns) {
                *next_ns = page[i].when_ns;
                return (int)found;
            }
            rows[found++] = page[i].row;
        }
        if (n > 0)
            after = page[n - 1];
    } while (n == SQL_PAGE);
    return n < 0 ? n : (int)found;
}

/* store_stepped - what a clock that was set back keeps waiting */
int store_stepped(struct store *s, uint64_t due_ns, uint64_t wall_ns,
                  uint64_t longer_ns, struct store_stepped *out)
{
    struct sql *sql = store_read_begin(s);
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_STEPPED, &st);
    *out = (struct store_stepped){0};
    if (!err) {
        sql_bind_u64(st, 1, due_ns);
        sql_bind_u64(st, 2, wall_ns);
        sql_bind_u64(st, 3, longer_ns);
        err = sql_step(sql, st);
        if (err > 0)
            *out = (struct store_stepped){
                .future = sql_column_u64(st, 0),
                .far = sql_column_u64(st, 1),
                .due_ns = sql_column_u64(st, 2),
                .seen_ns = sql_column_u64(st, 3),
            };
        sql_done(st);
    }
    store_read_end(s);
    return err < 0 ? err : 0;
}

/* row_copy - move what the statement lends into the caller's buffers */
static int row_copy(sqlite3_stmt *st, struct store_row *out, void *data,
                    size_t room, char *group)
{
    if (group && out->group) {
        if (out->group_size > STORE_GROUP_MAX)
            return -EIO;
        memcpy(group, out->group, out->group_size);
    }
    out->group = out->group ? group : NULL;
    out->error = NULL;
    if (!data)
        return 0;
    if (out->size > room)
        return -EMSGSIZE;
    const void *bytes = sqlite3_column_blob(st, COL_DATA);
    if (out->size > 0 && !bytes)
        return -ENOMEM;
    if (out->size > 0)
        memcpy(data, bytes, out->size);
    out->data = data;
    return 0;
}

/* row_get - read one row with the reading connection */
static int row_get(struct sql *sql, int64_t row, struct store_row *out,
                   void *data, size_t room, char *group)
{
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_GET, &st);
    if (err)
        return err;
    sqlite3_bind_int64(st, 1, row);
    if (data)
        sql_bind_u64(st, 2, room);
    else
        sqlite3_bind_int64(st, 2, -1);
    err = sql_step(sql, st);
    if (err > 0)
        err = sql_read_row(st, out);
    else if (!err)
        err = -ENOENT;
    if (!err)
        err = row_copy(st, out, data, room, group);
    sql_done(st);
    return err;
}

/* store_get - one row */
int store_get(struct store *s, int64_t row, struct store_row *out, void *data,
              size_t room, char *group)
{
    int err = row_get(store_read_begin(s), row, out, data, room, group);
    store_read_end(s);
    return err;
}

/* store_find_seq - the row that a slot's message became */
int store_find_seq(struct store *s, uint64_t receive_seq, int64_t *row)
{
    return store_number(s, SQL_FIND_SEQ, receive_seq, 0, row);
}

/* store_find_id - for people: there is no index for it */
int store_find_id(struct store *s, const struct ulid *id, int64_t *row)
{
    struct sql *sql = store_read_begin(s);
    sqlite3_stmt *st;
    int err = sql_use(sql, SQL_FIND_ID, &st);
    if (!err) {
        sql_bind_blob(st, 1, id, sizeof *id);
        err = sql_step(sql, st);
        if (err > 0)
            *row = sqlite3_column_int64(st, 0);
        sql_done(st);
        err = err > 0 ? 0 : err < 0 ? err : -ENOENT;
    }
    store_read_end(s);
    return err;
}

/* store_max_seq - the highest receive sequence stored */
int store_max_seq(struct store *s, uint64_t *receive_seq)
{
    int64_t number = 0;
    int err = store_number(s, SQL_MAX_SEQ, 0, 0, &number);
    if (!err)
        *receive_seq = (uint64_t)number;
    return err;
}

/* store_next_dead - the letter that died next */
int store_next_dead(struct store *s, uint64_t after_ns, int64_t after,
                    int64_t *row)
{
    return store_number(s, SQL_NEXT_DEAD, after_ns, after, row);
}
