/* settle.c - verdict -> done | retry | dead (see settle.h)
 *
 * The source (worker/source/mq/mq_settle.c) keeps a message from being lost
 * between a verdict and the disk. Here one thing counts: the consequences of a
 * verdict follow when it is durable, and not before.
 */
#include "worker/flow/settle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/config/settings.h"
#include "worker/flow/decision.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/known.h"
#include "worker/rules/verdict.h"

/* released - of a message that was settled without a lane */
static void released(struct flow *f, const struct settle *s)
{
    if (s->lane == LANE_NONE)
        f->source->ops->release(f->source, s->m);
}

/* give - to the source; the consequences are here, or come later */
static void give(struct flow *f, struct decision *dec)
{
    int err;

    if (f->source->ops->late) {
        unsettled_late(&f->unsettled, dec);
        return;
    }
    err = f->source->ops->settle(f->source, &dec->s, 1);
    if (err == -ESTALE) {
        decision_stale(f, dec);
    } else if (err) {
        unsettled_keep(&f->unsettled, dec, err);
    } else {
        decision_done(f, dec);
        released(f, &dec->s);
    }
}

/* settle_dead - a dead letter that did not run, or not again */
void settle_dead(struct flow *f, struct delivery *d, enum dead_reason reason,
                 const char *error)
{
    struct decision dec;

    decision_init(&dec, d, MQW_DEAD);
    dec.s.died_ns = clock_wall_ns();
    dec.s.reason = reason;
    dec.s.error = error;
    give(f, &dec);
}

/* duplicate - another message has its key, and comes to an end by itself
 * Crash before it is settled: the answer is the same at the next start.
 */
static void duplicate(struct flow *f, struct delivery *d)
{
    char id[ULID_TEXT], error[64];
    struct decision dec;

    decision_init(&dec, d, MQW_DISCARD);
    dec.discarded = DISCARDED_AS_DUPLICATE;
    dec.end_ns = clock_wall_ns();
    snprintf(error, sizeof error, "the key of %s", ulid_print(d->first, id));
    dec.s.error = error;
    give(f, &dec);
}

/* repeat - Drop a second copy of a letter. Only count the copy, because its id
 * belongs to a message with its own verdict. If the process is killed before
 * the copy is settled, the copy is recognised again and dropped.
 */
static void repeat(struct flow *f, struct delivery *d)
{
    struct decision dec;

    log_warn("duplicate_letter", F_STR("msg", delivery_id(d)),
             F_UINT("letter", d->header.letter));
    decision_init(&dec, d, MQW_DISCARD);
    dec.discarded = DISCARDED_AS_REPEAT;
    give(f, &dec);
}

void settle_duplicate(struct flow *f, struct message *m,
                      const struct ulid *first)
{
    struct delivery d = {0};

    delivery_read(&d, m, f->set->group_separator);
    d.place = LANE_NONE;
    d.first = *first;
    duplicate(f, &d);
}

void settle_put_by(struct flow *f, struct message *m)
{
    struct delivery d = {0};
    struct decision dec;

    delivery_read(&d, m, f->set->group_separator);
    decision_init(&dec, &d, MQW_RETRY);
    dec.s.due_ns = d.header.not_before_ns;
    decision_done(f, &dec);
}

void settle_repeat(struct flow *f, struct delivery *d)
{
    if (d->duplicate)
        duplicate(f, d);
    else
        repeat(f, d);
}

/* cancelled - no handler hears of it but by `settled` */
static void cancelled(struct decision *dec, const struct delivery *d)
{
    decision_init(dec, d, MQW_DISCARD);
    dec->discarded = DISCARDED_BY_OPERATOR;
    dec->s.unkey = (d->header.fields & HEADER_UNIQUE) != 0;
    dec->end_ns = clock_wall_ns();
    dec->s.error = "cancelled";
}

void settle_cancelled(struct flow *f, struct delivery *d)
{
    struct decision dec;

    cancelled(&dec, d);
    give(f, &dec);
}

/* not_known - one that says that it is a letter may be a second copy of that,
 * which is dropped when it is taken; its unique key is no matter any more */
static int not_known(struct flow *f, struct delivery *d)
{
    int err;

    if (!(d->header.fields & HEADER_LETTER) ||
        d->message->flags & MESSAGE_STORED)
        return 0;
    d->header.fields &= ~(unsigned)HEADER_UNIQUE;
    err = known_look(f, d);
    return err ? err : d->repeat ? -EAGAIN : 0;
}

/* cancel_pulled - it is in no line
 * Crash before it is settled: it is HELD, and waits as before; nobody was told
 * that it is cancelled. After it: it has come to its end.
 */
