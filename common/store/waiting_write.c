/* waiting_write.c - what an operator does to messages that wait; see waiting.h
 */
#include <errno.h>

#include "common/base/fault_point.h"
#include "common/store/spool.h"
#include "common/store/sql.h"
#include "common/store/waiting.h"

struct steering {
    const struct waiting_steer *order;
    enum waiting_steered *out;
};

/* spooled_left - one that got no mark: enum waiting_steered, or -errno */
static int spooled_left(struct sql *sql, int64_t key, bool cancel)
{
    sqlite3_stmt *st;
    int err =
        sql_bind(sql, SQL_SPOOL_CANCELLED, &st, SQL_VALUES(value_int(key)));
    int is;

    if (err)
        return err;
    is = sql_step(st);
    if (is == STEP_ROW)
        is = sqlite3_column_int(st, 0) || !cancel ? WAITING_NOT_SO
                                                  : WAITING_IN_FLIGHT;
    else if (is == STEP_END)
        is = WAITING_GONE;
    sql_done(st);
    return is;
}

/* spooled_one - the same as steer_one of a row of the spool */
static int spooled_one(struct sql *sql, const struct waiting_steer *order,
                       int64_t key)
{
    int err = -ENOENT;

    if (order->cancel)
        err = sql_change(sql, SQL_SPOOL_CANCEL,
                         SQL_VALUES(value_int(key), value_u64(order->most)));
    if (!err)
        err = sql_key_free(sql, store_spool_seq(key));
    if (err != -ENOENT)
        return err ? err : WAITING_STEERED;
    return spooled_left(sql, key, order->cancel);
}

/* Free the unique key, if any, of a row that will not run. */
static int row_key_free(struct sql *sql, int64_t row)
{
    sqlite3_stmt *st;
    uint64_t seq = 0;
    int err = sql_bind(sql, SQL_ROW_SEQ, &st, SQL_VALUES(value_int(row)));

    if (err)
        return err;
    err = sql_step(st);
    if (err == STEP_ROW)
        seq = sql_column_u64(st, 0);
    sql_done(st);
    return err < 0 ? err : sql_key_free(sql, seq);
}

/* steer_one - a row: enum waiting_steered, or -errno */
static int steer_one(struct sql *sql, const struct waiting_steer *order,
                     int64_t row)
{
    enum sql_id id = order->cancel ? SQL_CANCEL : SQL_RUN_NOW;
    int err = sql_change(sql, id,
                         SQL_VALUES(value_int(row), value_u64(order->now_ns)));
    int state;

    if (!err && order->cancel)
        err = row_key_free(sql, row);
    if (err != -ENOENT)
        return err ? err : WAITING_STEERED;
    state = sql_row_state(sql, row);
    if (state < 0)
        return state;
    return state == STORE_WAITING || state == STORE_PARKED ? WAITING_NOT_SO
                                                           : WAITING_GONE;
}

/* steer_apply - all of them, or none */
static int steer_apply(struct sql *sql, void *arg)
{
    const struct steering *s = arg;
    const struct waiting_steer *order = s->order;

    if (order->may && !order->may(order->arg))
        return -EAGAIN;
    for (size_t i = 0; i < order->count; i++) {
        int is = WAITING_IN_FLIGHT;

        if (!order->skip || !order->skip[i])
            is = order->rows[i] < 0 ? spooled_one(sql, order, -order->rows[i])
                                    : steer_one(sql, order, order->rows[i]);
        if (is < 0)
            return is;
        s->out[i] = (enum waiting_steered)is;
    }
    return 0;
}

/* waiting_steer - one commit
 * Crash before it: each message waits as before. After it: one that is to run
 * now is due, and one that is cancelled has its mark, with which it is given to
 * no handler any more, whichever call takes it (mq_take_due, mq_unpark,
 * spool_take).
 */
int waiting_steer(struct store *s, const struct waiting_steer *order,
                  enum waiting_steered *out)
{
    struct steering all = {.order = order, .out = out};
    int err;

    FAULT_POINT("waiting_steer_before");
    err = store_write(s, steer_apply, NULL, &all);
    FAULT_POINT("waiting_steer_after");
    return err;
}

struct leaving {
    struct store_row *m;
    bool (*may)(void *arg);
    void *arg;
};

/* left_apply - without its body and its group: no handler gets it */
static int left_apply(struct sql *sql, void *arg)
{
    const struct leaving *l = arg;
    struct store_row *m = l->m;
    int64_t row;
    int err;

    if (!l->may(l->arg))
        return -EAGAIN;
    m->state = STORE_WAITING;
    m->flags |= STORE_CANCELLED;
    err = sql_insert_row(sql, m, "", &row);
    return err ? err : sql_key_free(sql, m->receive_seq);
}

/* waiting_cancel_left - one commit
 * Crash before it: the message is in its slot, and nobody was told anything.
 * After it: a start finds the row by the receive sequence of the slot, takes
 * that for settled and frees it (mq_recover.c), and the row comes with its mark
 * as any that was cancelled. So there is one message whatever happens.
 */
int waiting_cancel_left(struct store *s, struct store_row *m,
                        bool (*may)(void *arg), void *arg)
{
    struct leaving l = {m, may, arg};
    int err;

    FAULT_POINT("waiting_left_before");
    err = store_write(s, left_apply, NULL, &l);
    FAULT_POINT("waiting_left_after");
    return err;
}
