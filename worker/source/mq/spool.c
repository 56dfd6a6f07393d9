/* spool.c - which message is next, and its end (see spool.h)
 *
 * A message is in one of three lines: in a slot, on its way to the disk, or on
 * the disk. The next one is the first of all three. Messages in the queue
 * count, too: so one is received, which is the first there, as the kernel keeps
 * the order; all that are left in the queue come after it.
 */
#include "worker/source/mq/spool_inner.h"

#include <errno.h>
#include <string.h>

#include "common/base/fault_point.h"

#define NONE INT64_MAX /* no key is as high */

void spool_adopt(struct mq_spool *hook, struct lent *l)
{
    struct spool *sp = spool_of(hook);

    pthread_mutex_lock(&sp->mtx);
    spool_wait_locked(sp, l);
    pthread_mutex_unlock(&sp->mtx);
}

/* ---- on the disk ---- */

/* fits - a slot has room for it; there is room for several of them here */
static bool fits(const struct spool *sp, const struct store_spooled *m)
{
    return m->size <= custody_body_bytes(sp->q->custody);
}

/* page_read - the first rows after `after` that were not lent; -EAGAIN: all of
 * a priority were up to some place, and *after is that one. -EINPROGRESS: the
 * first one is too large, and the thread makes a letter of it: to write that
 * waits for the disk, which nobody does who takes */
static int page_read(struct spool *sp, int64_t *after)
{
    const struct store_spooled *rows = sp->ahead;
    int n = store_spool_read(sp->q->store, *after, sp->ahead, SPOOL_AHEAD,
                             sp->bodies, sp->room);
    uint32_t priority;

    if (n > 0 && spool_lent(sp, rows[0].key)) {
        priority = store_spool_priority(rows[0].key);
        *after = store_spool_key(priority, sp->taken[priority]);
        return -EAGAIN;
    }
    if (n == -EMSGSIZE || (n > 0 && !fits(sp, &rows[0]))) {
        if (!spool_seized_locked(sp, rows[0].key))
            atomic_store(&sp->large, rows[0].key);
        return -EINPROGRESS;
    }
    for (sp->count = 0; (int)sp->count < n; sp->count++)
        if (spool_lent(sp, rows[sp->count].key) || !fits(sp, &rows[sp->count]))
            break;
    return n < 0 ? n : 0;
}

/* ahead_fill - what comes next there is read */
static int ahead_fill(struct spool *sp)
{
    int64_t after = 0;
    int err;

    sp->at = sp->count = 0;
    do {
        err = page_read(sp, &after);
    } while (err == -EAGAIN);
    if (!err && sp->count == 0) /* somebody deleted them */
        atomic_store(&sp->left, 0);
    return err;
}

/* row_next - the key of the next one on the disk, or NONE */
static int row_next(struct spool *sp, int64_t *key)
{
    int err = 0;

    *key = NONE;
    if (atomic_load(&sp->left) <= 0)
        return 0;
    if (sp->at == sp->count)
        err = ahead_fill(sp);
    if (!err && sp->at < sp->count)
        *key = sp->ahead[sp->at].key;
    return err;
}

/* row_lend - into the lane's slot
 * Crash before the slot is HELD: the row is there as before. After it: recovery
 * finds the row, and frees the slot; a row that is cancelled comes again with
 * its mark. */
static int row_lend(struct spool *sp, unsigned lane, struct message **out)
{
    const struct store_spooled *m = &sp->ahead[sp->at];
    struct lent *l = mq_lane_get(sp->q, lane);
    bool doubt = store_spool_seq(m->key) <= sp->doubt;
    struct slot *slot = l->slot;

    if (slot->dirty < m->size)
        slot->dirty = (uint32_t)m->size;
    memcpy(slot->body, m->data, m->size);
    slot_hold(
        slot,
        &(struct slot_meta){
            .length = (uint32_t)m->size,
            .priority = store_spool_priority(m->key),
            .crashes = m->crashes,
            .flags =
                (m->flags & STORE_LENGTH_INFERRED ? SLOT_LENGTH_INFERRED : 0) |
                (doubt || m->flags & STORE_REDELIVERED ? SLOT_REDELIVERED : 0),
            .seq = store_spool_seq(m->key),
            .received_ns = m->received_ns,
            .id = m->id});
    FAULT_POINT("spool_row_held");
    lent_fill(l);
    l->spooled = m->key;
    if (m->letter == 0)
        l->m.flags |= MESSAGE_KEYED;
    sp->taken[store_spool_priority(m->key)] = slot->seq;
    sp->at++;
    atomic_fetch_sub(&sp->left, 1);
    (void)mq_lend(sp->q, lane, out);
    if (!(m->flags & STORE_CANCELLED))
        return 0;
    l->m.flags |= MESSAGE_CANCELLED;
    return -ECANCELED;
}

/* ---- the next one ---- */

