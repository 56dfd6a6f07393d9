/* settle.c - verdict -> done | retry | dead (see settle.h)
 *
 * One order everywhere: the store has it on the disk, then the slot is FREE,
 * then anything else is written: what becomes of the row comes after both.
 * Crash before the commit: the slot is RUNNING (or HELD), the message runs
 * again. Crash between: recovery finds the verdict in the store, by the row's
 * state or by the receive sequence, and frees the slot. So a crash can repeat a
 * message, never lose one, and never give it two final states.
 */
#include "worker/flow/settle.h"

#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/flow.h"
#include "worker/flow/settle_op.h"
#include "worker/flow/unsettled.h"
#include "worker/source/mq/row.h"
#include "worker/source/mq/delivery_read.h"

#define TIME_END ((uint64_t)INT64_MAX) /* of the store: in the year 2262 */

/* wait_cut - a wait from `now` on that the store has a time for */
static uint64_t wait_cut(uint64_t now, uint64_t wait)
{
    uint64_t most = now < TIME_END ? TIME_END - now : 0;

    return wait < most ? wait : most;
}

/* op_settle - write, then free the slot */
static enum settled op_settle(struct flow *f, struct slot *slot, struct op *op)
{
    int64_t landed = slot->row;
    int err;

    op->was = slot_word(slot);
    err = op_write(f, op);
    if (err) {
        unsettled_keep(&f->unsettled, slot, op, err);
        return SETTLED_KEPT;
    }
    FAULT_POINT("settle_after_write");
    op_retire(f, slot, op, landed);
    return SETTLED_FREE;
}

/* op_begin - what every verdict carries */
static void op_begin(struct op *op, const struct delivery *d)
{
    op->count = d->count;
    op->lease = d->lease;
    /* Its row, or what it came back to its group with, has not the header that
     * a letter was sent with. */
    op->letter = d->slot->row != 0;
}

/* settle_dead - a dead letter that did not run, or not again */
enum settled settle_dead(struct flow *f, struct delivery *d,
                         enum dead_reason reason, const char *error)
{
    struct op op = {.kind = OP_PUT};

    op_begin(&op, d);
    row_make(&op.row, d);
    op.row.state = STORE_DEAD;
    op.row.died_ns = clock_wall_ns();
    op.row.reason = reason;
    op.row.error = error;
    return op_settle(f, d->slot, &op);
}

/* settle_repeat - drop it; nobody else hears of it, as its id is that of a
 * message which ends, or has ended, by itself
 * Crash before the slot is FREE: it is HELD, found out again, and dropped.
 */
enum settled settle_repeat(struct flow *f, struct delivery *d)
{
    struct counters_block *b = d->count ? d->count : counters_rest(f->counters);

    log_warn("duplicate_letter", F_STR("msg", delivery_id(d)),
             F_UINT("letter", d->header.letter));
    slot_retire(d->slot);
    counters_add(&b->discarded, 1);
    if (!d->count)
        counters_rest_done(f->counters);
    return SETTLED_FREE;
}

/* settle_due - as its header says, from now on */
uint64_t settle_due(const struct delivery *d)
{
    uint64_t now = clock_wall_ns(), from = clock_steady_ns();
    uint64_t when = d->header.not_before_ns;

    return from + wait_cut(from, when > now ? when - now : 0);
}

/* later_op - wait in the store until it is time */
static void later_op(struct flow *f, struct op *op, struct delivery *d,
                     struct slot *slot)
{
    delivery_read(d, slot, f->set->group_separator);
    *op = (struct op){.kind = OP_PUT};
    row_make(&op->row, d);
    op->row.state = STORE_WAITING;
    op->row.due_ns = settle_due(d);
}

/* settle_later - one commit for all; if that fails, each goes its own way */
void settle_later(struct flow *f, struct slot *const *slots, size_t n)
{
    struct delivery d[SETTLE_LATER_MOST];
    struct store_row rows[SETTLE_LATER_MOST] = {{0}};
    struct op op;
    int err;

    for (size_t i = 0; i < n; i++) {
        later_op(f, &op, &d[i], slots[i]);
        rows[i] = op.row;
    }
    err = atomic_load(&f->gate.holds) & HOLD_STORE_GONE
              ? -ESTALE
              : store_put_all(f->store, rows, n);
    for (size_t i = 0; i < n; i++) {
        op = (struct op){.kind = OP_PUT, .row = rows[i]};
        if (!err) {
            FAULT_POINT("settle_later_after_put");
            op_after(f, &op, 0);
        }
        if (!err || op_settle(f, slots[i], &op) == SETTLED_FREE)
            custody_release(f->custody, slots[i]);
    }
}

/* wait_of - what the handler asked for, up to --max-delay, else the backoff */
static uint64_t wait_of(struct flow *f, const struct outcome *out,
                        const struct store_row *m)
{
    uint64_t most = f->set->max_delay_ns;
    struct backoff b;

    if (out->delayed)
        return out->delay_ns < most ? out->delay_ns : most;
    settings_backoff(f->set, &b);
    return backoff_delay(&b, m->attempts, (unsigned)f->set->jitter_percent);
}

