/* settle.c - verdict -> done | retry | dead (see settle.h)
 *
 * One order everywhere: the store has it on the disk, then the slot is FREE.
 * Crash before the commit: the slot is RUNNING (or HELD), the message runs
 * again. Crash between: recovery finds the verdict in the store, by the row's
 * state or by the receive sequence, and frees the slot. So a crash can repeat a
 * message, never lose one, and never give it two final states.
 */
#include "worker/settle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/container.h"
#include "worker/dead_queue.h"
#include "worker/ordered.h"

#define WAIT_FIRST NS_PER_S
#define WAIT_MOST  (5 * NS_PER_S)

/* What a verdict does to the store. */
struct op {
    enum { OP_PUT, OP_DONE, OP_DISCARD } kind; /* the last two delete the row */
    bool letter;         /* it was sent again by an operator */
    struct group *lease; /* of its group; NULL: none */
    uint64_t took_ns;    /* the handler */
    uint64_t wait_ns;    /* until the retry */
    struct store_row row;
    const struct store_attempt *attempt; /* NULL: none */
};

/* A verdict that could not be written yet, with copies of what it points to. */
struct pending {
    STAILQ_ENTRY(pending) link;
    struct slot *slot;
    struct op op;
    struct store_attempt attempt;
    char error[OUTCOME_ERROR];
    char group[HEADER_VALUE_MAX];
    char tail[];
};

