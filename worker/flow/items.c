/* items.c - the work items that there are, and when one starts (see items.h) */
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

/* ---- which there are ---- */

#define LONG_NS NS_PER_MS /* a handler that takes it is not quick */
/* A step of the wall clock is seen within this time: times that are noted
 * meanwhile are those of the clock as it was, wrong or not. */
#define WALL_NS (100 * NS_PER_MS)

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
    struct receive *item;

    while ((item = LIST_FIRST(&it->all)) != NULL) {
        LIST_REMOVE(item, all);
        free(item->window);
        free(item);
    }
    pthread_mutex_destroy(&it->mtx);
}

/* item_new - under the lock */
static struct receive *item_new(struct items *it, struct flow *f)
{
    struct receive *item = calloc(1, sizeof *item);

    if (!item)
        return NULL;
    item->flow = f;
    item->d = &item->own;
    item->own.place = it->made++;
    item->own.timeout_most = &f->source->timeout_most_ns;
    LIST_INSERT_HEAD(&it->all, item, all);
    return item;
}

int items_get(struct items *it, struct flow *f, struct receive **out)
{
    pthread_mutex_lock(&it->mtx);
    *out = LIST_FIRST(&it->spare);
    if (*out)
        LIST_REMOVE(*out, spare);
    else
        *out = item_new(it, f);
    pthread_mutex_unlock(&it->mtx);
    return *out ? 0 : -ENOMEM;
}

void items_count(struct items *it, struct receive *item)
{
    struct counters_block *count;

    if (item->count)
        return;
    count = counters_claim(it->counters);
    pthread_mutex_lock(&it->mtx);
    item->count = item->own.count = count;
    pthread_mutex_unlock(&it->mtx);
}

void items_put(struct items *it, struct receive *item)
{
    if (item->count)
        counters_put(&item->count->since_ns, COUNTERS_AWAY);
    pthread_mutex_lock(&it->mtx);
    LIST_INSERT_HEAD(&it->spare, item, spare);
    pthread_mutex_unlock(&it->mtx);
}

bool items_other_begin(struct items *it)
{
    bool may;

    pthread_mutex_lock(&it->mtx);
    may = !it->over;
    it->others += may;
    pthread_mutex_unlock(&it->mtx);
    return may;
}

void items_other_end(struct items *it)
{
    pthread_mutex_lock(&it->mtx);
    it->others--;
    pthread_mutex_unlock(&it->mtx);
}

bool items_others_over(struct items *it)
{
    bool over;

    pthread_mutex_lock(&it->mtx);
    it->over = true;
    over = it->others == 0;
    pthread_mutex_unlock(&it->mtx);
    return over;
}

/* items_contended - whether others want the queue, too: a thread inside a slow
 * handler does not */
