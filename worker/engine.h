/* engine.h - the worker: owns the parts, starts and ends them
 *
 * WHAT   Opens what a worker needs, recovers what the last one left, runs until
 *        told to stop, and hands back everything in order.
 * WHO    open, run, close: one thread (it becomes the peeker). The parts in
 *        worker/ see the struct; nobody else does.
 * OWNS   Every part.
 * FAILS  open: a problem with the exit status of docs/mqworker.8.
 *
 * Lock order: receive_mtx, groups, settle_mtx, gate, items, ready, retries,
 * store, timers, pool. A handler and a timer's callback run with none of them
 * held.
 */
#ifndef WORKER_ENGINE_H
#define WORKER_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "common/custody/custody.h"
#include "common/mq/queue.h"
#include "common/state/runtimedir.h"
#include "common/state/statedir.h"
#include "common/store/store.h"
#include "worker/flow/backlog.h"
#include "worker/operate/board.h"
#include "worker/flow/bounds.h"
#include "worker/loop/dirty.h"
#include "worker/source/load.h"
#include "worker/flow/gate.h"
#include "worker/handlers/handler.h"
#include "worker/flow/items.h"
#include "worker/loop/pool.h"
#include "worker/flow/ready.h"
#include "worker/source/recall.h"
#include "worker/source/retries.h"
#include "worker/config/settings.h"
#include "worker/process/stderr_limit.h"
#include "worker/loop/signals.h"
#include "worker/flow/stop.h"
#include "worker/loop/timers.h"

struct loop;       /* loop.c */
struct peeker;     /* peeker.c */
struct control;    /* control.c */
struct pending;    /* pending.c */
struct reopen;     /* reopen.c */
struct ordered;    /* ordered.c */
struct release;    /* release.c */
struct file_watch; /* file_watch.c */
struct dead_queue; /* dead_queue.c */
struct lock;       /* lock.c */

/* c = constant after open   a = atomic   r = under receive_mtx
 * p = peeker only   s = under settle_mtx */
struct engine {
    const struct settings *set;    /* c  what it points to: settings.h */
    struct settings *live;         /* c  the same; tune.c writes there */
    struct statedir dir;           /* c */
    struct runtimedir runtime;     /* c  custody and counters are there */
    struct lock *lock;             /* c  one worker a directory */
    struct queue *queue;           /* c */
    struct custody *custody;       /* c */
    bool on_disk;                  /* c  custody is; slot_warm */
    struct store *store;           /* c */
    struct timers *timers;         /* c */
    struct pool *pool;             /* c */
    struct retries *retries;       /* c */
    struct loop *loop;             /* c */
    struct signals signals;        /* c */
    struct peeker *peeker;         /* c */
    struct reopen *reopen;         /* c */
    struct ordered *ordered;       /* c */
    struct release *release;       /* c  NULL: no group is ever held */
    struct file_watch *file_watch; /* c */
    struct dead_queue *dead_queue; /* c  NULL: none wanted */
    struct counters *counters;     /* c */
    struct control *control;       /* c  NULL: it cannot be had */
    const struct handler_ops *ops; /* c */
    struct handler *handler;       /* c */
    struct gate gate;
    struct ready ready;
    struct items items;
    struct stop stop;
    struct bounds bounds;
    struct backlog backlog;
    struct dirty dirty;
    struct board board;
    struct load load;
    struct recall recall;
    struct stderr_limit stderr_limit;

    atomic_uint unsettled;  /* a  verdicts on the pending list */
    atomic_uint rows_first; /* a  rows to take before the queue's messages */

    pthread_mutex_t receive_mtx; /* one thread receives at a time: the receive
                                    sequence is the order of the queue */
    pthread_mutex_t settle_mtx;
    STAILQ_HEAD(, pending) pending; /* s */
    uint64_t settle_wait_ns;        /* s  until the next try */
    atomic_bool flushing;           /* a  settle_job is submitted, or runs */
    struct pool_job settle_job;     /* tries again */

    struct timer settle_timer;
    uint64_t seen; /* p  deliveries at the last quiet round */
    bool started;  /* p  it ran; before, a folder may be made in vain */
};

/* `set` is kept. */
int engine_open(struct engine **out, struct settings *set,
                const struct handler_ops *ops, struct problem *p);
/* Until stopped; the exit status. */
int engine_run(struct engine *e);
void engine_close(struct engine **engine); /* NULL-safe; sets NULL */

#endif