static int cancel_pulled(struct flow *f, struct message *m)
{
    struct delivery d = {0};
    struct decision dec;
    int err;

    delivery_read(&d, m, f->set->group_separator);
    d.place = LANE_NONE;
    cancelled(&dec, &d); /* not_known may hide the message's unique key */
    err = not_known(f, &d);
    FAULT_POINT("cancel_lent_before");
    if (!err)
        err = f->source->ops->settle(f->source, &dec.s, 1);
    FAULT_POINT("cancel_lent_after");
    if (!err)
        decision_done(f, &dec);
    return err;
}

/* cancel_waiting - in the line of its group; or it is ready, and has no place
 * there, or no group */
static int cancel_waiting(struct flow *f, struct header_text key, uint64_t seq)
{
    struct message *m = key.at ? dispatch_pull(f, key, seq) : NULL;
    bool in_group = m != NULL;
    int err;

    if (!m)
        m = ready_pull(&f->ready, seq);
    if (!m)
        return -EAGAIN;
    err = cancel_pulled(f, m);
    if (in_group)
        dispatch_pulled(f, key, m, err == 0);
    else if (err)
        ready_put(&f->ready, m, true);
    if (!err)
        f->source->ops->release(f->source, m);
    return err;
}

int settle_cancel(struct flow *f, struct header_text key, uint64_t seq)
{
    int err;

    if (!items_other_begin(&f->items))
        return -EAGAIN;
    err = cancel_waiting(f, key, seq);
    items_other_end(&f->items);
    /* There is room for another one; or the line has it again, and who looked
     * meanwhile did not see it; or somebody waits for all to keep still. */
    gate_changed(&f->gate);
    return err;
}

void settle_stale(struct flow *f, struct delivery *d)
{
    struct decision dec;

    decision_init(&dec, d, MQW_RETRY);
    dec.s.kind = SETTLE_RETURN;
    give(f, &dec);
}

/* settle_later - one commit for all; if that fails, each goes its own way */
void settle_later(struct flow *f, struct message *const *list, size_t n)
{
    const struct source_ops *source = f->source->ops;
    struct delivery d[SETTLE_LATER_MOST];
    struct decision dec[SETTLE_LATER_MOST];
    struct settle all[SETTLE_LATER_MOST];
    int err = -EAGAIN; /* a source that settles late is given each by itself */

    for (size_t i = 0; i < n; i++) {
        d[i].place = LANE_NONE;
        d[i].count = NULL;
        delivery_read(&d[i], list[i], f->set->group_separator);
        decision_init(&dec[i], &d[i], MQW_RETRY);
        dec[i].s.due_ns =
            delivery_due(&d[i], &dec[i].s.due_boot_ns, &dec[i].s.delay_ns);
        all[i] = dec[i].s;
    }
    if (!source->late)
        err = source->settle(f->source, all, n);
    for (size_t i = 0; i < n; i++) {
        if (err) {
            give(f, &dec[i]);
            continue;
        }
        FAULT_POINT("settle_later_after_put");
        decision_done(f, &dec[i]);
        released(f, &dec[i].s);
    }
}

/* asked_of - what the handler asked for, up to --max-delay. In a group that
 * stays in hand, all waits and runs together are no longer than its source
 * waits for an answer. */
static uint64_t asked_of(struct flow *f, const struct delivery *d,
                         const struct outcome *out)
{
    uint64_t most = f->set->max_delay_ns, fits;
    struct backoff b;

    if (d->group.at && !f->source->local) {
        settings_backoff(f->set, &b);
        fits = in_hand_limit_wait(f->set, &b, d->message->failures + 1);
        most = most < fits ? most : fits;
    }
    return out->delay_ns < most ? out->delay_ns : most;
}

/* wait_of - what the handler asked for, else the backoff: the message's own, or
 * the worker's */
static uint64_t wait_of(struct flow *f, const struct delivery *d,
                        const struct outcome *out)
{
    struct backoff b;

    if (out->delayed)
        return asked_of(f, d, out);
    if (!(d->header.fields & HEADER_BACKOFF) ||
        !header_backoff(d->header.backoff, &b))
        settings_backoff(f->set, &b);
    return backoff_delay(&b, d->message->failures + 1,
                         (unsigned)f->set->jitter_percent);
}

/* Settle a failure: the message waits for its retry, or is dead for `reason`.
 * A source that settles late may keep a retry in hand, and may do so only once
 * nobody reads the message any more: that is now (LANE_NONE), and not when this
 * lane has its next message. Not inline, as settle_other has a small frame. */
