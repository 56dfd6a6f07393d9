/* settle_op.c - what a verdict does to the store (see settle_op.h) */
#include "worker/flow/settle_op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/source/mq/dead_queue.h"
#include "worker/flow/group_dispatch.h"
#include "worker/source/mq/delivery_read.h"

/* op_write - durable on 0
 * A row that is gone was a letter on its way again that an operator discarded:
 * so is the message. A sequence that is there already was written by a worker
 * that died before it freed the slot. Nothing is left to write for either.
 * Into a file that has lost its name nothing is written: it ends with us. What
 * a commit wrote just before that was seen is there as long as the rest of the
 * store, and put back with it.
 */
int op_write(struct flow *f, struct op *op)
{
    int err;

    if (atomic_load(&f->gate.holds) & HOLD_STORE_GONE)
        return -ESTALE;
    if (op->kind != OP_PUT)
        return store_delete(f->store, op->row.row);
    err = store_put(f->store, &op->row, op->attempt, &op->row.row);
    if (err == -ENOENT)
        op->kind = OP_DISCARD;
    return err == -ENOENT || err == -EEXIST ? 0 : err;
}

/* tell_waiting - a message that comes again */
static void tell_waiting(struct flow *f, const struct store_row *m,
                         uint64_t wait_ns, const char *id)
{
    uint64_t wait = (wait_ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    char until[TIME_TEXT];

    if (m->attempts == 0) {
        log_debug("delayed", F_STR("msg", id),
                  F_STR("until", time_print(m->due_ns, until)));
        return;
    }
    log_warn("retry", F_STR("msg", id), F_STR("error", m->error),
             F_UINT("attempt", m->attempts), F_UINT("of", f->set->max_attempts),
             F_DURATION("in", wait));
}

/* op_end - how it ended, for the journal */
static enum counters_end op_end(const struct op *op)
{
    if (op->kind == OP_PUT)
        return op->row.state == STORE_DEAD ? COUNTERS_DEAD : COUNTERS_NO_END;
    return op->kind == OP_DONE ? COUNTERS_DONE : COUNTERS_DISCARDED;
}

/* op_add - to the numbers of one block */
static void op_add(struct counters *c, struct counters_block *b,
                   const struct op *op)
{
    const struct store_row *m = &op->row;
    enum counters_end end = op_end(op);

    if (end == COUNTERS_NO_END && m->state == STORE_WAITING && op->attempt)
        counters_add(&b->retried, 1);
    if (end == COUNTERS_NO_END)
        return;
    counters_add(end == COUNTERS_DONE   ? &b->done
                 : end == COUNTERS_DEAD ? &b->dead
                                        : &b->discarded,
                 1);
    if (end == COUNTERS_DEAD && m->reason == REASON_EXPIRED)
        counters_add(&b->expired, 1);
    counters_settled(c, end, &m->id,
                     end == COUNTERS_DEAD ? m->died_ns : op->end_ns);
}

/* op_count - where the work item counts, or in the rest */
static void op_count(struct flow *f, const struct op *op)
{
    if (op->count) {
        op_add(f->counters, op->count, op);
    } else {
        op_add(f->counters, counters_rest(f->counters), op);
        counters_rest_done(f->counters);
    }
    if (op->kind == OP_PUT && op->row.error)
        counters_say(f->counters, COUNTERS_LAST_ERROR, op->row.error,
                     op->end_ns ? op->end_ns : clock_wall_ns());
}

/* op_tell - log what is final now */
static void op_tell(struct flow *f, const struct op *op)
{
    const struct store_row *m = &op->row;
    char id[ULID_TEXT];

    if (op->kind == OP_DONE && !log_enabled(LOG_DEBUG))
        return;
    ulid_print(m->id, id);
    if (op->kind == OP_DONE) {
        log_debug("done", F_STR("msg", id),
                  F_DURATION("took", op->took_ns / NS_PER_US * NS_PER_US));
    } else if (op->kind == OP_DISCARD) {
        log_info("discarded", F_STR("msg", id), F_STR("error", m->error));
    } else if (m->state == STORE_WAITING) {
        tell_waiting(f, m, op->wait_ns, id);
    } else {
        log_warn("dead", F_STR("msg", id),
                 F_STR("reason", dead_reason_text(m->reason)),
                 F_STR("error", m->error), F_UINT("attempts", m->attempts));
    }
}

/* died_late - a letter of a group that nobody had the lease of
 * A start that makes the groups finds it in the store; only what that could not
 * write, and so comes later, is told. What a closed group has refused is none
 * of its own: a group that it held would refuse it again.
 */
static bool died_late(const struct flow *f, const struct op *op)
{
    const struct store_row *m = &op->row;

    return f->started && op->kind == OP_PUT && m->state == STORE_DEAD &&
           m->group && m->reason != REASON_BAD_HEADER;
}

/* op_after - what follows from a verdict that is durable
 * The group knows its blocked head before the row can be taken again. No letter
 * is moved before recovery has found all slots, as one may be in a slot, too:
 * engine_run has those moved.
 */
void op_after(struct flow *f, const struct op *op, int64_t landed)
{
    bool put = op->kind == OP_PUT;

    op_count(f, op);
    op_tell(f, op);
    if (op->lease)
        dispatch_settled(f, op->lease, put ? &op->row : NULL, op->letter);
    else if (died_late(f, op))
        dispatch_died(f, &op->row);
    if (landed)
        due_rows_release(f->due_rows, landed);
    if (put && op->row.state == STORE_WAITING)
        due_rows_expect(f->due_rows, op->row.due_ns);
    if (put && op->row.state == STORE_DEAD && f->dead_queue && f->started)
        dead_queue_poke(f->dead_queue);
    if (put || landed)
        backlog_look(f);
}

/* settle_died - to the log, the numbers, its group */
void settle_died(void *flow, const struct store_row *m)
{
    struct flow *f = flow;
    struct counters_block *b = counters_rest(f->counters);
    char id[ULID_TEXT];

    counters_add(&b->dead, 1);
    counters_settled(f->counters, COUNTERS_DEAD, &m->id, m->died_ns);
    counters_rest_done(f->counters);
    log_warn("dead", F_STR("msg", ulid_print(m->id, id)),
             F_STR("reason", dead_reason_text(m->reason)),
             F_STR("error", m->error), F_UINT("size", m->size),
             F_UINT("allowed", custody_body_bytes(f->custody)));
    if (m->group)
        dispatch_died(f, m);
    if (f->dead_queue)
        dead_queue_poke(f->dead_queue);
    backlog_look(f);
}

/* op_verdict - as the handler's side sees it; false: it only waits for its
 * time */
static bool op_verdict(const struct op *op, enum mqw_verdict *verdict)
{
    if (op->kind == OP_PUT) {
        *verdict = op->row.state == STORE_DEAD ? MQW_DEAD : MQW_RETRY;
        return op->row.state == STORE_DEAD || op->attempt;
    }
    *verdict = op->kind == OP_DONE ? MQW_DONE : MQW_DISCARD;
    return true;
}

/* op_retire - the store has what it needs: free the slot, tell all concerned
 * A row that was put has freed it already; one that was deleted, or is gone,
 * has not. Whoever wants to hear of it comes last: nothing waits for him but
 * this thread.
 */
void op_retire(struct flow *f, struct slot *slot, const struct op *op,
               int64_t landed)
{
    struct settlement s = {.group = {op->row.group, op->row.group_size},
                           .took_ns = op->took_ns};

    slot_retire(slot);
    op_after(f, op, landed);
    if (f->ops->settled && f->started && op_verdict(op, &s.verdict)) {
        message_read(&s.message, slot, op->was);
        f->ops->settled(f->handler, &s);
    }
}

/* op_give_back - not delivered: first in line again, in its group if it has
 * one */
void op_give_back(struct flow *f, struct slot *slot, struct group *lease)
{
    if (lease)
        dispatch_return(f, lease, slot);
    else
        ready_put(&f->ready, slot, true);
}
