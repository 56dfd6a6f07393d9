/* quick_lock.h - a mutex that is nearly always free: one locked instruction to
 * take it, none to give it back
 *
 * WHAT   A thread that releases the lock stores 0, then checks whether another
 *        thread is waiting, with no barrier between the two: a waiting thread
 *        makes all threads pass a barrier before it sleeps (far_barrier).
 *        For the two locks of the hot path: that of the groups, held for some
 *        20 ns, and that of taking, held for a receive, and for a commit if the
 *        message has a unique key. A thread that has to wait for long sleeps.
 *        Any other lock is a pthread_mutex_t.
 * WHO    Any thread of one process. Not recursive, not fair.
 *        All 0 is a free lock.
 */
#ifndef COMMON_BASE_QUICK_LOCK_H
#define COMMON_BASE_QUICK_LOCK_H

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

/* a = atomic */
struct quick_lock {
    atomic_uint state;   /* a  0: free; 1: taken */
    atomic_uint waiters; /* a  threads that may sleep until state changes */
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

/* ---- a full barrier in all threads of the process at once ----
 *
 * Before membarrier(2), private and expedited, returns, each running thread of
 * the process has passed a full barrier. This serves two threads that each
 * store a value and then load that of the other, when at least one of them must
 * see the other's. The thread that does this often then needs no barrier, only
 * an order that the compiler keeps; the thread that does it seldom makes the
 * call. The functions return false if the kernel or a filter refuses the call.
 */

/* Register the process, before its first barrier. Registering again does no
 * harm. */
static inline bool far_barrier_open(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0,
                   0) == 0;
}

/* Make the barrier. A process that was restored from a checkpoint has to
 * register again. */
static inline bool far_barrier(void)
{
    const int call = MEMBARRIER_CMD_PRIVATE_EXPEDITED;

    return syscall(SYS_membarrier, call, 0, 0) == 0 ||
           (far_barrier_open() && syscall(SYS_membarrier, call, 0, 0) == 0);
}

/* Spend one turn of a loop that waits for another processor: some 10 to 100 ns,
 * and no system call. sched_yield(2) is not used, because a thread that has
 * yielded is preempted by the next thread that it wakes: with a full queue, by
 * a sender at each message. */
static inline void cpu_pause(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__ || (defined __arm__ && __ARM_ARCH >= 7)
    __asm__ volatile("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst); /* the loop stays a loop */
#endif
}

#endif
