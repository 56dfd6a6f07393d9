/* flow.h - the parts that a message passes, from its source to its verdict
 *
 * WHAT   One struct with all of them, so that each can reach the others. The
 *        engine opens and closes them in order. Each has its own state and its
 *        own lock.
 * WHO    The parts of worker/flow/, and those above it (operate/).
 * OWNS   Nothing; the engine does.
 * FAILS  Never.
 *
 * Lock order: take_lock comes first; docs/design/architecture.md has the order
 * of all locks. Handlers and the callbacks of timers run without locks.
 */
#ifndef WORKER_FLOW_FLOW_H
#define WORKER_FLOW_FLOW_H

#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/quick_lock.h"
#include "worker/config/settings.h"
#include "worker/flow/limits.h"
#include "worker/flow/crashes.h"
#include "worker/flow/gate.h"
#include "worker/flow/items.h"
#include "worker/flow/take.h"
#include "worker/flow/unsettled.h"
#include "worker/handlers/handler.h"
#include "worker/loop/loop.h"
#include "worker/loop/pool.h"
#include "worker/source/source.h"

/* c = constant after open   a = atomic */
struct flow {
    const struct settings *set; /* c  what it points to: settings.h */
    const char *folder;         /* c  the worker's state directory */
    struct timers *timers;      /* c */
    struct pool *pool;          /* c */
    struct loop *loop;          /* c */
    struct counters *counters;  /* c */
    struct dirty dirty;

    /* Where messages come from and go back to. */
    struct source *source; /* c */
    struct peeker *peeker; /* c */

    /* What runs for each message. */
    const struct handler_ops *ops; /* c */
    struct handler *handler;       /* c */
    bool wants_settled;            /* c  call ops->settled for each verdict */

    /* What decides which message is next, and what a verdict causes. */
    struct gate gate;
    struct ready ready;
    struct items items;
    struct crashes crashes;
    struct groups *groups;     /* c  which message of a group is next */
    struct dispatch *dispatch; /* c  moves messages into and out of groups */
    struct unsettled unsettled;
    struct rate rate;
    struct run_limits run_limits;
    /* Held to take a message and to put it into its group, so that both happen
     * in the order of the source. */
    struct quick_lock take_lock;
    atomic_uint due_first;    /* a  due messages still to be taken before fresh
                            *    ones (take_turn) */
    atomic_bool backlog_full; /* a  waiting_full was logged, not yet
                               *    waiting_room */
    atomic_bool growing;      /* a  a job resizes the source; set in the loop */
    _Atomic uint64_t stale;   /* a  messages whose claim was gone */
    _Atomic uint64_t stale_logged_ns; /* a  claims_gone was logged; 0: never */
    atomic_bool warned_unique;        /* a  unique_not_looked_at was logged */
    atomic_bool warned_timeout;       /* a  timeout_cut was logged */
    bool started; /* recovery is over; set before any other thread takes */
};

/* Initialize the parts that cannot fail, after `set` and `ops` were set. The
 * engine calls all three functions. `event` and `arg` are for gate_init. */
void flow_init(struct flow *f, void (*event)(void *arg, enum gate_event event),
               void *arg);
/* Give the opened timers, loop and counters to the parts that need them. */
void flow_lend(struct flow *f);
/* Undo flow_init, except for unsettled_fini, which needs the source. */
void flow_fini(struct flow *f);

#endif
