/* waiting.c - waiting messages as an operator lists, runs and cancels them (see
 * waiting.h)
 *
 * Rows of a group are read one priority after the other: within a priority, the
 * index messages_parked has them in the order of delivery.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/store/spool.h"
#include "common/store/sql.h"
#include "common/store/waiting.h"

#define COL_SAID (COL_DATA + 1) /* error_text */

const char *waiting_state_text(enum waiting_state state)
{
    static const char *const texts[WAITING_STATES] = {
        [WAITING_RUNNING] = "running", [WAITING_READY] = "ready",
        [WAITING_SPOOLED] = "spooled", [WAITING_DELAYED] = "delayed",
        [WAITING_RETRY] = "retry",     [WAITING_PARKED] = "parked",
        [WAITING_HELD] = "held",
    };

    return texts[state];
}

/* One walk over the rows. */
struct walk {
    struct store *s;
    const struct waiting_filter *f;
    struct waiting_place at;
    bool held; /* the group of the rows waits for a letter */
    int (*visit)(const struct waiting_row *w, void *arg);
    void *arg;
};

/* ---- a page ---- */

/* Copy the row that a statement stands on. */
static int waiting_copy(sqlite3_stmt *st, const void *walk, void **out,
                        size_t *bytes)
{
    const struct walk *k = walk;
    static const int columns[] = {COL_GROUP, COL_ERROR, COL_DATA, COL_SAID};
    struct sql_bytes part[4];
    struct store_row m;
    struct waiting_row *w;
    int err = sql_read_row(st, &m);

    if (err)
        return err;
    w = sql_copy(st, sizeof *w, columns, 4, part);
    if (!w)
        return -ENOMEM;
    m.group = part[0].at;
    m.error = part[1].at;
    *w = (struct waiting_row){.m = m,
                              .state =
                                  m.state == STORE_PARKED
                                      ? k->held ? WAITING_HELD : WAITING_PARKED
                                  : m.due_ns <= k->f->now_ns ? WAITING_READY
                                  : m.attempts > 0           ? WAITING_RETRY
                                                             : WAITING_DELAYED,
                              .body = part[2].at ? part[2].at : "",
                              .body_size = part[2].size,
                              .error_text = part[3].at};
    *bytes = sizeof *w + part[0].size + part[1].size + part[2].size;
    *out = w;
    return 0;
}

/* Visit the rows of a statement, page by page, from k->at on. Rows that wait
 * for their time are visited up to `last_ns`. k->at becomes the place after the
 * last visited row. */
static int rows_each(struct walk *k, enum sql_id id, uint64_t last_ns)
{
    const struct waiting_filter *f = k->f;
    bool parked = id == SQL_WAITING_PARKED;
    bool delayed = f->states & WAITING_BIT(WAITING_DELAYED);
    bool retry = f->states & WAITING_BIT(WAITING_RETRY);
    int kind = id == SQL_WAITING || (delayed && retry) ? -1 : retry;
    struct store_page page;
    int more, err;

    do {
        more = store_page_read(
            k->s, &page, waiting_copy, k, id,
            SQL_VALUES(value_u64(k->at.at),
                       value_int(parked ? k->at.priority : k->at.row),
                       value_u64(last_ns),
                       parked ? value_text(k->at.group, k->at.group_size)
                              : value_string(f->group),
                       value_string(f->error_like), value_string(f->match),
                       value_u64(f->since_ns),
                       value_u64(f->until_ns ? f->until_ns : UINT64_MAX),
                       value_u64(f->body_most), value_int(STORE_PAGE + 1),
                       value_int(kind), value_u64(f->now_ns)));
        err = more < 0 ? more : 0;
        for (size_t i = 0; i < page.count; i++) {
            if (!err) {
                err = k->visit(page.rows[i], k->arg);
                waiting_place_of(page.rows[i], &k->at);
            }
            free(page.rows[i]);
        }
    } while (!err && more == STEP_ROW);
    return err;
}

/* ---- parked rows ---- */

/* Visit the rows of k->at.group, one priority after the other; with `resumed`
 * only those after k->at. */
