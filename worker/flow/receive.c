/* receive.c - the receive work item: one time-limited batch (see receive.h) */
#include "worker/flow/receive_inner.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/engine.h"
#include "worker/flow/ordered.h"
#include "worker/loop/loop.h"
#include "worker/loop/peeker.h"
#include "worker/flow/receive.h"
#include "worker/source/retries.h"

/* A second thread pays off from about here on: waking it costs some
 * microseconds, and two that receive at once slow each other down on the
 * queue's lock in the kernel (docs/performance). Below LEAVE_NS threads but one
 * leave; the gap keeps them from coming and going. */
#define PAYS_NS   6000
#define LEAVE_NS  3000
#define LONG_NS   NS_PER_MS /* a handler that takes it is not quick */
#define PACE_PART 8         /* of the moving mean that is one handler's time */
#define PACE_STEP 4         /* times the mean that one handler counts at most */
/* A step of the wall clock is seen by then. */
#define WALL_NS (10 * NS_PER_MS)
/* How long an empty queue is tried again before its thread goes to sleep: what
 * going to sleep and being woken costs both sides. It is done while it pays:
 * LUCK_MOST times in vain, and one in LUCK_SKIP from then on. A sender that
 * runs beside us costs no thread switch for each message then; for one that
 * waits for our processor it would be in vain. No sched_yield: who yields is
 * preempted by whomever it wakes next, which is a sender at each message of a
 * full queue. */
#define SPIN_NS   (10 * NS_PER_US)
#define PAUSES    16 /* between two tries: some 0.5 us */
#define LUCK_MOST 4
#define LUCK_SKIP 64

/* enter - count one more work item, if there is room */
static bool enter(struct engine *e)
{
    unsigned n = atomic_load(&e->running);

    do {
        if (n >= engine_room(e))
            return false;
    } while (!atomic_compare_exchange_weak(&e->running, &n, n + 1));
    return true;
}

/* leave_over - count one less, if more than `most` run */
static bool leave_over(struct engine *e, unsigned most)
{
    unsigned n = atomic_load(&e->running);

    do {
        if (n <= most)
            return false;
    } while (!atomic_compare_exchange_weak(&e->running, &n, n - 1));
    return true;
}

/* left - after `running` fell: somebody else may run, or all are out. True: the
 * caller may wait for the queue, if it is one that `stays`. */
static bool left(struct engine *e, bool stays)
{
    bounds_left(e);
    if (atomic_load(&e->holds) & HOLD_STOP)
        loop_wake(e->loop);
    else if (stays)
        return engine_peeks(e);
    else
        engine_poke(e);
    return false;
}

/* put_away - the item has no work; before `running` falls, so that whoever
 * counts itself in finds it */
static void put_away(struct receive *item)
{
    struct engine *e = item->engine;

    if (item->slot)
        custody_release(e->custody, item->slot);
    item->slot = NULL;
    counters_put(&item->count->since_ns, COUNTERS_AWAY);
    pthread_mutex_lock(&e->held_mtx);
    LIST_INSERT_HEAD(&e->spare, item, spare);
    pthread_mutex_unlock(&e->held_mtx);
}

uint64_t receive_look(struct receive *item)
{
    item->now_ns = clock_mono_ns();
    if (item->now_ns >= item->wall_old) {
        item->wall_ns = clock_wall_ns() - item->now_ns;
        item->wall_old = item->now_ns + WALL_NS;
    }
    return item->now_ns;
}

/* pace - the moving mean that decides how many threads pay off
 * A handler that was interrupted for once does not count as slow: with that,
 * the next dozen of messages would go the way of slow ones, over two more
 * threads.
 */
static void pace(struct engine *e, uint64_t took)
{
    uint64_t mean = atomic_load_explicit(&e->pace_ns, memory_order_relaxed);

    if (took > PACE_STEP * mean + NS_PER_US)
        took = PACE_STEP * mean + NS_PER_US;

    mean = took > mean ? mean + (took - mean) / PACE_PART
                       : mean - (mean - took) / PACE_PART;
    atomic_store_explicit(&e->pace_ns, mean, memory_order_relaxed);
}

