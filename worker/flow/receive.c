/* receive.c - how a work item takes and runs messages for one time-limited
 * batch (see receive.h) */
#include "worker/flow/receive.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "worker/handlers/handler.h"
#include "worker/rules/breaker.h"

/* Handler time from which a second thread pays off, ns. Waking a thread costs
 * some microseconds, and two threads that receive simultaneously slow each
 * other down on the queue's lock in the kernel (docs/performance.md). All work
 * items but one leave only below ITEMS_QUICK_NS; the gap between the two
 * numbers keeps items from starting and leaving over and over. */
#define PAYS_NS 6000

/* Longest time until a work item notices that the wall clock was set. Until
 * then it records times of the old setting. */
#define WALL_NS (100 * NS_PER_MS)

void item_read_wall(struct work_item *item)
{
    item->wall_ns = clock_wall_ns() - item->now_ns;
    item->wall_old = item->now_ns + WALL_NS;
}

void item_spin_end(struct work_item *item)
{
    item_read_clock(item);
    spin_hit(&item->spin);
}

/* Return true if the item should try an empty queue again before it leaves. */
static bool should_spin(struct work_item *item)
{
    return spin_begin(&item->spin) &&
           spin_on(&item->spin, item_read_clock(item));
}

void item_delivery_end(struct work_item *item, struct delivery *d,
                       uint64_t took_ns)
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
    /* Count how long a first delivery waited in the queue. This is done only
     * now, so that it does not delay the start of the handler. */
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

/* ---- the fast path, for the usual message ---- */

/* Result of run_straight: take the next message by the slow path. Every message
 * that run_straight took is settled. */
#define STRAIGHT_ASK 100

/* Run messages on the fast path until one does not qualify. Returns
 * STRAIGHT_ASK, or a result of take_next: TAKEN (item->d is a message that did
 * not qualify; the caller delivers it), TAKEN_NONE or -errno.
 *
 * While nothing needs attention (attention.h) and handlers are quick, a plain
 * message (receive_next) goes straight from the source to the handler. Without
 * the fast path it takes 6 to 8 % more time (docs/performance.md). The whole
 * path is in this function and in four calls through tables: the source's take,
 * run and done, and the handler's run. Everything else is in functions that are
 * not inlined, so that the loop has a small frame.
 * tests/crash/test_instructions.c counts its instructions.
 *
 * Crash: between take and run, the source has the message as received; between
 * run and done, the source has it as running; after done, the message is
 * finished (source.h). Recovery does not read the counters.
 */
__attribute__((noinline)) static int run_straight(struct work_item *item)
{
    struct flow *f = item->flow;
    struct delivery *d = &item->own;
    int err;

    if (item->later_count > 0) /* settle_later settles these first */
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
        d->started_ns = item_wall_ns(item);
        d->message->ops->run(d->message, d->started_ns);
        counters_one_started(item->count, before);
        f->ops->run(f->handler, d, &item->out);
        ns = item_read_clock(item) - before;
        item->out.duration_ns = ns;
        if (item->out.kind != OUTCOME_VERDICT ||
            item->out.verdict != MQW_DONE || log_enabled(LOG_DEBUG)) {
            item_delivery_end(item, d, ns);
            continue;
        }
        /* The message is not stored, and nothing needed attention before it was
         * taken. A reason that has come up since then is handled before the
         * next message. */
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

bool item_must_leave(struct work_item *item, enum why *why)
{
    struct flow *f = item->flow;

    *why = LEFT_OVER_CAP;
    crashes_stuck(f);
    if (gate_leave_over(&f->gate, gate_room(&f->gate)))
        return true;
    *why = LEFT_CONTENDED;
    return !item->coprocess && items_quick(&f->items) &&
           gate_running(&f->gate) > 1 && items_contended(&f->items, item) &&
           gate_leave_over(&f->gate, 1);
}

static void batch_begin(struct work_item *item)
{
    item->end_ns =
        ns_add(item_read_clock(item), item->flow->set->batch_limit_ns);
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
            if (item->attend & ATTEND_LEAVE && item_must_leave(item, &why))
                return why;
            err = item->attend & (unsigned)ATTEND_ASK
                      ? take_next(item)
                      : take_rest(item, receive_fresh(item));
        }
        if (err == -EAGAIN && should_spin(item))
            continue;
        if (err < 0 && err != -EAGAIN)
            gate_trouble(&f->gate, "receiving", -err);
        if (err < 0)
            return LEFT_EMPTY;
        if (err == TAKEN) {
            struct delivery *d = item->d;
            uint64_t before = item->now_ns;

            if (item->later_count > 0)
                settle_later(item);
            if (!items_quick(&f->items)) {
                before = item_read_clock(item);
                (void)message_name(d->message); /* mqctl top shows it */
            }
            /* Let another work item start if a second thread pays off. Settling
             * a stored message waits for the disk even if its handler is quick;
             * with more threads, several messages share a commit. */
            if (d->message->flags & MESSAGE_STORED ||
                atomic_load_explicit(&f->items.pace_ns, memory_order_relaxed) >=
                    PAYS_NS)
                gate_changed(&f->gate);
            item_delivery_begin(item, d);
            f->ops->run(f->handler, d, &item->out);
            item_delivery_end(item, d, item_read_clock(item) - before);
        }
        spin_hit(&item->spin);
        if (item->now_ns >= item->end_ns)
            return LEFT_TIME;
    }
}

