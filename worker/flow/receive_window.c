/* receive_window.c - a work item that keeps several deliveries open (see
 * receive_inner.h)
 *
 * The item fills its coprocess with what there is, then waits for the first
 * that ends. While it waits with room in the coprocess it is on the engine's
 * list of those that would take one more: whoever has a message and no room for
 * another item wakes one of them. It leaves the list before it takes, and wakes
 * after it entered, so that nothing that came in between is missed.
 */
#include "worker/flow/receive_inner.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/rules/breaker.h"
#include "worker/handlers/handler.h"

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
