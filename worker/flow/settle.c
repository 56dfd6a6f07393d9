/* settle.c - what follows from the end of a message (see settle.h) */
#include "worker/flow/settle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/safe_text.h"
#include "worker/config/settings.h"
#include "worker/flow/receive.h"
#include "worker/rules/verdict.h"

/* ---- the consequences of a durable verdict ---- */

/* Shortest time between two log lines about stale claims. */
#define STALE_LOG_NS (10 * NS_PER_S)

void decision_init(struct decision *dec, const struct delivery *d,
                   enum mqw_verdict verdict)
{
    *dec = (struct decision){
        .s = {.m = d->message,
              .kind = verdict_rules[verdict].kind,
              .lane = d->place,
              .group = d->group,
              .header_size = d->header.bytes},
        .verdict = verdict,
        .lease = d->lease,
        .count = d->count,
        .stored = (d->message->flags & MESSAGE_STORED) != 0,
        .max_attempts = delivery_max_attempts(d, 0),
    };
    (void)message_name(d->message);
}

/* Return the verdict that became durable. The source turns a RETRY into a
 * DISCARD if an operator discarded the message in the meantime. */
static enum mqw_verdict verdict_durable(const struct decision *dec)
{
    bool discarded = dec->s.kind == SETTLE_DISCARD &&
                     verdict_rules[dec->verdict].kind != SETTLE_DISCARD;

    return discarded ? MQW_DISCARD : dec->verdict;
}

static const struct verdict_rule *rule_of(const struct decision *dec)
{
    return &verdict_rules[verdict_durable(dec)];
}

/* Return how many attempts of the message have failed, including this one. */
static uint32_t attempts_failed(const struct decision *dec)
{
    return dec->s.m->failures + (dec->s.attempt != NULL);
}

/* Return the line of stderr that explains the error. Returns NULL if there is
 * none, or if the handler itself gave the reason for its verdict. */
static const char *stderr_explains(const struct settle *s,
                                   char text[ERROR_TEXT])
{
    const struct attempt *a = s->attempt;

    if (!a || a->said)
        return NULL;
    error_text(text, a->error, false, a->stderr_tail, a->stderr_size);
    return text[0] ? text : NULL;
}

/* Return true if the message goes back to wait, and no handler had it. */
static bool is_still_waiting(const struct decision *dec)
{
    return dec->s.kind >= SETTLE_RETRY && dec->s.kind != SETTLE_DEAD &&
           !dec->s.attempt;
}