/* waited - how long the queue kept it, in a first delivery; told afterwards, as
 * the handler's start is what others wait for */
static void waited(struct receive *item, const struct delivery *d)
{
    const struct slot *slot = d->slot;

    if (slot->row == 0 && slot->failures == 0)
        counters_waited(item->count,
                        d->header.fields & HEADER_SENT ? d->header.sent_ns
                                                       : slot->received_ns,
                        slot->started_ns);
}

/* receive_begins - the slot says so before the handler can know of it */
void receive_begins(struct receive *item, struct delivery *d)
{
    slot_run(d->slot, receive_wall(item));
    counters_started(item->count, &d->slot->id, item->now_ns);
}

/* not_delivered - it is no delivery after all */
static bool not_delivered(const struct outcome *out)
{
    return out->kind == OUTCOME_NOT_STARTED || out->kind == OUTCOME_UNSENT;
}

/* receive_ends - one look at the clock, two sums, the verdict */
enum settled receive_ends(struct receive *item, struct delivery *d,
                          uint64_t since_ns)
{
    struct engine *e = item->engine;
    uint64_t took = receive_look(item) - since_ns;
    enum settled settled;
    int64_t row;

    item->out.duration_ns = took;
    if (not_delivered(&item->out)) {
        counters_unstarted(item->count);
        settled = settle(e, d, &item->out);
        bounds_untake(e);
        return settled;
    }
    counters_ended(item->count, took);
    waited(item, d);
    pace(e, took);
    row = d->slot->row;
    settled = settle(e, d, &item->out);
    if (row)
        suspects_done(&e->suspects, row);
    bounds_busy(e);
    return settled;
}

/* receive_slot_back - kept for the next message, if it is the item's own */
void receive_slot_back(struct receive *item, struct delivery *d,
                       enum settled settled)
{
    if (settled == SETTLED_KEPT) {
        if (d->slot == item->slot)
            item->slot = NULL;
    } else if (d->slot != item->slot) {
        custody_release(item->engine->custody, d->slot);
    }
}

/* deliver - the handler, then its verdict */
static void deliver(struct receive *item)
{
    struct engine *e = item->engine;
    uint64_t mean = atomic_load_explicit(&e->pace_ns, memory_order_relaxed);
    uint64_t before = mean < LEAVE_NS ? item->now_ns : receive_look(item);

    if (mean >= PAYS_NS)
        engine_poke(e);
    receive_begins(item, item->d);
    e->ops->run(e->handler, item->d, &item->out);
    receive_slot_back(item, item->d, receive_ends(item, item->d, before));
}

/* crowded - whether another thread is as quick as this one; who is in a handler
 * that takes long is in nobody's way */
static bool crowded(struct receive *item)
{
    struct engine *e = item->engine;
    struct receive *other;
    unsigned quick = 0;

    pthread_mutex_lock(&e->held_mtx);
    LIST_FOREACH (other, &e->items, all) {
        uint64_t since = counters_get(&other->count->since_ns);

        if (other != item && since != COUNTERS_AWAY &&
            (since == COUNTERS_BUSY || since + LONG_NS > item->now_ns))
            quick++;
    }
    pthread_mutex_unlock(&e->held_mtx);
    return quick > 0;
}

/* suspects_stuck - none of those that are left can run now: they wait behind a
 * group that is blocked or held, or were discarded. The one work item asks this
 * between two messages, so nobody runs one. What may take as long as an
 * operator must not keep all others from running beside each other; should one
 * of them crash the process then, all that ran are suspects again.
 */
static void suspects_stuck(struct engine *e)
{
    if (atomic_load(&e->running) != 1 || atomic_load(&e->waiting) > 0 ||
        retries_ready(e->retries) || ordered_ready(e))
        return;
    suspects_forget(&e->suspects);
    peeker_look_soon(e->peeker); /* there is room for others */
}

/* receive_must_leave - who has lanes is in no crowd: its handlers are
 * processes */