static int group_each(struct walk *k, bool resumed)
{
    int64_t priority = resumed ? k->at.priority : INT64_MAX, letter;
    int err = k->f->holds ? store_group_letter(k->s, k->at.group,
                                               k->at.group_size, &letter)
                          : -ENOENT;

    k->held = err == 0;
    if (err && err != -ENOENT)
        return err;
    if (!(k->f->states & WAITING_BIT(k->held ? WAITING_HELD : WAITING_PARKED)))
        return 0;
    err = resumed ? rows_each(k, SQL_WAITING_PARKED, 0) : 0;
    while (!err) {
        err = store_number(k->s, &priority, SQL_PARKED_PRIORITY,
                           SQL_VALUES(value_text(k->at.group, k->at.group_size),
                                      value_int(priority)));
        if (err)
            break;
        k->at.priority = (uint32_t)priority;
        k->at.at = 0;
        err = rows_each(k, SQL_WAITING_PARKED, 0);
    }
    return err == -ENOENT ? 0 : err;
}

/* Visit parked rows, group after group. */
static int parked_each(struct walk *k)
{
    const char *only = k->f->group;
    bool resumed = k->at.parked;
    sqlite3_stmt *st;
    int err;

    if (only) {
        resumed = resumed && strlen(only) == k->at.group_size &&
                  memcmp(only, k->at.group, k->at.group_size) == 0;
        k->at.group_size = strlen(only);
        if (k->at.group_size > sizeof k->at.group)
            return 0;
        memcpy(k->at.group, only, k->at.group_size);
        return group_each(k, resumed);
    }
    err = resumed ? group_each(k, true) : 0;
    while (!err) { /* the next group with a parked row */
        err = store_ask(k->s, &st, SQL_PARKED_NEXT,
                        SQL_VALUES(value_text(k->at.group, k->at.group_size)));
        if (err > 0 && sqlite3_column_bytes(st, 0) > (int)sizeof k->at.group)
            err = -EUCLEAN;
        if (err > 0) {
            k->at.group_size = (size_t)sqlite3_column_bytes(st, 0);
            memcpy(k->at.group, sqlite3_column_text(st, 0), k->at.group_size);
        }
        err = store_answered(k->s, st, err);
        if (!err)
            err = group_each(k, false);
    }
    return err == -ENOENT ? 0 : err;
}

/* ---- all ---- */

void waiting_place_of(const struct waiting_row *w, struct waiting_place *out)
{
    const struct store_row *m = &w->m;

    *out = (struct waiting_place){
        .parked = m->state == STORE_PARKED, .at = m->due_ns, .row = m->row};
    if (!out->parked)
        return;
    out->at = m->receive_seq;
    out->priority = m->priority;
    out->group_size = m->group_size;
    memcpy(out->group, m->group ? m->group : "", m->group_size);
}

int waiting_each(struct store *s, const struct waiting_filter *f,
                 const struct waiting_place *place,
                 int (*visit)(const struct waiting_row *w, void *arg),
                 void *arg)
{
    struct walk k = {.s = s, .f = f, .at = *place, .visit = visit, .arg = arg};
    const unsigned parked =
        WAITING_BIT(WAITING_PARKED) | WAITING_BIT(WAITING_HELD);
    const unsigned later =
        WAITING_BIT(WAITING_DELAYED) | WAITING_BIT(WAITING_RETRY);
    enum sql_id all = f->group ? SQL_WAITING_GROUP : SQL_WAITING;
    int err = 0;

    if (!k.at.parked) {
        /* Visit the rows that are due, then the later rows: of one group, of
         * one kind, or all. */
        if (f->states & WAITING_BIT(WAITING_READY))
            err = rows_each(&k, all, f->now_ns);
        if (k.at.at < f->now_ns) {
            k.at.at = f->now_ns; /* after the rows that are due */
            k.at.row = INT64_MAX;
        }
        if (!err && f->states & later)
            err = rows_each(&k,
                            f->group || (f->states & later) == later
                                ? all
                                : SQL_WAITING_KIND,
                            UINT64_MAX);
        k.at = (struct waiting_place){0};
    }
    return !err && f->states & parked ? parked_each(&k) : err;
}

int waiting_group_blocked(struct store *s, const char *group, size_t size)
{
    int64_t row;
    int err = store_number(s, &row, SQL_GROUP_HEAD,
                           SQL_VALUES(value_text(group, size)));

    return err == -ENOENT ? NO : err ? err : YES;
}