__attribute__((noinline)) static void
failure_settle(struct flow *f, struct delivery *d, struct outcome *out,
               enum mqw_verdict verdict, enum dead_reason reason)
{
    const struct attempt attempt = {
        .started_ns = d->started_ns,
        .duration_ns = out->duration_ns,
        .error = out->error,
        .stderr_tail = out->tail,
        .stderr_size = out->tail_size,
        .said = out->said,
    };
    uint64_t now = clock_wall_ns();
    struct decision dec;

    decision_init(&dec, d, verdict);
    dec.took_ns = out->duration_ns;
    dec.end_ns = settle_ended_at(d, out);
    dec.s.attempt = &attempt;
    dec.s.error = out->error;
    if (dec.s.kind == SETTLE_DEAD) {
        dec.s.reason = reason;
        dec.s.died_ns = now;
    } else {
        dec.wait_ns = delivery_wait_cut(now, wait_of(f, d, out));
        settle_wait(&dec.s, dec.wait_ns);
        if (f->source->ops->late)
            dec.s.lane = LANE_NONE;
    }
    give(f, &dec);
}

/* Settle a message of which no trace is kept: done or discarded. */
__attribute__((noinline)) static void
end_settle(struct flow *f, struct delivery *d, const struct outcome *out)
{
    struct decision dec;

    decision_init(&dec, d, out->verdict);
    dec.took_ns = out->duration_ns;
    dec.end_ns = settle_ended_at(d, out);
    if (dec.s.kind == SETTLE_DISCARD) {
        if (verdict_is_cancelled(out)) {
            dec.discarded = DISCARDED_BY_OPERATOR;
            dec.s.unkey = (d->header.fields & HEADER_UNIQUE) != 0;
        }
        if (out->error[0])
            dec.s.error = out->error;
    }
    give(f, &dec);
}

/* settle_not - the source did not take it */
void settle_not(struct flow *f, const struct delivery *d,
                const struct outcome *out, int err)
{
    struct decision dec = {.lease = d->lease};

    if (err == -ESTALE) {
        decision_stale(f, &dec);
        return;
    }
    decision_init(&dec, d, MQW_DONE);
    dec.took_ns = out->duration_ns;
    dec.end_ns = settle_ended_at(d, out);
    unsettled_keep(&f->unsettled, &dec, err);
}

/* settle_named - somebody may ask what became of it */
void settle_named(struct flow *f, const struct delivery *d,
                  const struct outcome *out)
{
    counters_settled(f->counters, COUNTERS_DONE, d->message->id,
                     settle_ended_at(d, out));
}

/* settle_told - the handler's own `settled`; only this thread waits for it */
void settle_told(struct flow *f, const struct delivery *d,
                 const struct outcome *out)
{
    f->ops->settled(f->handler,
                    &(struct settlement){.message = d->message,
                                         .group = d->group,
                                         .verdict = MQW_DONE,
                                         .took_ns = out->duration_ns});
}

/* exhausted - one more failure is the last, by number or by age */
static bool exhausted(const struct flow *f, const struct delivery *d)
{
    uint64_t limit = f->set->retry_for_ns;

    return d->message->failures + 1 >=
               delivery_max_attempts(d, f->set->max_attempts) ||
           ns_add(d->message->received_ns, limit) <= clock_wall_ns();
}

/* Do what the table says of the verdict of a handler that ran to its end. */
static void verdict_apply(struct flow *f, struct delivery *d,
                          struct outcome *out)
{
    const struct verdict_rule *rule = &verdict_rules[out->verdict];

    gate_breaker(&f->gate, rule->breaker,
                 rule->breaker == BREAKER_GOOD ? NULL : out->error);
    if (rule->kind < SETTLE_RETRY)
        end_settle(f, d, out);
    else if (rule->kind == SETTLE_RETRY && exhausted(f, d))
        failure_settle(f, d, out, MQW_DEAD, rule->reason);
    else
        failure_settle(f, d, out, out->verdict, rule->reason);
}

/* settle_other - each end but the usual one */
void settle_other(struct flow *f, struct delivery *d, struct outcome *out)
{
    struct message *m = d->message;

    switch (out->kind) {
    case OUTCOME_NOT_STARTED:
        m->ops->unrun(m, out->ran);
        decision_give_back(f, m, d->lease);
        gate_breaker(&f->gate, BREAKER_NOT_STARTED, out->error);
        break;
    case OUTCOME_UNSENT:
        m->ops->unrun(m, false);
        decision_give_back(f, m, d->lease);
        break;
    case OUTCOME_STOPPED:
        m->ops->unrun(m, true); /* the source keeps it (keep.h) */
        break;
    case OUTCOME_VERDICT:
    default:
        verdict_apply(f, d, out);
    }
}