bool receive_must_leave(struct receive *item, enum why *why)
{
    struct engine *e = item->engine;

    *why = LEFT_TOLD;
    if (atomic_load_explicit(&e->suspects.any, memory_order_relaxed))
        suspects_stuck(e);
    if (leave_over(e, engine_room(e)))
        return true;
    *why = LEFT_CROWD;
    return !item->lane &&
           atomic_load_explicit(&e->pace_ns, memory_order_relaxed) < LEAVE_NS &&
           atomic_load(&e->running) > 1 && crowded(item) && leave_over(e, 1);
}

/* relax - tell the processor that this is a wait; others need not be told */
static inline void relax(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__ || (defined __arm__ && __ARM_ARCH >= 7)
    __asm__ volatile("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst); /* the loop stays a loop */
#endif
}

/* rest - the other side gets on meanwhile, without a lock of the queue */
static void rest(void)
{
    for (int i = 0; i < PAUSES; i++)
        relax();
}

/* receive_dwell - whether an empty queue is tried again */
bool receive_dwell(struct receive *item)
{
    if (item->dwells == 0) {
        if (item->luck == 0 && ++item->skipped % LUCK_SKIP != 0)
            return false;
        item->empty_ns = receive_look(item);
    }
    item->dwells++;
    if (receive_look(item) - item->empty_ns > SPIN_NS) {
        if (item->luck > 0)
            item->luck--;
        return false;
    }
    rest();
    return true;
}

/* receive_dwelt - a message came; it may have been waited for */
void receive_dwelt(struct receive *item)
{
    if (item->dwells)
        item->luck = LUCK_MOST;
    item->dwells = 0;
}

/* batch - until there is a reason to leave; `running` still counts us, unless
 * LEFT_TOLD or LEFT_CROWD */
static enum why batch(struct receive *item)
{
    struct engine *e = item->engine;
    uint64_t end = ns_add(receive_look(item), e->set->batch_limit_ns);
    enum why why;

    item->dwells = 0;
    counters_put(&item->count->since_ns, COUNTERS_BUSY);
    while (!receive_must_leave(item, &why)) {
        int err = take(item);

        if (err == -EAGAIN && receive_dwell(item))
            continue;
        if (err < 0 && err != -EAGAIN)
            engine_trouble(e, "receiving", -err);
        if (err < 0)
            return LEFT_EMPTY;
        if (err != TAKEN_NONE) {
            take_flush(item);
            deliver(item);
        }
        receive_dwelt(item);
        if (item->now_ns >= end)
            return LEFT_TIME;
    }
    return why;
}

/* item_get - a spare item, or a new one */
static struct receive *item_get(struct engine *e)
{
    struct receive *item;

    pthread_mutex_lock(&e->held_mtx);
    item = LIST_FIRST(&e->spare);
    if (item) {
        LIST_REMOVE(item, spare);
    } else {
        item = calloc(1, sizeof *item);
        if (item) {
            item->engine = e;
            item->d = &item->own;
            item->own.place = e->items_made++;
            item->count = item->own.count = counters_claim(e->counters);
            LIST_INSERT_HEAD(&e->items, item, all);
        }
    }
    pthread_mutex_unlock(&e->held_mtx);
    return item;
}

/* item_enter - counted in; NULL: no room (who makes some pokes), or no
 * memory */
static struct receive *item_enter(struct engine *e)
{
    struct receive *item;

    if (!enter(e))
        return NULL;
    item = item_get(e);
    if (!item) {
        atomic_fetch_sub(&e->running, 1);
        engine_trouble(e, "starting a work item", ENOMEM);
    }
    return item;
}

/* linger_begin - an item, its slot and what is to be done to it; counted as one
 * that keeps still. Under the lock, as receive_still answers for the slot. */
static struct receive *linger_begin(struct engine *e)
{
    struct receive *item = item_get(e);

    if (!item)
        return NULL;
    if (!item->slot)
        item->slot = custody_acquire(e->custody);
    pthread_mutex_lock(&e->held_mtx);
    if (item->slot) /* it has nothing better to do now */
        slot_scrub(item->slot, custody_fill(e->custody), item->slot->dirty);
    e->lingering++;
    pthread_mutex_unlock(&e->held_mtx);
    return item;
}

/* linger_end - it may use the slot from here on */
static void linger_end(struct engine *e)
{
    pthread_mutex_lock(&e->held_mtx);
    e->lingering--;
    pthread_mutex_unlock(&e->held_mtx);
}

/* linger - wait for the queue, with all that the next message needs at hand;
 * NULL: there is none, or nobody may take it. One work item more than the cap
 * is in use meanwhile.
 * Crash: its slot is FREE, whatever is in the body; the next start fills it
 * again.
 */
static struct receive *linger(struct engine *e)
{
    struct receive *item;
    bool came;

    if (!peeker_linger(e->peeker)) {
        engine_poke(e);
        return NULL;
    }
    item = linger_begin(e);
    came = peeker_lingered(e->peeker);
    if (item)
        linger_end(e);
    if (came && engine_room(e) > 1)
        peeker_look_later(e->peeker);
    if (came && item && enter(e))
        return item;
    if (item)
        put_away(item);
    else if (came)
        engine_trouble(e, "starting a work item", ENOMEM);
    engine_poke(e); /* one that runs may want what came */
    return NULL;
}

/* item_run - work items, on a pool thread: one, and another for each message
 * that the thread waits for itself */
static void item_run(struct pool_job *job)
{
    struct receive *item = CONTAINER_OF(job, struct receive, job);
    struct engine *e = item->engine;

    do {
        enum why why = e->ops->lanes ? window_batch(item) : batch(item);

        take_flush(item);
        put_away(item);
        if (why != LEFT_TOLD && why != LEFT_CROWD)
            atomic_fetch_sub(&e->running, 1);
        item = NULL;
        if (why == LEFT_CROWD) {
            /* Who stayed has the queue, as long as its handlers are quick. */
            peeker_look_soon(e->peeker);
        } else if (left(e, why == LEFT_EMPTY)) {
            item = linger(e);
        }
    } while (item);
}

/* receive_start - one more work item */
bool receive_start(struct engine *e)
{
    struct receive *item = item_enter(e);
    int err;

    if (!item)
        return window_wake(e);
    item->job.run = item_run;
    err = pool_submit(e->pool, &item->job);
    if (err) {
        put_away(item);
        atomic_fetch_sub(&e->running, 1);
        engine_trouble(e, "starting a thread", -err);
    }
    return err == 0;
}

/* receive_still - no slot changes until receive_go_on
 * An item that is not spare may write to slots. It gets off the list of the
 * spare ones, or on from lingering, only with the lock, which is held from here
 * on; and what the spare ones wrote before they came there with it is visible.
 * A verdict that waits (pending.h) frees its slot before it is counted out.
 */
bool receive_still(struct engine *e)
{
    struct receive *item;
    unsigned still;

    pthread_mutex_lock(&e->held_mtx);
    still = e->lingering;
    LIST_FOREACH (item, &e->spare, spare)
        still++;
    if (still == e->items_made && atomic_load(&e->unsettled) == 0)
        return true;
    pthread_mutex_unlock(&e->held_mtx);
    return false;
}

void receive_go_on(struct engine *e)
{
    pthread_mutex_unlock(&e->held_mtx);
}

/* receive_stats - the sum; each item counts for itself */
void receive_stats(struct engine *e, struct receive_stats *out)
{
    struct receive *item;

    *out = (struct receive_stats){0};
    pthread_mutex_lock(&e->held_mtx);
    LIST_FOREACH (item, &e->items, all) {
        const struct counters_block *b = item->count;
        uint64_t longest = counters_get(&b->longest_ns);

        out->deliveries += counters_get(&b->deliveries);
        out->ended += counters_get(&b->ended);
        out->took_ns += counters_get(&b->took_ns);
        if (out->longest_ns < longest)
            out->longest_ns = longest;
    }
    pthread_mutex_unlock(&e->held_mtx);
}

void receive_fini(struct engine *e)
{
    struct receive *item;

    while ((item = LIST_FIRST(&e->items)) != NULL) {
        LIST_REMOVE(item, all);
        window_fini(item);
        free(item);
    }
}
