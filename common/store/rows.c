/* rows.c - rows of messages: written, read, followed through time; see store.h
 *
 * Crash before the commit: each message is in its slot as before. After it:
 * recovery finds the row by the slot's receive sequence (or row) and frees the
 * slot.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/store/sql.h"

/* ---- writing ---- */

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
};

/* Write a row and add to its history. */
static int row_put(struct sql *sql, struct put *put, const struct store_row *m)
{
    int was = m->row ? sql_row_state(sql, m->row) : 0;
    int err =
        was < 0 ? was : sql_put_row(sql, m, store_boot(put->store), &put->row);

    if (!err && put->attempt)
        err = sql_insert_attempt(sql, put->row, put->attempt);
    if (!err && m->state == STORE_DEAD && was != STORE_DEAD) {
        if (store_hooks_noted(put->store))
            err = sql_run(sql, SQL_HOOK_ADD, SQL_VALUES(value_int(put->row)));
        /* From here on another message with the same unique key may run. */
        if (!err)
            err = sql_key_free(sql, m->receive_seq);
    }
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
    for (size_t i = 0; i < put->n && !err; i++) {
        err = row_put(sql, put, &put->rows[i]);
        if (put->lenient && (err == -EEXIST || err == -ENOENT))
            err = 0;
        if (!err && put->rows[i].spool)
            err = sql_spool_out(sql, put->rows[i].spool, &put->more.spooled);
    }
    return err ? err : sql_spool_counted(sql, put->more.spooled);
}

/* put_durable - the slots that the messages came from are FREE */
static void put_durable(void *arg)
{
    const struct put *put = arg;

    store_waits_add(put->store, &put->more);
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
    int64_t row;
    struct store_more more;
};

/* Remove a row; its history goes with it. */
static int delete_apply(struct sql *sql, void *arg)
{
    struct delete *d = arg;
    int was = sql_row_state(sql, d->row);

    d->more = (struct store_more){0};
    if (was < 0)
        return was;
    waits_moved(&d->more, was, 0);
    return sql_run(sql, SQL_DELETE, SQL_VALUES(value_int(d->row)));
}

static void delete_durable(void *arg)
{
    const struct delete *d = arg;

    store_waits_add(d->store, &d->more);
}

int store_delete(struct store *s, int64_t row)
{
    struct delete d = {.store = s, .row = row};
    int err;

    FAULT_POINT("store_delete_before");
    err = store_write(s, delete_apply, delete_durable, &d);
    FAULT_POINT("store_delete_after");
    return err;
}

/* ---- what a machine that went down leaves in doubt ---- */

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
        /* The statement leaves out a letter that somebody sent meanwhile. */
        FAULT_POINT("store_recall_before");
        done = store_run_rows(s, SQL_RECALL, rows, count, boot);
        FAULT_POINT("store_recall_after");
        if (done < 0)
            return (int)done;
        recalled += done;
    } while (n == STORE_PAGE);
    return (int)recalled;
}

/* store_doubt - one commit, all or nothing
 * Crash before it: no row is marked, and none has run since custody was lost,
 * as the start that marks them comes before the first handler. Crash after it:
 * all are marked, and marking them once more changes nothing.
 */
int store_doubt(struct store *s)
{
    int64_t n;

    FAULT_POINT("store_doubt_before");
    n = store_run(s, SQL_DOUBT, NULL);
    FAULT_POINT("store_doubt_after");
    return n < 0 ? (int)n : 0;
}

/* ---- the clock ---- */

/* The table `clock` has the distance of the wall clock from CLOCK_BOOTTIME at
 * the worker's last check, and all due times refer to that wall clock. When the
 * clock is set, one commit moves the delays and stores the new distance. So no
 * reader compares a due time of one clock with another clock, and rows written
 * later use the new distance (SQL_INSERT). If the process is killed before the
 * commit, the next start finds the old distance and moves all delays. After the
 * commit, the next start finds nothing to move.
 */

struct follow {
    char boot[STORE_BOOT]; /* of now; "" if unknown */
    int64_t ahead_ns;      /* the same */
    int64_t step_ns;       /* shift of the end of each delay */
    bool other; /* another boot: the due times are from an earlier run
                            of the machine */
};

/* Read the stored distance and the current one; 0 or -errno. */
static int clock_compare(struct store *s, struct follow *f)
{
    sqlite3_stmt *st;
    int found = store_ask(s, &st, SQL_CLOCK, NULL);
    const char *boot;

    if (found == STEP_ROW) {
        boot = (const char *)sqlite3_column_text(st, 1);
        f->other = !boot || !f->boot[0] || sql_elsewhere(boot, f->boot);
        f->step_ns = f->other ? 0 : f->ahead_ns - sqlite3_column_int64(st, 0);
    }
    return store_answered(s, st, found);
}

