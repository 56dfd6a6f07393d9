/* passing_clock.h - the real clock, and waits that are over at once
 *
 * Include it in the test's one file: it takes the place of clock_now.c, poll(2)
 * and epoll_wait(2) in this program. A wait that `clock_passes` chooses looks
 * at its descriptors; if nothing is there, it returns as if its time had
 * passed, and the clock has moved on by that time. All other waits are real.
 */
#ifndef TESTS_UNIT_BASE_PASSING_CLOCK_H
#define TESTS_UNIT_BASE_PASSING_CLOCK_H

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <time.h>

#include "common/base/clock.h"

static _Atomic uint64_t clock_passed_ns;
/* NULL: no wait is left out. */
static bool (*_Atomic clock_passes)(void);

static inline uint64_t clock_plus(clockid_t id)
{
    struct timespec now;

    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec +
           atomic_load(&clock_passed_ns);
}

uint64_t clock_mono_ns(void)
{
    return clock_plus(CLOCK_MONOTONIC);
}

uint64_t clock_boot_ns(void)
{
    return clock_plus(CLOCK_BOOTTIME);
}

uint64_t clock_wall_ns(void)
{
    return clock_plus(CLOCK_REALTIME);
}

/* clock_pass - so much time */
static inline void clock_pass(uint64_t ns)
{
    atomic_fetch_add(&clock_passed_ns, ns);
}

/* clock_always - every wait passes: for tests whose other side does nothing */
static inline bool clock_always(void)
{
    return true;
}

static inline bool clock_left_out(int ms)
{
    bool (*passes)(void) = atomic_load(&clock_passes);

    return ms > 0 && passes && passes();
}

/* clock_waited - nothing was there: the time of the wait is over */
static inline void clock_waited(int ms)
{
    clock_pass((uint64_t)ms * NS_PER_MS);
    sched_yield();
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
    struct timespec limit = {.tv_sec = ms / 1000,
                             .tv_nsec = ms % 1000 * (long)NS_PER_MS};
    int n;

    if (!clock_left_out(ms))
        return ppoll(fds, count, ms < 0 ? NULL : &limit, NULL);
    n = ppoll(fds, count, &(struct timespec){0}, NULL);
    if (n == 0)
        clock_waited(ms);
    return n;
}

int epoll_wait(int epoll, struct epoll_event *events, int room, int ms)
{
    int n;

    if (!clock_left_out(ms))
        return epoll_pwait(epoll, events, room, ms, NULL);
    n = epoll_pwait(epoll, events, room, 0, NULL);
    if (n == 0)
        clock_waited(ms);
    return n;
}

#endif