int waiting_get(struct store *s, int64_t row, const struct waiting_filter *f,
                int (*visit)(const struct waiting_row *w, void *arg), void *arg)
{
    const struct walk k = {.f = f};
    struct store_page page;
    struct waiting_row *w;
    int64_t letter;
    int err =
        store_page_read(s, &page, waiting_copy, &k, SQL_WAITING_ROW,
                        SQL_VALUES(value_int(row), value_u64(f->body_most)));

    if (page.count == 0)
        return err < 0 ? err : -ENOENT;
    w = page.rows[0];
    if (!err && w->m.state == STORE_PARKED && f->holds) {
        err = store_group_letter(s, w->m.group, w->m.group_size, &letter);
        if (!err)
            w->state = WAITING_HELD;
        err = err == -ENOENT ? 0 : err;
    }
    err = err < 0 ? err : visit(w, arg);
    free(w);
    return err;
}

/* ---- steering ---- */

struct steering {
    const struct waiting_steer *order;
    enum steered *out;
};

/* Cancel a row of the spool, or find that it is due already. Returns enum
 * steered, or -errno. */
static int spooled_steer(struct sql *sql, const struct waiting_steer *order,
                         int64_t key)
{
    int64_t cancelled = 0;
    int err = -ENOENT;

    if (order->cancel)
        err = sql_change(sql, SQL_SPOOL_CANCEL,
                         SQL_VALUES(value_int(key), value_u64(order->most)));
    if (!err)
        err = sql_key_free(sql, store_spool_seq(key));
    if (err != -ENOENT)
        return err ? err : STEERED;
    /* Find out why the row was not marked. */
    err = sql_number(sql, &cancelled, SQL_SPOOL_CANCELLED,
                     SQL_VALUES(value_int(key)));
    if (err != STEP_ROW)
        return err < 0 ? err : STEERED_GONE;
    return cancelled || !order->cancel ? STEERED_BEFORE : STEERED_IN_FLIGHT;
}

/* Cancel a row, or make it due. Returns enum steered, or -errno. */
static int row_steer(struct sql *sql, const struct waiting_steer *order,
                     int64_t row)
{
    enum sql_id id = order->cancel ? SQL_CANCEL : SQL_RUN_NOW;
    int err = sql_change(sql, id,
                         SQL_VALUES(value_int(row), value_u64(order->now_ns)));
    int64_t seq = 0;
    int state;

    if (!err && order->cancel) { /* free its unique key */
        err = sql_number(sql, &seq, SQL_ROW_SEQ, SQL_VALUES(value_int(row)));
        err = err < 0 ? err : sql_key_free(sql, (uint64_t)seq);
    }
    if (err != -ENOENT)
        return err ? err : STEERED;
    state = sql_row_state(sql, row);
    if (state < 0)
        return state;
    return state == STORE_WAITING || state == STORE_PARKED ? STEERED_BEFORE
                                                           : STEERED_GONE;
}

/* Change all rows or none. */
static int steer_apply(struct sql *sql, void *arg)
{
    const struct steering *s = arg;
    const struct waiting_steer *order = s->order;

    if (order->may && !order->may(order->arg))
        return -EAGAIN;
    for (size_t i = 0; i < order->count; i++) {
        int is = STEERED_IN_FLIGHT;

        if (!order->skip || !order->skip[i])
            is = order->rows[i] < 0 ? spooled_steer(sql, order, -order->rows[i])
                                    : row_steer(sql, order, order->rows[i]);
        if (is < 0)
            return is;
        s->out[i] = (enum steered)is;
    }
    return 0;
}

/* Crash before the commit: each message waits as before. After it: the messages
 * to run now are due, and the cancelled ones are marked. A marked message is
 * never given to a handler, because each call that takes it reports the mark
 * (mq_take_due, mq_unpark, spool_take). */
int waiting_steer(struct store *s, const struct waiting_steer *order,
                  enum steered *out)
{
    struct steering all = {.order = order, .out = out};

    return FAULT_POINTS("waiting_steer",
                        store_write(s, steer_apply, NULL, &all));
}
