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
                   enum settle_kind kind)
{
    *dec = (struct decision){
        .s = {.m = d->message,
              .kind = kind,
              .lane = d->place,
              .group = d->group,
              .header_size = d->header.bytes},
        .lease = d->lease,
        .count = d->count,
        .stored = (d->message->flags & MESSAGE_STORED) != 0,
        .max_attempts = delivery_max_attempts(d, 0),
    };
    (void)message_name(d->message);
}

/* attempts - that failed, with this one */
static uint32_t attempts(const struct decision *dec)
{
    return dec->s.m->failures + (dec->s.attempt != NULL);
}

/* text_of - what a person would say beside the error; NULL: nothing that is
 * not said by it */
static const char *text_of(const struct settle *s, char text[ERROR_TEXT])
{
    const struct attempt *a = s->attempt;

    if (!a || a->said)
        return NULL;
    error_text(text, a->error, false, a->stderr_tail, a->stderr_size);
    return text[0] ? text : NULL;
}

/* tell_waiting - a message that comes again */
static void tell_waiting(const struct flow *f, const struct decision *dec,
                         const char *id)
{
    char text[ERROR_TEXT];
    uint64_t wait = (dec->wait_ns + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    char until[TIME_TEXT];

    if (attempts(dec) == 0) {
        log_debug("delayed", F_STR("msg", id),
                  F_STR("until", time_print(dec->s.due_ns, until)));
        return;
    }
    log_warn("retry", F_STR("msg", id), F_STR("error", dec->s.error),
             F_STR("error_text", text_of(&dec->s, text)),
             F_UINT("attempt", attempts(dec)),
             F_UINT("of", dec->max_attempts ? dec->max_attempts
                                            : f->set->max_attempts),
             F_DURATION("in", wait));
}

/* tell - log what is final now */
static void tell(const struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    char id[ULID_TEXT], text[ERROR_TEXT];

    if (s->kind == SETTLE_DONE && !log_enabled(LOG_DEBUG))
        return;
    ulid_print(*s->m->id, id);
    if (s->kind == SETTLE_DONE)
        log_debug("done", F_STR("msg", id),
                  F_DURATION("took", dec->took_ns / NS_PER_US * NS_PER_US));
    else if (s->kind == SETTLE_DISCARD)
        log_info("discarded", F_STR("msg", id),
                 F_STR("reason", dec->duplicate ? "duplicate" : NULL),
                 F_STR("error", s->error));
    else if (s->kind == SETTLE_DEAD)
        log_warn("dead", F_STR("msg", id), F_INT("letter", s->letter),
                 F_STR("reason", dead_reason_text(s->reason)),
                 F_STR("error", s->error),
                 F_STR("error_text", text_of(s, text)),
                 F_UINT("attempts", attempts(dec)));
    else
        tell_waiting(f, dec, id);
}

/* discarded_by - the end that the journal is to have */
static enum counters_end discarded_by(const struct decision *dec)
{
    return dec->duplicate   ? COUNTERS_DUPLICATE
           : dec->cancelled ? COUNTERS_CANCELLED
                            : COUNTERS_DISCARDED;
}

/* add - to the numbers of one block */
static void add(struct counters *c, struct counters_block *b,
                const struct decision *dec)
{
    const struct settle *s = &dec->s;
    const struct ulid *id = s->m->id;

    switch (s->kind) {
    case SETTLE_DONE:
        counters_add(&b->done, 1);
        counters_settled(c, COUNTERS_DONE, id, dec->end_ns);
        break;
    case SETTLE_DISCARD:
        counters_add(&b->discarded, 1);
        if (dec->repeat)
            break;
        if (dec->duplicate)
            counters_add(&b->duplicates, 1);
        counters_settled(c, discarded_by(dec), id, dec->end_ns);
        break;
    case SETTLE_DEAD:
        counters_add(&b->dead, 1);
        if (s->reason == REASON_EXPIRED)
            counters_add(&b->expired, 1);
        counters_settled(c, COUNTERS_DEAD, id, s->died_ns);
        break;
    case SETTLE_RETRY:
    case SETTLE_PARK:
    case SETTLE_RETURN:
    default:
        if (s->attempt)
            counters_add(&b->retried, 1);
    }
}

/* last_error - for those who look */
static void last_error(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    char text[ERROR_TEXT], both[ERROR_JOINED], cut[COUNTERS_TEXT];

    error_text_join(both, sizeof both, s->error, text_of(s, text));
    safe_text_copy(cut, sizeof cut, both, strlen(both));
    counters_say(f->counters, COUNTERS_LAST_ERROR, cut,
                 dec->end_ns ? dec->end_ns : clock_wall_ns());
}

/* count - where the work item counts, or in the rest */
static void count(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;

    if (dec->count) {
        add(f->counters, dec->count, dec);
    } else {
        add(f->counters, counters_rest(f->counters), dec);
        counters_rest_done(f->counters);
    }
    if (s->kind >= SETTLE_RETRY && s->error)
        last_error(f, dec);
}

/* group_after - the end of the lease
 * A letter of a group that nobody had the lease of: a start that makes the
 * groups finds it in the source; only what that could not write, and so comes
 * later, is told. A message that a closed group has refused is none of its own:
 * a group that it held would refuse it again.
 */
static void group_after(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    enum group_end end = s->kind == SETTLE_DEAD ? GROUP_DIED : GROUP_GOES_ON;

    if (s->kind == SETTLE_RETRY && attempts(dec) > 0)
        end = GROUP_WAITS;
    if (dec->lease)
        dispatch_settled(f, dec->lease, end, s->m->seq, dec->stored);
    else if (end == GROUP_DIED && f->started && s->group.at &&
             s->reason != REASON_GROUP_CLOSED)
        dispatch_died(f, s->group, s->m->seq);
}

/* verdict_of - as the handler's side sees it; false: it only waits for its
 * time */
static bool verdict_of(const struct settle *s, enum mqw_verdict *verdict)
{
    static const enum mqw_verdict verdicts[] = {[SETTLE_DONE] = MQW_DONE,
                                                [SETTLE_DISCARD] = MQW_DISCARD,
                                                [SETTLE_RETRY] = MQW_RETRY,
                                                [SETTLE_DEAD] = MQW_DEAD};

    if (s->kind > SETTLE_DEAD)
        return false;
    *verdict = verdicts[s->kind];
    return s->kind != SETTLE_RETRY || s->attempt;
}

/* decision_done - the handler's side hears of it last: only this thread waits
 * for that */
void decision_done(struct flow *f, const struct decision *dec)
{
    const struct settle *s = &dec->s;
    struct settlement told = {
        .message = s->m, .group = s->group, .took_ns = dec->took_ns};

    count(f, dec);
    if (!dec->repeat)
        tell(f, dec);
    group_after(f, dec);
    suspects_done(&f->gate.suspects, s->m->seq);
    if (s->kind >= SETTLE_RETRY || dec->stored)
        backlog_look(f);
    if (f->hears && f->started && !dec->repeat && verdict_of(s, &told.verdict))
        f->ops->settled(f->handler, &told);
}

/* decision_stale - its group goes on: the message has a new place in it when it
 * comes again */
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