/* Write the rows and the distance in one transaction. */
static int follow_apply(struct sql *sql, void *arg)
{
    const struct follow *f = arg;
    /* Read here, where nobody else writes: a row that was written before this
     * commit was received before now, and is not cut to less than its delay. */
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
    int err;

    store_boot_read("time", f.boot); /* CLOCK_BOOTTIME is of it */
    err = clock_compare(s, &f);
    if (err || (!f.other && llabs(f.step_ns) < SQL_CLOCK_SMALL_NS))
        return err;
    FAULT_POINT("store_clock_before");
    err = store_write(s, follow_apply, NULL, &f);
    FAULT_POINT("store_clock_after");
    return err;
}

/* ---- reading ---- */

/* Each call is one short read transaction on the reading connection, and no
 * callback runs inside it.
 */

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

/* ---- whether a message is a letter that was sent again ---- */

/* The number of a letter can be guessed and its message id is in every log, so
 * neither proves anything. A token does: mqdlq makes it, writes it to the row,
 * and then sends it in the header. Only the store and who may read the queue
 * know it. So body and priority need not be compared: who could send other
 * bytes under a token has read the queue, and with that taken the message.
 */

_Static_assert(sizeof(struct ulid) == (size_t)2 * STORE_IDENTITY,
               "a token is an identity and as many random bytes");

/* Columns of SQL_REPLAY_FIND. */
enum {
    FIND_GIVEN,  /* the highest number that a row ever had */
    FIND_STATE,  /* NULL: there is no such row */
    FIND_ID,     /* of the message */
    FIND_DIED,   /* of the row */
    FIND_N,      /* of the replay with that token; NULL: none has it */
    FIND_BEGAN,  /* that replay: died_ns of the letter that was sent */
    FIND_LAST_N, /* of the row's last replay */
};

/* store_token_make - one that nobody can guess */
int store_token_make(const struct store *s, struct ulid *token)
{
    ssize_t n = getrandom(token->bytes + STORE_IDENTITY, STORE_IDENTITY, 0);

    memcpy(token->bytes, store_identity(s), STORE_IDENTITY);
    return n == STORE_IDENTITY ? 0 : n < 0 ? -errno : -EIO;
}

/* replay_of_gone - a letter that is not in the store
 * Row numbers are never used twice, so a letter that is gone was settled: done,
 * discarded, or moved to a dead-letter queue. That is certain only of a number
 * that this store has given to a letter: the token must begin with our
 * identity, or the message comes from a store that was removed, or from the
 * store of another queue. A sender that forges such a token loses its own
 * message, and no other. */
static enum store_replay replay_of_gone(const struct store *s, sqlite3_stmt *st,
                                        int64_t row, const struct ulid *token)
{
    bool ours = !memcmp(token->bytes, store_identity(s), STORE_IDENTITY);

    return ours && row <= sqlite3_column_int64(st, FIND_GIVEN) ? REPLAY_OVER
                                                               : REPLAY_NONE;
}

/* replay_of_row - a letter that is there
 * Its last replay is open while it is marked replayed. It is also open if the
 * letter is dead by the very death that it was sent after: then it was recalled
 * (store_recall), and yet here is the message. */
static enum store_replay replay_of_row(sqlite3_stmt *st, const struct ulid *id)
{
    const void *known = sqlite3_column_blob(st, FIND_ID);
    int state = sqlite3_column_int(st, FIND_STATE);

    if (sqlite3_column_type(st, FIND_N) == SQLITE_NULL || !known ||
        sqlite3_column_bytes(st, FIND_ID) != sizeof *id ||
        memcmp(known, id, sizeof *id) != 0)
        return REPLAY_NONE;
    if (sqlite3_column_int64(st, FIND_N) !=
        sqlite3_column_int64(st, FIND_LAST_N))
        return REPLAY_OVER;
    if (state == STORE_DEAD)
        return sql_column_u64(st, FIND_DIED) == sql_column_u64(st, FIND_BEGAN)
                   ? REPLAY_OPEN
                   : REPLAY_OVER;
    return state == STORE_REPLAYED ? REPLAY_OPEN : REPLAY_OVER;
}

/* store_replay_find - one statement, so one moment of the store */
int store_replay_find(struct store *s, int64_t row, const struct ulid *id,
                      const struct ulid *token, enum store_replay *out)
{
    sqlite3_stmt *st;
    int found =
        store_ask(s, &st, SQL_REPLAY_FIND,
                  SQL_VALUES(value_int(row), value_blob(token, sizeof *token)));

    if (found > 0)
        *out = sqlite3_column_type(st, FIND_STATE) == SQLITE_NULL
                   ? replay_of_gone(s, st, row, token)
                   : replay_of_row(st, id);
    return store_answered(s, st, found ? found : -EIO);
}
