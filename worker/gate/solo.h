/* solo.h - one work item takes at a time, and tries a while before it sleeps
 *
 * WHAT   The lock under which work items take messages; a thread that finds it
 *        taken tries again for some microseconds before it sleeps.
 * WHO    Any thread.
 * OWNS   Its mutex.
 * FAILS  Never.
 */
#ifndef WORKER_GATE_SOLO_H
#define WORKER_GATE_SOLO_H

#include <pthread.h>
#include <stdatomic.h>

/* a = atomic */
struct solo {
    pthread_mutex_t mtx;
    atomic_uint vain; /* a  waits in a row in which the tries were in vain */
};

void solo_init(struct solo *s);
void solo_fini(struct solo *s);
/* Not inline: a thread that finds the lock free leaves the caller's frame
 * small. */
void solo_wait(struct solo *s);
static inline void solo_lock(struct solo *s)
{
    if (pthread_mutex_trylock(&s->mtx) != 0)
        solo_wait(s);
}
static inline void solo_unlock(struct solo *s)
{
    pthread_mutex_unlock(&s->mtx);
}

#endif
