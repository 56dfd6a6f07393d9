/* receive.h - one work item: it takes messages, and runs a handler for each
 *
 * WHAT   The work item, which only items.c, take.c and receive.c see, and the
 *        steps that its ways of delivering share.
 * WHO    The thread that runs the item, unless marked otherwise.
 * OWNS   The messages it names, until they are settled.
 * FAILS  As each says.
 */
#ifndef WORKER_FLOW_RECEIVE_H
#define WORKER_FLOW_RECEIVE_H

#include <errno.h>
#include <stdatomic.h>
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

struct coprocess; /* handler.h */
struct open;      /* receive.c */

/* c = constant   a = atomic   h = under the items' mtx
 * Everything else belongs to the thread that runs it. */
struct receive {
    LIST_ENTRY(receive) all;   /* h */
    LIST_ENTRY(receive) spare; /* h */
    struct pool_job job;
    struct flow *flow;            /* c */
    struct counters_block *count; /* h  written by its thread only; NULL: it
                                   * never ran */
    uint64_t end_ns;              /* of the batch */
    unsigned attend; /* attention.h, before this message was taken */
    bool plain;      /* it needs a handler, and no more */
    unsigned turn;   /* groups, due and fresh messages take turns */
    struct message *later[SETTLE_LATER_MOST]; /* not due yet */
    size_t later_count;
    uint64_t now_ns;   /* the last look at the clock, monotonic */
    uint64_t wall_ns;  /* what the wall clock is ahead of it */
    uint64_t wall_old; /* when that is to be looked at again */
    struct spin spin;
    struct delivery *d; /* where the next message goes to */
    struct delivery own;
    struct outcome out;
    /* Of a handler that has coprocesses. */
    struct coprocess *coprocess;     /* h  NULL: none now */
    struct open *window, *free_open; /* receive.c */
    unsigned open;
    bool took;                  /* one at least in this batch */
    bool wants;                 /* h  on the list: it would take one more */
    LIST_ENTRY(receive) wanted; /* h */
};

enum why { LEFT_EMPTY, LEFT_TIME, LEFT_TOLD, LEFT_CONTENDED };

/* Of the straight line: it has no frame but one. */
#define RECEIVE_INLINE static inline __attribute__((always_inline))

/* ---- items.c ---- */

/* Look how far the wall clock is ahead of the monotonic one. */
__attribute__((noinline)) void receive_wall_look(struct receive *item);
/* Return what time it is; one look a message, where handlers are quick. */
static inline uint64_t receive_look(struct receive *item)
{
    item->now_ns = clock_mono_ns();
    if (item->now_ns >= item->wall_old)
        receive_wall_look(item);
    return item->now_ns;
}
/* The last look, on the wall clock. */
static inline uint64_t receive_wall(const struct receive *item)
{
    return item->now_ns + item->wall_ns;
}

/* A message came from the queue, and was waited for. */
__attribute__((noinline)) void receive_waited(struct receive *item);

/* ---- receive.c ---- */

/* One time-limited batch. `running` still counts the item, unless it is
 * LEFT_TOLD or LEFT_CONTENDED. */
enum why receive_batch(struct receive *item);
/* A handler is about to get the message: the source hears of it before that. */
static inline void receive_begins(struct receive *item, struct delivery *d)
{
    d->begun_ns = item->now_ns;
    d->started_ns = receive_wall(item);
    d->message->ops->run(d->message, d->started_ns);
    counters_started(item->count, item->now_ns);
}
/* Over the cap (or a hold, which is a cap of 0), or contended: the handlers
 * are too quick for so many items. If so, it is counted out already. */
bool receive_must_leave(struct receive *item, enum why *why);
/* Whether an empty queue is tried again. */
bool receive_spins(struct receive *item);
/* It ended, item->out but for its duration: count and settle. */
void receive_ends(struct receive *item, struct delivery *d, uint64_t since_ns);

/* ---- take.c ---- */

/* Look whether a message that was just taken, or is left from the last worker,
 * was here before: it is a second copy of a letter, or another message has its
 * unique key. 0: d->repeat or d->duplicate says so (settle_repeat); -errno of
 * the source: that is not known now, ask again. */
int known_look(struct flow *f, struct delivery *d);
/* The next message that a handler is to get: read, in item->d. What needs no
 * handler is settled: TAKEN_NONE. -EAGAIN none (or no more), or trouble. */
int take(struct receive *item);
/* The same while nothing needs attention but that others run: a fresh one. */
int take_straight(struct receive *item);
/* What was taken needs no handler: TAKEN_NONE, else `err`. */
int receive_needs_none(struct receive *item, int err);
/* What is not due yet goes back to wait, before anything takes long. */
void take_flush(struct receive *item);

/* One that is not plain; inside of receive_next. */
__attribute__((noinline)) int receive_sort(struct receive *item,
                                           struct message *m);
/* Sort a message that an operator cancelled, or under which the worker crashed:
 * it is never plain. Inside of receive_next, too. */
__attribute__((noinline)) int receive_marked(struct receive *item,
                                             struct message *m);
RECEIVE_INLINE int receive_one(struct receive *item)
{
    struct flow *f = item->flow;
    struct source *s = f->source;
    struct message *m;
    int err = s->ops->take(s, item->own.place, receive_wall(item), &m);

    if (err)
        return err == -ECANCELED ? receive_marked(item, m) : err;
    if (item->spin.tries)
        receive_waited(item);
    FAULT_POINT("receive_before_sort");
    item->plain = !f->set->group_separator && delivery_plain(item->d, m);
    return item->plain ? TAKEN : receive_sort(item, m);
}
/* Take the next fresh message, with the lock, as its place is that of the
 * source: TAKEN, and whether it is plain; HANDED_OVER to its group; -errno. */
RECEIVE_INLINE int receive_next(struct receive *item)
{
    int err;

    solo_lock(&item->flow->solo);
    err = receive_one(item);
    solo_unlock(&item->flow->solo);
    return err;
}

/* ---- receive.c ---- */

/* As receive_batch, with many deliveries open in a coprocess. */
enum why receive_window_batch(struct receive *item);

#endif
