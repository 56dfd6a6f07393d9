/* items.c - all work items, and when another item starts (see items.h) */
#include "worker/flow/items.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/state/counters.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/receive.h"
#include "worker/loop/loop.h"
#include "worker/loop/peeker.h"

/* ---- the lists ---- */

#define LONG_NS NS_PER_MS /* a handler that takes this long is not quick */

void items_init(struct items *it, uint64_t guess_ns)
{
    pthread_mutex_init(&it->mtx, NULL);
    LIST_INIT(&it->all);
    LIST_INIT(&it->spare);
    LIST_INIT(&it->wanting);
    atomic_store(&it->pace_ns, guess_ns);
}

void items_fini(struct items *it)
{
    struct work_item *item;

    while ((item = LIST_FIRST(&it->all)) != NULL) {
        LIST_REMOVE(item, all);
        free(item->window);
        free(item);
    }
    pthread_mutex_destroy(&it->mtx);
}

int items_get(struct items *it, struct flow *f, struct work_item **out)
{
    struct work_item *item;

    pthread_mutex_lock(&it->mtx);
    item = LIST_FIRST(&it->spare);
    if (item) {
        LIST_REMOVE(item, spare);
    } else if ((item = calloc(1, sizeof *item)) != NULL) {
        item->flow = f;
        item->d = &item->own;
        item->own.place = it->made++;
        item->own.timeout_most = &f->source->timeout_most_ns;
        LIST_INSERT_HEAD(&it->all, item, all);
    }
    pthread_mutex_unlock(&it->mtx);
    *out = item;
    return item ? 0 : -ENOMEM;
}

void items_count(struct items *it, struct work_item *item)
{
    struct counters_block *count;

    if (item->count)
        return;
    count = counters_claim(it->counters);
    pthread_mutex_lock(&it->mtx);
    item->count = item->own.count = count;
    pthread_mutex_unlock(&it->mtx);
}

void items_put(struct items *it, struct work_item *item)
{
    struct source *source = item->flow->source;

    source->ops->rest(source, item->own.place);
    if (item->count)
        counters_put(&item->count->since_ns, COUNTERS_AWAY);
    pthread_mutex_lock(&it->mtx);
    LIST_INSERT_HEAD(&it->spare, item, spare);
    pthread_mutex_unlock(&it->mtx);
}

bool items_contended(struct items *it, const struct work_item *item)
{
    struct work_item *other;
    unsigned quick = 0;

    pthread_mutex_lock(&it->mtx);
    LIST_FOREACH (other, &it->all, all) {
        uint64_t since = other->count ? counters_get(&other->count->since_ns)
                                      : COUNTERS_AWAY;

        if (other != item && since != COUNTERS_AWAY &&
            (since == COUNTERS_BUSY || since + LONG_NS > item->now_ns))
            quick++;
    }
    pthread_mutex_unlock(&it->mtx);
    return quick > 0;
}

void items_stats(struct items *it, struct items_stats *out)
{
    struct work_item *item;

    *out = (struct items_stats){0};
    pthread_mutex_lock(&it->mtx);
    LIST_FOREACH (item, &it->all, all) {
        const struct counters_block *b = item->count;
        uint64_t longest = b ? counters_get(&b->longest_ns) : 0;

        if (!b)
            continue;
        out->deliveries += counters_get(&b->deliveries);
        out->ended += counters_get(&b->ended);
        out->took_ns += counters_get(&b->took_ns);
        if (out->longest_ns < longest)
            out->longest_ns = longest;
    }
    pthread_mutex_unlock(&it->mtx);
}

/* ---- items that keep several deliveries open ---- */

/* An item has a coprocess only during a batch, and it is set and cleared under
 * the lock. The calls that wake a coprocess hold the lock, so each coprocess
 * that they find is in use. */

void items_want(struct items *it, struct work_item *item)
{
    pthread_mutex_lock(&it->mtx);
    item->wants = true;
    LIST_INSERT_HEAD(&it->wanting, item, wanted);
    atomic_fetch_add(&it->wants, 1);
    pthread_mutex_unlock(&it->mtx);
}

static void unwant_locked(struct items *it, struct work_item *item)
{
    item->wants = false;
    LIST_REMOVE(item, wanted);
    atomic_fetch_sub(&it->wants, 1);
}

void items_unwant(struct items *it, struct work_item *item)
{
    pthread_mutex_lock(&it->mtx);
    if (item->wants)
        unwant_locked(it, item);
    pthread_mutex_unlock(&it->mtx);
}

bool items_wake_one(struct items *it, void (*wake)(struct coprocess *coprocess))
{
    struct work_item *item;

    if (atomic_load(&it->wants) == 0)
        return false;
    pthread_mutex_lock(&it->mtx);
    item = LIST_FIRST(&it->wanting);
    if (item) {
        unwant_locked(it, item);
        wake(item->coprocess);
    }
    pthread_mutex_unlock(&it->mtx);
    return item != NULL;
}

void items_wake_all(struct items *it, void (*wake)(struct coprocess *coprocess))
{
    struct work_item *item;

    pthread_mutex_lock(&it->mtx);
    LIST_FOREACH (item, &it->all, all)
        if (item->coprocess)
            wake(item->coprocess);
    pthread_mutex_unlock(&it->mtx);
}

void items_coprocess_set(struct items *it, struct work_item *item,
                         struct coprocess *coprocess)
{
    pthread_mutex_lock(&it->mtx);
    item->coprocess = coprocess;
    pthread_mutex_unlock(&it->mtx);
}

/* ---- when an item starts ---- */

