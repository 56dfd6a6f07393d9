/* receive.c - a work item runs for a while: one time-limited batch (see
 * receive.h) */
#include "worker/flow/receive.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/flow.h"
#include "worker/handlers/handler.h"
#include "worker/rules/breaker.h"

/* A second thread pays off from about this handler time on: to wake it costs
 * some microseconds, and two threads that receive at once slow each other down
 * on the queue's lock in the kernel (docs/performance.md). Where handlers are
 * quick (ITEMS_QUICK_NS) all but one leave; the gap keeps them from coming and
 * going. */
#define PAYS_NS 6000

/* A step of the wall clock is noticed within this time: until then, times are
 * noted by the clock as it was, wrong or not. */
#define WALL_NS (100 * NS_PER_MS)

void receive_wall_look(struct work_item *item)
{
    item->wall_ns = clock_wall_ns() - item->now_ns;
    item->wall_old = item->now_ns + WALL_NS;
}

void receive_waited(struct work_item *item)
{
    receive_look(item);
    spin_hit(&item->spin);
}

/* Return true if an empty queue is to be tried again. */
static bool receive_spins(struct work_item *item)
{
    return spin_begin(&item->spin) && spin_on(&item->spin, receive_look(item));
}

void receive_ends(struct work_item *item, struct delivery *d, uint64_t took_ns)
{
    struct flow *f = item->flow;
    struct message *m = d->message;
    uint64_t seq = m->seq;

    item->out.duration_ns = took_ns;
    if (__builtin_expect(item->out.kind != OUTCOME_VERDICT, 0) &&
        (item->out.kind == OUTCOME_NOT_STARTED ||
         item->out.kind == OUTCOME_UNSENT)) {
        counters_unstarted(item->count);
        settle_outcome(f, d, &item->out);
        run_limits_untake(f);
        return;
    }
    counters_ended(item->count, took_ns);
    /* How long a first delivery waited in the queue is counted only now,
     * because others wait for the start of the handler. */
    if (!(m->flags & MESSAGE_STORED) && m->failures == 0) {
        counters_waited(item->count,
                        d->header.fields & HEADER_SENT ? d->header.sent_ns
                                                       : m->received_ns,
                        d->started_ns);
        counters_received(item->count, m->received_ns);
    }
    items_pace(&f->items, took_ns);
    settle_outcome(f, d, &item->out);
    crashes_ended(f, seq);
    run_limits_busy(f);
}

/* ---- the usual message, in one short straight line ---- */

/* The answer of run_straight if the next message has to be taken another way.
 * No message was taken, or the last one is settled. */
#define STRAIGHT_ASK 100

/* Run usual messages until one is not. Returns STRAIGHT_ASK, or as take_next:
 * TAKEN, a message that is not usual and is to be delivered; TAKEN_NONE;
 * -errno.
 *
 * Without this way of its own the usual message takes 6 to 8 % more time
 * (docs/performance.md). While nothing needs attention (attention.h) and
 * handlers are quick, a fresh message that has no time of its own goes from the
 * source to the handler, and is done. All that this takes is in this function,
 * and in the calls through tables: the source's take, run and done, and the
 * handler's run. Everything else is left to calls that are not inline, so that
 * the loop has a small frame. Its length is counted
 * (tests/crash/test_instructions.c).
 *
 * Crash: between take and run the message is the source's as it was received;
 * between run and done it is running; after done it is done (source.h). The
 * counters are not read by recovery.
 */
