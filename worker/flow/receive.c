/* receive.c - a work item runs for a while: one time-limited batch (see
 * receive.h) */
#include "worker/flow/receive.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/flow.h"
#include "worker/handlers/handler.h"
#include "worker/rules/breaker.h"

/* A second thread pays off from about here on: waking it costs some
 * microseconds, and two that receive at once slow each other down on the
 * queue's lock in the kernel (docs/performance.md). Where handlers are quick
 * (ITEMS_QUICK_NS) all but one leave; the gap keeps them from coming and going.
 */
#define PAYS_NS 6000

/* What the next message is to be asked for first: the reasons. No message was
 * taken, or the last one is settled. */
#define STRAIGHT_ASK 100

/* ---- the usual message, in one short straight line ---- */

/* Without this way of its own the usual message takes 6 to 8 % more time
 * (docs/performance.md).
 * While nothing needs attention (attention.h) and handlers are quick, a fresh
 * message that has no time of its own goes from the source to the handler, and
 * is done: one after the other, until one is not so.
 * What is done for each message is in here, and in the calls through tables:
 * the source's take, run and settle, and the handler's run. Whatever is not
 * usual is left to calls that are not inline, so that this loop has a small
 * frame. Its length is counted (tests/crash/test_instructions.c).
 *
 * Crash: between take and run the message is the source's as it was received;
 * between run and settle it is running; after settle it is done (source.h). The
 * counters are not read by recovery.
 */

/* waited - how long the queue kept it, in a first delivery; told afterwards, as
 * the handler's start is what others wait for */
static void waited(struct receive *item, const struct delivery *d)
{
    const struct message *m = d->message;

    if (m->flags & MESSAGE_STORED || m->failures > 0)
        return;
    counters_waited(item->count,
                    d->header.fields & HEADER_SENT ? d->header.sent_ns
                                                   : m->received_ns,
                    d->started_ns);
    counters_received(item->count, m->received_ns);
}

/* not_delivered - it is no delivery after all */
static bool not_delivered(const struct outcome *out)
{
    return __builtin_expect(out->kind != OUTCOME_VERDICT, 0) &&
           (out->kind == OUTCOME_NOT_STARTED || out->kind == OUTCOME_UNSENT);
}

/* ended - two sums, the verdict */
static void ended(struct receive *item, struct delivery *d, uint64_t took)
{
    struct flow *f = item->flow;
    uint64_t seq = d->message->seq;

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
    crashes_ended(f, seq);
    run_limits_busy(f);
}

void receive_ends(struct receive *item, struct delivery *d, uint64_t since_ns)
{
    ended(item, d, receive_look(item) - since_ns);
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
    uint64_t before = item->now_ns, ns;

    d->begun_ns = before;
    d->started_ns = receive_wall(item);
    d->message->ops->run(d->message, d->started_ns);
    counters_one_started(item->count, before);
    f->ops->run(f->handler, d, &item->out);
    ns = receive_look(item) - before;
    item->out.duration_ns = ns;
    if (!is_usual(&item->out)) {
        ended(item, d, ns);
        return;
    }
    counters_one_ended(item->count, ns);
    counters_waited(item->count,
                    d->header.fields & HEADER_SENT ? d->header.sent_ns
                                                   : d->message->received_ns,
                    d->started_ns);
    counters_received(item->count, d->started_ns);
    items_pace(&f->items, ns);
    settle_plain(f, d, &item->out);
}

/* Run usual messages until one is not. Returns STRAIGHT_ASK, or as take: TAKEN,
 * a message that is not usual and is to be delivered; TAKEN_NONE; -errno. */
__attribute__((noinline)) static int straight(struct receive *item)
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

/* ---- every other message ---- */

/* deliver - the handler, then its verdict */
static void deliver(struct receive *item)
{
    struct flow *f = item->flow;
    bool quick = items_quick(&f->items);
    uint64_t before = quick ? item->now_ns : receive_look(item);

    /* Where it may take long, others can see whose it is (mqctl top). */
    if (!quick)
        (void)message_name(item->d->message);
    /* The end of a stored message waits for the disk even if its handler is
     * quick. With more threads, several messages share a commit. */
    if (item->d->message->flags & MESSAGE_STORED ||
        atomic_load_explicit(&f->items.pace_ns, memory_order_relaxed) >=
            PAYS_NS)
        gate_changed(&f->gate);
    receive_begins(item, item->d);
    f->ops->run(f->handler, item->d, &item->out);
    receive_ends(item, item->d, before);
}

