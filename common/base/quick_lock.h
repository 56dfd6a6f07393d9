/* quick_lock.h - a mutex that is nearly always free: one instruction each way
 *
 * WHAT   0 free, 1 taken, 2 taken and somebody may wait in the kernel: "Mutex,
 *        take 2" of U. Drepper, Futexes are tricky (2011). For locks of the hot
 *        path that are held for some 20 ns; any other is a pthread_mutex_t.
 * WHO    Any thread of one process. Not recursive, not fair.
 * OWNS   Nothing; all 0 is a free lock.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_QUICK_LOCK_H
#define COMMON_BASE_QUICK_LOCK_H

#include <stdatomic.h>

struct quick_lock {
    atomic_uint state;
};

void quick_lock_wait(struct quick_lock *l);
void quick_lock_wake(struct quick_lock *l);

static inline void quick_lock(struct quick_lock *l)
{
    unsigned is_free = 0;

    if (!atomic_compare_exchange_strong_explicit(
            &l->state, &is_free, 1, memory_order_acquire, memory_order_relaxed))
        quick_lock_wait(l);
}

static inline void quick_unlock(struct quick_lock *l)
{
    if (atomic_exchange_explicit(&l->state, 0, memory_order_release) == 2)
        quick_lock_wake(l);
}

#endif
