/* store_group.c - rows of ordered groups; see store.h */
#include <errno.h>
#include <string.h>

#include "common/store/store_sql.h"

/* group_query - one row of a statement whose only value is a group; 1, 0 none,
 * or -errno. `st` is to be given back with sql_done if it is not NULL. */
static int group_query(struct sql *sql, enum sql_id id, const char *group,
                       size_t size, sqlite3_stmt **st)
{
    int err = sql_use(sql, id, st);

    if (err) {
        *st = NULL;
        return err;
    }
    sql_bind_text(*st, 1, group, size);
    return sql_step(sql, *st);
}

/* ended - close the query */
static int ended(struct store *s, sqlite3_stmt *st, int found)
{
    if (st)
        sql_done(st);
    store_read_end(s);
    return found > 0 ? 0 : found < 0 ? found : -ENOENT;
}

/* store_next_parked - which row of the group is next */
int store_next_parked(struct store *s, const char *group, size_t size, bool low,
                      struct store_parked *out)
{
    sqlite3_stmt *st;
    int found =
        group_query(store_read_begin(s), low ? SQL_PARKED_LOW : SQL_PARKED_HIGH,
                    group, size, &st);

    if (found > 0)
        *out = (struct store_parked){
            .row = sqlite3_column_int64(st, 0),
            .priority = (uint32_t)sql_column_u64(st, 1),
            .receive_seq = sql_column_u64(st, 2),
        };
    return ended(s, st, found);
}

/* store_group_letter - a letter of the group */
int store_group_letter(struct store *s, const char *group, size_t size,
                       int64_t *row)
{
    sqlite3_stmt *st;
    int found =
        group_query(store_read_begin(s), SQL_GROUP_LETTER, group, size, &st);

    if (found > 0)
        *row = sqlite3_column_int64(st, 0);
    return ended(s, st, found);
}

/* store_next_group - what the store knows of the next group */
int store_next_group(struct store *s, char *key, size_t *size,
                     struct store_group *out)
{
    sqlite3_stmt *st;
    int found = group_query(store_read_begin(s), SQL_GROUPS, key, *size, &st);

    if (found > 0) {
        size_t n = (size_t)sqlite3_column_bytes(st, 0);

        *out = (struct store_group){
            .parked = (uint64_t)sqlite3_column_double(st, 1),
            .letters = (uint64_t)sqlite3_column_double(st, 2),
            .head = sqlite3_column_int64(st, 3),
        };
        if (n > STORE_GROUP_MAX)
            found = -EIO;
        else
            memcpy(key, sqlite3_column_text(st, 0), n);
        *size = n;
    }
    return ended(s, st, found);
}
