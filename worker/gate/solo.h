/* solo.h - one work item takes at a time, with no lock while it is alone
 *
 * WHAT   A mutex for the work items of a worker. While only one of them runs
 *        (ATTEND_OTHERS is clear) it costs that one two stores. One that joins
 *        it pays for both: it has all processors of this process pass a
 *        barrier, and waits until the other one is outside.
 * WHO    enter, leave: work items. joined: each of them, once it was counted in
 *        and before it enters for the first time, if others run.
 * OWNS   Its mutex.
 * FAILS  Never. Where the kernel has no membarrier(2) the mutex is taken each
 *        time (ATTEND_LOCK).
 */
#ifndef WORKER_GATE_SOLO_H
#define WORKER_GATE_SOLO_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "worker/rules/attention.h"

/* c = constant after init   a = atomic */
struct solo {
    struct attention *attention; /* c */
    pthread_mutex_t mtx;         /* held inside by one that is not alone */
    atomic_uint vain;            /* a  how often it was waited for in vain */
    atomic_bool inside;          /* a  one that is alone is inside, or about to
                                    find out that it is not alone */
    bool barrier;                /* c  the kernel has membarrier(2) */
};

void solo_init(struct solo *s, struct attention *attention);
void solo_fini(struct solo *s);
void solo_joined(struct solo *s);
/* The mutex, for one that is not alone. */
void solo_lock(struct solo *s);
/* From stop to go_on nobody is inside. One thread at a time, no work item. */
void solo_stop(struct solo *s);
void solo_go_on(struct solo *s);

/* True: it is alone; to be told to solo_leave.
 * The store goes before the load as far as the compiler is concerned; that the
 * processor keeps that order is solo_joined's doing. Acquire: what others did
 * inside before they left us alone.
 */
static inline bool solo_enter(struct solo *s)
{
    atomic_store_explicit(&s->inside, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (!(atomic_load_explicit(&s->attention->bits, memory_order_acquire) &
          (ATTEND_OTHERS | ATTEND_LOCK)))
        return true;
    atomic_store_explicit(&s->inside, false, memory_order_release);
    solo_lock(s);
    return false;
}

static inline void solo_leave(struct solo *s, bool alone)
{
    if (alone)
        atomic_store_explicit(&s->inside, false, memory_order_release);
    else
        pthread_mutex_unlock(&s->mtx);
}

#endif
