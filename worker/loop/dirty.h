/* dirty.h - the state that others see is out of date
 *
 * WHAT   Two marks that any part sets and status.c reads, so that no part has
 *        to know it: the state has changed (shown in the next round), and the
 *        numbers have (counted soon, by a timer).
 * WHO    init: the engine. The others: any thread.
 * OWNS   Its timer, whose callback is that of status.c.
 * FAILS  Never.
 */
#ifndef WORKER_LOOP_DIRTY_H
#define WORKER_LOOP_DIRTY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

struct loop;

/* a = atomic   c = constant after init */
struct dirty {
    struct timers *timers;     /* c  set before the first dirty_count */
    struct loop *loop;         /* c  and before dirty_state_now */
    struct timer timer;        /* fires when it is time to count */
    void (*count)(void *arg);  /* c */
    void *arg;                 /* c */
    atomic_bool state;         /* a */
    atomic_bool counted_soon;  /* a  the timer runs */
    _Atomic uint64_t pause_ns; /* a  until the next count */
};

void dirty_init(struct dirty *d, uint64_t pause_ns, void (*count)(void *arg),
                void *arg);
/* The state has changed. */
void dirty_state(struct dirty *d);
/* The same, and the loop shows it at once. */
void dirty_state_now(struct dirty *d);
/* Whether it has since it was asked last. Costs a load as a rule. */
bool dirty_state_take(struct dirty *d);
/* Something was done: the numbers are to be counted. Costs a load as a rule. */
void dirty_count(struct dirty *d);
/* The count begins; from now on the next change starts another one. */
void dirty_count_begins(struct dirty *d);

#endif