static void log_verdict(const struct flow *f, const struct decision *dec)
{
    const struct verdict_rule *rule = rule_of(dec);
    const struct settle *s = &dec->s;
    uint64_t wait = (dec->wait_ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    uint64_t of = dec->max_attempts ? dec->max_attempts : f->set->max_attempts;
    char id[ULID_TEXT], text[ERROR_TEXT], until[TIME_TEXT];

    if (!log_enabled(rule->level))
        return;
    ulid_print(*s->m->id, id);
    if (s->kind == SETTLE_DONE)
        LOG_AT(rule->level, rule->event, F_STR("msg", id),
               F_DURATION("took", dec->took_ns / NS_PER_US * NS_PER_US));
    else if (s->kind == SETTLE_DISCARD)
        LOG_AT(rule->level, rule->event, F_STR("msg", id),
               F_STR("reason", dec->discarded == DISCARDED_AS_DUPLICATE
                                   ? "duplicate"
                                   : NULL),
               F_STR("error", s->error));
    else if (s->kind == SETTLE_DEAD)
        LOG_AT(rule->level, rule->event, F_STR("msg", id),
               F_INT("letter", s->letter),
               F_STR("reason", dead_reason_text(s->reason)),
               F_STR("error", s->error),
               F_STR("error_text", stderr_explains(s, text)),
               F_UINT("attempts", attempts_failed(dec)));
    else if (attempts_failed(dec) == 0)
        log_debug("delayed", F_STR("msg", id),
                  F_STR("until", time_print(s->due_ns, until)));
    else
        LOG_AT(rule->level, rule->event, F_STR("msg", id),
               F_STR("error", s->error),
               F_STR("error_text", stderr_explains(s, text)),
               F_UINT("attempt", attempts_failed(dec)), F_UINT("of", of),
               F_DURATION("in", wait));
}

/* Count a verdict in the block of its work item, or in the shared block if it
 * has none, and record in the journal how the message ended. A second copy of a
 * letter is not in the journal, because its id belongs to another message,
 * which has a verdict of its own. */
static void decision_count(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    struct counters_block *b =
        dec->count ? dec->count : counters_rest(f->counters);
    enum counters_end end = rule_of(dec)->end;

    if (s->kind == SETTLE_DISCARD && dec->discarded != DISCARDED_BY_HANDLER)
        end = dec->discarded == DISCARDED_AS_REPEAT      ? COUNTERS_NO_END
              : dec->discarded == DISCARDED_AS_DUPLICATE ? COUNTERS_DUPLICATE
                                                         : COUNTERS_CANCELLED;
    if (!is_still_waiting(dec))
        counters_add((_Atomic uint64_t *)((char *)b + rule_of(dec)->counter),
                     1);
    if (s->kind == SETTLE_DEAD && s->reason == REASON_EXPIRED)
        counters_add(&b->expired, 1);
    if (end == COUNTERS_DUPLICATE)
        counters_add(&b->duplicates, 1);
    if (end != COUNTERS_NO_END)
        counters_settled(f->counters, end, s->m->id,
                         s->kind == SETTLE_DEAD ? s->died_ns : dec->end_ns);
    if (!dec->count)
        counters_rest_done(f->counters);
    if (s->kind >= SETTLE_RETRY && s->error) { /* mqctl status shows it */
        char text[ERROR_TEXT], both[ERROR_JOINED], shown[COUNTERS_TEXT];

        error_text_join(both, sizeof both, s->error, stderr_explains(s, text));
        safe_text_copy(shown, sizeof shown, both, strlen(both));
        counters_say(f->counters, COUNTERS_LAST_ERROR, shown,
                     dec->end_ns ? dec->end_ns : clock_wall_ns());
    }
}

void decision_done(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    enum group_end end = rule_of(dec)->group;
    struct settlement settlement = {.message = s->m,
                                    .group = s->group,
                                    .verdict = verdict_durable(dec),
                                    .took_ns = dec->took_ns};
    bool repeat =
        s->kind == SETTLE_DISCARD && dec->discarded == DISCARDED_AS_REPEAT;

    decision_count(f, dec);
    if (!repeat)
        log_verdict(f, dec);
    if (end == GROUP_WAITS &&
        (s->kind != SETTLE_RETRY || attempts_failed(dec) == 0))
        end = GROUP_GOES_ON;
    /* A dead letter without a lease may still hold its group, with two
     * exceptions. Before the worker has started, dispatch_restore reads such
     * letters from the source. If a closed group refused the message, a group
     * that the letter held would refuse it again. */
    if (dec->lease)
        dispatch_settled(f, dec->lease, end, s->m->seq, dec->stored);
    else if (end == GROUP_DIED && f->started && s->group.at &&
             s->reason != REASON_GROUP_CLOSED)
        dispatch_died(f, s->group, s->m->seq);
    crashes_ended(f, s->m->seq); /* also if it never ran */
    if (s->kind >= SETTLE_RETRY || dec->stored)
        backlog_look(f);
    /* Call the handler's `settled` last, so that only this thread waits for
     * it. */
    if (f->wants_settled && f->started && !repeat && !is_still_waiting(dec))
        f->ops->settled(f->handler, &settlement);
}

/* The message gets a new place in its group when the source redelivers it. */
void decision_stale(struct flow *f, const struct decision *dec)
{
    uint64_t now = clock_mono_ns(), last = atomic_load(&f->stale_logged_ns);
    uint64_t n = atomic_fetch_add(&f->stale, 1) + 1;

    if (dec->s.m)
        crashes_ended(f, dec->s.m->seq);
    if (dec->lease)
        dispatch_settled(f, dec->lease, GROUP_GOES_ON, 0, dec->stored);
    if ((last == 0 || now - last >= STALE_LOG_NS) &&
        atomic_compare_exchange_strong(&f->stale_logged_ns, &last, now))
        log_warn("claims_gone", F_STR("queue", f->set->queue),
                 F_STR("source", f->source->ops->name), F_UINT("count", n),
                 F_STR("next", "the source took messages back before they were "
                               "settled, and delivers them again, marked as "
                               "redelivered"));
}

void decision_died(struct flow *f, const struct source_death *death)
{
    struct counters_block *b = counters_rest(f->counters);
    char id[ULID_TEXT];

    counters_add(&b->dead, 1);
    counters_settled(f->counters, COUNTERS_DEAD, &death->id, death->died_ns);
    counters_rest_done(f->counters);
    log_warn("dead", F_STR("msg", ulid_print(death->id, id)),
             F_INT("letter", death->letter),
             F_STR("reason", dead_reason_text(death->reason)),
             F_STR("error", death->error), F_UINT("size", death->size),
             F_UINT("allowed", death->allowed));
    if (death->group.at)
        dispatch_died(f, death->group, death->seq);
    backlog_look(f);
}

/* ---- from an outcome to a verdict ---- */

/* The source (for example worker/source/mq/source_mq.c) makes sure that no
 * message is lost between its verdict and the disk. This file has one rule to
 * keep: the consequences of a verdict follow when the verdict is durable, and
 * never before. */

/* Pass a decision to the source. Its consequences follow now, or later if the
 * decision is not durable yet (unsettled.h). */
static void decision_settle(struct flow *f, struct decision *dec)
{
    int err;

    if (f->source->ops->late) {
        unsettled_submit(f, dec);
        return;
    }
    err = f->source->ops->settle(f->source, &dec->s, 1);
    if (err == -ESTALE) {
        decision_stale(f, dec);
    } else if (err) {
        unsettled_keep(f, dec, err);
    } else {
        decision_done(f, dec);
        if (dec->s.lane == LANE_NONE)
            f->source->ops->release(f->source, dec->s.m);
    }
}

void settle_dead(struct flow *f, struct delivery *d, enum dead_reason reason,
                 const char *error)
{
    struct decision dec;

    decision_init(&dec, d, MQW_DEAD);
    dec.s.died_ns = clock_wall_ns();
    dec.s.reason = reason;
    dec.s.error = error;
    decision_settle(f, &dec);
}

/* A second copy of a letter is counted but gets no verdict in the log or the
 * journal, because its id belongs to another message.
 * Crash before the copy or duplicate is settled: the next start recognizes it
 * again. */
void settle_repeat(struct flow *f, struct delivery *d)
{
    char id[ULID_TEXT], error[64];
    struct decision dec;

    decision_init(&dec, d, MQW_DISCARD);
    if (d->duplicate) {
        dec.discarded = DISCARDED_AS_DUPLICATE;
        dec.end_ns = clock_wall_ns();
        snprintf(error, sizeof error, "the key of %s",
                 ulid_print(d->first, id));
        dec.s.error = error;
    } else {
        dec.discarded = DISCARDED_AS_REPEAT;
        log_warn("duplicate_letter", F_STR("msg", delivery_id(d)),
                 F_UINT("letter", d->header.letter));
    }
    decision_settle(f, &dec);
}

void settle_duplicate(struct flow *f, struct message *m,
                      const struct ulid *first)
{
    struct delivery d = {0};

    delivery_read(&d, m, f->set->group_separator);
    d.place = LANE_NONE;
    d.duplicate = true;
    d.first = *first;
    settle_repeat(f, &d);
}

void settle_delayed(struct flow *f, struct message *m)
{
    struct delivery d = {0};
    struct decision dec;

    delivery_read(&d, m, f->set->group_separator);
    decision_init(&dec, &d, MQW_RETRY);
    dec.s.due_ns = d.header.not_before_ns;
    decision_done(f, &dec);
}

/* Make the decision for a message that an operator cancelled. The handler does
 * not run; only its `settled` is called. */
static void decision_cancel(struct decision *dec, const struct delivery *d)
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

    decision_cancel(&dec, d);
    decision_settle(f, &dec);
}