/* Return true if a message would be taken: by one more work item, or by a
 * running item that has room in its window. */
static bool can_take_more(struct flow *f)
{
    unsigned room = gate_room(&f->gate), running = gate_running(&f->gate);

    return running < room ||
           (running == room && room > 0 && atomic_load(&f->items.wants) > 0 &&
            breaker_state(&f->gate.breaker) == BREAKER_CLOSED);
}

/* Start a work item if a message could be taken. Returns true if a thread
 * should wait for the queue instead. */
static bool start_or_wait(struct flow *f)
{
    struct source *s = f->source;
    bool slots, room;

    dirty_count(&f->dirty);
    if (!can_take_more(f))
        return false;
    /* Without a free slot, or without room for a fresh message, a new item
     * would leave again and come back here. Parking is an exception: it frees
     * slots, or fails and sets HOLD_QUEUE for a while. */
    slots = s->ops->count(s, COUNT_FREE) > 0;
    room = slots && gate_takes(&f->gate) && dispatch_room(f);
    if (ready_waiting(&f->ready) || (!slots && dispatch_must_park(f)) ||
        (slots && (source_due(s) || dispatch_ready(f))) ||
        (room && s->local && s->local->pending(s))) {
        schedule_start(f);
        return false;
    }
    return room;
}

void schedule_wake(struct flow *f)
{
    if (start_or_wait(f))
        peeker_arm(f->peeker);
}

/* Wait for the queue, with a work item and a slot ready for the next message.
 * Returns NULL if there is no message, or none may be taken. During the wait
 * one work item more than the cap is in use. */
static struct work_item *item_wait(struct flow *f)
{
    struct work_item *item;
    bool came;
    int err;

    if (!peeker_enter(f->peeker)) {
        schedule_wake(f);
        return NULL;
    }
    err = items_get(&f->items, f, &item);
    if (!err) {
        items_count(&f->items, item);
        if (f->source->local)
            f->source->local->warm(f->source, item->own.place);
    }
    came = peeker_wait(f->peeker);
    if (came && !err && gate_enter(&f->gate)) {
        /* After gate_enter, so that the loop sees that an item runs. */
        if (gate_cap(&f->gate) > 1)
            peeker_look_later(f->peeker);
        return item;
    }
    if (!err)
        items_put(&f->items, item);
    else if (came)
        gate_trouble(&f->gate, "starting a work item", ENOMEM);
    schedule_wake(f); /* a running item may have room for the message */
    return NULL;
}

/* Pool job: run a work item. After that, if the queue is empty, wait for it and
 * run another item for the message that comes. */
static void item_run(struct pool_job *job)
{
    struct work_item *item = CONTAINER_OF(job, struct work_item, job);
    struct flow *f = item->flow;

    items_count(&f->items, item);
    do {
        enum why why = f->ops->coprocesses ? receive_window_batch(item)
                                           : receive_batch(item);

        if (item->later_count > 0)
            settle_later(item);
        items_put(&f->items, item);
        if (why != LEFT_OVER_CAP && why != LEFT_CONTENDED)
            gate_leave(&f->gate);
        item = NULL;
        if (why == LEFT_CONTENDED) {
            /* Another item takes the messages, while handlers are quick. */
            peeker_look_soon(f->peeker);
            return;
        }
        /* End the run, start another item, or wait for the queue here. */
        run_limits_left(f);
        if (gate_held(&f->gate, HOLD_STOP))
            loop_wake(f->loop);
        else if (why != LEFT_EMPTY)
            schedule_wake(f);
        else if (start_or_wait(f))
            item = item_wait(f);
    } while (item);
}

bool schedule_start(struct flow *f)
{
    struct work_item *item = NULL;
    int err;

    /* If the gate has no room, the thread that makes room calls schedule_wake.
     * Until then, an item with coprocesses may take one more. */
    if (!gate_enter(&f->gate))
        return f->ops->coprocesses &&
               items_wake_one(&f->items, f->ops->coprocesses->wake);
    err = items_get(&f->items, f, &item);
    if (!err) {
        item->job.run = item_run;
        err = pool_submit(f->pool, &item->job);
        if (err)
            items_put(&f->items, item);
    }
    if (err) {
        gate_leave(&f->gate);
        gate_trouble(&f->gate,
                     item ? "starting a thread" : "starting a work item", -err);
    }
    return err == 0;
}

enum gate_why schedule_why(struct flow *f)
{
    enum gate_why why = gate_why(&f->gate);

    if (why == WHY_BUSY && can_take_more(f)) /* a window has room */
        why = gate_takes(&f->gate) ? WHY_NOT_SO : WHY_WAITING;
    if (why != WHY_NOT_SO)
        return why;
    if (f->source->ops->count(f->source, COUNT_FREE) == 0)
        return WHY_SLOTS;
    return dispatch_room(f) ? WHY_NOT_SO : WHY_GROUPS;
}

/* Limit the wait while work items run, more could run, and peek mode is off. In
 * that state a long handler would keep other messages waiting. */
int schedule_wait_ms(struct flow *f)
{
    unsigned running = gate_running(&f->gate);

    return running > 0 && running < gate_room(&f->gate) &&
                   !peeker_armed(f->peeker)
               ? PEEKER_STUCK_MS
               : -1;
}

/* Let another work item start if no delivery has started since the last call:
 * a handler is taking long. */
void schedule_quiet(struct flow *f)
{
    struct items_stats s;

    items_stats(&f->items, &s);
    if (s.deliveries == f->items.seen)
        schedule_wake(f);
    f->items.seen = s.deliveries;
}