bool items_contended(struct items *it, const struct receive *item)
{
    struct receive *other;
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

/* items_stats - the sum; each item counts for itself */
void items_stats(struct items *it, struct items_stats *out)
{
    struct receive *item;

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

void items_want(struct items *it, struct receive *item)
{
    pthread_mutex_lock(&it->mtx);
    item->wants = true;
    LIST_INSERT_HEAD(&it->wanting, item, wanted);
    atomic_fetch_add(&it->wants, 1);
    pthread_mutex_unlock(&it->mtx);
}

/* unwant_locked - off the list */
static void unwant_locked(struct items *it, struct receive *item)
{
    item->wants = false;
    LIST_REMOVE(item, wanted);
    atomic_fetch_sub(&it->wants, 1);
}

/* items_unwant - nobody wakes it any more on return */
void items_unwant(struct items *it, struct receive *item)
{
    pthread_mutex_lock(&it->mtx);
    if (item->wants)
        unwant_locked(it, item);
    pthread_mutex_unlock(&it->mtx);
}

/* items_wake_one - under the lock, as the coprocess is the item's only while
 * that cannot leave */
bool items_wake_one(struct items *it, void (*wake)(struct coprocess *coprocess))
{
    struct receive *item;

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
    struct receive *item;

    pthread_mutex_lock(&it->mtx);
    LIST_FOREACH (item, &it->all, all)
        if (item->coprocess)
            wake(item->coprocess);
    pthread_mutex_unlock(&it->mtx);
}

/* items_coprocess_set - under the lock, so that items_wake_all finds only
 * coprocesses that are in use */
void items_coprocess_set(struct items *it, struct receive *item,
                         struct coprocess *coprocess)
{
    pthread_mutex_lock(&it->mtx);
    item->coprocess = coprocess;
    pthread_mutex_unlock(&it->mtx);
}

/* ---- one item ---- */

void receive_wall_look(struct receive *item)
{
    item->wall_ns = clock_wall_ns() - item->now_ns;
    item->wall_old = item->now_ns + WALL_NS;
}

void receive_waited(struct receive *item)
{
    receive_look(item);
    spin_hit(&item->spin);
}

/* ---- when one starts ---- */

/* somebody_would - take a message: one more work item, or one that runs and has
 * room in its window */
static bool somebody_would(struct flow *f)
{
    unsigned room = gate_room(&f->gate), running = gate_running(&f->gate);

    return running < room ||
           (running == room && room > 0 && atomic_load(&f->items.wants) > 0 &&
            breaker_state(&f->gate.breaker) == BREAKER_CLOSED);
}

static bool peeks(struct flow *f);

/* counted_out - after an item stopped counting: the run may be over. True: the
 * worker is to stop. */
static bool counted_out(struct flow *f)
{
    run_limits_left(f);
    if (!gate_held(&f->gate, HOLD_STOP))
        return false;
    loop_wake(f->loop);
    return true;
}

/* left - after an item stopped counting: start another, or note that none is
 * left. True: the caller may wait for the queue, if it is one that `stays`. */
static bool left(struct flow *f, bool stays)
{
    if (counted_out(f))
        return false;
    if (stays)
        return peeks(f);
    schedule_wake(f);
    return false;
}

/* put_away - the item has no work; before `running` falls, so that a thread
 * that counts itself in finds it */
static void put_away(struct receive *item)
{
    struct flow *f = item->flow;

    f->source->ops->rest(f->source, item->own.place);
    items_put(&f->items, item);
}

/* item_enter - counted in; NULL: no room, or all are stopped (who ends that
 * wakes), or no memory */
static struct receive *item_enter(struct flow *f)
{
    struct receive *item;
    int err;

    if (!gate_enter(&f->gate))
        return NULL;
    err = items_get(&f->items, f, &item);
    if (!err)
        return item;
    gate_leave(&f->gate);
    gate_trouble(&f->gate, "starting a work item", -err);
    return NULL;
}

/* block_begin - an item, with all that its next message needs */
static int block_begin(struct flow *f, struct receive **item)
{
    int err = items_get(&f->items, f, item);

    if (err)
        return err;
    items_count(&f->items, *item);
    if (f->source->local)
        f->source->local->warm(f->source, (*item)->own.place);
    return 0;
}

/* block - wait for the queue, with all that the next message needs at hand;
 * NULL: there is none, or nobody may take it. One work item more than the cap
 * is in use meanwhile.
 */
static struct receive *block(struct flow *f)
{
    struct receive *item;
    bool came;
    int err;

    if (!peeker_enter(f->peeker)) {
        schedule_wake(f);
        return NULL;
    }
    err = block_begin(f, &item);
    came = peeker_wait(f->peeker);
    if (came && !err && gate_enter(&f->gate)) {
        /* Counted in before: the look sees that something runs. */
        if (gate_cap(&f->gate) > 1)
            peeker_look_later(f->peeker);
        return item;
    }
    if (!err)
        put_away(item);
    else if (came && err == -ENOMEM)
        gate_trouble(&f->gate, "starting a work item", ENOMEM);
    schedule_wake(f); /* one that runs may want what came */
    return NULL;
}

/* item_run - work items, on a pool thread: one, and another for each message
 * that the thread waits for itself */
static void item_run(struct pool_job *job)
{
    struct receive *item = CONTAINER_OF(job, struct receive, job);
    struct flow *f = item->flow;

    items_count(&f->items, item);
    do {
        enum why why;

        why = f->ops->coprocesses ? receive_window_batch(item)
                                  : receive_batch(item);

        take_flush(item);
        put_away(item);
        if (why != LEFT_TOLD && why != LEFT_CONTENDED)
            gate_leave(&f->gate);
        item = NULL;
        if (why == LEFT_CONTENDED) {
            /* The item that stayed has the queue, while handlers are quick. */
            peeker_look_soon(f->peeker);
        } else if (left(f, why == LEFT_EMPTY)) {
            item = block(f);
        }
    } while (item);
}

/* schedule_start - one more work item */
bool schedule_start(struct flow *f)
{
    struct receive *item = item_enter(f);
    int err;

    if (!item)
        return f->ops->coprocesses &&
               items_wake_one(&f->items, f->ops->coprocesses->wake);
    item->job.run = item_run;
    err = pool_submit(f->pool, &item->job);
    if (err) {
        put_away(item);
        gate_leave(&f->gate);
        gate_trouble(&f->gate, "starting a thread", -err);
    }
    return err == 0;
}

/* peeks - start a work item, or say that there is nothing to do but to
 * wait for the queue */
static bool peeks(struct flow *f)
{
    const struct source_ops *source = f->source->ops;
    bool slots, room;

    dirty_count(&f->dirty);
    if (!somebody_would(f))
        return false;
    /* Where no more can be lent, or what is taken has no room, a work item
     * could only leave, and come here again; but it can park, which makes
     * room, or else takes a delay (HOLD_QUEUE). */
    slots = source->room(f->source) > 0;
    room = slots && gate_takes(&f->gate) && dispatch_room(f);
    if (ready_waiting(&f->ready) || (!slots && dispatch_must_park(f)) ||
        (slots && (source_due(f->source) || dispatch_ready(f))) ||
        (room && source->pending(f->source))) {
        schedule_start(f);
        return false;
    }
    return room;
}

/* schedule_wake - start a work item or peek
 * A thread that changes a reason not to take messages says so after that
 * (gate.h), and a work item does after it has counted itself out. So of two
 * that happen at once, the later one sees both.
 */
void schedule_wake(struct flow *f)
{
    if (peeks(f))
        peeker_arm(f->peeker);
}

enum gate_why schedule_why(struct flow *f)
{
    enum gate_why why = gate_why(&f->gate);

    if (why == WHY_BUSY && somebody_would(f)) /* one that runs has room */
        why = gate_takes(&f->gate) ? WHY_NOT_SO : WHY_WAITING;
    if (why != WHY_NOT_SO)
        return why;
    return f->source->ops->room(f->source) == 0 ? WHY_SLOTS
           : !dispatch_room(f)                  ? WHY_GROUPS
                                                : WHY_NOT_SO;
}

/* schedule_wait_ms - without a limit, unless work items run with peek mode
 * off and more could run: then a handler that takes long would keep others
 * waiting */
int schedule_wait_ms(struct flow *f)
{
    unsigned running = gate_running(&f->gate);

    return running > 0 && running < gate_room(&f->gate) &&
                   !peeker_armed(f->peeker)
               ? PEEKER_STUCK_MS
               : -1;
}

/* schedule_quiet - a round without an event: does a handler keep its thread for
 * long? */
void schedule_quiet(struct flow *f)
{
    struct items_stats s;

    items_stats(&f->items, &s);
    if (s.deliveries == f->items.seen)
        schedule_wake(f);
    f->items.seen = s.deliveries;
}
