/* quick_lock.c - the slow way of a lock (see quick_lock.h) */
#include "common/base/quick_lock.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TRIES 20 /* before it is slept for: as long as it is held mostly */

/* What a wake-up that is missed costs, where there is no barrier. */
static const struct timespec missed = {.tv_nsec = 1000000};

/* spun - it was given back within the tries */
static bool spun(struct quick_lock *l)
{
    for (int i = 0; i < TRIES; i++) {
        cpu_pause();
        if (quick_lock_try(l))
            return true;
    }
    return false;
}

/* quick_lock_wait - counted before the barrier, it sleeps after it
 * A thread that stored 0 before the barrier did so for the kernel, too, which
 * puts this one to sleep only while the word is 1. A thread that stores 0 after
 * the barrier also reads `waiters` after it, and wakes one. So no wake-up is
 * missed. A thread that is woken and comes too late sleeps again; the one that
 * was quicker wakes another. A call that fails, or returns early, tries again.
 */
void quick_lock_wait(struct quick_lock *l)
{
    const struct timespec *most;

    if (spun(l))
        return;
    atomic_fetch_add(&l->waiters, 1);
    most = far_barrier() ? NULL : &missed;
    while (!quick_lock_try(l))
        (void)syscall(SYS_futex, &l->state, FUTEX_WAIT_PRIVATE, 1, most);
    atomic_fetch_sub(&l->waiters, 1);
}

void quick_lock_wake(struct quick_lock *l)
{
    (void)syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
