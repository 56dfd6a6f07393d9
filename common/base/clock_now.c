/* clock_now.c - what time it is (see clock.h)
 *
 * In an object of its own: a test that has a clock of its own defines these
 * three, and this one is not linked.
 */
#include <time.h>

#include "common/base/clock.h"

/* clock_read - a clock in ns; those used here cannot fail */
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
