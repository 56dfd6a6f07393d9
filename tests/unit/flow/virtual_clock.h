/* virtual_clock.h - time as the test sets it
 *
 * Include it in the test's one file: it takes the place of clock_now.c. Timers
 * fire in virtual_pass.
 */
#ifndef TESTS_UNIT_FLOW_VIRTUAL_CLOCK_H
#define TESTS_UNIT_FLOW_VIRTUAL_CLOCK_H

#include <stdatomic.h>
#include <time.h>

#include "common/base/clock.h"
#include "worker/loop/timers.h"

#define VIRTUAL_START (UINT64_C(1000) * NS_PER_S)
#define VIRTUAL_WALL  (UINT64_C(1700000000) * NS_PER_S)

static _Atomic uint64_t virtual_ns = VIRTUAL_START;
/* Passes at each look at the clock: for code that looks until it has passed. */
static _Atomic uint64_t virtual_tick;

uint64_t clock_mono_ns(void)
{
    return atomic_fetch_add(&virtual_ns, atomic_load(&virtual_tick));
}

uint64_t clock_wall_ns(void)
{
    return VIRTUAL_WALL + atomic_load(&virtual_ns);
}

/* virtual_pass - so much time, in steps of a hundredth of it, and of a
 * millisecond at least; what is due fires */
static inline void virtual_pass(struct timers *t, uint64_t ns)
{
    uint64_t end = atomic_load(&virtual_ns) + ns;
    uint64_t step = ns / 100 > NS_PER_MS ? ns / 100 : NS_PER_MS;

    while (atomic_load(&virtual_ns) < end) {
        uint64_t left = end - atomic_load(&virtual_ns);

        atomic_fetch_add(&virtual_ns, left < step ? left : step);
        timers_run(t);
    }
}

#endif
