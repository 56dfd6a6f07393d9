/* spin.c - whether an empty queue is tried again at once (see spin.h) */
#include "worker/gate/spin.h"

#include "common/base/quick_lock.h"

#define PAUSES 16 /* between two tries: 0.2 to 0.5 us */

bool spin_begin(struct spin *s)
{
    return s->tries > 0 || s->left > 0 || ++s->skipped % SPIN_SKIP == 0;
}

void spin_pause(void)
{
    for (int i = 0; i < PAUSES; i++)
        cpu_pause();
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
