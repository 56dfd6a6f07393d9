/* spool.c - the store's table of spooled messages (see spool.h)
 *
 * The number of rows is kept in a table of its own and changed in the same
 * commit as the rows, because counting a million rows takes as long as reading
 * them. For the same reason the highest receive sequence is searched priority
 * by priority.
 * Crash before a commit: the new messages are still in slots, and the finished
 * ones in the file of ends. After it: recovery finds the rows of slots by their
 * keys, and deleting the rows of the file of ends again changes nothing.
 */
#include "common/store/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/store/sql.h"

/* The columns of SQL_SPOOL_READ. */
enum { KEY, RECEIVED, ID, CRASHES, FLAGS, LETTER, DATA };

/* ---- writing ---- */

struct change {
    struct store *store;
    const struct store_spool_change *c;
    struct store_waits more;
};

/* Return an id as a value; NULL if the message has none yet. */
static struct sql_value id_value(const struct ulid *id)
{
    return ulid_is_none(id) ? VALUE_NULL
                            : value_blob(id->bytes, sizeof id->bytes);
}

int sql_spool_out(struct sql *sql, int64_t key, int64_t *more)
{
    int err = sql_change(sql, SQL_SPOOL_OUT, SQL_VALUES(value_int(key)));

    if (!err)
        --*more;
    return err == -ENOENT ? 0 : err;
}

int sql_spool_counted(struct sql *sql, int64_t more)
{
    return more ? sql_run(sql, SQL_SPOOL_MORE, SQL_VALUES(value_int(more))) : 0;
}

/* Delete the messages that ended, then insert the new ones, except those whose
 * unique key is another message's. */
static int change_apply(struct sql *sql, void *arg)
{
    struct change *change = arg;
    const struct store_spool_change *c = change->c;
    int64_t row;
    int err = 0;

    change->more = (struct store_waits){0};
    for (size_t i = 0; i < c->out_count && !err; i++)
        err = sql_spool_out(sql, c->out[i], &change->more.spooled);
    for (size_t i = 0; i < c->in_count && !err; i++) {
        struct store_spooled *m = &c->in[i];
        struct key_claim claim = {.key = m->unique, .first = &m->first};

        err = m->unique ? sql_key_claim(sql, &claim) : 0;
        m->taken = claim.taken;
        if (err || m->taken)
            continue;
        if (m->later) {
            err = sql_put_row(sql, m->later, store_boot(change->store), &row);
            change->more.waiting += !err;
            /* A worker wrote the row and died before it freed the slot. */
            if (err == -EEXIST)
                err = 0;
            continue;
        }
        change->more.spooled++;
        err = sql_run(sql, SQL_SPOOL_IN,
                      SQL_VALUES(value_int(m->key), value_u64(m->received_ns),
                                 id_value(&m->id), value_int(m->crashes),
                                 value_int(m->flags),
                                 m->letter ? value_int(m->letter) : VALUE_NULL,
                                 value_blob(m->data, m->size)));
    }
    return err ? err : sql_spool_counted(sql, change->more.spooled);
}

/* Free the slots that the messages came from. */
static void change_durable(void *arg)
{
    const struct change *change = arg;

    store_waits_add(change->store, &change->more);
    if (change->c->durable)
        change->c->durable(change->c->arg);
}

int store_spool_change(struct store *s, const struct store_spool_change *c)
{
    struct change change = {.store = s, .c = c};

    return FAULT_POINTS("store_spool",
                        store_write(s, change_apply, change_durable, &change));
}

int store_spool_note(struct store *s, const struct store_spooled *m)
{
    int64_t n;
    int err = store_run(s, SQL_SPOOL_NOTE,
                        SQL_VALUES(value_int(m->key), id_value(&m->id),
                                   value_int(m->crashes), value_int(m->flags)),
                        &n);

    return err || n > 0 ? err : -ENOENT;
}

/* ---- from one worker to the next ---- */

int store_spool_left(struct store *s, struct store_spool_left *out)
{
    sqlite3_stmt *st;
    int64_t count = 0, key = 0, below = INT64_MAX;
    int found = store_ask(s, &st, SQL_SPOOL_STATE, NULL), err;

    *out = (struct store_spool_left){0};
    if (found > 0) {
        const char *boot = (const char *)sqlite3_column_text(st, 1);

        count = sqlite3_column_int64(st, 0);
        out->doubt = sql_column_u64(st, 2);
        out->run = boot ? sql_column_u64(st, 3) : 0;
        out->cut = boot && sql_elsewhere(boot, store_boot(s));
    }
    err = store_answered(s, st, found);
    store_waits_add(
        s, &(struct store_waits){.spooled = count - store_waits(s).spooled});
    if (err)
        return err;
    /* The last key of each priority has the highest sequence of that one. */
    while (!err) {
        err =
            store_number(s, &key, SQL_SPOOL_LAST, SQL_VALUES(value_int(below)));
        if (!err && store_spool_seq(key) > out->seq)
            out->seq = store_spool_seq(key);
        below = key & ~(int64_t)(STORE_SPOOL_SEQ_MAX - 1);
    }
    return err == -ENOENT ? 0 : err;
}

