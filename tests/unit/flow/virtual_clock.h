/* virtual_clock.h - time as the test sets it
 *
 * Include it in the test's one file: it takes the place of clock_now.c and of
 * timerfd_settime(2). Timers fire in virtual_pass, and nowhere else: a timer
 * descriptor set to a virtual time would fire at a time that depends on how
 * long ago the machine booted.
 */
#ifndef TESTS_UNIT_FLOW_VIRTUAL_CLOCK_H
#define TESTS_UNIT_FLOW_VIRTUAL_CLOCK_H

#include <stdatomic.h>
#include <sys/timerfd.h>

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

uint64_t clock_boot_ns(void)
{
    return clock_mono_ns();
}

uint64_t clock_wall_ns(void)
{
    return VIRTUAL_WALL + atomic_load(&virtual_ns);
}

/* Arm nothing: poll(2) on the descriptor of the timers never returns. */
int timerfd_settime(int fd, int flags, const struct itimerspec *at,
                    struct itimerspec *before)
{
    (void)fd, (void)flags, (void)at, (void)before;
    return 0;
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
