/* receive_inner.h - inside of the receive work item: items.c, receive_next.c,
 * receive.c, receive_window.c, schedule.c
 *
 * WHAT   The work item, and the steps that its ways of delivering share.
 * WHO    The thread that runs the item, unless marked otherwise.
 * OWNS   The messages it names, until they are settled.
 * FAILS  As each says.
 */
#ifndef WORKER_FLOW_RECEIVE_INNER_H
#define WORKER_FLOW_RECEIVE_INNER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "common/state/counters.h"
#include "worker/rules/delivery.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/items.h"
#include "worker/flow/settle.h"

struct coprocess; /* handler.h */
struct open;      /* receive_window.c */

/* c = constant   a = atomic   h = under the items' mtx
 * Everything else belongs to the thread that runs it. */
struct receive {
    LIST_ENTRY(receive) all;   /* h */
    LIST_ENTRY(receive) spare; /* h */
    struct pool_job job;
    struct flow *flow;            /* c */
    struct counters_block *count; /* h  written by its thread only; NULL: it
                                   * never ran */
    unsigned turn; /* groups, due and fresh messages take turns */
    struct message *later[SETTLE_LATER_MOST]; /* not due yet */
    size_t later_count;
    uint64_t now_ns;   /* the last look at the clock, monotonic */
    uint64_t wall_ns;  /* what the wall clock is ahead of it */
    uint64_t wall_old; /* when that is to be looked at again */
    unsigned luck, skipped;
    uint64_t empty_ns;  /* first of these tries */
    unsigned dwells;    /* tries of an empty queue since the last message */
    struct delivery *d; /* where the next message goes to */
    struct delivery own;
    struct outcome out;
    /* Of a handler that has coprocesses. */
    struct coprocess *coprocess;     /* h  NULL: none now */
    struct open *window, *free_open; /* receive_window.c */
    unsigned open;
    uint64_t end_ns;            /* of the batch */
    bool took;                  /* one at least in this batch */
    bool wants;                 /* h  on the list: it would take one more */
    LIST_ENTRY(receive) wanted; /* h */
};

enum why { LEFT_EMPTY, LEFT_TIME, LEFT_TOLD, LEFT_CROWD };

/* ---- items.c ---- */

/* What time it is; one look a message, where handlers are quick. */
uint64_t receive_look(struct receive *item);
/* The last look, on the wall clock. */
static inline uint64_t receive_wall(const struct receive *item)
{
    return item->now_ns + item->wall_ns;
}

/* ---- receive.c ---- */

/* One time-limited batch. `running` still counts the item, unless it is
 * LEFT_TOLD or LEFT_CROWD. */
enum why receive_batch(struct receive *item);
/* A handler is about to get the message. */
void receive_begins(struct receive *item, struct delivery *d);
/* It ended, item->out but for its duration: count and settle. */
void receive_ends(struct receive *item, struct delivery *d, uint64_t since_ns);
/* Over the cap (or a hold, which is a cap of 0), or in a crowd whose handlers
 * are too quick for it. If so, it is counted out already. */
bool receive_must_leave(struct receive *item, enum why *why);
/* Whether an empty queue is tried again. */
bool receive_dwell(struct receive *item);
void receive_dwelt(struct receive *item);

/* ---- receive_next.c ---- */

/* The next message that a handler is to get: read, in item->d. What needs no
 * handler is settled: TAKEN_NONE. -EAGAIN none (or no more), or trouble. */
int take(struct receive *item);
/* What is not due yet goes back to wait, before anything takes long. */
void take_flush(struct receive *item);

/* ---- receive_window.c ---- */

/* As receive_batch, with many deliveries open in a coprocess. */
enum why receive_window_batch(struct receive *item);

#endif