int store_spool_begin(struct store *s, uint64_t run, uint64_t doubt)
{
    return store_run(s, SQL_SPOOL_STATE_SET,
                     SQL_VALUES(value_string(store_boot(s)), value_u64(run),
                                value_u64(doubt)),
                     NULL);
}

/* `doubt` is kept: the rows that it names are still in doubt. */
int store_spool_end(struct store *s)
{
    return store_run(s, SQL_SPOOL_STATE_END, NULL, NULL);
}

/* ---- reading ---- */

/* Fill a message from the row that a statement stands on; its data is
 * `body`. */
static void spooled_fill(sqlite3_stmt *st, struct sql_bytes body,
                         struct store_spooled *m)
{
    const void *id = sqlite3_column_blob(st, ID);

    *m = (struct store_spooled){
        .key = sqlite3_column_int64(st, KEY),
        .received_ns = sql_column_u64(st, RECEIVED),
        .crashes = (uint32_t)sql_column_u64(st, CRASHES),
        .flags = (uint32_t)sql_column_u64(st, FLAGS),
        .letter = sqlite3_column_int64(st, LETTER),
        .data = body.at,
        .size = body.size,
    };
    if (id && sqlite3_column_bytes(st, ID) == sizeof m->id.bytes)
        memcpy(m->id.bytes, id, sizeof m->id.bytes);
}

int store_spool_read(struct store *s, int64_t after, struct store_spooled *rows,
                     size_t most, void *data, size_t room)
{
    char *at = data;
    sqlite3_stmt *st;
    int n = 0, err = 0;
    int more = store_ask(s, &st, SQL_SPOOL_READ,
                         SQL_VALUES(value_int(after), value_u64(most)));

    for (; more > 0 && (size_t)n < most; more = sql_step(st)) {
        const void *bytes = sqlite3_column_blob(st, DATA);
        struct sql_bytes body = {at, (size_t)sqlite3_column_bytes(st, DATA)};

        spooled_fill(st, body, &rows[n]);
        if (body.size > room) {
            err = n > 0 ? 0 : -EMSGSIZE;
            break;
        }
        if (body.size > 0 && !bytes) {
            err = -ENOMEM;
            break;
        }
        if (body.size > 0)
            memcpy(at, bytes, body.size);
        at += body.size;
        room -= body.size;
        n++;
    }
    err = more < 0 ? more : err;
    (void)store_answered(s, st, err ? err : more);
    return err ? err : n;
}

/* Copy the row that SQL_SPOOL_READ stands on. */
static int spooled_copy(sqlite3_stmt *st, const void *arg, void **row,
                        size_t *bytes)
{
    static const int columns[] = {DATA};
    struct store_spooled *m;
    struct sql_bytes body;

    (void)arg;
    *row = m = sql_copy(st, sizeof *m, columns, 1, &body);
    if (!m)
        return -ENOMEM;
    spooled_fill(st, body, m);
    *bytes = sizeof *m + body.size;
    return 0;
}

int store_spool_each(struct store *s, int64_t after,
                     int (*visit)(const struct store_spooled *m, void *arg),
                     void *arg)
{
    struct store_page page;
    int more, err;

    do {
        more = store_page_read(
            s, &page, spooled_copy, NULL, SQL_SPOOL_READ,
            SQL_VALUES(value_int(after), value_int(STORE_PAGE + 1)));
        err = more < 0 ? more : 0;
        for (size_t i = 0; i < page.count; i++) {
            const struct store_spooled *m = page.rows[i];

            after = m->key;
            if (!err)
                err = visit(m, arg);
            free(page.rows[i]);
        }
    } while (!err && more == STEP_ROW);
    return err;
}

int store_spool_find(struct store *s, int64_t key, bool *cancelled)
{
    int64_t is = 0;
    int err =
        store_number(s, &is, SQL_SPOOL_CANCELLED, SQL_VALUES(value_int(key)));

    if (cancelled)
        *cancelled = is != 0;
    return err;
}

int64_t store_spool_count(struct store *s)
{
    return store_tally(s, SQL_SPOOL_STATE, NULL);
}