/* Crash before the message is settled: its slot is HELD, it waits as before,
 * and the operator has no answer yet. After that: the message is discarded. */
int settle_cancel(struct flow *f, struct header_text key, uint64_t seq)
{
    struct group_item *item = NULL;
    struct message *m;
    struct delivery d = {0};
    struct decision dec;
    int err = -EAGAIN;

    if (atomic_fetch_add(&f->items.others, 1) & ITEMS_OTHERS_OVER) {
        atomic_fetch_sub(&f->items.others, 1);
        return -EAGAIN;
    }
    /* The message waits in its group, or it is on the ready list. */
    if (key.at)
        item = groups_pull(f->groups, key.at, key.size, seq);
    m = item ? item->message : ready_take(&f->ready, seq);
    if (m) {
        err = 0;
        delivery_read(&d, m, f->set->group_separator);
        d.place = LANE_NONE;
        decision_cancel(&dec, &d);
        /* A message that names a letter may be a second copy of that letter.
         * Then it cannot be cancelled: it is dropped when it is taken. The
         * unique key of a replayed letter does not matter any more. */
        if (d.header.fields & HEADER_LETTER && !(m->flags & MESSAGE_STORED)) {
            d.header.fields &= ~(unsigned)HEADER_UNIQUE;
            err = known_look(f, &d);
            if (!err && d.repeat)
                err = -EAGAIN;
        }
        FAULT_POINT("cancel_lent_before");
        if (!err)
            err = f->source->ops->settle(f->source, &dec.s, 1);
        FAULT_POINT("cancel_lent_after");
        if (!err)
            decision_done(f, &dec);
        if (item)
            dispatch_pulled(f, key, item, err == 0);
        else if (err)
            ready_put(&f->ready, m, true);
        if (!err)
            f->source->ops->release(f->source, m);
    }
    atomic_fetch_sub(&f->items.others, 1);
    /* Wake the work items: there may be room for another message; this message
     * may be back in its place after a thread did not find it there; or a
     * thread may be waiting for this job to end. */
    gate_changed(&f->gate);
    return err;
}