__attribute__((noinline)) static int run_straight(struct work_item *item)
{
    struct flow *f = item->flow;
    struct delivery *d = &item->own;
    int err;

    if (item->later_count > 0) /* they are flushed before a message runs */
        return STRAIGHT_ASK;
    item->d = d;
    do {
        unsigned attend = attention_look(&f->gate.attention);
        uint64_t before, ns;

        if (attend || !items_quick(&f->items)) {
            item->attend = attend;
            return STRAIGHT_ASK;
        }
        err = receive_next(item);
        if (err || !item->plain)
            return take_rest(item, err);
        before = item->now_ns;
        d->begun_ns = before;
        d->started_ns = receive_wall(item);
        d->message->ops->run(d->message, d->started_ns);
        counters_one_started(item->count, before);
        f->ops->run(f->handler, d, &item->out);
        ns = receive_look(item) - before;
        item->out.duration_ns = ns;
        if (item->out.kind != OUTCOME_VERDICT ||
            item->out.verdict != MQW_DONE || log_enabled(LOG_DEBUG)) {
            receive_ends(item, d, ns);
            continue;
        }
        /* The message is not stored, and no reason to look was there before it
         * was taken. One that came since counts from the next message on. */
        counters_one_ended(item->count, ns);
        counters_waited(item->count,
                        d->header.fields & HEADER_SENT
                            ? d->header.sent_ns
                            : d->message->received_ns,
                        d->started_ns);
        counters_received(item->count, d->started_ns);
        items_pace(&f->items, ns);
        settle_plain(f, d, &item->out);
    } while (item->now_ns < item->end_ns);
    return TAKEN_NONE;
}

/* ---- every other message ---- */

/* Run the handler for item->d, then settle the message. */
static void item_deliver(struct work_item *item)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    bool quick = items_quick(&f->items);
    uint64_t before = quick ? item->now_ns : receive_look(item);

    /* If the handler may take long, others can see its message (mqctl top). */
    if (!quick)
        (void)message_name(d->message);
    /* The end of a stored message waits for the disk even if its handler is
     * quick. With more threads, several messages share a commit. */
    if (d->message->flags & MESSAGE_STORED ||
        atomic_load_explicit(&f->items.pace_ns, memory_order_relaxed) >=
            PAYS_NS)
        gate_changed(&f->gate);
    receive_begins(item, d);
    f->ops->run(f->handler, d, &item->out);
    receive_ends(item, d, receive_look(item) - before);
}

bool receive_must_leave(struct work_item *item, enum why *why)
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

/* Begin a batch: note when it ends. */
static void batch_begin(struct work_item *item)
{
    item->end_ns = ns_add(receive_look(item), item->flow->set->batch_limit_ns);
    spin_reset(&item->spin);
    counters_put(&item->count->since_ns, COUNTERS_BUSY);
}

enum why receive_batch(struct work_item *item)
{
    struct flow *f = item->flow;
    enum why why;

    batch_begin(item);
    for (;;) {
        int err = run_straight(item);

        if (err == STRAIGHT_ASK) {
            if (item->attend & ATTEND_LEAVE && receive_must_leave(item, &why))
                return why;
            err = item->attend & (unsigned)ATTEND_ASK
                      ? take_next(item)
                      : take_rest(item, receive_fresh(item));
        }
        if (err == -EAGAIN && receive_spins(item))
            continue;
        if (err < 0 && err != -EAGAIN)
            gate_trouble(&f->gate, "receiving", -err);
        if (err < 0)
            return LEFT_EMPTY;
        if (err == TAKEN) {
            take_flush(item);
            item_deliver(item);
        }
        spin_hit(&item->spin);
        if (item->now_ns >= item->end_ns)
            return LEFT_TIME;
    }
}

/* ---- several deliveries open in a coprocess ---- */

/* The item fills its coprocess with what there is, then waits for the first
 * that ends. While it waits with room in the coprocess it is on the engine's
 * list of items that would take one more: a thread that has a message and no
 * room for another item wakes one of them. The item leaves the list before it
 * takes, and wakes after it entered, so that nothing that came in between is
 * missed.
 */

/* A delivery that a child has. */
struct open {
    struct delivery d; /* first: coprocesses know it by this */
    uint64_t since_ns; /* when it was sent */
    struct open *next; /* free */
};

/* Allocate as many places as a coprocess takes messages. */
static int window_open(struct work_item *item)
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

