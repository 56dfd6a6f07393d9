/* solo.c - one work item takes at a time (see solo.h) */
#include "worker/gate/solo.h"

#include <stdbool.h>

#include "worker/gate/spin.h"

#define TRIES     40 /* of a mutex that another one has: some 10 us */
#define VAIN_MOST 4  /* in a row; then it is slept for at once */
#define VAIN_SKIP 64 /* times, until it is tried again */

void solo_init(struct solo *s)
{
    *s = (struct solo){0};
    pthread_mutex_init(&s->mtx, NULL);
}

void solo_fini(struct solo *s)
{
    pthread_mutex_destroy(&s->mtx);
}

/* Try to take the lock for a while. */
static bool lock_try(struct solo *s)
{
    for (int i = 0; i < TRIES; i++) {
        spin_pause();
        if (pthread_mutex_trylock(&s->mtx) == 0)
            return true;
    }
    return false;
}

/* A thread that receives from a full queue wakes the sender, which runs at once
 * in its place. The thread still has the mutex, and runs again when the sender
 * has sent a message or two: in less time than a sleep and a wake-up take.
 * If two threads count a wait in vain, one count may be lost: it only decides
 * whether the next lock is tried for. */
void solo_wait(struct solo *s)
{
    unsigned vain = atomic_load_explicit(&s->vain, memory_order_relaxed);

    if (vain >= VAIN_MOST || !lock_try(s)) {
        pthread_mutex_lock(&s->mtx);
        atomic_store_explicit(&s->vain, (vain + 1) % VAIN_SKIP,
                              memory_order_relaxed);
    } else if (vain > 0) {
        atomic_store_explicit(&s->vain, 0, memory_order_relaxed);
    }
}
