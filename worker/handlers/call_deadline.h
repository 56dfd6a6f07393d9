/* call_deadline.h - one call of a C function: its message and its time limit
 *
 * WHAT   A work item has one place, and in it one call at a time. A call costs
 *        its thread a few plain stores, with a time limit or without, and no
 *        lock: the timer of the place stays started from one call to the next,
 *        and when it fires it checks the deadline of the call that is running
 *        then. The peeker, which decides that a running call is late or is
 *        seized, makes the memory barrier for both threads (quick_lock.h).
 * WHO    handler_inproc.c. enter, leave: the thread of the work item. The timer
 *        and seize: the peeker.
 * OWNS   Its timer. The caller keeps the call until leave has returned.
 * FAILS  Never.
 */
#ifndef WORKER_HANDLERS_CALL_DEADLINE_H
#define WORKER_HANDLERS_CALL_DEADLINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

/* a = atomic   c = constant after init   m = under mtx */
struct call_deadline {
    _Alignas(64) _Atomic(struct message *) message; /* a  NULL: nothing runs */
    _Atomic uint64_t
        deadline; /* a  monotonic, of the running call; UINT64_MAX: none */
    _Atomic uint64_t
        pending;        /* a  the timer fires then or earlier; 0: it is off */
    atomic_bool asked;  /* a  leave must take the lock to read a decision */
    atomic_bool seized; /* a  set under mtx: the call does not leave */
    bool barrier;       /* c  quick_lock.h; without it `asked` stays set */
    bool passed;        /* m  the limit of the running call has passed */
    struct timers *timers;
    struct timer timer;
    pthread_mutex_t mtx;      /* held while the peeker decides */
    void (*late)(void *call); /* c */
    void *call;               /* c */
};

/* `late` is called in the peeker, at most once for each call, if the deadline
 * comes before call_deadline_leave. */
void call_deadline_init(struct call_deadline *p, struct timers *timers,
                        void (*late)(void *call), void *call);
void call_deadline_fini(struct call_deadline *p); /* no call is running */

/* Make the timer fire at `when` or before. Not inline, for the same reason as
 * call_deadline_decided. */
__attribute__((noinline)) void call_deadline_timer(struct call_deadline *p,
                                                   uint64_t when);
/* Begin a call that may take until `deadline_ns`, monotonic; UINT64_MAX: it has
 * no limit. */
static inline void call_deadline_enter(struct call_deadline *p,
                                       struct message *message,
                                       uint64_t deadline_ns)
{
    uint64_t pending;

    atomic_store_explicit(&p->deadline, deadline_ns, memory_order_release);
    atomic_store_explicit(&p->message, message, memory_order_release);
    if (deadline_ns == UINT64_MAX)
        return;
    /* The store of the message comes before the load of `pending`, so that this
     * thread or deadline_due sees what the other one wrote (call_deadline.c).
     */
    if (__builtin_expect(!p->barrier, 0))
        atomic_store(&p->message, message);
    atomic_signal_fence(memory_order_seq_cst);
    pending = atomic_load(&p->pending);
    if (__builtin_expect(pending == 0 || pending > deadline_ns, 0))
        call_deadline_timer(p, deadline_ns);
}

/* The slow part of call_deadline_leave. Not inline, because each call would
 * save more registers then. */
__attribute__((noinline)) bool call_deadline_decided(struct call_deadline *p);
/* End the call. Returns true if the limit came first, and `late` has returned.
 * Does not return if the call was seized. */
static inline bool call_deadline_leave(struct call_deadline *p)
{
    atomic_store_explicit(&p->message, NULL, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    return __builtin_expect(
               atomic_load_explicit(&p->asked, memory_order_relaxed), 0) &&
           call_deadline_decided(p);
}

/* Keep the running call from leaving. Returns its message, which is the
 * caller's from here on; NULL: no call is running. */
struct message *call_deadline_seize(struct call_deadline *p);
static inline bool call_deadline_seized(const struct call_deadline *p)
{
    return atomic_load(&p->seized);
}

#endif