/* stall - it is on its way to the disk, and can be had soon
 * A disk that takes nothing is tried again by the clock, not for whoever asks.
 * The thread forgets that before it looks whether take is stalled, so one of
 * the two sees the other. */
static int stall(struct spool *sp)
{
    atomic_store(&sp->stalled, true);
    if (!atomic_load(&sp->disk_fails))
        spool_wake(sp);
    return -EAGAIN;
}

/* wait_lend - out of its slot, of which the disk has not heard */
static int wait_lend(struct spool *sp, struct message **out)
{
    size_t n = atomic_load(&sp->waits) - 1;

    *out = &sp->waiting[n].lent->m;
    atomic_store(&sp->waits, n);
    return 0;
}

/* on_its_way - slots that are free after the next commit */
static bool on_its_way(const struct spool *sp)
{
    return atomic_load(&sp->waits) + atomic_load(&sp->writes) > 0;
}

/* first_lend - the first of the three lines, and of the queue
 * The lane gets its slot before the look does: a look at the queue never has
 * the last one. */
static int first_lend(struct spool *sp, unsigned lane, uint64_t wall_ns,
                      struct message **out)
{
    bool slot = mq_lane_get(sp->q, lane) != NULL;
    int got = spool_receive_locked(sp, wall_ns);
    size_t waits = atomic_load(&sp->waits);
    int64_t wait = waits ? sp->waiting[waits - 1].key : NONE, row;
    int64_t write = atomic_load(&sp->writes) ? sp->writing_first : NONE;
    int err = row_next(sp, &row);

    if (err)
        return err == -EINPROGRESS ? stall(sp) : err;
    /* What the queue has may come before all of them. */
    if (got == -ENOBUFS && on_its_way(sp) && !atomic_load(&sp->disk_fails))
        return stall(sp);
    if (write < wait && write < row)
        return stall(sp);
    if (row < wait && spool_seized_locked(sp, row))
        return stall(sp);
    if (row < wait && !slot)
        return on_its_way(sp) ? stall(sp) : -EAGAIN; /* room() told */
    if (row < wait)
        return row_lend(sp, lane, out);
    if (wait == NONE)
        return got == -ENOBUFS ? -EAGAIN : got;
    return spool_always(sp) || sp->waiting[waits - 1].unique
               ? stall(sp)
               : wait_lend(sp, out);
}

/* passes - nobody is before the next one of the queue */
static bool passes(const struct spool *sp)
{
    return atomic_load(&sp->left) <= 0 && atomic_load(&sp->waits) == 0 &&
           atomic_load(&sp->writes) == 0 &&
           (!spool_always(sp) || !spool_numbers(sp));
}

/* roomier - from full to a sixteenth that is free: the thread takes again */
static void roomier(struct spool *sp)
{
    uint64_t most = spool_most(sp);

    if (atomic_load(&sp->full) && spool_waits(&sp->hook) < most - most / 16)
        spool_wake(sp);
}

/* pass - straight from the queue, but for one that has to have a key first */
static int pass(struct spool *sp, unsigned lane, uint64_t wall_ns,
                struct message **out)
{
    int err = mq_fetch_lane(sp->q, lane, wall_ns, out);

    if (!err && header_found((*out)->data, (*out)->size) &&
        spool_unique(lent_of(*out))) {
        spool_wait_locked(sp, lent_of(*out));
        return stall(sp);
    }
    if (!err)
        atomic_fetch_add_explicit(&sp->direct, 1, memory_order_relaxed);
    return err;
}

int spool_take(struct mq_spool *hook, unsigned lane, uint64_t wall_ns,
               struct message **out)
{
    struct spool *sp = spool_of(hook);
    int err;

    pthread_mutex_lock(&sp->mtx);
    if (passes(sp)) {
        err = pass(sp, lane, wall_ns, out);
    } else {
        err = first_lend(sp, lane, wall_ns, out);
    }
    pthread_mutex_unlock(&sp->mtx);
    roomier(sp);
    return err;
}

/* spool_end - noted, then FREE (ends_put); the row is deleted later
 * The thread is told of the first one, and of many. */
int spool_end(struct mq_spool *hook, struct lent *l)
{
    struct spool *sp = spool_of(hook);
    size_t noted = ends_put(sp->ends, l->spooled, l->slot);
    int err;

    if (noted == 0) {
        err = spool_write(sp, false);
        noted = err ? 0 : ends_put(sp->ends, l->spooled, l->slot);
        if (noted == 0)
            return err ? err : -EAGAIN;
    }
    l->spooled = 0;
    if (noted == 1 || noted == ENDS_MOST / 4)
        spool_wake(sp);
    return 0;
}

bool spool_ready(const struct mq_spool *hook)
{
    const struct spool *sp = spool_of(hook);

    return !atomic_load(&sp->stalled) &&
           (atomic_load(&sp->left) > 0 || atomic_load(&sp->waits) > 0);
}
