/* receive.c - the receive work item: one time-limited batch (see receive.h) */
#include "worker/receive.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/container.h"
#include "worker/engine.h"
#include "worker/load.h"
#include "worker/ordered.h"
#include "worker/peeker.h"
#include "worker/reopen.h"
#include "worker/settle.h"

/* A second thread pays off from about here on: waking it costs some
 * microseconds, and two that receive at once slow each other down on the
 * queue's lock in the kernel (docs/performance). Below LEAVE_NS threads but one
 * leave; the gap keeps them from coming and going. */
#define PAYS_NS   6000
#define LEAVE_NS  3000
#define SOON_NS   NS_PER_MS /* until a row that was put off is tried again */
#define LONG_NS   NS_PER_MS /* a handler that takes it is not quick */
#define PACE_PART 8         /* of the moving mean that is one handler's time */
#define WALL_NS   (10 * NS_PER_MS) /* a step of the wall clock is seen by then */
/* How often an empty queue is tried again before its thread leaves, with the
 * processor offered to others in between: some 10 us. A sender that is slower
 * than we are costs no thread switch for each message then. It is done while it
 * pays: LUCK_MOST tries in vain, and one in LUCK_SKIP is made. */
#define DWELLS    20
#define LUCK_MOST 4
#define LUCK_SKIP 16

/* c = constant   a = atomic   h = under engine's held_mtx
 * Everything else belongs to the thread that runs it. */
struct receive {
    LIST_ENTRY(receive) all;   /* h */
    LIST_ENTRY(receive) spare; /* h */
    struct pool_job job;
    struct engine *engine; /* c */
    /* a  written by its thread only, summed up by receive_stats */
    _Atomic uint64_t started, took_ns, longest_ns;
    /* a  when its handler was called, or one of the two; its thread's as well */
    _Atomic uint64_t since_ns;
#define SINCE_AWAY 0   /* it has no work */
#define SINCE_BUSY 1   /* it is between two handlers */
    struct slot *slot; /* its own, FREE between messages; or NULL */
    unsigned turn;     /* groups, rows and fresh messages take turns */
    struct slot *later[SETTLE_LATER_MOST]; /* HELD, not due yet */
    size_t later_count;
    uint64_t now_ns;   /* the last look at the clock, monotonic */
    uint64_t wall_ns;  /* what the wall clock is ahead of it */
    uint64_t wall_old; /* when that is to be looked at again */
    unsigned dwells;   /* tries of an empty queue since the last message */
    unsigned luck, skipped;
    struct delivery d;
    struct outcome out;
};

enum why { LEFT_EMPTY, LEFT_TIME, LEFT_TOLD, LEFT_CROWD };

/* A counter that one thread writes and others read. */
static uint64_t tally_get(const _Atomic uint64_t *t)
{
    return atomic_load_explicit(t, memory_order_relaxed);
}

static void tally_set(_Atomic uint64_t *t, uint64_t value)
{
    atomic_store_explicit(t, value, memory_order_relaxed);
}

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
        peeker_wake(e->peeker);
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
    tally_set(&item->since_ns, SINCE_AWAY);
    pthread_mutex_lock(&e->held_mtx);
    LIST_INSERT_HEAD(&e->spare, item, spare);
    pthread_mutex_unlock(&e->held_mtx);
}

/* look - what time it is; one look a message, where handlers are quick */
static uint64_t look(struct receive *item)
{
    item->now_ns = clock_mono_ns();
    if (item->now_ns >= item->wall_old) {
        item->wall_ns = clock_wall_ns() - item->now_ns;
        item->wall_old = item->now_ns + WALL_NS;
    }
    return item->now_ns;
}

/* wall - the last look, on the wall clock */
static uint64_t wall(const struct receive *item)
{
    return item->now_ns + item->wall_ns;
}

/* row_arrived - a row is in the item's slot: deliver it, or to its group
 * Crash after it was put off: the slot is FREE, the row waits in the store.
 */
static int row_arrived(struct receive *item, int64_t row)
{
    struct engine *e = item->engine;
    int err = item->d.group.at ? ordered_due(e, &item->d) : 0;

    if (err == PUT_BY)
        return -EAGAIN;
    if (err >= 0)
        return err;
    slot_retire(item->slot);
    retries_land(e->retries, row);
    if (err != -EINPROGRESS)
        return err;
    retries_note(e->retries, clock_steady_ns() + SOON_NS);
    return -EAGAIN;
}

