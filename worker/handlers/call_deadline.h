/* call_deadline.h - one call of a C function: what it runs for, and its time
 * limit
 *
 * WHAT   A work item has one place, and in it one call at a time. The time
 *        limit costs a call two atomic operations and no lock: the timer of the
 *        place stays started from one call to the next, and when it fires it
 *        looks at the deadline of the call that is there then. One more says
 *        at the end of a call whether it was seized.
 * WHO    enter, leave: the thread of the work item. message: any thread.
 *        Callbacks, seize: the peeker.
 * OWNS   Its timer. The call is the caller's, and stays until leave returned.
 * FAILS  Never.
 */
#ifndef WORKER_HANDLERS_CALL_DEADLINE_H
#define WORKER_HANDLERS_CALL_DEADLINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

struct message;

#define CALL_PASSED 1 /* no deadline: the clock was there at boot */

/* a = atomic   c = constant after init */
struct call_deadline {
    /* a  NULL: nothing runs; SEIZED of call_deadline.c */
    _Alignas(64) _Atomic(struct message *) message;
    _Atomic uint64_t deadline; /* a  monotonic; 0: none, 1: it has passed */
    _Atomic uint64_t pending;  /* a  when the timer fires, or later; 0: not */
    struct timers *timers;
    struct timer timer;
    void (*late)(void *call); /* c */
    void *call;               /* c */
};

/* `late` is called in the peeker, at most once a call of ours, if the deadline
 * comes before call_deadline_leave. */
void call_deadline_init(struct call_deadline *p, struct timers *timers,
                        void (*late)(void *call), void *call);
void call_deadline_fini(
    struct call_deadline *p); /* nothing runs in it any more */

/* Inside of call_deadline_enter. */
void call_deadline_set(struct call_deadline *p, uint64_t deadline_ns);
/* A call begins that may take until `deadline_ns`, monotonic; UINT64_MAX: it
 * has no limit. */
static inline void call_deadline_enter(struct call_deadline *p,
                                       struct message *message,
                                       uint64_t deadline_ns)
{
    atomic_store_explicit(&p->message, message, memory_order_release);
    if (deadline_ns != UINT64_MAX)
        call_deadline_set(p, deadline_ns);
}
/* The short way to leave: true if the call is over, and its limit had not come.
 * False: call_deadline_leave has to find out what did. */
static inline bool call_deadline_left(struct call_deadline *p,
                                      struct message *message)
{
    uint64_t deadline =
        atomic_load_explicit(&p->deadline, memory_order_relaxed);

    if (deadline != 0 &&
        (deadline == CALL_PASSED ||
         !atomic_compare_exchange_strong(&p->deadline, &deadline, 0)))
        return false;
    return atomic_compare_exchange_strong(&p->message, &message, NULL);
}
/* It is over; true: the limit came first, and `late` has returned. Does not
 * return if the call was seized. */
bool call_deadline_leave(struct call_deadline *p);
/* What runs in it now will not leave it: its message, which is the caller's
 * from here on; NULL: nothing runs. */
struct message *call_deadline_seize(struct call_deadline *p);
bool place_seized(const struct call_deadline *p);

#endif
