/* receive.h - a work item: it takes messages and runs a handler for each
 *
 * WHAT   The body of a work item, which only files of this room use, and the
 *        steps that they share: taking a message (take.c) and running it
 *        (receive.c). items.c starts items and ends them.
 * WHO    The thread that runs the item, unless marked otherwise.
 * OWNS   The messages it names, until they are settled.
 * FAILS  See each function.
 */
#ifndef WORKER_FLOW_RECEIVE_H
#define WORKER_FLOW_RECEIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/state/counters.h"
#include "worker/rules/delivery.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/items.h"
#include "worker/flow/settle.h"
#include "worker/flow/take.h"

/* c = constant   h = under the items' mtx
 * All other fields belong to the thread that runs the item. */
struct work_item {
    LIST_ENTRY(work_item) all;   /* h */
    LIST_ENTRY(work_item) spare; /* h */
    struct pool_job job;
    struct flow *flow;            /* c */
    struct counters_block *count; /* h  NULL: it never ran */
    uint64_t end_ns;              /* end of the batch, monotonic */
    unsigned attend; /* attention bits just before this message was taken */
    bool plain;      /* the message needs a handler, and nothing else */
    unsigned turn;   /* groups, due and fresh messages take turns */
    struct message *later[SETTLE_LATER_MOST]; /* messages not due yet */
    size_t later_count;
    uint64_t now_ns;   /* the clock when it was read last, monotonic */
    uint64_t wall_ns;  /* the wall clock minus the monotonic one */
    uint64_t wall_old; /* when wall_ns must be read again, monotonic */
    struct spin spin;
    struct delivery *d; /* the next message is read into this */
    struct delivery own;
    struct outcome out;
    /* For a handler that has coprocesses. */
    struct coprocess *coprocess;     /* h  NULL: none now */
    struct open *window, *free_open; /* receive.c */
    unsigned open;                   /* deliveries that the coprocess has */
    bool took;                       /* this batch has taken a message */
    bool wants;                      /* h  on the list items.wanting */
    LIST_ENTRY(work_item) wanted;    /* h */
};

enum why { LEFT_EMPTY, LEFT_TIME, LEFT_OVER_CAP, LEFT_CONTENDED };

/* ---- receive.c ---- */

/* Read how far the wall clock is ahead of the monotonic one. */
__attribute__((noinline)) void item_read_wall(struct work_item *item);
/* Return the monotonic time. A message of a quick handler costs one call. */
static inline uint64_t item_read_clock(struct work_item *item)
{
    item->now_ns = clock_mono_ns();
    if (item->now_ns >= item->wall_old)
        item_read_wall(item);
    return item->now_ns;
}
/* Return the time of the last item_read_clock on the wall clock. */
static inline uint64_t item_wall_ns(const struct work_item *item)
{
    return item->now_ns + item->wall_ns;
}

/* Read the clock again, because the queue was empty for a while. */
__attribute__((noinline)) void item_spin_end(struct work_item *item);

/* Run one batch: take and run messages until there is none, the batch's time is
 * over, or the item has another reason to leave. The gate still counts the item
 * as running, unless the result is LEFT_OVER_CAP or LEFT_CONTENDED. */
enum why receive_batch(struct work_item *item);
/* Do the same with many deliveries open in a coprocess. */
enum why receive_window_batch(struct work_item *item);
/* Mark the message as running in the source, before a handler gets it. */
static inline void item_delivery_begin(struct work_item *item,
                                       struct delivery *d)
{
    d->begun_ns = item->now_ns;
    d->started_ns = item_wall_ns(item);
    d->message->ops->run(d->message, d->started_ns);
    counters_started(item->count, item->now_ns);
}
/* Return true if the item has to leave, and count it out at the gate. It has to
 * leave if more items run than the cap allows (a hold is a cap of 0), or if
 * handlers are so quick that several items slow each other down. The second
 * reason does not apply to an item with coprocesses, whose handlers are
 * processes. */
bool item_must_leave(struct work_item *item, enum why *why);
/* Count and settle a delivery that ended. item->out has the outcome; this fills
 * in its duration. */
void item_delivery_end(struct work_item *item, struct delivery *d,
                       uint64_t took_ns);

/* ---- take.c ---- */

/* Find out whether a message that was just taken, or that the last worker left,
 * is a second copy of a letter (d->repeat), or whether another message has its
 * unique key (d->duplicate). settle_repeat handles both. Returns 0, or -errno
 * if the source cannot tell now; call again later. */
int known_look(struct flow *f, struct delivery *d);
/* Take the next message for a handler. Returns TAKEN if item->d has it;
 * TAKEN_NONE if the message needed no handler and is settled; -EAGAIN if there
 * is no message or none may be taken; else -errno. */
int take_next(struct work_item *item);
/* Finish taking the message for which receive_next or receive_fresh returned
 * `err`. Returns like take_next. */
int take_rest(struct work_item *item, int err);
/* Take a fresh message like receive_next, within the limits of the run. */
__attribute__((noinline)) int receive_fresh(struct work_item *item);
/* Put a message of a group into its group. Returns HANDED_OVER if the message
 * waits there; TAKEN if it has no group or may run now; -errno if it was put on
 * the ready list, to be sorted again when it is taken from there. */
__attribute__((noinline)) int receive_sort(struct work_item *item,
                                           struct message *m);
/* Take the next fresh message. Returns TAKEN, with item->plain set if the
 * message is plain; HANDED_OVER if it waits in its group now; or -errno.
 * take_lock keeps the messages of a group in the order of the source. A message
 * that was cancelled, or that was running when the worker crashed (-ECANCELED),
 * is never plain. */
static inline __attribute__((always_inline)) int
receive_next(struct work_item *item)
{
    struct flow *f = item->flow;
    struct source *s = f->source;
    struct message *m;
    int err;

    quick_lock(&f->take_lock);
    err = s->ops->take(s, item->own.place, item_wall_ns(item), &m);
    if (!err || err == -ECANCELED) {
        if (item->spin.tries)
            item_spin_end(item);
        FAULT_POINT("receive_before_sort");
        item->plain =
            !err && !f->set->group_separator && delivery_plain(item->d, m);
        err = item->plain ? TAKEN : receive_sort(item, m);
    }
    quick_unlock(&f->take_lock);
    return err;
}

#endif