/* take_row - the next row that is due; -EAGAIN if none, HANDED_OVER if it went
 * to its group */
static int take_row(struct receive *item)
{
    struct engine *e = item->engine;
    int64_t row;
    int err;

    while (retries_ready(e->retries)) {
        err = retries_take(e->retries, &row);
        if (err)
            return err;
        err = load_row(e, row, STORE_WAITING, item->slot, &item->d);
        if (!err)
            return row_arrived(item, row);
        retries_land(e->retries, row);
        if (err != -ENOENT && err != -EMSGSIZE)
            return err;
    }
    return -EAGAIN;
}

/* receive_link - a replayed letter goes on as the row it is
 * Id and letter must both match, and the row must not be on its way already;
 * else it is a message like any other. Crash before the row is in the slot: it
 * is linked by the next run.
 */
void receive_link(struct engine *e, struct delivery *d)
{
    struct store_row m;
    int64_t row;

    if (d->slot->row || !(d->header.fields & HEADER_LETTER) ||
        !(d->header.fields & HEADER_ID))
        return;
    row = (int64_t)d->header.letter;
    if (store_get(e->store, row, &m, NULL, 0, NULL) != 0)
        return;
    if ((m.state == STORE_DEAD || m.state == STORE_REPLAYED) &&
        memcmp(&m.id, &d->header.id, sizeof m.id) == 0 &&
        retries_fly(e->retries, row))
        d->slot->row = row;
}

/* delayed - it is not due yet, and has not waited in the store before */
static bool delayed(const struct delivery *d)
{
    return d->slot->row == 0 && d->header.fields & HEADER_NOT_BEFORE &&
           d->header.not_before_ns > clock_wall_ns();
}

/* sort - a message of a group goes to its place: HANDED_OVER; 0 if it has none;
 * -errno: it is held, and sorted again when it is taken */
static int sort(struct receive *item, struct slot *slot)
{
    struct engine *e = item->engine;
    struct delivery *d = &item->d;
    int err;

    delivery_read(d, slot, e->set->group_separator);
    receive_link(e, d);
    if (!d->group.at || delayed(d))
        return 0;
    err = ordered_add(e, d);
    if (err < 0)
        engine_hold_slot(e, slot, false);
    return err;
}

/* receive_one - the next message to the item's slot; under receive_mtx
 * Crash anywhere in here: slot_arm and slot_taken say what is left.
 */
static int receive_one(struct receive *item)
{
    struct engine *e = item->engine;
    struct slot *slot = item->slot;
    ssize_t n;
    int err;

    if (queue_message_size(e->queue) > custody_body_bytes(e->custody))
        return -EMSGSIZE; /* made again larger than a slot: reopen.c ends us */
    slot_arm(slot, custody_fill(e->custody), custody_seq_next(e->custody));
    slot_warm(slot, queue_message_size(e->queue));
    n = queue_receive(e->queue, slot->body, &slot->priority);
    if (n >= 0) {
        if (item->dwells)
            look(item); /* it was waited for */
        slot_taken(slot, (uint32_t)n, wall(item));
        custody_seq_used(e->custody);
        err = sort(item, slot); /* here, as its place is that of the queue */
        if (err < 0)
            item->slot = NULL;
        return err;
    }
    slot_disarm(slot);
    if (n == -EAGAIN && reopen_gone(e->reopen)) {
        err = reopen_now(e->reopen);
        return err ? err : -EAGAIN;
    }
    return (int)n;
}

/* take_fresh - the next message of the queue; -EAGAIN if none, HANDED_OVER if it
 * went to its group */
static int take_fresh(struct receive *item)
{
    struct engine *e = item->engine;
    int err;

    if (!ordered_room(e))
        return -EAGAIN; /* who makes room pokes */
    pthread_mutex_lock(&e->receive_mtx);
    err = receive_one(item);
    pthread_mutex_unlock(&e->receive_mtx);
    return err;
}

/* take_group - the next message of a group that may run */
static int take_group(struct receive *item)
{
    return ordered_take(item->engine, item->slot, &item->d);
}

