/* quick_lock.c - the slow way of a lock (see quick_lock.h) */
#include "common/base/quick_lock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* quick_lock_wait - whoever gets it here leaves it as 2, as others may wait;
 * the kernel goes to sleep only while it is 2, so no wake-up is missed. A call
 * that fails, or returns early, tries again. */
void quick_lock_wait(struct quick_lock *l)
{
    while (atomic_exchange_explicit(&l->state, 2, memory_order_acquire) != 0)
        (void)syscall(SYS_futex, &l->state, FUTEX_WAIT_PRIVATE, 2, NULL);
}

void quick_lock_wake(struct quick_lock *l)
{
    (void)syscall(SYS_futex, &l->state, FUTEX_WAKE_PRIVATE, 1);
}
