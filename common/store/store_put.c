/* store_put.c - what the worker writes: rows and their ends; see store.h
 *
 * Crash before the commit: each message is in its slot as before. After it:
 * recovery finds the row by the slot's receive sequence (or row) and frees the
 * slot.
 */
#include <errno.h>

#include "common/base/fault_point.h"
#include "common/store/sql.h"

/* waits - whether a row in that state is one that store_waits counts */
static int waits(int state)
{
    return state == STORE_WAITING || state == STORE_PARKED;
}

/* waits_moved - a row goes from one state to another; 0: there is none */
static void waits_moved(struct store_more *more, int from, int to)
{
    more->waits += waits(to) - waits(from);
    more->parked += (to == STORE_PARKED) - (from == STORE_PARKED);
}

/* One call of store_put or store_put_all. */
struct put {
    struct store *store;
    const struct store_row *rows;
    size_t n;
    const struct store_attempt *attempt; /* of the only row; NULL: none */
    bool lenient; /* rows that are there already, or gone, stay so */
    int64_t row;  /* the last one written */
    struct store_more more;
    int64_t spooled; /* the same of the spool */
};

/* row_put - insert or update a row, and add to its history */
static int row_put(struct sql *sql, struct put *put, const struct store_row *m)
{
    const char *boot = store_boot(put->store);
    int was = m->row ? sql_row_state(sql, m->row) : 0;
    int err;

    if (was < 0)
        return was;
    put->row = m->row;
    if (put->row)
        err = sql_update_row(sql, m, boot);
    else
        err = sql_insert_row(sql, m, boot, &put->row);
    if (!err && put->attempt)
        err = sql_insert_attempt(sql, put->row, put->attempt);
    if (!err && m->state == STORE_DEAD && was != STORE_DEAD &&
        store_hooks_noted(put->store))
        err = sql_run(sql, SQL_HOOK_ADD, SQL_VALUES(value_int(put->row)));
    /* From here on another message with the same unique key may run. */
    if (!err && m->state == STORE_DEAD && was != STORE_DEAD)
        err = sql_key_free(sql, m->receive_seq);
    if (!err)
        waits_moved(&put->more, was, (int)m->state);
    return err;
}

/* put_apply - all rows of one call */
static int put_apply(struct sql *sql, void *arg)
{
    struct put *put = arg;
    int err = 0;

    put->more = (struct store_more){0};
    put->spooled = 0;
    for (size_t i = 0; i < put->n && !err; i++) {
        err = row_put(sql, put, &put->rows[i]);
        if (put->lenient && (err == -EEXIST || err == -ENOENT))
            err = 0;
        if (!err && put->rows[i].spool)
            err = sql_spool_out(sql, put->rows[i].spool, &put->spooled);
    }
    return err ? err : sql_spool_counted(sql, put->spooled);
}

/* put_durable - the slots that the messages came from are FREE */
static void put_durable(void *arg)
{
    const struct put *put = arg;

    store_waits_add(put->store, &put->more);
    store_spooled_add(put->store, put->spooled);
    for (size_t i = 0; i < put->n; i++)
        if (put->rows[i].slot)
            put->rows[i].retire(put->rows[i].slot);
}

/* put_run - as one operation of a shared commit */
static int put_run(struct put *put)
{
    for (size_t i = 0; i < put->n; i++)
        if (!sql_row_valid(&put->rows[i]))
            return -EINVAL;
    return store_write(put->store, put_apply, put_durable, put);
}

int store_put(struct store *s, const struct store_row *m,
              const struct store_attempt *attempt, int64_t *row)
{
    struct put put = {.store = s, .rows = m, .n = 1, .attempt = attempt};
    int err;

    FAULT_POINT("store_put_before");
    err = put_run(&put);
    FAULT_POINT("store_put_after");
    if (!err && row)
        *row = put.row;
    return err;
}

int store_put_all(struct store *s, const struct store_row *rows, size_t n)
{
    struct put put = {.store = s, .rows = rows, .n = n, .lenient = true};
    int err;

    FAULT_POINT("store_put_all_before");
    err = put_run(&put);
    FAULT_POINT("store_put_all_after");
    return err;
}

struct delete
{
    struct store *store;
    const int64_t *rows;
    size_t n;
    int64_t gone; /* store_delete_cancelled: so many */
    struct store_more more;
};

/* delete_apply - remove rows; their histories go with them */
static int delete_apply(struct sql *sql, void *arg)
{
    struct delete *d = arg;
    int was, err = 0;

    d->more = (struct store_more){0};
    for (size_t i = 0; i < d->n && !err; i++) {
        was = sql_row_state(sql, d->rows[i]);
        waits_moved(&d->more, was, 0);
        err = was < 0
                  ? was
                  : sql_run(sql, SQL_DELETE, SQL_VALUES(value_int(d->rows[i])));
    }
    return err;
}

static void delete_durable(void *arg)
{
    const struct delete *d = arg;

    store_waits_add(d->store, &d->more);
}

int store_delete(struct store *s, int64_t row)
{
    return store_delete_all(s, &row, 1);
}

int store_delete_all(struct store *s, const int64_t *rows, size_t n)
{
    struct delete d = {.store = s, .rows = rows, .n = n};
    int err;

    FAULT_POINT("store_delete_before");
    err = store_write(s, delete_apply, delete_durable, &d);
    FAULT_POINT("store_delete_after");
    return err;
}

/* cancelled_apply - all of them are PARKED */
static int cancelled_apply(struct sql *sql, void *arg)
{
    struct delete *d = arg;
    int err = sql_run(sql, SQL_DELETE_CANCELLED, NULL);

    d->gone = err ? 0 : sqlite3_changes(sql->db);
    d->more = (struct store_more){.waits = -d->gone, .parked = -d->gone};
    return err;
}

int64_t store_delete_cancelled(struct store *s)
{
    struct delete d = {.store = s};
    int err = store_write(s, cancelled_apply, delete_durable, &d);

    return err ? err : d.gone;
}