/* ended_at - on the wall clock, without a look at it */
static uint64_t ended_at(const struct delivery *d, const struct outcome *out)
{
    return d->slot->started_ns + out->duration_ns;
}

/* failed - one more failure: again later, or dead */
static enum settled failed(struct flow *f, struct delivery *d,
                           struct outcome *out, enum dead_reason reason)
{
    struct store_attempt attempt = {
        .started_ns = d->slot->started_ns,
        .duration_ns = out->duration_ns,
        .error = out->error,
        .stderr_tail = out->tail,
        .stderr_size = out->tail_size,
    };
    struct op op = {.kind = OP_PUT,
                    .took_ns = out->duration_ns,
                    .end_ns = ended_at(d, out),
                    .attempt = &attempt};
    uint64_t now = clock_steady_ns();

    op_begin(&op, d);
    row_make(&op.row, d);
    op.row.attempts++;
    op.row.error = out->error;
    if (reason != REASON_NONE) {
        op.row.state = STORE_DEAD;
        op.row.died_ns = clock_wall_ns();
        op.row.reason = reason;
    } else {
        op.row.state = STORE_WAITING;
        op.wait_ns = wait_cut(now, wait_of(f, out, &op.row));
        op.row.due_ns = now + op.wait_ns;
    }
    return op_settle(f, d->slot, &op);
}

/* finished - done or discarded: no trace is kept
 * A message that has no row costs one store to the slot's state.
 */
static enum settled finished(struct flow *f, struct delivery *d, bool discard,
                             const struct outcome *out)
{
    struct op op = {.kind = discard ? OP_DISCARD : OP_DONE,
                    .took_ns = out->duration_ns,
                    .end_ns = ended_at(d, out),
                    .row = {.row = d->slot->row,
                            .id = d->slot->id,
                            .group = d->group.at,
                            .group_size = d->group.size}};

    if (discard && out->error[0])
        op.row.error = out->error;
    op_begin(&op, d);
    if (d->slot->row)
        return op_settle(f, d->slot, &op);
    op.was = slot_word(d->slot);
    op_retire(f, d->slot, &op, 0);
    return SETTLED_FREE;
}

/* plain - nobody but the queue has heard of the message, and the breaker has
 * nothing to learn from its end */
static bool plain(const struct flow *f, const struct delivery *d)
{
    return !d->slot->row && d->count && f->set->breaker_failures == 0 &&
           breaker_state(&f->gate.breaker) == BREAKER_CLOSED &&
           !log_enabled(LOG_DEBUG);
}

/* plain_done - what finished comes to then: the usual end, so it is short */
static enum settled plain_done(struct flow *f, struct delivery *d,
                               const struct outcome *out)
{
    slot_retire(d->slot);
    counters_add(&d->count->done, 1);
    counters_settled(f->counters, COUNTERS_DONE, &d->slot->id,
                     ended_at(d, out));
    if (d->lease)
        dispatch_settled(f, d->lease, NULL, false);
    if (f->ops->settled)
        f->ops->settled(f->handler,
                        &(struct settlement){.message = d->message,
                                             .group = d->group,
                                             .verdict = MQW_DONE,
                                             .took_ns = out->duration_ns});
    return SETTLED_FREE;
}

/* exhausted - one more failure is the last, by number or by age */
static bool exhausted(const struct flow *f, const struct delivery *d)
{
    uint64_t limit = f->set->retry_for_ns;

    return d->slot->failures + 1 >= f->set->max_attempts ||
           ns_add(d->slot->received_ns, limit) <= clock_wall_ns();
}

/* by_verdict - the handler ran to its end */
static enum settled by_verdict(struct flow *f, struct delivery *d,
                               struct outcome *out)
{
    switch (out->verdict) {
    case MQW_DONE:
        if (plain(f, d))
            return plain_done(f, d, out);
        gate_breaker(&f->gate, BREAKER_GOOD, NULL);
        return finished(f, d, false, out);
    case MQW_DISCARD:
        gate_breaker(&f->gate, BREAKER_GOOD, NULL);
        return finished(f, d, true, out);
    case MQW_DEAD:
        gate_breaker(&f->gate, BREAKER_GOOD, NULL);
        return failed(f, d, out, REASON_REJECTED);
    case MQW_RETRY:
    default:
        gate_breaker(&f->gate, BREAKER_BAD, out->error);
        return failed(f, d, out,
                      exhausted(f, d) ? REASON_EXHAUSTED : REASON_NONE);
    }
}

/* settle - a handler ended */
enum settled settle(struct flow *f, struct delivery *d, struct outcome *out)
{
    switch (out->kind) {
    case OUTCOME_NOT_STARTED:
        slot_unrun(d->slot, out->ran);
        op_give_back(f, d->slot, d->lease);
        gate_breaker(&f->gate, BREAKER_NOT_STARTED, out->error);
        return SETTLED_KEPT;
    case OUTCOME_UNSENT:
        slot_unrun(d->slot, false);
        op_give_back(f, d->slot, d->lease);
        return SETTLED_KEPT;
    case OUTCOME_STOPPED:
        slot_unrun(d->slot, true); /* keep_all writes it */
        return SETTLED_KEPT;
    case OUTCOME_VERDICT:
    default:
        return by_verdict(f, d, out);
    }
}
