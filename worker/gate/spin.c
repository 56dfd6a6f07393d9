/* spin.c - whether an empty queue is tried again at once (see spin.h) */
#include "worker/gate/spin.h"

#include <stdatomic.h>

#define PAUSES 16 /* between two tries: 0.2 to 0.5 us */

/* pause_once - tell the processor that this is a wait; others need not be told.
 * No sched_yield: who yields is preempted by whomever it wakes next, which is a
 * sender at each message of a full queue. */
static inline void pause_once(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__ || (defined __arm__ && __ARM_ARCH >= 7)
    __asm__ volatile("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst); /* the loop stays a loop */
#endif
}

bool spin_begin(struct spin *s)
{
    return s->tries > 0 || s->left > 0 || ++s->skipped % SPIN_SKIP == 0;
}

void spin_pause(void)
{
    for (int i = 0; i < PAUSES; i++)
        pause_once();
}

/* spin_on - the other side gets on meanwhile, without a lock of the queue */
bool spin_on(struct spin *s, uint64_t now_ns)
{
    if (s->tries++ == 0)
        s->since_ns = now_ns;
    if (now_ns - s->since_ns > SPIN_NS) {
        if (s->left > 0)
            s->left--;
        return false;
    }
    spin_pause();
    return true;
}
