/* decision.c - what follows from a verdict that is durable (see decision.h) */
#include "worker/flow/decision.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/safe_text.h"
#include "common/message/error_text.h"
#include "common/state/counters.h"
#include "worker/flow/group_dispatch.h"

#define BURST_NS (10 * NS_PER_S) /* one line for all that go stale in it */

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

/* Return the verdict as it became durable. The source makes a RETRY a DISCARD
 * if an operator discarded the message meanwhile. */
static enum mqw_verdict verdict_made(const struct decision *dec)
{
    bool discarded = dec->s.kind == SETTLE_DISCARD &&
                     verdict_rules[dec->verdict].kind != SETTLE_DISCARD;

    return discarded ? MQW_DISCARD : dec->verdict;
}

static const struct verdict_rule *rule_of(const struct decision *dec)
{
    return &verdict_rules[verdict_made(dec)];
}

/* Count the attempts of the message that failed, with this one. */
static uint32_t attempts_failed(const struct decision *dec)
{
    return dec->s.m->failures + (dec->s.attempt != NULL);
}

/* Return the line of stderr that explains the error; NULL: there is none, or
 * the error is the handler's own words already. */
static const char *stderr_explains(const struct settle *s,
                                   char text[ERROR_TEXT])
{
    const struct attempt *a = s->attempt;

    if (!a || a->said)
        return NULL;
    error_text(text, a->error, false, a->stderr_tail, a->stderr_size);
    return text[0] ? text : NULL;
}

/* Return true if the message only waits for its time: no handler had it. */
static bool is_put_off(const struct decision *dec)
{
    return dec->s.kind >= SETTLE_RETRY && dec->s.kind != SETTLE_DEAD &&
           !dec->s.attempt;
}

/* Log a message that waits, for its first run or for a retry. */
static void log_waiting(const struct flow *f, const struct decision *dec,
                        const char *id)
{
    const struct verdict_rule *rule = rule_of(dec);
    char text[ERROR_TEXT];
    uint64_t wait = (dec->wait_ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    char until[TIME_TEXT];

    if (attempts_failed(dec) == 0) {
        log_debug("delayed", F_STR("msg", id),
                  F_STR("until", time_print(dec->s.due_ns, until)));
        return;
    }
    LOG_AT(rule->level, rule->event, F_STR("msg", id),
           F_STR("error", dec->s.error),
           F_STR("error_text", stderr_explains(&dec->s, text)),
           F_UINT("attempt", attempts_failed(dec)),
           F_UINT("of",
                  dec->max_attempts ? dec->max_attempts : f->set->max_attempts),
           F_DURATION("in", wait));
}

/* Log a verdict, with the fields that its kind has. */
static void log_verdict(const struct flow *f, const struct decision *dec)
{
    const struct verdict_rule *rule = rule_of(dec);
    const struct settle *s = &dec->s;
    char id[ULID_TEXT], text[ERROR_TEXT];

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
    else
        log_waiting(f, dec, id);
}

/* Return how the message ended, for the journal. A second copy of a letter has
 * no end of its own: its id belongs to a message with another verdict. */
static enum counters_end journal_end(const struct decision *dec)
{
    switch (dec->s.kind == SETTLE_DISCARD ? dec->discarded
                                          : DISCARDED_BY_HANDLER) {
    case DISCARDED_AS_REPEAT:
        return COUNTERS_NO_END;
    case DISCARDED_AS_DUPLICATE:
        return COUNTERS_DUPLICATE;
    case DISCARDED_BY_OPERATOR:
        return COUNTERS_CANCELLED;
    case DISCARDED_BY_HANDLER:
    default:
        return rule_of(dec)->end;
    }
}

/* Keep the last error for mqctl status. */
static void last_error(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    char text[ERROR_TEXT], both[ERROR_JOINED], cut[COUNTERS_TEXT];

    error_text_join(both, sizeof both, s->error, stderr_explains(s, text));
    safe_text_copy(cut, sizeof cut, both, strlen(both));
    counters_say(f->counters, COUNTERS_LAST_ERROR, cut,
                 dec->end_ns ? dec->end_ns : clock_wall_ns());
}

/* Count a verdict where the work item counts, or in the rest, and keep how the
 * message ended in the journal. */
static void count(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    struct counters_block *b =
        dec->count ? dec->count : counters_rest(f->counters);
    enum counters_end end = journal_end(dec);

    if (!is_put_off(dec))
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
    if (s->kind >= SETTLE_RETRY && s->error)
        last_error(f, dec);
}

/* End the lease of the message's group as the verdict says. Without a lease, a
 * dead letter may still hold its group; but not before the worker has started,
 * as dispatch_restore reads such letters from the source, and not if a closed
 * group refused the message, as a group that it held would refuse it again. */
static void group_settle(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    enum group_end end = rule_of(dec)->group;

    if (end == GROUP_WAITS &&
        (s->kind != SETTLE_RETRY || attempts_failed(dec) == 0))
        end = GROUP_GOES_ON;
    if (dec->lease)
        dispatch_settled(f, dec->lease, end, s->m->seq, dec->stored);
    else if (end == GROUP_DIED && f->started && s->group.at &&
             s->reason != REASON_GROUP_CLOSED)
        dispatch_died(f, s->group, s->m->seq);
}

/* The handler's side comes last, so that only this thread waits for it. */
void decision_done(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    struct settlement told = {.message = s->m,
                              .group = s->group,
                              .verdict = verdict_made(dec),
                              .took_ns = dec->took_ns};
    bool repeat =
        s->kind == SETTLE_DISCARD && dec->discarded == DISCARDED_AS_REPEAT;

    count(f, dec);
    if (!repeat)
        log_verdict(f, dec);
    group_settle(f, dec);
    if (s->kind >= SETTLE_RETRY || dec->stored)
        backlog_look(f);
    if (f->hears && f->started && !repeat && !is_put_off(dec))
        f->ops->settled(f->handler, &told);
}

/* The group goes on: the message gets a new place in it when it comes again. */
void decision_stale(struct flow *f, const struct decision *dec)
{
    uint64_t now = clock_mono_ns(), told = atomic_load(&f->stale_told_ns);
    uint64_t n = atomic_fetch_add(&f->stale, 1) + 1;

    if (dec->lease)
        dispatch_settled(f, dec->lease, GROUP_GOES_ON, 0, dec->stored);
    if ((told == 0 || now - told >= BURST_NS) &&
        atomic_compare_exchange_strong(&f->stale_told_ns, &told, now))
        log_warn("claims_gone", F_STR("queue", f->set->queue),
                 F_STR("source", f->source->ops->name), F_UINT("count", n),
                 F_STR("next", "the source took messages back before they were "
                               "settled; they come again, marked as "
                               "redelivered"));
}

void decision_give_back(struct flow *f, struct message *m, struct group *lease)
{
    if (lease)
        dispatch_return(f, lease, m);
    else
        ready_put(&f->ready, m, true);
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
