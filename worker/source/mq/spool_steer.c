/* spool_steer.c - rows that an operator cancels (see spool_inner.h)
 *
 * Rows are read ahead, and lent without a look at the disk. So those that were
 * lent are left alone, and the others are not lent before it is known whether
 * they have their mark.
 */
#include "worker/source/mq/spool_inner.h"

/* spool_seized_locked - whether an operator is about to cancel it */
bool spool_seized_locked(const struct spool *sp, int64_t key)
{
    for (size_t i = 0; i < sp->seized_count; i++)
        if (sp->seized[i] == -key)
            return true;
    return false;
}

/* spool_seize - as mq_spool_ops says
 * One that is not a row yet is in a slot, or on its way: it is in the store
 * before the mark is written, or there is nothing to mark. */
void spool_seize(struct mq_spool *hook, const int64_t *numbers, size_t n,
                 bool *skip)
{
    struct spool *sp = spool_of(hook);

    pthread_mutex_lock(&sp->steer_mtx);
    pthread_mutex_lock(&sp->mtx);
    sp->seized = numbers;
    sp->seized_count = n;
    for (size_t i = 0; i < n; i++)
        if (numbers[i] < 0)
            skip[i] = spool_lent(sp, -numbers[i]);
    pthread_mutex_unlock(&sp->mtx);
}

/* mark - of rows that were read before the commit; those read later have it */
static void mark(struct spool *sp, const bool *done)
{
    for (size_t i = 0; i < sp->seized_count; i++)
        for (size_t k = sp->at; k < sp->count; k++)
            if (done[i] && sp->ahead[k].key == -sp->seized[i])
                sp->ahead[k].flags |= STORE_CANCELLED;
}

void spool_release(struct mq_spool *hook, const bool *done)
{
    struct spool *sp = spool_of(hook);
    bool stalled;

    pthread_mutex_lock(&sp->mtx);
    mark(sp, done);
    sp->seized_count = 0;
    stalled = atomic_exchange(&sp->stalled, false);
    pthread_mutex_unlock(&sp->mtx);
    pthread_mutex_unlock(&sp->steer_mtx);
    if (stalled)
        sp->q->events.changed(sp->q->events.arg);
}