/* take_source - one of the three, in turn: none starves another */
static int take_source(struct receive *item)
{
    static int (*const sources[])(struct receive *) = {take_group, take_row,
                                                       take_fresh};
    const unsigned n = sizeof sources / sizeof sources[0];
    int err = -EAGAIN;

    item->turn = (item->turn + 1) % n;
    for (unsigned i = 0; i < n && err == -EAGAIN; i++) {
        unsigned at = (item->turn + i) % n;

        err = sources[at](item);
        if (sources[at] != take_fresh && err != -EAGAIN)
            look(item); /* the store may have been read */
    }
    return err;
}

/* take - the next message to deliver, HELD, read, in item->d */
static int take(struct receive *item)
{
    struct engine *e = item->engine;
    struct slot *held;
    int err;

    while ((held = engine_take_held(e)) != NULL) {
        look(item);
        err = sort(item, held);
        if (err != HANDED_OVER)
            return err;
    }
    do {
        ordered_relieve(e);
        if (!item->slot)
            item->slot = custody_acquire(e->custody);
        if (!item->slot)
            return -EAGAIN; /* who frees one pokes */
        err = take_source(item);
        if (err == HANDED_OVER)
            item->slot = NULL;
    } while (err == HANDED_OVER);
    return err;
}

/* pace - the moving mean that decides how many threads pay off */
static void pace(struct engine *e, uint64_t took)
{
    uint64_t mean = atomic_load_explicit(&e->pace_ns, memory_order_relaxed);

    mean = took > mean ? mean + (took - mean) / PACE_PART
                       : mean - (mean - took) / PACE_PART;
    atomic_store_explicit(&e->pace_ns, mean, memory_order_relaxed);
}

/* later_flush - to the store, before anything takes long */
static void later_flush(struct receive *item)
{
    size_t n = item->later_count;

    item->later_count = 0;
    if (n)
        settle_later(item->engine, item->later, n);
}

/* run - the handler, then its verdict */
static enum settled run(struct receive *item)
{
    struct engine *e = item->engine;
    uint64_t mean = atomic_load_explicit(&e->pace_ns, memory_order_relaxed);
    uint64_t before = mean < LEAVE_NS ? item->now_ns : look(item);

    tally_set(&item->started, tally_get(&item->started) + 1);
    if (mean >= PAYS_NS)
        engine_poke(e);
    slot_run(item->d.slot, wall(item));
    tally_set(&item->since_ns, before);
    e->ops->run(e->handler, &item->d, &item->out);
    tally_set(&item->since_ns, SINCE_BUSY);
    item->out.duration_ns = look(item) - before;
    if (item->out.kind == OUTCOME_NOT_STARTED) {
        tally_set(&item->started, tally_get(&item->started) - 1);
        return settle(e, &item->d, &item->out);
    }
    tally_set(&item->took_ns,
              tally_get(&item->took_ns) + item->out.duration_ns);
    if (item->out.duration_ns > tally_get(&item->longest_ns))
        tally_set(&item->longest_ns, item->out.duration_ns);
    pace(e, item->out.duration_ns);
    return settle(e, &item->d, &item->out);
}

/* expired - its time was over before it was started for the first time */
static bool expired(const struct delivery *d, uint64_t now)
{
    return d->header.fields & HEADER_EXPIRES && d->header.expires_ns <= now &&
           d->slot->failures == 0 &&
           !(slot_word(d->slot).flags & SLOT_REDELIVERED);
}

/* deliver - what is in item->d comes to its end, or is kept */
static enum settled deliver(struct receive *item)
{
    struct engine *e = item->engine;
    struct delivery *d = &item->d;
    char error[64], ago[DURATION_TEXT];
    uint64_t now;

    if (d->broken)
        return settle_dead(e, d, REASON_BAD_HEADER, d->why);
    if (d->header.fields & HEADER_EXPIRES &&
        expired(d, now = clock_wall_ns())) {
        snprintf(
            error, sizeof error, "expired %s before it was started",
            duration_print((now - d->header.expires_ns) / NS_PER_MS * NS_PER_MS,
                           ago));
        return settle_dead(e, d, REASON_EXPIRED, error);
    }
    if (delayed(d)) {
        if (d->lease) /* held at a start, or the clock was set back */
            ordered_settled(e, d->lease, NULL, false);
        if (item->later_count == SETTLE_LATER_MOST)
            later_flush(item);
        item->later[item->later_count++] = d->slot;
        return SETTLED_KEPT;
    }
    later_flush(item);
    return run(item);
}

