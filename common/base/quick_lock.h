/* quick_lock.h - a mutex that is nearly always free: one locked instruction to
 * take it, none to give it back
 *
 * WHAT   0 free, 1 taken; and how many wait. A thread that gives it back stores
 *        0, then looks whether somebody waits, with no barrier between the two:
 *        a thread that waits has all threads pass one before it sleeps
 *        (far_barrier.h).
 *        For locks of the hot path that are held for some 20 ns; any other is a
 *        pthread_mutex_t.
 * WHO    Any thread of one process. Not recursive, not fair.
 * OWNS   Nothing; all 0 is a free lock.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_QUICK_LOCK_H
#define COMMON_BASE_QUICK_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

/* a = atomic */
struct quick_lock {
    atomic_uint state;   /* a */
    atomic_uint waiters; /* a  that may sleep until state changes */
};

void quick_lock_wait(struct quick_lock *l);
void quick_lock_wake(struct quick_lock *l);

static inline bool quick_lock_try(struct quick_lock *l)
{
    unsigned is_free = 0;

    return atomic_compare_exchange_strong_explicit(
        &l->state, &is_free, 1, memory_order_acquire, memory_order_relaxed);
}

static inline void quick_lock(struct quick_lock *l)
{
    if (!quick_lock_try(l))
        quick_lock_wait(l);
}

static inline void quick_unlock(struct quick_lock *l)
{
    atomic_store_explicit(&l->state, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&l->waiters, memory_order_relaxed))
        quick_lock_wake(l);
}

#endif