/* settle_row - what the store keeps of a message */
void settle_row(struct store_row *m, const struct delivery *d)
{
    const struct slot *slot = d->slot;
    struct slot_word w = slot_word(slot);

    *m = (struct store_row){
        .row = slot->row,
        .receive_seq = slot->seq,
        .id = slot->id,
        .priority = slot->priority,
        .attempts = slot->failures,
        .crashes = w.crashes,
        .group = d->group.at,
        .group_size = d->group.size,
        .first_received_ns = slot->received_ns,
        .data = slot->body,
        .size = atomic_load(&slot->length),
        .header_size = d->header.bytes,
    };
    if (w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        m->flags |= STORE_LENGTH_INFERRED;
}

/* op_write - durable on 0
 * A row that is gone was a letter on its way again that an operator discarded:
 * so is the message. A sequence that is there already was written by a worker
 * that died before it freed the slot. Nothing is left to write for either.
 */
static int op_write(struct engine *e, struct op *op)
{
    int err;

    if (op->kind != OP_PUT)
        return store_delete(e->store, op->row.row);
    err = store_put(e->store, &op->row, op->attempt, &op->row.row);
    if (err == -ENOENT)
        op->kind = OP_DISCARD;
    return err == -ENOENT || err == -EEXIST ? 0 : err;
}

/* tell_waiting - a message that comes again */
static void tell_waiting(struct engine *e, const struct store_row *m,
                         uint64_t wait_ns, const char *id)
{
    uint64_t wait = (wait_ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    char until[TIME_TEXT];

    if (m->attempts == 0) {
        log_debug("delayed", F_STR("msg", id),
                  F_STR("until", time_print(m->due_ns, until)));
        return;
    }
    atomic_fetch_add(&e->count.retried, 1);
    log_warn("retry", F_STR("msg", id), F_STR("error", m->error),
             F_UINT("attempt", m->attempts), F_UINT("of", e->set->max_attempts),
             F_DURATION("in", wait));
}

/* op_tell - count and log what is final now */
static void op_tell(struct engine *e, const struct op *op)
{
    const struct store_row *m = &op->row;
    char id[ULID_TEXT];

    if (op->kind == OP_DONE) {
        atomic_fetch_add_explicit(&e->count.done, 1, memory_order_relaxed);
        if (!log_enabled(LOG_DEBUG))
            return;
    }
    ulid_print(m->id, id);
    if (op->kind == OP_DONE) {
        log_debug("done", F_STR("msg", id),
                  F_DURATION("took", op->took_ns / NS_PER_US * NS_PER_US));
    } else if (op->kind == OP_DISCARD) {
        atomic_fetch_add(&e->count.discarded, 1);
        log_info("discarded", F_STR("msg", id), F_STR("error", m->error));
    } else if (m->state == STORE_WAITING) {
        tell_waiting(e, m, op->wait_ns, id);
    } else {
        atomic_fetch_add(&e->count.dead, 1);
        log_warn("dead", F_STR("msg", id),
                 F_STR("reason", store_reason_text(m->reason)),
                 F_STR("error", m->error), F_UINT("attempts", m->attempts));
    }
}

/* op_after - what follows from a verdict that is durable
 * The group knows its blocked head before the row can be taken again.
 */
static void op_after(struct engine *e, const struct op *op, int64_t landed)
{
    bool put = op->kind == OP_PUT;

    op_tell(e, op);
    if (op->lease)
        ordered_settled(e, op->lease, put ? &op->row : NULL, op->letter);
    if (landed)
        retries_land(e->retries, landed);
    if (put && op->row.state == STORE_WAITING)
        retries_note(e->retries, op->row.due_ns);
    if (put && op->row.state == STORE_DEAD && e->dead_queue)
        dead_queue_poke(e->dead_queue);
}

/* op_verdict - as the handler's side sees it; false: it only waits for its time */
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
 * Whoever wants to hear of it comes last: nothing waits for him but this thread.
 */
static void op_retire(struct engine *e, struct slot *slot, const struct op *op,
                      int64_t landed)
{
    struct settlement s = {.slot = slot};

    if (!e->ops->settled || !e->started) {
        slot_retire(slot);
        op_after(e, op, landed);
        return;
    }
    s.was = slot_word(slot);
    s.group = (struct header_text){op->row.group, op->row.group_size};
    s.took_ns = op->took_ns;
    slot_retire(slot);
    op_after(e, op, landed);
    if (op_verdict(op, &s.verdict))
        e->ops->settled(e->handler, &s);
}

/* pending_make - a copy that outlives the delivery; NULL: no memory */
static struct pending *pending_make(struct slot *slot, const struct op *op)
{
    size_t tail = op->attempt ? op->attempt->stderr_size : 0;
    struct pending *p = calloc(1, sizeof *p + tail);

    if (!p)
        return NULL;
    p->slot = slot;
    p->op = *op;
    if (op->row.error) {
        strncpy(p->error, op->row.error, sizeof p->error - 1);
        p->op.row.error = p->error;
    }
    if (op->row.group) {
        memcpy(p->group, op->row.group, op->row.group_size);
        p->op.row.group = p->group;
    }
    if (op->attempt) {
        p->attempt = *op->attempt;
        if (tail)
            memcpy(p->tail, op->attempt->stderr_tail, tail);
        p->attempt.stderr_tail = p->tail;
        p->attempt.error = p->error;
        p->op.attempt = &p->attempt;
    }
    return p;
}

/* give_back - not delivered: first in line again, in its group if it has one */
static void give_back(struct engine *e, struct slot *slot, struct group *lease)
{
    if (lease)
        ordered_return(e, lease, slot);
    else
        engine_hold_slot(e, slot, true);
}

/* keep_pending - nothing more is taken until the store can be written
 * The slot is HELD from here on: a worker that dies meanwhile did not die under
 * the handler, so no crash is counted; the message runs again, redelivered.
 */
static enum settled keep_pending(struct engine *e, struct slot *slot,
                                 const struct op *op, int err)
{
    struct pending *p = pending_make(slot, op);

    slot_unrun(slot, true);
    if (!p) {
        give_back(e, slot, op->lease);
        engine_trouble(e, "memory", ENOMEM);
        return SETTLED_KEPT;
    }
    atomic_fetch_add(&e->unsettled, 1);
    pthread_mutex_lock(&e->settle_mtx);
    if (STAILQ_EMPTY(&e->pending)) {
        log_error("store_cannot_write", F_STR("queue", e->set->queue),
                  F_STR("error", strerror(-err)), F_STR("store", e->dir.folder),
                  F_STR("next", err == -ENOSPC
                                    ? "free some space; nothing is taken and "
                                      "nothing is lost until then"
                                    : "check the disk; nothing is taken and "
                                      "nothing is lost until then"));
        e->settle_wait_ns = WAIT_FIRST;
        engine_hold(e, HOLD_STORE);
        timers_start(e->timers, &e->settle_timer,
                     clock_mono_ns() + e->settle_wait_ns);
    }
    STAILQ_INSERT_TAIL(&e->pending, p, link);
    pthread_mutex_unlock(&e->settle_mtx);
    return SETTLED_KEPT;
}

/* op_settle - write, then free the slot */
static enum settled op_settle(struct engine *e, struct slot *slot,
                              struct op *op)
{
    int64_t landed = slot->row;
    int err = op_write(e, op);

    if (err)
        return keep_pending(e, slot, op, err);
    op_retire(e, slot, op, landed);
    return SETTLED_FREE;
}

/* pending_flush - write what could not be written; in order; first error ends */
static int pending_flush(struct engine *e)
{
    struct pending *p;
    int err = 0;

    pthread_mutex_lock(&e->settle_mtx);
    while (!err && (p = STAILQ_FIRST(&e->pending)) != NULL) {
        int64_t landed = p->slot->row;

        pthread_mutex_unlock(&e->settle_mtx);
        err = op_write(e, &p->op);
        if (!err) {
            op_retire(e, p->slot, &p->op, landed);
            custody_release(e->custody, p->slot);
            atomic_fetch_sub(&e->unsettled, 1);
        }
        pthread_mutex_lock(&e->settle_mtx);
        if (!err) {
            STAILQ_REMOVE_HEAD(&e->pending, link);
            free(p);
        }
    }
    if (err) {
        e->settle_wait_ns *= 2;
        if (e->settle_wait_ns > WAIT_MOST)
            e->settle_wait_ns = WAIT_MOST;
        timers_start(e->timers, &e->settle_timer,
                     clock_mono_ns() + e->settle_wait_ns);
    }
    pthread_mutex_unlock(&e->settle_mtx);
    return err;
}

/* flush_job - try again, on a pool thread: a write may wait for the disk */
static void flush_job(struct pool_job *job)
{
    struct engine *e = CONTAINER_OF(job, struct engine, settle_job);

    if (pending_flush(e) != 0)
        return;
    log_info("store_writes_again", F_STR("queue", e->set->queue));
    engine_unhold(e, HOLD_STORE);
    /* The next trouble may have come between, and its hold is lifted now. */
    pthread_mutex_lock(&e->settle_mtx);
    if (!STAILQ_EMPTY(&e->pending))
        engine_hold(e, HOLD_STORE);
    pthread_mutex_unlock(&e->settle_mtx);
}

/* flush_due - the wheel says it is time */
static void flush_due(struct timer *timer)
{
    struct engine *e = CONTAINER_OF(timer, struct engine, settle_timer);

    if (pool_submit(e->pool, &e->settle_job) < 0)
        timers_start(e->timers, timer, clock_mono_ns() + WAIT_MOST);
}

void settle_init(struct engine *e)
{
    pthread_mutex_init(&e->settle_mtx, NULL);
    STAILQ_INIT(&e->pending);
    timer_init(&e->settle_timer, flush_due);
    e->settle_job.run = flush_job;
}

/* unfinished - tell of a message that stays in its slot */
static void unfinished(struct slot *slot, void *arg)
{
    struct delivery d;

    (void)arg;
    delivery_read(&d, slot, 0); /* names it, if nobody has yet */
    log_warn("unfinished", F_STR("msg", d.id),
             F_STR("next", "stays in custody; the next worker goes on with it, "
                           "no attempt counted"));
}

/* settle_fini - one last try; what stays is in its slot, for the next start */
void settle_fini(struct engine *e)
{
    struct pending *p;

    if (!STAILQ_EMPTY(&e->pending))
        (void)pending_flush(e);
    while ((p = STAILQ_FIRST(&e->pending)) != NULL) {
        STAILQ_REMOVE_HEAD(&e->pending, link);
        free(p);
    }
    if (e->started)
        custody_each(e->custody, unfinished, NULL);
    pthread_mutex_destroy(&e->settle_mtx);
}

/* op_begin - what every verdict carries */
static void op_begin(struct op *op, const struct delivery *d)
{
    op->lease = d->lease;
    op->letter = d->slot->row && d->header.fields & HEADER_LETTER;
}

/* settle_dead - a dead letter that did not run, or not again */
enum settled settle_dead(struct engine *e, struct delivery *d,
                         enum store_reason reason, const char *error)
{
    struct op op = {.kind = OP_PUT};

    op_begin(&op, d);
    settle_row(&op.row, d);
    op.row.state = STORE_DEAD;
    op.row.died_ns = clock_wall_ns();
    op.row.reason = reason;
    op.row.error = error;
    return op_settle(e, d->slot, &op);
}

/* later_op - wait in the store until it is time */
static void later_op(struct engine *e, struct op *op, struct delivery *d,
                     struct slot *slot)
{
    uint64_t now = clock_wall_ns(), when;

    delivery_read(d, slot, e->set->group_separator);
    when = d->header.not_before_ns;
    *op = (struct op){.kind = OP_PUT};
    settle_row(&op->row, d);
    op->row.state = STORE_WAITING;
    op->row.due_ns = ns_add(clock_steady_ns(), when > now ? when - now : 0);
}

/* settle_later - one commit for all; if that fails, each goes its own way */
void settle_later(struct engine *e, struct slot *const *slots, size_t n)
{
    struct delivery d[SETTLE_LATER_MOST];
    struct store_row rows[SETTLE_LATER_MOST] = {{0}};
    struct op op;
    int err;

    for (size_t i = 0; i < n; i++) {
        later_op(e, &op, &d[i], slots[i]);
        rows[i] = op.row;
    }
    err = store_put_all(e->store, rows, n);
    for (size_t i = 0; i < n; i++) {
        op = (struct op){.kind = OP_PUT, .row = rows[i]};
        if (!err) {
            slot_retire(slots[i]);
            op_after(e, &op, 0);
        }
        if (!err || op_settle(e, slots[i], &op) == SETTLED_FREE)
            custody_release(e->custody, slots[i]);
    }
}

/* wait_of - what the handler asked for, else the backoff */
static uint64_t wait_of(const struct engine *e, const struct outcome *out,
                        const struct store_row *m)
{
    if (out->delayed)
        return out->delay_ns;
    return backoff_delay(&e->set->backoff, m->attempts,
                         (unsigned)e->set->jitter_percent);
}

/* failed - one more failure: again later, or dead */
static enum settled failed(struct engine *e, struct delivery *d,
                           struct outcome *out, enum store_reason reason)
{
    struct store_attempt attempt = {
        .started_ns = d->slot->started_ns,
        .duration_ns = out->duration_ns,
        .error = out->error,
        .stderr_tail = out->tail,
        .stderr_size = out->tail_size,
    };
    struct op op = {
        .kind = OP_PUT, .took_ns = out->duration_ns, .attempt = &attempt};

    op_begin(&op, d);
    settle_row(&op.row, d);
    op.row.attempts++;
    op.row.error = out->error;
    if (reason != REASON_NONE) {
        op.row.state = STORE_DEAD;
        op.row.died_ns = clock_wall_ns();
        op.row.reason = reason;
    } else {
        op.row.state = STORE_WAITING;
        op.wait_ns = wait_of(e, out, &op.row);
        op.row.due_ns = ns_add(clock_steady_ns(), op.wait_ns);
    }
    return op_settle(e, d->slot, &op);
}

/* finished - done or discarded: no trace is kept
 * A message that has no row costs one store to the slot's state.
 */
static enum settled finished(struct engine *e, struct delivery *d, bool discard,
                             const struct outcome *out)
{
    struct op op = {.kind = discard ? OP_DISCARD : OP_DONE,
                    .took_ns = out->duration_ns,
                    .row = {.row = d->slot->row,
                            .id = d->slot->id,
                            .group = d->group.at,
                            .group_size = d->group.size}};

    if (discard && out->error[0])
        op.row.error = out->error;
    op_begin(&op, d);
    if (d->slot->row)
        return op_settle(e, d->slot, &op);
    op_retire(e, d->slot, &op, 0);
    return SETTLED_FREE;
}

/* plain - nobody but the queue has heard of the message, and the breaker has
 * nothing to learn from its end */
static bool plain(const struct engine *e, const struct delivery *d)
{
    return !d->slot->row && !d->lease && e->set->breaker_failures == 0 &&
           breaker_state(&e->breaker) == BREAKER_CLOSED &&
           !log_enabled(LOG_DEBUG);
}

/* plain_done - what finished comes to then: the usual end, so it is short */
static enum settled plain_done(struct engine *e, struct delivery *d,
                               const struct outcome *out)
{
    struct slot_word was = slot_word(d->slot);

    slot_retire(d->slot);
    atomic_fetch_add_explicit(&e->count.done, 1, memory_order_relaxed);
    if (e->ops->settled)
        e->ops->settled(e->handler,
                        &(struct settlement){.slot = d->slot,
                                             .was = was,
                                             .group = d->group,
                                             .verdict = MQW_DONE,
                                             .took_ns = out->duration_ns});
    return SETTLED_FREE;
}

/* exhausted - one more failure is the last, by number or by age */
static bool exhausted(const struct engine *e, const struct delivery *d)
{
    uint64_t limit = e->set->retry_for_ns;

    return d->slot->failures + 1 >= e->set->max_attempts ||
           (limit && ns_add(d->slot->received_ns, limit) <= clock_wall_ns());
}

/* by_verdict - the handler ran to its end */
static enum settled by_verdict(struct engine *e, struct delivery *d,
                               struct outcome *out)
{
    switch (out->verdict) {
    case MQW_DONE:
        if (plain(e, d))
            return plain_done(e, d, out);
        engine_breaker(e, BREAKER_GOOD, NULL);
        return finished(e, d, false, out);
    case MQW_DISCARD:
        engine_breaker(e, BREAKER_GOOD, NULL);
        return finished(e, d, true, out);
    case MQW_DEAD:
        engine_breaker(e, BREAKER_GOOD, NULL);
        return failed(e, d, out, REASON_REJECTED);
    case MQW_RETRY:
    default:
        engine_breaker(e, BREAKER_BAD, out->error);
        return failed(e, d, out,
                      exhausted(e, d) ? REASON_EXHAUSTED : REASON_NONE);
    }
}

/* settle - a handler ended */
enum settled settle(struct engine *e, struct delivery *d, struct outcome *out)
{
    switch (out->kind) {
    case OUTCOME_NOT_STARTED:
        slot_unrun(d->slot, out->ran);
        give_back(e, d->slot, d->lease);
        engine_breaker(e, BREAKER_NOT_STARTED, out->error);
        return SETTLED_KEPT;
    case OUTCOME_STOPPED:
        slot_unrun(d->slot, true); /* settle_fini tells of it */
        return SETTLED_KEPT;
    case OUTCOME_VERDICT:
    default:
        return by_verdict(e, d, out);
    }
}