void settle_stale(struct flow *f, struct delivery *d)
{
    struct decision dec;

    decision_init(&dec, d, MQW_RETRY);
    dec.s.kind = SETTLE_RETURN;
    decision_settle(f, &dec);
}

/* All messages are settled in one commit. If that fails, each is settled by
 * itself. */
void settle_later(struct work_item *item)
{
    struct flow *f = item->flow;
    const struct source_ops *source = f->source->ops;
    size_t n = item->later_count;
    struct delivery d[SETTLE_LATER_MOST];
    struct decision dec[SETTLE_LATER_MOST];
    struct settle all[SETTLE_LATER_MOST];
    int err = -EAGAIN; /* a source that settles late gets one at a time */

    item->later_count = 0;
    for (size_t i = 0; i < n; i++) {
        d[i].place = LANE_NONE;
        d[i].count = NULL;
        delivery_read(&d[i], item->later[i], f->set->group_separator);
        decision_init(&dec[i], &d[i], MQW_RETRY);
        dec[i].s.due_ns =
            delivery_due(&d[i], &dec[i].s.due_boot_ns, &dec[i].s.delay_ns);
        all[i] = dec[i].s;
    }
    if (!source->late)
        err = source->settle(f->source, all, n);
    for (size_t i = 0; i < n; i++) {
        if (err) {
            decision_settle(f, &dec[i]);
            continue;
        }
        FAULT_POINT("settle_later_after_put");
        decision_done(f, &dec[i]);
        source->release(f->source, item->later[i]);
    }
}

