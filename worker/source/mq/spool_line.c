/* spool_line.c - the lines of the spool (see spool_inner.h) */
#include "worker/source/mq/spool_inner.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void spool_wake(const struct spool *sp)
{
    uint64_t one = 1;

    (void)!write(sp->wake, &one, sizeof one);
}

/* spool_wait_locked - in its place; one that came last is most often the last
 * of its priority */
void spool_wait_locked(struct spool *sp, struct lent *l)
{
    int64_t key = spool_key_of(l->slot);
    size_t n = atomic_load(&sp->waits), at = 0;

    while (at < n && sp->waiting[at].key > key)
        at++;
    memmove(&sp->waiting[at + 1], &sp->waiting[at],
            (n - at) * sizeof *sp->waiting);
    sp->waiting[at] =
        (struct spool_wait){.key = key, .lent = l, .unique = spool_unique(l)};
    atomic_store(&sp->waits, n + 1);
}

/* spool_receive_locked - as a work item would
 * Crash: the slot is HELD, and nothing of it is on the disk. Recovery lets it
 * get in line again. */
int spool_receive_locked(struct spool *sp, uint64_t wall_ns)
{
    struct source_mq *q = sp->q;
    struct slot *slot;
    struct lent *l;
    int err;

    if (spool_crowded(sp))
        return -ENOBUFS;
    slot = custody_acquire(q->custody);
    if (!slot)
        return -ENOBUFS;
    l = source_mq_lent(q, slot);
    err = mq_fetch(q, l, wall_ns);
    if (!err)
        spool_wait_locked(sp, l);
    else if (slot_free(slot))
        custody_release(q->custody, slot);
    return err;
}

void spool_ahead_locked(struct spool *sp, int64_t first)
{
    if (sp->at < sp->count && first < sp->ahead[sp->count - 1].key)
        sp->count = sp->at; /* they are read again */
}

/* spool_lent - those of a priority are lent in their order, and each
 * commit brings later ones than the last did; so one number says it of all */
bool spool_lent(const struct spool *sp, int64_t key)
{
    return store_spool_seq(key) <= sp->taken[store_spool_priority(key)];
}

/* spool_queued - a row, by what was lent since; one that had its turn from its
 * slot, or is a letter, while no row of its priority had, waits for those */
bool spool_queued(const struct mq_spool *hook, int64_t number)
{
    const struct spool *sp = spool_of(hook);

    return spool_waits(hook) > 0 && (number == 0 || !spool_lent(sp, -number));
}

/* spool_waits - 0 only if there was nothing
 * A message is added to the next line before it is taken off the one that it
 * leaves, and the lines are read in the order in which it passes them; all of
 * that is sequentially consistent. So one that was not seen in a line has left
 * it, and is seen in the next, or counts twice. Only a commit that fails brings
 * them back: it is counted before they leave, so a thread that sees them gone
 * from there sees that, and looks again. */
uint64_t spool_waits(const struct mq_spool *hook)
{
    const struct spool *sp = spool_of(hook);
    size_t failed, here;
    int64_t left;

    do {
        failed = atomic_load(&sp->failed);
        here = atomic_load(&sp->waits);
        here += atomic_load(&sp->writes);
        left = atomic_load(&sp->left);
    } while (here == 0 && left <= 0 && failed != atomic_load(&sp->failed));
    return (left > 0 ? (uint64_t)left : 0) + here;
}