/* receive_must_leave - an item with coprocesses is never contended: its
 * handlers are processes */
bool receive_must_leave(struct receive *item, enum why *why)
{
    struct flow *f = item->flow;

    *why = LEFT_TOLD;
    crashes_stuck(f);
    if (gate_leave_over(&f->gate, gate_room(&f->gate)))
        return true;
    *why = LEFT_CONTENDED;
    return !item->coprocess && items_quick(&f->items) &&
           gate_running(&f->gate) > 1 && items_contended(&f->items, item) &&
           gate_leave_over(&f->gate, 1);
}

enum { LEAVE = INT_MIN };

/* receive_spins - whether an empty queue is tried again */
bool receive_spins(struct receive *item)
{
    return spin_begin(&item->spin) && spin_on(&item->spin, receive_look(item));
}

/* next - the way that the reasons leave: a message to deliver, TAKEN_NONE, or
 * -errno as take. LEAVE: `why` */
static int next(struct receive *item, enum why *why)
{
    if (item->attend & ATTEND_LEAVE && receive_must_leave(item, why))
        return LEAVE;
    return item->attend & (unsigned)ATTEND_ASK ? take(item)
                                               : take_straight(item);
}

/* receive_batch - until there is a reason to leave; `running` still counts us,
 * unless LEFT_TOLD or LEFT_CONTENDED */
enum why receive_batch(struct receive *item)
{
    struct flow *f = item->flow;
    enum why why = LEFT_TOLD;

    item->end_ns = ns_add(receive_look(item), f->set->batch_limit_ns);
    spin_reset(&item->spin);
    counters_put(&item->count->since_ns, COUNTERS_BUSY);
    for (;;) {
        int err = straight(item);

        if (err == STRAIGHT_ASK && (err = next(item, &why)) == LEAVE)
            return why;
        if (err == -EAGAIN && receive_spins(item))
            continue;
        if (err < 0 && err != -EAGAIN)
            gate_trouble(&f->gate, "receiving", -err);
        if (err < 0)
            return LEFT_EMPTY;
        if (err == TAKEN) {
            take_flush(item);
            deliver(item);
        }
        spin_hit(&item->spin);
        if (item->now_ns >= item->end_ns)
            return LEFT_TIME;
    }
}

/* ---- several deliveries open in a coprocess ---- */

/* The item fills its coprocess with what there is, then waits for the first
 * that ends. While it waits with room in the coprocess it is on the engine's
 * list of those that would take one more: whoever has a message and no room for
 * another item wakes one of them. It leaves the list before it takes, and wakes
 * after it entered, so that nothing that came in between is missed.
 */

/* A delivery that a child has. */
struct open {
    struct delivery d; /* first: coprocesses know it by this */
    uint64_t since_ns;
    struct open *next; /* free */
};

/* window_open - room for as many as a coprocess takes */
static int window_open(struct receive *item)
{
    size_t n = item->flow->set->window;

    if (item->window)
        return 0;
    item->window = calloc(n, sizeof *item->window);
    if (!item->window)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        item->window[i].d.count = item->count;
        item->window[i].d.place = item->own.place;
        item->window[i].d.timeout_most = item->own.timeout_most;
        item->window[i].next = item->free_open;
        item->free_open = &item->window[i];
    }
    return 0;
}

/* over - the batch time is up, and at least one message was taken */
static bool over(const struct receive *item)
{
    return item->took && item->now_ns >= item->end_ns;
}

/* Return whether the item may take one more message. Read the cap again,
 * because much time may have passed since the item's last message. While the
 * breaker sends a probe, or a suspect is left, no message is taken beside an
 * open one. */
static bool may_take(struct receive *item)
{
    struct flow *f = item->flow;

    return gate_running(&f->gate) <= gate_room(&f->gate) &&
           (item->open == 0 ||
            (breaker_state(&f->gate.breaker) == BREAKER_CLOSED &&
             !gate_alone(&f->gate)));
}

