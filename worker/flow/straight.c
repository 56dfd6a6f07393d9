/* straight.c - the usual message, in one short straight line (see straight.h)
 *
 * What is done for each message is in here, and in the calls through tables:
 * the source's take, run and settle, and the handler's run. Whatever is not
 * usual is left to calls that are not inline, so that this loop has a small
 * frame. Its length is counted (tests/crash/test_instructions.c).
 *
 * Crash: between take and run the message is the source's as it was received;
 * between run and settle it is running; after settle it is done (source.h). The
 * counters are behind by what was not added yet, and are not read by recovery.
 */
#include "worker/flow/straight.h"

#include "worker/flow/receive_inner.h"

/* waited - how long the queue kept it, in a first delivery; told afterwards, as
 * the handler's start is what others wait for */
static void waited(struct receive *item, const struct delivery *d)
{
    const struct message *m = d->message;

    if (!(m->flags & MESSAGE_STORED) && m->failures == 0)
        counters_waited(item->count,
                        d->header.fields & HEADER_SENT ? d->header.sent_ns
                                                       : m->received_ns,
                        d->started_ns);
}

/* not_delivered - it is no delivery after all */
static bool not_delivered(const struct outcome *out)
{
    return __builtin_expect(out->kind != OUTCOME_VERDICT, 0) &&
           (out->kind == OUTCOME_NOT_STARTED || out->kind == OUTCOME_UNSENT);
}

/* receive_ended - two sums, the verdict */
void receive_ended(struct receive *item, struct delivery *d, uint64_t took)
{
    struct flow *f = item->flow;

    item->out.duration_ns = took;
    if (not_delivered(&item->out)) {
        counters_unstarted(item->count);
        settle(f, d, &item->out);
        run_limits_untake(f);
        return;
    }
    counters_ended(item->count, took);
    waited(item, d);
    items_pace(&f->items, took);
    settle(f, d, &item->out);
    run_limits_busy(f);
}

void receive_ends(struct receive *item, struct delivery *d, uint64_t since_ns)
{
    receive_ended(item, d, receive_look(item) - since_ns);
}

/* is_usual - done, and nobody has anything to learn from it: the message is not
 * stored, and no reason to look was there before it was taken. One that came
 * since counts from the next message on. */
static inline bool is_usual(const struct outcome *out)
{
    return out->kind == OUTCOME_VERDICT && out->verdict == MQW_DONE &&
           !log_enabled(LOG_DEBUG);
}

/* run - what was taken, to its end */
static inline void run(struct receive *item)
{
    struct flow *f = item->flow;
    struct delivery *d = &item->own;
    uint64_t before = item->now_ns, took;

    d->begun_ns = before;
    d->started_ns = receive_wall(item);
    d->message->ops->run(d->message, d->started_ns);
    counters_one_started(item->count, before);
    f->ops->run(f->handler, d, &item->out);
    took = receive_look(item) - before;
    item->out.duration_ns = took;
    if (!is_usual(&item->out)) {
        receive_ended(item, d, took);
        return;
    }
    counters_one_ended(item->count, took);
    counters_waited(item->count,
                    d->header.fields & HEADER_SENT ? d->header.sent_ns
                                                   : d->message->received_ns,
                    d->started_ns);
    items_pace(&f->items, took);
    settle_plain(f, d, &item->out);
}

__attribute__((noinline)) int straight(struct receive *item)
{
    int err;

    if (item->later_count > 0) /* they are flushed before a message runs */
        return STRAIGHT_ASK;
    item->d = &item->own;
    do {
        struct flow *f = item->flow;
        unsigned attend = attention_look(&f->gate.attention);

        if (attend || !items_quick(&f->items)) {
            item->attend = attend;
            return STRAIGHT_ASK;
        }
        err = receive_next(item);
        if (err || !item->plain)
            return err == HANDED_OVER ? take(item)
                                      : receive_needs_none(item, err);
        run(item);
    } while (item->now_ns < item->end_ns);
    return TAKEN_NONE;
}