/* Return how long a retry waits: as long as the handler asked, up to
 * --max-delay, else by the backoff of the message or of the worker. A failed
 * message of a group on a broker waits without an answer to the broker, so its
 * wait is also limited by the time that the broker allows
 * (in_hand_limit_wait). */
static uint64_t retry_wait(struct flow *f, const struct delivery *d,
                           const struct outcome *out)
{
    uint64_t most = f->set->max_delay_ns, fits;
    struct backoff b;

    if (out->delayed) {
        if (d->group.at && !f->source->local) {
            settings_backoff(f->set, &b);
            fits = in_hand_limit_wait(f->set, &b, d->message->failures + 1);
            most = most < fits ? most : fits;
        }
        return out->delay_ns < most ? out->delay_ns : most;
    }
    if (!(d->header.fields & HEADER_BACKOFF) ||
        !header_backoff(d->header.backoff, &b))
        settings_backoff(f->set, &b);
    return backoff_delay(&b, d->message->failures + 1,
                         (unsigned)f->set->jitter_percent);
}

/* Settle a failure: the message waits for its retry, or is dead for `reason`. A
 * source that settles late may keep a retry in memory as soon as no thread
 * reads the message any more. With LANE_NONE that is now; with a lane it would
 * be when the lane takes its next message.
 * Not inline, so that settle_other has a small frame. */
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
        .usage = out->usage,
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
        dec.wait_ns = retry_wait(f, d, out);
        if (dec.wait_ns > INT64_MAX - now) /* a source's latest time */
            dec.wait_ns = INT64_MAX - now;
        settle_wait(&dec.s, dec.wait_ns);
        if (f->source->ops->late)
            dec.s.lane = LANE_NONE;
    }
    decision_settle(f, &dec);
}

/* Settle a message that leaves no row in the store: done or discarded. */
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
    decision_settle(f, &dec);
}

void settle_refused(struct flow *f, const struct delivery *d,
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
    unsettled_keep(f, &dec, err);
}

void settle_notify(struct flow *f, const struct delivery *d,
                   const struct outcome *out)
{
    f->ops->settled(f->handler,
                    &(struct settlement){.message = d->message,
                                         .group = d->group,
                                         .verdict = MQW_DONE,
                                         .took_ns = out->duration_ns});
}

void settle_other(struct flow *f, struct delivery *d, struct outcome *out)
{
    const struct verdict_rule *rule = &verdict_rules[out->verdict];
    struct message *m = d->message;

    if (out->kind == OUTCOME_NOT_STARTED) {
        m->ops->unrun(m, out->ran);
        dispatch_return(f, m, d->lease);
        gate_breaker(&f->gate, BREAKER_NOT_STARTED, out->error);
        return;
    }
    if (out->kind == OUTCOME_UNSENT) {
        m->ops->unrun(m, false);
        dispatch_return(f, m, d->lease);
        return;
    }
    if (out->kind == OUTCOME_STOPPED) {
        m->ops->unrun(m, true); /* the source keeps it (recovery.h) */
        return;
    }
    gate_breaker(&f->gate, rule->breaker,
                 rule->breaker == BREAKER_GOOD ? NULL : out->error);
    if (rule->kind < SETTLE_RETRY)
        end_settle(f, d, out);
    else if (rule->kind == SETTLE_RETRY && /* last attempt, by count or age */
             (m->failures + 1 >=
                  delivery_max_attempts(d, f->set->max_attempts) ||
              ns_add(m->received_ns, f->set->retry_for_ns) <= clock_wall_ns()))
        failure_settle(f, d, out, MQW_DEAD, rule->reason);
    else
        failure_settle(f, d, out, out->verdict, rule->reason);
}