/* send - what was taken is the child's */
static void send(struct receive *item)
{
    struct open *o = item->free_open;

    item->free_open = o->next;
    o->since_ns = receive_look(item);
    receive_begins(item, &o->d);
    item->open++;
    item->took = true;
    item->flow->ops->coprocesses->send(item->coprocess, &o->d);
}

/* fill - take and send; 0: the coprocess is full, or may not take more;
 * -EAGAIN:
 * there is no more, -errno trouble. TAKEN_NONE: look at what is open first. */
static int fill(struct receive *item)
{
    const struct coprocess_ops *coprocesses = item->flow->ops->coprocesses;
    int err = 0;

    receive_look(item); /* it may have waited for long */
    while (!err && may_take(item) && coprocesses->room(item->coprocess) > 0) {
        item->d = &item->free_open->d;
        err = take(item);
        if (!err)
            send(item);
        else if (err == TAKEN_NONE && item->open == 0)
            err = 0;
    }
    take_flush(item);
    return err;
}

/* want - on the list, and see whether there is something already */
static bool want(struct receive *item)
{
    struct flow *f = item->flow;

    if (f->ops->coprocesses->room(item->coprocess) == 0)
        return false;
    items_want(&f->items, item);
    gate_changed(&f->gate);
    return true;
}

/* collect - wait for the next that ends, and settle it */
static void collect(struct receive *item)
{
    struct flow *f = item->flow;
    struct delivery *d = f->ops->coprocesses->next(item->coprocess, &item->out);
    struct open *o = (struct open *)d;

    if (!d)
        return;
    receive_ends(item, d, o->since_ns);
    item->open--;
    o->next = item->free_open;
    item->free_open = o;
}

/* ready - the coprocess can be sent to; false: it cannot, and the breaker knows
 *  */
static bool ready(struct receive *item)
{
    struct flow *f = item->flow;
    int err = f->ops->coprocesses->ready(item->coprocess, &item->out);

    if (err && err != -EINTR)
        gate_breaker(&f->gate, BREAKER_NOT_STARTED, item->out.error);
    return err == 0;
}

/* step - fill, and wait for one that ends; false: nothing is there and nothing
 * is open */
static bool step(struct receive *item)
{
    struct flow *f = item->flow;
    int err = fill(item);
    bool wants;

    if (err < 0 && err != -EAGAIN)
        gate_trouble(&f->gate, "receiving", -err);
    if (item->open == 0)
        return err >= 0 || (err == -EAGAIN && receive_spins(item));
    spin_hit(&item->spin);
    wants = err != TAKEN_NONE && want(item);
    if (!wants)
        gate_changed(&f->gate); /* there may be more: for others */
    if (err == TAKEN_NONE)
        f->ops->coprocesses->wake(
            item->coprocess); /* no wait: there may be more */
    collect(item);
    if (wants)
        items_unwant(&f->items, item);
    return true;
}

/* coprocess_batch - what is open is waited for before the coprocess is left */
static enum why coprocess_batch(struct receive *item)
{
    enum why why;

    for (;;) {
        if (item->open == 0) {
            if (receive_must_leave(item, &why))
                return why;
            if (over(item))
                return LEFT_TIME;
            if (!ready(item))
                continue; /* told to leave, or the breaker is open now */
        }
        if (!step(item))
            return LEFT_EMPTY;
    }
}

/* receive_window_batch - with a coprocess of its own */
enum why receive_window_batch(struct receive *item)
{
    struct flow *f = item->flow;
    struct coprocess *coprocess;
    enum why why = LEFT_EMPTY;

    item->end_ns = ns_add(receive_look(item), f->set->batch_limit_ns);
    spin_reset(&item->spin);
    item->took = false;
    counters_put(&item->count->since_ns, COUNTERS_BUSY);
    coprocess =
        window_open(item) == 0 ? f->ops->coprocesses->get(f->handler) : NULL;
    if (!coprocess) {
        gate_trouble(&f->gate, "starting a work item", ENOMEM);
        return why;
    }
    items_coprocess_set(&f->items, item, coprocess);
    why = coprocess_batch(item);
    items_coprocess_set(&f->items, item, NULL);
    f->ops->coprocesses->put(f->handler, coprocess);
    return why;
}
