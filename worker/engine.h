/* engine.h - the worker: owns the parts, starts and ends them
 *
 * WHAT   Opens what a worker needs, recovers what the last one left, runs until
 *        told to stop, and hands back everything in order.
 * WHO    open, run, close: one thread (it becomes the peeker). The parts in
 *        worker/ see the struct; nobody else does.
 * OWNS   Every part.
 * FAILS  open: a problem with the exit status of docs/mqworker.8.
 *
 * Lock order: receive_mtx, groups, held_mtx, retries, store, timers,
 * pool. A handler and a timer's callback run with none of them held.
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
#include "worker/rules/breaker.h"
#include "worker/loop/dirty.h"
#include "worker/source/load.h"
#include "worker/handlers/handler.h"
#include "worker/loop/pool.h"
#include "worker/source/recall.h"
#include "worker/source/retries.h"
#include "worker/config/settings.h"
#include "worker/process/stderr_limit.h"
#include "worker/loop/signals.h"
#include "worker/rules/suspects.h"
#include "worker/loop/timers.h"

/* Why nothing is taken; bits of engine.holds. The breaker is not among them: it
 * lets one probe through. */
enum {
    HOLD_STOP = 1 << 0,  /* draining */
    HOLD_PAUSE = 1 << 1, /* told to */
    HOLD_STORE = 1 << 2, /* a verdict could not be written */
    HOLD_QUEUE = 1 << 3, /* the queue, or starting a thread, failed */
    HOLD_BOUND = 1 << 4, /* as many are on their way as may still be taken */
    /* As many wait in the store as may: nothing is taken from the queue, but
     * what is due runs. The others stop that, too. */
    HOLD_WAITING = 1 << 5,
    HOLD_STORE_GONE = 1 << 6,   /* no file of ours has its name */
    HOLD_CUSTODY_GONE = 1 << 7, /* so has none of custody's */
    HOLD_READ_ONLY = 1 << 8,    /* their file system */
    HOLD_FILES = HOLD_STORE_GONE | HOLD_CUSTODY_GONE | HOLD_READ_ONLY,
};

/* A slot whose message waits for a thread: recovered, or its handler could not
 * be started. */
struct held {
    STAILQ_ENTRY(held) link;
    struct slot *slot;
};

struct receive;    /* receive.c: one work item */
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
 * h = under held_mtx   p = peeker only   s = under settle_mtx */
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
    struct breaker breaker;
    struct bounds bounds;
    struct backlog backlog;
    struct suspects suspects;
    struct dirty dirty;
    struct board board;
    struct load load;
    struct recall recall;
    struct stderr_limit stderr_limit;

    atomic_uint cap;          /* a  work items at once */
    atomic_uint running;      /* a  work items now; never over the cap */
    atomic_uint probe_room;   /* a  work items while the breaker probes */
    atomic_uint holds;        /* a  HOLD_ bits */
    _Atomic uint64_t pace_ns; /* a  moving mean of handler time */
    atomic_uint waiting;      /* a  slots on the held list */
    atomic_uint wants;        /* a  items on the wanting list */
    atomic_uint unsettled;    /* a  verdicts on the pending list */
    atomic_uint rows_first;   /* a  rows to take before the queue's messages */

    pthread_mutex_t receive_mtx; /* one thread receives at a time: the receive
                                    sequence is the order of the queue */
    pthread_mutex_t held_mtx;
    STAILQ_HEAD(, held) held;     /* h  in receive order */
    struct held *held_of;         /* h  one for each slot */
    LIST_HEAD(, receive) items;   /* h  all work items ever made */
    unsigned items_made;          /* h  never over ITEMS_MAX */
    unsigned lingering;           /* h  of them, waiting for the queue */
    LIST_HEAD(, receive) spare;   /* h  those without work */
    LIST_HEAD(, receive) wanting; /* h  those that wait and would take more */
    pthread_mutex_t settle_mtx;
    STAILQ_HEAD(, pending) pending; /* s */
    uint64_t settle_wait_ns;        /* s  until the next try */
    atomic_bool flushing;           /* a  settle_job is submitted, or runs */
    struct pool_job settle_job;     /* tries again */

    struct timer breaker_timer, queue_timer, settle_timer, grace_timer,
        pause_timer;
    uint64_t trouble_ns;      /* h  end of the last delay */
    uint64_t trouble_wait_ns; /* h  its length; doubles */
    uint64_t seen;            /* p  deliveries at the last quiet round */
    int stops;                /* p  stop signals so far */
    uint64_t pause_until_ns;  /* p  monotonic; 0: no limit, or no pause */
    bool ending;              /* p  handlers were told to end */
    bool started;      /* p  it ran; before, a folder may be made in vain */
    atomic_int status; /* a  exit status */
    _Atomic(const char *) why; /* a  of the end; NULL: it goes on */
};

/* `set` is kept. */
int engine_open(struct engine **out, struct settings *set,
                const struct handler_ops *ops, struct problem *p);
/* Until stopped; the exit status. */
int engine_run(struct engine *e);
void engine_close(struct engine **engine); /* NULL-safe; sets NULL */

/* ---- for the parts ---- */

/* Whether messages may be taken from the queue; a hold of all is no matter of
 * this. For the hot path: relaxed, and inline. */
static inline bool engine_takes(const struct engine *e)
{
    return !(atomic_load_explicit(&e->holds, memory_order_relaxed) &
             HOLD_WAITING);
}
/* Work items that may run now: the cap, one more than ran already while the
 * breaker probes, 0. */
unsigned engine_room(struct engine *e);
/* Something changed that may let a message be taken: start a work item, or
 * peek. Any thread. */
void engine_poke(struct engine *e);
/* As engine_poke, but where it would peek: true, and the caller waits. */
bool engine_peeks(struct engine *e);
void engine_hold(struct engine *e, unsigned bit);
void engine_unhold(struct engine *e, unsigned bit);
/* Trouble with taking messages: nothing is taken until a delay is over. */
void engine_trouble(struct engine *e, const char *what, int err);
/* Tell the breaker, log and act on what it says. */
void engine_breaker(struct engine *e, enum breaker_event event,
                    const char *reason);
/* Put a slot on the held list (front: it was first in line), or take one. */
void engine_hold_slot(struct engine *e, struct slot *slot, bool front);
struct slot *engine_take_held(struct engine *e);

/* Take no more, finish what runs, exit 0. The first reason counts. Any
 * thread. */
void engine_finish(struct engine *e, const char *why);

/* In the loop. */
void engine_stop(struct engine *e, int signal);
void engine_pause(struct engine *e, bool on);
void engine_pause_for(struct engine *e, uint64_t limit_ns); /* 0: no limit */
void engine_cap(struct engine *e, int change);
int engine_set_cap(struct engine *e, unsigned cap, struct problem *p);
bool engine_finished(struct engine *e);
/* How the loop waits: loop_hooks. */
extern const struct loop_hooks engine_rounds;

#endif
