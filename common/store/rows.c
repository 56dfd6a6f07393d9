/* rows.c - writes and reads rows of messages (see store.h)
 *
 * Crash before the commit of a write: each message is in its slot as before.
 * After it: recovery finds the row by the slot's receive sequence (or row) and
 * frees the slot.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/store/sql.h"

/* ---- writing ---- */

/* Count the change of a row from one state to another; state 0: no row. */
static void waits_moved(struct store_waits *more, int from, int to)
{
    more->waiting += (to == STORE_WAITING) - (from == STORE_WAITING);
    more->parked += (to == STORE_PARKED) - (from == STORE_PARKED);
}

/* One call of store_put, store_put_all or store_delete. */
struct put {
    struct store *store;
    const struct store_row *rows;
    size_t n;
    const struct store_attempt *attempt; /* of the only row; NULL: none */
    bool lenient;          /* skip rows that exist already, or are gone */
    int64_t row;           /* the last row written, or the row to delete */
    const struct ulid *id; /* of a letter to delete; NULL: any */
    struct store_waits more;
};

/* Write the rows, add to their history, and delete their rows of the spool. */
static int put_apply(struct sql *sql, void *arg)
{
    struct put *put = arg;
    int err = 0;

    put->more = (struct store_waits){0};
    for (size_t i = 0; i < put->n && !err; i++) {
        const struct store_row *m = &put->rows[i];
        int was = m->row ? sql_row_state(sql, m->row) : 0;

        err = was < 0 ? was
                      : sql_put_row(sql, m, store_boot(put->store), &put->row);
        if (!err && put->attempt)
            err = sql_insert_attempt(sql, put->row, put->attempt);
        if (!err && m->state == STORE_DEAD && was != STORE_DEAD) {
            if (m->hook)
                err =
                    sql_run(sql, SQL_HOOK_ADD, SQL_VALUES(value_int(put->row)));
            /* Another message with the same unique key may run now. */
            if (!err)
                err = sql_key_free(sql, m->receive_seq);
        }
        if (!err)
            waits_moved(&put->more, was, (int)m->state);
        if (put->lenient && (err == -EEXIST || err == -ENOENT))
            err = 0;
        if (!err && m->spool)
            err = sql_spool_out(sql, m->spool, &put->more.spooled);
    }
    return err ? err : sql_spool_counted(sql, put->more.spooled);
}

/* Free the slots that the messages came from. */
static void put_durable(void *arg)
{
    const struct put *put = arg;

    store_waits_add(put->store, &put->more);
    for (size_t i = 0; i < put->n; i++)
        if (put->rows[i].slot)
            put->rows[i].retire(put->rows[i].slot);
}

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
    int err = FAULT_POINTS("store_put", put_run(&put));

    if (!err && row)
        *row = put.row;
    return err;
}

int store_put_all(struct store *s, const struct store_row *rows, size_t n)
{
    struct put put = {.store = s, .rows = rows, .n = n, .lenient = true};

    return FAULT_POINTS("store_put_all", put_run(&put));
}

/* Delete a row; the foreign key deletes its history. */
static int delete_apply(struct sql *sql, void *arg)
{
    struct put *put = arg;
    int was = sql_row_state(sql, put->row);

    put->more = (struct store_waits){0};
    if (was < 0)
        return was;
    waits_moved(&put->more, was, 0);
    return sql_run(
        sql, SQL_DELETE,
        SQL_VALUES(value_int(put->row), value_blob(put->id, sizeof *put->id)));
}

int store_delete(struct store *s, int64_t row, const struct ulid *id)
{
    struct put put = {.store = s, .row = row, .id = id};

    return FAULT_POINTS("store_delete",
                        store_write(s, delete_apply, put_durable, &put));
}

/* ---- after the machine went down ---- */

