/* cpu_pause.h - tell the processor that this is a wait
 *
 * WHAT   One turn of a loop that waits for another processor: some 10 to 100
 *        ns, and no system call. No sched_yield: a thread that yields is
 *        preempted by whomever it wakes next, which is a sender at each message
 *        of a full queue.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_BASE_CPU_PAUSE_H
#define COMMON_BASE_CPU_PAUSE_H

#include <stdatomic.h>

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