/* take_and_deliver - one message; -EAGAIN none (or no more), or trouble */
static int take_and_deliver(struct receive *item)
{
    struct engine *e = item->engine;
    uint64_t before = tally_get(&item->started);
    int err;

    if (!bounds_take(e))
        return -EAGAIN;
    err = take(item);
    if (err) {
        bounds_untake(e);
        return err;
    }
    if (deliver(item) == SETTLED_KEPT) {
        if (item->d.slot == item->slot)
            item->slot = NULL;
    } else if (item->d.slot != item->slot) {
        custody_release(e->custody, item->d.slot);
    }
    if (tally_get(&item->started) == before) {
        bounds_untake(e); /* dead or delayed without a delivery */
        look(item);
    }
    return 0;
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
        uint64_t since = tally_get(&other->since_ns);

        if (other != item && since != SINCE_AWAY &&
            (since == SINCE_BUSY || since + LONG_NS > item->now_ns))
            quick++;
    }
    pthread_mutex_unlock(&e->held_mtx);
    return quick > 0;
}

/* must_leave - over the cap (or a hold, which is a cap of 0), or in a crowd
 * whose handlers are too quick for it. If so, it is counted out already. */
static bool must_leave(struct receive *item, enum why *why)
{
    struct engine *e = item->engine;

    *why = LEFT_TOLD;
    if (leave_over(e, engine_room(e)))
        return true;
    *why = LEFT_CROWD;
    return atomic_load_explicit(&e->pace_ns, memory_order_relaxed) < LEAVE_NS &&
           atomic_load(&e->running) > 1 && crowded(item) && leave_over(e, 1);
}

/* dwell - whether an empty queue is tried again */
static bool dwell(struct receive *item)
{
    if (item->dwells == 0 && item->luck == 0 &&
        ++item->skipped % LUCK_SKIP != 0)
        return false;
    if (++item->dwells > DWELLS) {
        if (item->luck > 0)
            item->luck--;
        return false;
    }
    sched_yield();
    return true;
}

/* dwelt - a message came; it may have been waited for */
static void dwelt(struct receive *item)
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
    uint64_t end = ns_add(look(item), e->set->batch_limit_ns);
    enum why why;

    item->dwells = 0;
    tally_set(&item->since_ns, SINCE_BUSY);
    while (!must_leave(item, &why)) {
        int err = take_and_deliver(item);

        if (err == -EAGAIN && dwell(item))
            continue;
        if (err && err != -EAGAIN)
            engine_trouble(e, "receiving", -err);
        if (err)
            return LEFT_EMPTY;
        dwelt(item);
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
            LIST_INSERT_HEAD(&e->items, item, all);
        }
    }
    pthread_mutex_unlock(&e->held_mtx);
    return item;
}

/* item_enter - counted in; NULL: no room (who makes some pokes), or no memory */
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

/* item_run - work items, on a pool thread: one, and another for each message that
 * the thread waits for itself */
static void item_run(struct pool_job *job)
{
    struct receive *item = CONTAINER_OF(job, struct receive, job);
    struct engine *e = item->engine;

    do {
        enum why why = batch(item);

        later_flush(item);
        put_away(item);
        if (why != LEFT_TOLD && why != LEFT_CROWD)
            atomic_fetch_sub(&e->running, 1);
        item = NULL;
        if (why == LEFT_CROWD) {
            /* Who stayed has the queue, as long as its handlers are quick. */
            peeker_look_soon(e->peeker);
        } else if (left(e, why == LEFT_EMPTY)) {
            if (peeker_linger(e->peeker))
                item = item_enter(e);
            else
                engine_poke(e);
        }
    } while (item);
}

/* receive_start - one more work item */
bool receive_start(struct engine *e)
{
    struct receive *item = item_enter(e);
    int err;

    if (!item)
        return false;
    item->job.run = item_run;
    err = pool_submit(e->pool, &item->job);
    if (err) {
        put_away(item);
        atomic_fetch_sub(&e->running, 1);
        engine_trouble(e, "starting a thread", -err);
    }
    return err == 0;
}

/* receive_stats - the sum; each item counts for itself */
void receive_stats(struct engine *e, struct receive_stats *out)
{
    struct receive *item;

    *out = (struct receive_stats){0};
    pthread_mutex_lock(&e->held_mtx);
    LIST_FOREACH (item, &e->items, all) {
        uint64_t longest = tally_get(&item->longest_ns);

        out->deliveries += tally_get(&item->started);
        out->took_ns += tally_get(&item->took_ns);
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
        free(item);
    }
}