int store_recall(struct store *s, bool (*skip)(int64_t row, void *arg),
                 void *arg)
{
    const struct sql_value boot = value_string(store_boot(s));
    struct store_cursor page[STORE_PAGE], after = {0};
    int64_t rows[STORE_PAGE], recalled = 0, done;
    int n;

    if (!*store_boot(s))
        return -ENOENT;
    do {
        size_t count = 0;

        n = store_cursors(s, SQL_STRAYS, &after, boot, page);
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++) {
            after = page[i];
            if (!skip || !skip(after.row, arg))
                rows[count++] = after.row;
        }
        if (count == 0)
            continue;
        /* SQL_RECALL skips a letter that was sent again meanwhile. */
        done = FAULT_POINTS("store_recall",
                            store_run_rows(s, SQL_RECALL, rows, count, boot));
        if (done < 0)
            return (int)done;
        recalled += done;
    } while (n == STORE_PAGE);
    return (int)recalled;
}

/* Crash before the commit: no row is marked, and none has run since custody was
 * lost, because the first handler starts later. Crash after it: all rows are
 * marked, and marking them once more changes nothing. */
int store_doubt(struct store *s)
{
    return FAULT_POINTS("store_doubt", store_run(s, SQL_DOUBT, NULL, NULL));
}

/* ---- the clock ---- */

/* The table `clock` has the distance of the wall clock from CLOCK_BOOTTIME at
 * the worker's last check, and all due times refer to that wall clock. When the
 * clock is set, one commit moves the delays and stores the new distance. So no
 * reader compares a due time of one clock with another clock, and rows written
 * later use the new distance (SQL_INSERT). If the process is killed before the
 * commit, the next start finds the old distance and moves all delays. After the
 * commit, the next start finds nothing to move. */

struct follow {
    char boot[STORE_BOOT]; /* of now; "" if unknown */
    int64_t ahead_ns;      /* of now */
    int64_t step_ns;       /* shift of the end of each delay */
};

/* Write the rows and the distance in one transaction. */
static int follow_apply(struct sql *sql, void *arg)
{
    const struct follow *f = arg;
    /* Read the time here, where no other thread writes: each row was written
     * before this time, so none is cut to less than its delay. */
    uint64_t wall_ns = (uint64_t)((int64_t)clock_boot_ns() + f->ahead_ns);
    int err = sql_run(sql, SQL_CLOCK_ROWS,
                      SQL_VALUES(value_int(f->step_ns), value_u64(wall_ns)));

    return err ? err
               : sql_change(
                     sql, SQL_CLOCK_SET,
                     SQL_VALUES(value_int(f->ahead_ns), value_string(f->boot)));
}

int store_clock_follow(struct store *s)
{
    struct follow f = {.ahead_ns = clock_ahead_ns()};
    bool other = false; /* due times were written in an earlier boot */
    sqlite3_stmt *st;
    const char *boot;
    int err;

    store_boot_read("time", f.boot); /* the namespace of CLOCK_BOOTTIME */
    err = store_ask(s, &st, SQL_CLOCK, NULL);
    if (err == STEP_ROW) {
        boot = (const char *)sqlite3_column_text(st, 1);
        other = !boot || !f.boot[0] || sql_elsewhere(boot, f.boot);
        f.step_ns = other ? 0 : f.ahead_ns - sqlite3_column_int64(st, 0);
    }
    err = store_answered(s, st, err);
    if (err || (!other && llabs(f.step_ns) < SQL_CLOCK_SMALL_NS))
        return err;
    return FAULT_POINTS("store_clock", store_write(s, follow_apply, NULL, &f));
}

/* ---- reading ---- */

/* Each call is one short read transaction on the reading connection, and no
 * callback runs inside it. */

