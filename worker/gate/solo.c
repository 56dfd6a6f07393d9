/* solo.c - one work item takes at a time (see solo.h)
 *
 * The one that is alone stores `inside`, then looks at the bit that says
 * whether others run (the gate has set it before gate_enter of the one that
 * joins returned). The one that joins then looks at `inside`. Of two that do
 * so, one must see what the other did; for that, both would need a full barrier
 * between the two. Only the one that joins has one: far_barrier has each thread
 * of the process that runs now pass one, too, wherever it is. If that was
 * before the store of the other, its look comes after the bit, and it goes for
 * the mutex. If it was after it, the store is seen here, and waited for.
 *
 * Two are never alone at once: the bit is clear only while at most one is
 * counted, and each has counted itself out after it was inside for the last
 * time.
 */
#include "worker/gate/solo.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/quick_lock.h"
#include "worker/gate/spin.h"

#define TRIES     40 /* of a mutex that another one has: some 10 us */
#define VAIN_MOST 4  /* in a row; then it is slept for at once */
#define VAIN_SKIP 64 /* times, until it is tried again */

void solo_init(struct solo *s, struct attention *attention)
{
    s->attention = attention;
    pthread_mutex_init(&s->mtx, NULL);
    s->barrier = far_barrier_open();
    if (!s->barrier)
        attention_on(attention, ATTEND_LOCK);
}

void solo_fini(struct solo *s)
{
    pthread_mutex_destroy(&s->mtx);
}

/* outside - the bit that keeps others from being alone is set: a thread inside
 * without the lock leaves. A registered process is not refused, unless by a
 * filter that came since: then nobody knows which thread is inside. */
static void outside(struct solo *s)
{
    if (!s->barrier)
        return;
    if (!far_barrier())
        panic("membarrier is refused, and was not at the start: %s; let "
              "the filter of system calls that was set since then allow it",
              errno_text(errno));
    while (atomic_load_explicit(&s->inside, memory_order_acquire))
        sched_yield(); /* for as long as one message is received */
}

void solo_joined(struct solo *s)
{
    outside(s);
}

/* spun - it was let go within the tries */
static bool spun(struct solo *s)
{
    for (int i = 0; i < TRIES; i++) {
        spin_pause();
        if (pthread_mutex_trylock(&s->mtx) == 0)
            return true;
    }
    return false;
}

/* solo_lock - the mutex; it is tried for a while before it is slept for
 * A thread that receives from a full queue wakes the sender, which runs at once
 * in its place. The thread still has the mutex, and runs again when the sender
 * has sent a message or two: in less time than a sleep and a wake-up take.
 * Of two that count a wait in vain one may be lost: it only decides whether the
 * next one is tried.
 */
void solo_lock(struct solo *s)
{
    unsigned vain = atomic_load_explicit(&s->vain, memory_order_relaxed);

    if (pthread_mutex_trylock(&s->mtx) == 0)
        return;
    if (vain >= VAIN_MOST || !spun(s)) {
        pthread_mutex_lock(&s->mtx);
        atomic_store_explicit(&s->vain, (vain + 1) % VAIN_SKIP,
                              memory_order_relaxed);
    } else if (vain > 0) {
        atomic_store_explicit(&s->vain, 0, memory_order_relaxed);
    }
}

/* solo_stop - as one that joins, with a bit of its own */
void solo_stop(struct solo *s)
{
    attention_on(s->attention, ATTEND_LOCK);
    outside(s);
    pthread_mutex_lock(&s->mtx);
}

void solo_go_on(struct solo *s)
{
    pthread_mutex_unlock(&s->mtx);
    if (s->barrier)
        attention_off(s->attention, ATTEND_LOCK);
}