/* ---- several deliveries open in a coprocess ---- */

/* The item sends messages to its coprocess until the coprocess is full or no
 * message is left, then waits for the first delivery to end. An item that waits
 * while its coprocess has room is on a list (items_want): if a message arrives
 * and no further item may start, an item on this list is woken. The item leaves
 * the list before it takes a message. It calls gate_changed after it has
 * entered the list, so that a message that arrived in between is not missed. */

/* A delivery that a child has not answered yet. */
struct open {
    struct delivery d; /* first, because coprocess_next returns its address */
    uint64_t since_ns; /* time it was sent, monotonic */
    struct open *next; /* free */
};

/* Take messages and send them to the coprocess. Returns 0 if the coprocess is
 * full or the item may not take more; -EAGAIN if there is no message;
 * TAKEN_NONE if the open deliveries have to be handled first; else -errno. */
static int window_fill(struct work_item *item)
{
    struct flow *f = item->flow;
    const struct coprocess_ops *coprocesses = f->ops->coprocesses;
    int err = 0;

    item_read_clock(item); /* the item may have waited for long */
    /* The cap is read again, because much time may have passed since the item's
     * last message. While the breaker is not closed, or a suspect message has
     * to run alone, the item takes no message beside an open one. */
    while (!err && gate_running(&f->gate) <= gate_room(&f->gate) &&
           (item->open == 0 ||
            (breaker_state(&f->gate.breaker) == BREAKER_CLOSED &&
             !gate_alone(&f->gate))) &&
           coprocesses->room(item->coprocess) > 0) {
        struct open *o = item->free_open;

        item->d = &o->d;
        err = take_next(item);
        if (err == TAKEN_NONE && item->open == 0) {
            err = 0;
        } else if (!err) {
            item->free_open = o->next;
            o->since_ns = item_read_clock(item);
            item_delivery_begin(item, &o->d);
            item->open++;
            item->took = true;
            coprocesses->send(item->coprocess, &o->d);
        }
    }
    if (item->later_count > 0)
        settle_later(item);
    return err;
}

/* Fill the coprocess, then wait until a delivery ends. Returns false if there
 * is no message to take and no delivery is open. */
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
        return err >= 0 || (err == -EAGAIN && should_spin(item));
    spin_hit(&item->spin);
    wants = err != TAKEN_NONE && coprocesses->room(item->coprocess) > 0;
    if (wants)
        items_want(&f->items, item);
    gate_changed(&f->gate); /* another item may take the next message */
    if (err == TAKEN_NONE)
        coprocesses->wake(item->coprocess); /* so that next does not block */
    o = (struct open *)coprocesses->next(item->coprocess, &item->out);
    if (o) {
        item_delivery_end(item, &o->d, item_read_clock(item) - o->since_ns);
        item->open--;
        o->next = item->free_open;
        item->free_open = o;
    }
    if (wants)
        items_unwant(&f->items, item);
    return true;
}

enum why receive_window_batch(struct work_item *item)
{
    struct flow *f = item->flow;
    size_t most = (size_t)f->set->window;
    struct coprocess *coprocess = NULL;
    enum why why;

    batch_begin(item);
    item->took = false;
    /* One `struct open` for each message that a coprocess may have open. */
    if (!item->window) {
        item->window = calloc(most, sizeof *item->window);
        for (size_t i = 0; item->window && i < most; i++) {
            item->window[i].d.count = item->count;
            item->window[i].d.place = item->own.place;
            item->window[i].d.timeout_most = item->own.timeout_most;
            item->window[i].next = item->free_open;
            item->free_open = &item->window[i];
        }
    }
    if (item->window)
        coprocess = f->ops->coprocesses->get(f->handler);
    if (!coprocess) {
        gate_trouble(&f->gate, "starting a work item", ENOMEM);
        return LEFT_EMPTY;
    }
    items_coprocess_set(&f->items, item, coprocess);
    /* No delivery is open when the batch ends. */
    for (;;) {
        if (item->open == 0) {
            int err;

            if (item_must_leave(item, &why))
                break;
            why = LEFT_TIME;
            if (item->took && item->now_ns >= item->end_ns)
                break;
            err = f->ops->coprocesses->ready(coprocess, &item->out);
            if (err && err != -EINTR)
                gate_breaker(&f->gate, BREAKER_NOT_STARTED, item->out.error);
            if (err)
                continue; /* leave, or wait for the breaker */
        }
        why = LEFT_EMPTY;
        if (!window_step(item))
            break;
    }
    items_coprocess_set(&f->items, item, NULL);
    f->ops->coprocesses->put(f->handler, coprocess);
    return why;
}