int store_cursors(struct store *s, enum sql_id id,
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

int store_page_read(struct store *s, struct store_page *page,
                    int (*copy)(sqlite3_stmt *st, const void *arg, void **row,
                                size_t *bytes),
                    const void *arg, enum sql_id id,
                    const struct sql_value *values)
{
    const size_t most = 1u << 20;
    size_t bytes = 0, more_bytes;
    sqlite3_stmt *st;
    int more = store_ask(s, &st, id, values);

    page->count = 0;
    while (more == STEP_ROW && page->count < STORE_PAGE && bytes < most) {
        more = copy(st, arg, &page->rows[page->count], &more_bytes);
        if (more)
            break;
        page->count++;
        bytes += more_bytes;
        more = sql_step(st);
    }
    (void)store_answered(s, st, more);
    return more;
}

/* A waiting row, which is also a position in the order of a priority. */
struct due_row {
    int64_t due_ns, seq, row;
    uint64_t boot_ns; /* due time by CLOCK_BOOTTIME */
};

/* Read the due rows of a priority, page by page, as store_due; returns their
 * number, or -errno. `skip` is called without a lock. */
static int due_rows(struct store *s, int64_t priority, uint64_t boot_ns,
                    int64_t *rows, size_t room,
                    bool (*skip)(int64_t row, void *arg), void *arg)
{
    struct due_row page[STORE_PAGE], after = {.due_ns = -1};
    sqlite3_stmt *st;
    size_t found = 0;
    int n, more;

    do {
        more =
            store_ask(s, &st, SQL_DUE,
                      SQL_VALUES(value_int(priority), value_int(after.due_ns),
                                 value_int(after.seq), value_int(after.row),
                                 value_int(STORE_PAGE)));
        for (n = 0; more == STEP_ROW && n < STORE_PAGE; more = sql_step(st))
            page[n++] = (struct due_row){
                sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1),
                sqlite3_column_int64(st, 2), sql_column_u64(st, 3)};
        (void)store_answered(s, st, more);
        if (more < 0)
            return more;
        for (int i = 0; i < n; i++) {
            if (found == room || page[i].boot_ns > boot_ns)
                return (int)found;
            if (!skip || !skip(page[i].row, arg))
                rows[found++] = page[i].row;
        }
        if (n > 0)
            after = page[n - 1];
    } while (n == STORE_PAGE);
    return (int)found;
}

int store_due(struct store *s, uint64_t boot_ns, int64_t *rows, size_t room,
              bool (*skip)(int64_t row, void *arg), void *arg,
              uint64_t *next_ns)
{
    int64_t priority = INT64_MAX, next;
    size_t found = 0;
    int err =
        store_number(s, &next, SQL_DUE_NEXT, SQL_VALUES(value_u64(boot_ns)));

    *next_ns = err ? UINT64_MAX : (uint64_t)next;
    if (err == -ENOENT)
        err = 0;
    while (!err && found < room) { /* the highest priority first */
        err = store_number(s, &priority, SQL_DUE_PRIORITY,
                           SQL_VALUES(value_int(priority)));
        if (!err) {
            int n = due_rows(s, priority, boot_ns, rows + found, room - found,
                             skip, arg);

            err = n < 0 ? n : 0;
            found += n > 0 ? (size_t)n : 0;
        }
    }
    return err && err != -ENOENT ? err : (int)found;
}

int store_get(struct store *s, int64_t row, struct store_row *out, void *data,
              size_t room, char *group)
{
    sqlite3_stmt *st;
    const void *bytes;
    int err = store_ask(
        s, &st, SQL_GET,
        SQL_VALUES(value_int(row), data ? value_u64(room) : value_int(-1)));

    if (err != STEP_ROW)
        return store_answered(s, st, err);
    err = sql_read_row(st, out);
    if (!err && group && out->group) {
        if (out->group_size > STORE_GROUP_MAX)
            err = -EUCLEAN;
        else
            memcpy(group, out->group, out->group_size);
    }
    if (!err) { /* nothing points into the statement any more */
        out->group = out->group ? group : NULL;
        out->error = NULL;
    }
    if (!err && data) {
        bytes = sqlite3_column_blob(st, COL_DATA);
        if (out->size > room)
            err = -EMSGSIZE;
        else if (out->size > 0 && !bytes)
            err = -ENOMEM;
        else if (out->size > 0)
            memcpy(data, bytes, out->size);
        out->data = err ? NULL : data;
    }
    return store_answered(s, st, err ? err : STEP_ROW);
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

/* Read GROUP_COLUMNS of a group, and its key if `key` is not NULL. */
static int group_ask(struct store *s, enum sql_id id,
                     const struct sql_value *values, char *key, size_t *size,
                     struct store_group *out)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, id, values);

    if (found > 0 && sqlite3_column_bytes(st, 0) > STORE_GROUP_MAX)
        found = -EUCLEAN;
    if (found > 0)
        *out = (struct store_group){
            .parked = sql_column_u64(st, 1),
            .letters = sqlite3_column_int(st, 2),
            .head = sqlite3_column_int64(st, 3),
        };
    if (found > 0 && key) {
        *size = (size_t)sqlite3_column_bytes(st, 0);
        memcpy(key, sqlite3_column_text(st, 0), *size);
    }
    return store_answered(s, st, found);
}

