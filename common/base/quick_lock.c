/* quick_lock.c - the slow way of a lock (see quick_lock.h) */
#include "common/base/quick_lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <time.h>

/* The system call that takes the C library's struct timespec, whose time_t has
 * 64 bits even if words have 32. */
#ifdef SYS_futex_time64
#define FUTEX SYS_futex_time64
#else
#define FUTEX SYS_futex
#endif
#define TRIES 20 /* before sleeping; most locks are released within these */

/* Longest sleep if the kernel has no barrier and a wake-up may be missed. */
static const struct timespec missed = {.tv_nsec = 1000000};

/* The waiter is counted before the barrier and sleeps after it. If the owner
 * stores 0 before the barrier, the kernel sees the 0 and does not let the
 * waiter sleep. If the owner stores 0 after the barrier, it also reads
 * `waiters` after the barrier and wakes a waiter. So no wake-up is missed. A
 * waiter that finds the lock taken again sleeps until the new owner wakes one.
 * A call that fails or returns early is repeated. */
void quick_lock_wait(struct quick_lock *l)
{
    const struct timespec *most;

    for (int i = 0; i < TRIES; i++) {
        cpu_pause();
        if (quick_lock_try(l))
            return;
    }
    atomic_fetch_add(&l->waiters, 1);
    most = far_barrier() ? NULL : &missed;
    while (!quick_lock_try(l))
        (void)syscall(FUTEX, &l->state, FUTEX_WAIT_PRIVATE, 1, most);
    atomic_fetch_sub(&l->waiters, 1);
}

void quick_lock_wake(struct quick_lock *l)
{
    (void)syscall(FUTEX, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
