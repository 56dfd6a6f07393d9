/* clock_now.c - read the clocks (see clock.h)
 *
 * A separate object, so that a test with a simulated clock can define these
 * three functions and leave this file out of the link.
 */
#include <time.h>

#include "common/base/clock.h"

/* Read a clock, ns. The clocks used here cannot fail. */
static uint64_t clock_read(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
    return clock_read(CLOCK_BOOTTIME);
}

uint64_t clock_wall_ns(void)
{
    return clock_read(CLOCK_REALTIME);
}