/* Return true if the item may take one more message. The cap is read again,
 * because much time may have passed since the item's last message. While the
 * breaker sends a probe, or a suspect is left, no message is taken beside an
 * open one. */
static bool window_may_take(struct work_item *item)
{
    struct flow *f = item->flow;

    return gate_running(&f->gate) <= gate_room(&f->gate) &&
           (item->open == 0 ||
            (breaker_state(&f->gate.breaker) == BREAKER_CLOSED &&
             !gate_alone(&f->gate)));
}

/* Take messages and send them to the coprocess. 0: it is full, or may not take
 * more; -EAGAIN: there is no more; other -errno: trouble. TAKEN_NONE: look at
 * what is open first. */
static int window_fill(struct work_item *item)
{
    const struct coprocess_ops *coprocesses = item->flow->ops->coprocesses;
    int err = 0;

    receive_look(item); /* it may have waited for long */
    while (!err && window_may_take(item) &&
           coprocesses->room(item->coprocess) > 0) {
        struct open *o = item->free_open;

        item->d = &o->d;
        err = take_next(item);
        if (err == TAKEN_NONE && item->open == 0) {
            err = 0;
        } else if (!err) {
            item->free_open = o->next;
            o->since_ns = receive_look(item);
            receive_begins(item, &o->d);
            item->open++;
            item->took = true;
            coprocesses->send(item->coprocess, &o->d);
        }
    }
    take_flush(item);
    return err;
}

/* Fill the coprocess, then wait for a delivery that ends. Returns false if
 * there is no message and none is open. */
static bool window_step(struct work_item *item)
{
    struct flow *f = item->flow;
    const struct coprocess_ops *coprocesses = f->ops->coprocesses;
    int err = window_fill(item);
    struct open *o;
    bool wants;

    if (err < 0 && err != -EAGAIN)
        gate_trouble(&f->gate, "receiving", -err);
    if (item->open == 0)
        return err >= 0 || (err == -EAGAIN && receive_spins(item));
    spin_hit(&item->spin);
    wants = err != TAKEN_NONE && coprocesses->room(item->coprocess) > 0;
    if (wants)
        items_want(&f->items, item);
    gate_changed(&f->gate); /* there may be more, for this item or others */
    if (err == TAKEN_NONE)
        coprocesses->wake(item->coprocess); /* there may be more: no wait */
    o = (struct open *)coprocesses->next(item->coprocess, &item->out);
    if (o) {
        receive_ends(item, &o->d, receive_look(item) - o->since_ns);
        item->open--;
        o->next = item->free_open;
        item->free_open = o;
    }
    if (wants)
        items_unwant(&f->items, item);
    return true;
}

/* Run a batch with the item's coprocess, which has no delivery open when it
 * ends. */
static enum why window_run(struct work_item *item)
{
    struct flow *f = item->flow;
    enum why why;

    for (;;) {
        if (item->open == 0) {
            int err;

            if (receive_must_leave(item, &why))
                return why;
            if (item->took && item->now_ns >= item->end_ns)
                return LEFT_TIME;
            err = f->ops->coprocesses->ready(item->coprocess, &item->out);
            if (err && err != -EINTR)
                gate_breaker(&f->gate, BREAKER_NOT_STARTED, item->out.error);
            if (err)
                continue; /* told to leave, or the breaker is open now */
        }
        if (!window_step(item))
            return LEFT_EMPTY;
    }
}

enum why receive_window_batch(struct work_item *item)
{
    struct flow *f = item->flow;
    struct coprocess *coprocess;
    enum why why;

    batch_begin(item);
    item->took = false;
    coprocess =
        window_open(item) == 0 ? f->ops->coprocesses->get(f->handler) : NULL;
    if (!coprocess) {
        gate_trouble(&f->gate, "starting a work item", ENOMEM);
        return LEFT_EMPTY;
    }
    items_coprocess_set(&f->items, item, coprocess);
    why = window_run(item);
    items_coprocess_set(&f->items, item, NULL);
    f->ops->coprocesses->put(f->handler, coprocess);
    return why;
}