int store_next_group(struct store *s, char *key, size_t *size,
                     struct store_group *out)
{
    return group_ask(s, SQL_GROUPS, SQL_VALUES(value_text(key, *size)), key,
                     size, out);
}

int store_get_group(struct store *s, const char *key, size_t size,
                    struct store_group *out)
{
    return group_ask(s, SQL_GROUP, SQL_VALUES(value_text(key, size)), NULL,
                     NULL, out);
}

/* ---- messages that claim to be a replayed letter ---- */

/* The number of a letter can be guessed, and its message id is in every log, so
 * neither is a proof. A token is: mqdlq makes it, writes it to the row, and
 * then sends it in the header. Only a user who may read the store or the queue
 * can find it. So body and priority need not be compared: a program that sends
 * other bytes under the token has received the message itself. */

_Static_assert(sizeof(struct ulid) == (size_t)2 * STORE_IDENTITY,
               "a token is an identity and as many random bytes");

/* Columns of SQL_REPLAY_FIND. */
enum {
    FIND_GIVEN,  /* the highest number that a row ever had */
    FIND_STATE,  /* NULL: there is no such row */
    FIND_ID,     /* of the message */
    FIND_DIED,   /* of the row */
    FIND_N,      /* of the replay with that token; NULL: no such replay */
    FIND_BEGAN,  /* died_ns of the letter when that replay was marked */
    FIND_LAST_N, /* of the row's last replay */
};

int store_token_make(const struct store *s, struct ulid *token)
{
    ssize_t n = getrandom(token->bytes + STORE_IDENTITY, STORE_IDENTITY, 0);

    memcpy(token->bytes, store_identity(s), STORE_IDENTITY);
    return n == STORE_IDENTITY ? 0 : n < 0 ? -errno : -EIO;
}

/* Read everything by one statement, so that it is one moment of the store.
 * If the letter is not in the store, the token decides. If it begins with our
 * identity, this store has had the letter, and row numbers are never used
 * twice, so the letter was settled: done, discarded, or moved to a dead-letter
 * queue. Otherwise the message comes from another store. A sender that forges
 * such a token loses only its own message.
 * If the letter is in the store, its last replay is open while it is marked as
 * replayed. It is also open if the letter is dead and has not died again since
 * it was sent: store_recall made it dead, although its message still existed.
 * Only an open replay must have the letter's id, because a letter that was
 * edited has another id than copies of its earlier replays.
 */
int store_replay_find(struct store *s, int64_t row, const struct ulid *id,
                      const struct ulid *token, enum store_replay *out)
{
    sqlite3_stmt *st;
    int found =
        store_ask(s, &st, SQL_REPLAY_FIND,
                  SQL_VALUES(value_int(row), value_blob(token, sizeof *token)));
    const void *known = found > 0 ? sqlite3_column_blob(st, FIND_ID) : NULL;
    int state = found > 0 ? sqlite3_column_int(st, FIND_STATE) : 0;

    if (found <= 0)
        return store_answered(s, st, found ? found : -EIO);
    if (sqlite3_column_type(st, FIND_STATE) == SQLITE_NULL)
        *out = memcmp(token->bytes, store_identity(s), STORE_IDENTITY) == 0 &&
                       row <= sqlite3_column_int64(st, FIND_GIVEN)
                   ? REPLAY_OVER
                   : REPLAY_NONE;
    else if (sqlite3_column_type(st, FIND_N) == SQLITE_NULL)
        *out = REPLAY_NONE;
    else if (sqlite3_column_int64(st, FIND_N) !=
                 sqlite3_column_int64(st, FIND_LAST_N) ||
             (state != STORE_REPLAYED &&
              (state != STORE_DEAD || sql_column_u64(st, FIND_DIED) !=
                                          sql_column_u64(st, FIND_BEGAN))))
        *out = REPLAY_OVER;
    else
        *out = known && sqlite3_column_bytes(st, FIND_ID) == sizeof *id &&
                       memcmp(known, id, sizeof *id) == 0
                   ? REPLAY_OPEN
                   : REPLAY_NONE;
    return store_answered(s, st, found);
}
