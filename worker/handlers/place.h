/* place.h - one call of a C function: what it runs for, and its time limit
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
#ifndef WORKER_HANDLERS_PLACE_H
#define WORKER_HANDLERS_PLACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

struct message;

/* a = atomic   i = the item's thread writes it while no limit counts */
struct place {
    /* a  NULL: nothing runs; SEIZED of place.c */
    _Alignas(64) _Atomic(struct message *) message;
    _Atomic uint64_t deadline; /* a  monotonic; 0: none, 1: it has passed */
    _Atomic uint64_t pending;  /* a  when the timer fires, or later; 0: not */
    struct timers *timers;
    struct timer timer;
    void (*late)(void *call); /* i */
    void *call;               /* i */
};

void place_init(struct place *p, struct timers *timers);
void place_fini(struct place *p); /* nothing runs in it any more */

/* A call begins; limit_ns UINT64_MAX: no limit. `late` is called in the peeker,
 * at most once, if the limit is over before place_leave. */
void place_enter(struct place *p, struct message *message, uint64_t limit_ns,
                 void (*late)(void *call), void *call);
/* It is over; true: the limit came first, and `late` has returned. Does not
 * return if the call was seized. */
bool place_leave(struct place *p);
/* What runs in it now will not leave it: its message, which is the caller's
 * from here on; NULL: nothing runs. */
struct message *place_seize(struct place *p);
bool place_seized(const struct place *p);

#endif
