/* mq_take.c - from the queue, and from the store, into slots (see source_mq.h)
 *
 * A slot is kept for each work item between two messages: it is FREE, and its
 * first lines are in the processor's cache.
 */
#include "worker/source/mq/source_mq.h"
#include "worker/source/mq/spool.h"

#include <errno.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/source/mq/mq_reopen.h"

#define SOON_NS NS_PER_MS /* until a row that could not be read is due again */

/* ---- lanes ---- */

struct lent *source_mq_lent(struct source_mq *q, struct slot *slot)
{
    struct lent *l = &q->lents[custody_index(q->custody, slot)];

    lent_init(l, slot);
    if (q->set->forward)
        lent_forwarded(l);
    return l;
}

/* lane_fill - a slot for a lane that has none; NULL: all are in use */
__attribute__((noinline)) static struct lent *lane_fill(struct source_mq *q,
                                                        struct mq_lane *one)
{
    struct slot *slot = custody_acquire(q->custody);

    if (slot)
        one->warm = source_mq_lent(q, slot);
    return one->warm;
}

struct lent *mq_lane_get(struct source_mq *q, unsigned lane)
{
    struct mq_lane *one = &q->lanes[lane];

    return one->warm ? one->warm : lane_fill(q, one);
}

/* mq_warm - all that the next message needs is at hand
 * Crash: the slot is FREE, whatever is in the body; the next start fills it
 * again.
 */
void mq_warm(struct source *s, unsigned lane)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = mq_lane_get(q, lane);

    if (l)
        slot_scrub(l->slot, q->fill, l->slot->dirty);
}

__attribute__((noinline)) void mq_lane_drop(struct source_mq *q, struct lent *l)
{
    custody_release(q->custody, l->slot);
}

void mq_rest(struct source *s, unsigned lane)
{
    struct source_mq *q = source_mq_of(s);
    struct mq_lane *one = &q->lanes[lane];

    if (one->warm)
        custody_release(q->custody, one->warm->slot);
    one->warm = NULL;
}

int mq_lend(struct source_mq *q, unsigned lane, struct message **out)
{
    *out = &q->lanes[lane].warm->m;
    q->lanes[lane].warm = NULL;
    return 0;
}

/* ---- the queue ---- */

/* half_received - the call failed when the message had left the queue: a page
 * of the slot could not be had, although it was stored to just before. The slot
 * stays as a kill would leave it, and the next start runs what is there. So the
 * sequence number is consumed: if the next message had the same one, its
 * verdict would be mistaken for this message's at recovery.
 */
static int half_received(struct source_mq *q, int err)
{
    custody_seq_used(q->custody);
    log_error("half_received", F_STR("queue", q->set->queue),
              F_STR("error", errno_text(-err)),
              F_STR("next", "its body may be cut; it runs when the worker is "
                            "started again. Look at the disk of --state-dir"));
    return err;
}

/* Return why nothing was received. */
__attribute__((noinline)) static int receive_failed(struct source_mq *q,
                                                    struct slot *slot, int n)
{
    int err;

    if (slot->priority != SLOT_UNSET)
        return half_received(q, n);
    slot_disarm(slot);
    if (n != -EAGAIN || !mq_reopen_gone(q->mq_reopen))
        return n;
    /* Open the name again, behind the same descriptor: a thread that sleeps on
     * it sleeps on the old queue. */
    err = mq_reopen_now(q->mq_reopen);
    if (!err && q->spool)
        spool_moved(q->spool);
    return err ? err : -EAGAIN;
}

/* Receive the next message of the queue into a slot.
 * Crash anywhere in here: slot_arm and slot_taken say what is left. It leans on
 * the kernel's copy never being given up half-way: the pages are in memory that
 * nothing writes back, allocated and populated (custody.c, which locks them
 * where it may). The syncer of `make torture` would notice.
 */
