/* gate.h - decide whether messages may be taken, and give the reason
 *
 * WHAT   Counts the running work items and limits their number by the cap, the
 *        holds, the breaker and a message that runs alone. Holds, the breaker,
 *        delays after trouble and the end of a run are applied here.
 * WHO    init, fini: the engine. Others: any thread; work items before and
 *        after they run, operate/ for orders, files/ for vanished files.
 * OWNS   Its timers, the breaker.
 * FAILS  Never.
 *
 * The gate starts nothing. It calls `event`, without holding a lock, and the
 * callee starts work items.
 */
#ifndef WORKER_FLOW_GATE_H
#define WORKER_FLOW_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/rules/breaker.h"
#include "worker/config/settings.h"
#include "worker/loop/timers.h"
#include "worker/rules/attention.h"

/* Reasons why nothing is taken; bits of gate.holds. The breaker is not among
 * them: it lets one probe through. */
enum {
    HOLD_STOP = 1 << 0,  /* draining */
    HOLD_PAUSE = 1 << 1, /* paused by an operator */
    HOLD_STORE = 1 << 2, /* a verdict could not be written */
    HOLD_QUEUE = 1 << 3, /* the queue, or starting a thread, failed */
    HOLD_BOUND = 1 << 4, /* --max-deliveries are done or on their way */
    /* --max-waiting messages are in the store: nothing is taken from the queue,
     * but due messages run. All other holds stop due messages as well. */
    HOLD_WAITING = 1 << 5,
    HOLD_STORE_GONE = 1 << 6,   /* the store's file was moved or removed */
    HOLD_CUSTODY_GONE = 1 << 7, /* custody's file was moved or removed */
    /* the file system of the store or of custody is read-only */
    HOLD_READ_ONLY = 1 << 8,
    HOLD_RATE = 1 << 9,     /* --rate is reached, for a moment */
    HOLD_DAMAGED = 1 << 10, /* the store is damaged */
    HOLD_FILES = HOLD_STORE_GONE | HOLD_CUSTODY_GONE | HOLD_READ_ONLY,
};

/* The first reason why nothing is taken. */
enum gate_why {
    WHY_NOT_SO, /* messages are taken */
    WHY_STOPPING,
    WHY_FILES, /* HOLD_FILES; file_watch.h says which */
    WHY_DAMAGED,
    WHY_PAUSED,
    WHY_STORE,
    WHY_QUEUE,
    WHY_BOUND,
    WHY_RATE,
    WHY_BREAKER,
    WHY_ALONE, /* a suspect runs or will run, and no other message may */
    WHY_BUSY,  /* --max-concurrency */
    /* With the reasons below, due messages of the store may still run. */
    WHY_WAITING, /* --max-waiting */
    WHY_SLOTS,   /* no slot is free */
    WHY_GROUPS,  /* --lookahead and --max-parked, behind heads of groups */
};

enum gate_event {
    GATE_CHANGED, /* it may be possible to take a message now: try */
    GATE_SHUT,    /* a hold was set: wake the items that wait in a coprocess */
    GATE_WIDER,   /* more items may run beside each other now: try soon */
};

/* c = constant once the worker runs   a = atomic   m = under mtx */
struct gate {
    struct attention attention;                      /* attention.h */
    const struct settings *set;                      /* c */
    struct timers *timers;                           /* c */
    struct dirty *dirty;                             /* c */
    struct counters *counters;                       /* c */
    void (*event)(void *arg, enum gate_event event); /* c */
    void *arg;                                       /* c */
    atomic_uint cap;                                 /* a  most work items */
    atomic_uint running;                             /* a  work items now */
    atomic_uint probe_room; /* a  work items while the breaker probes */
    atomic_uint holds;      /* a  HOLD_ bits */
    struct breaker breaker;
    _Atomic uint64_t alone; /* a  sequence of the suspect that runs alone, or
                             *    waits to (crashes.h); 0: there is none */
    struct timer breaker_timer, trouble_timer;
    pthread_mutex_t attend_mtx; /* held while the gate's bits of `attention`
                                   are derived from the reasons */
    pthread_mutex_t mtx;
    uint64_t trouble_ns;       /* m  end of the last delay after trouble */
    uint64_t trouble_wait_ns;  /* m  length of that delay; doubles */
    atomic_int status;         /* a  exit status */
    _Atomic(const char *) why; /* a  why the worker stops; NULL: it does not */
};

/* `timers`, `dirty` and `counters` are set before the first other call. */
void gate_init(struct gate *g, const struct settings *set,
               void (*event)(void *arg, enum gate_event event), void *arg);
void gate_fini(struct gate *g);

/* Return true unless --max-waiting keeps messages in the queue. Other holds are
 * not checked. The load is relaxed, for the fast path. */
static inline bool gate_takes(const struct gate *g)
{
    return !(atomic_load_explicit(&g->holds, memory_order_relaxed) &
             HOLD_WAITING);
}
static inline unsigned gate_running(const struct gate *g)
{
    return atomic_load(&g->running);
}
/* Return the cap as it was set; gate_room may be less. */
static inline unsigned gate_cap(const struct gate *g)
{
    return atomic_load(&g->cap);
}
static inline bool gate_held(const struct gate *g, unsigned bits)
{
    return (atomic_load(&g->holds) & bits) != 0;
}
/* Return how many work items may run now: 0 while there is a hold or the
 * breaker is open; 1 while a suspect runs alone; otherwise the cap. While the
 * breaker probes, also at most one more than ran at the end of its pause. */
unsigned gate_room(struct gate *g);
/* Count one more work item; false: there is no room. */
bool gate_enter(struct gate *g);
/* Count one item less. The caller then sends GATE_CHANGED. */
void gate_leave(struct gate *g);
/* Count one item less, if more than `most` run; false: they do not. */
bool gate_leave_over(struct gate *g, unsigned most);
void gate_set_cap(struct gate *g, unsigned cap);
/* Return true if messages run one at a time, because of a suspect. */
static inline bool gate_alone(const struct gate *g)
{
    return atomic_load(&g->alone) != 0;
}
/* Let one message run at a time, until gate_run_together with that `seq`. */
void gate_run_alone(struct gate *g, uint64_t seq);
void gate_run_together(struct gate *g, uint64_t seq);
/* Change the breaker's numbers. */
void gate_tune_breaker(struct gate *g, uint64_t failures, uint64_t pause_ns);

/* Return why no work item may start: one of the gate's reasons, up to
 * WHY_WAITING; WHY_NOT_SO if an item may. */
enum gate_why gate_why(struct gate *g);
/* Return true if the worker will take more messages, now or when its handlers
 * have finished: it is ready or busy, or waits for --rate. */
bool gate_wants(struct gate *g);
/* Return the reason in words. */
const char *gate_why_text(enum gate_why why);

/* Send GATE_CHANGED: something changed that may let a message be taken. */
void gate_changed(struct gate *g);
void gate_hold(struct gate *g, unsigned bit);
void gate_unhold(struct gate *g, unsigned bit);
/* Log trouble with taking messages, and take none until a delay is over. */
void gate_trouble(struct gate *g, const char *what, int err);
/* Pass an event to the breaker, and log and carry out what follows from it. */
void gate_breaker(struct gate *g, enum breaker_event event, const char *reason);
/* Stop the worker: take no more messages, and finish the running ones. Of
 * several calls, the first reason counts and the last status that is not 0. */
void gate_finish(struct gate *g, const char *why, int status);
/* Return true after gate_finish, once no work item runs. */
static inline bool gate_finished(const struct gate *g)
{
    return gate_held(g, HOLD_STOP) && gate_running(g) == 0;
}

#endif
