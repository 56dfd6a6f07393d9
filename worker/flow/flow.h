/* flow.h - from where messages come to a verdict: what the parts of it share
 *
 * WHAT   Handles, opened and closed by the engine in order. A part keeps its
 *        own state and its own lock; here is only who is there.
 * WHO    The parts of worker/flow/, and those above it (restart/, operate/).
 * OWNS   Nothing; the engine does.
 * FAILS  Never.
 *
 * Lock order: receive_mtx, groups, unsettled, items, ready, due_rows, store,
 * timers, pool; the gate's is taken alone. A handler and a timer's callback run
 * with none of them held.
 */
#ifndef WORKER_FLOW_FLOW_H
#define WORKER_FLOW_FLOW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/custody/custody.h"
#include "common/mq/queue.h"
#include "common/store/store.h"
#include "worker/config/settings.h"
#include "worker/flow/backlog.h"
#include "worker/flow/run_limits.h"
#include "worker/flow/gate.h"
#include "worker/flow/items.h"
#include "worker/flow/ready.h"
#include "worker/flow/unsettled.h"
#include "worker/handlers/handler.h"
#include "worker/loop/dirty.h"
#include "worker/loop/pool.h"
#include "worker/source/mq/row_restore.h"
#include "worker/source/mq/due_rows.h"

struct dead_queue;       /* dead_queue.c */
struct loop;             /* loop.c */
struct dispatch;         /* group_dispatch.c */
struct peeker;           /* peeker.c */
struct group_hold_watch; /* group_hold_watch.c */
struct mq_reopen;        /* mq_reopen.c */

/* c = constant after open   a = atomic */
struct flow {
    const struct settings *set; /* c  what it points to: settings.h */
    const char *folder;         /* c  of the store */
    const char *on_disk;        /* c  custody is; slot_warm. NULL: it is not */
    struct timers *timers;      /* c */
    struct pool *pool;          /* c */
    struct loop *loop;          /* c */
    struct counters *counters;  /* c */
    struct dirty dirty;

    /* Where messages come from and go back to. */
    struct queue *queue;         /* c */
    struct custody *custody;     /* c */
    struct store *store;         /* c */
    struct due_rows *due_rows;   /* c */
    struct peeker *peeker;       /* c */
    struct mq_reopen *mq_reopen; /* c */
    struct group_hold_watch
        *group_hold_watch;         /* c  NULL: no group is ever held */
    struct dead_queue *dead_queue; /* c  NULL: none wanted */
    struct row_restore row_restore;

    /* What runs for them. */
    const struct handler_ops *ops; /* c */
    struct handler *handler;       /* c */

    /* Which is next, and what a verdict means; from the bottom to the top. */
    struct gate gate;
    struct ready ready;
    struct items items;
    struct backlog backlog;
    struct dispatch *dispatch; /* c  groups at work */
    struct unsettled unsettled;
    struct run_limits run_limits;
    pthread_mutex_t receive_mtx; /* one thread receives at a time: the receive
                                    sequence is the order of the queue */
    atomic_uint rows_first; /* a  rows to take before the queue's messages */
    atomic_bool growing; /* a  a job adds slots to custody; set in the loop */
    bool started; /* it ran; before, it only finds what was left. Of the loop */
};

#endif