int mq_fetch(struct source_mq *q, struct lent *l, uint64_t wall_ns)
{
    struct slot *slot = l->slot;
    size_t dirty = slot->dirty;
    ssize_t n;

    slot_arm(slot, q->fill, custody_seq_next(q->custody));
    if (q->on_disk)
        slot_warm(slot, q->fill, dirty, queue_message_size(q->queue));
    FAULT_POINT("receive_before");
    n = queue_receive(q->queue, slot->body, &slot->priority);
    FAULT_POINT("receive_after");
    if (n < 0)
        return receive_failed(q, slot, (int)n);
    slot_taken(slot, (uint32_t)n, wall_ns);
    custody_seq_used(q->custody);
    lent_fresh(l, (size_t)n, wall_ns);
    return 0;
}

/* Fetch a message of the queue into the slot that the lane keeps. `flatten`
 * puts everything that it calls into one frame (docs/performance.md). */
__attribute__((flatten)) int mq_fetch_lane(struct source_mq *q, unsigned lane,
                                           uint64_t wall_ns,
                                           struct message **out)
{
    struct lent *l = mq_lane_get(q, lane);
    int err;

    if (!l)
        return -EAGAIN; /* room() told, and whoever frees one is noticed */
    err = mq_fetch(q, l, wall_ns);
    if (!err)
        *out = &l->m;
    if (!err || !slot_free(l->slot)) /* lent, or half received */
        q->lanes[lane].warm = NULL;
    return err;
}

/* mq_take - from the queue, unless there is a way between */
int mq_take(struct source *s, unsigned lane, uint64_t wall_ns,
            struct message **out)
{
    struct source_mq *q = source_mq_of(s);
    struct spool *sp = atomic_load_explicit(&q->spool, memory_order_relaxed);

    if (__builtin_expect(sp != NULL, 0))
        return spool_take(sp, lane, wall_ns, out);
    return mq_fetch_lane(q, lane, wall_ns, out);
}

/* ---- the store ---- */

/* mq_take_due - the next row that is due
 * Crash: a row whose slot is HELD is there twice, and recovery keeps one.
 */
int mq_take_due(struct source *s, unsigned lane, struct message **out)
{
    struct source_mq *q = source_mq_of(s);
    struct lent *l = mq_lane_get(q, lane);
    int64_t row;
    int err;

    while (l && source_due(s)) {
        err = due_rows_take(q->due_rows, &row);
        if (err)
            return err;
        err = row_restore(q, row, STORE_WAITING, l);
        if (!err)
            return mq_lend(q, lane, out);
        due_rows_release(q->due_rows, row);
        if (err != -ENOENT && err != -EMSGSIZE) {
            due_rows_expect(q->due_rows, clock_boot_ns() + SOON_NS);
            return err;
        }
    }
    return -EAGAIN;
}

/* comes_before - whether a parked message comes before another one */
static bool comes_before(const struct store_parked *p, const struct message *m,
                         bool low)
{
    if (p->priority != m->priority)
        return low ? p->priority < m->priority : p->priority > m->priority;
    return p->receive_seq < m->seq;
}

/* mq_unpark - the next row of a group
 * The thread that wrote the row may not be back from the commit yet: then the
 * row is still claimed, -EINPROGRESS. That thread gives up the claim before it
 * tells the group that the row has arrived. So a group that is given back waits
 * for that (PARKING), or the claim is gone.
 */
int mq_unpark(struct source *s, unsigned lane, struct header_text key, bool low,
              const struct message *before, struct message **out)
{
    struct source_mq *q = source_mq_of(s);
    struct store_parked p;
    struct lent *l;
    int err = store_next_parked(q->store, key.at, key.size, low, &p);

    if (err)
        return err;
    if (before && !comes_before(&p, before, low))
        return -EAGAIN;
    l = mq_lane_get(q, lane);
    err = l ? row_restore(q, p.row, STORE_PARKED, l) : -EINPROGRESS;
    if (err == -ENOENT) /* it was there a moment ago: look again */
        err = -EINPROGRESS;
    if (!err && due_rows_claim(q->due_rows, p.row) != 0) {
        slot_retire(l->slot); /* it is in the store as before */
        err = -EINPROGRESS;
    }
    return err ? err : mq_lend(q, lane, out);
}
