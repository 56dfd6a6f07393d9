/* items.c - the work items that there are (see items.h) */
#include "worker/flow/items.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "worker/flow/receive_inner.h"

#define LONG_NS NS_PER_MS /* a handler that takes it is not quick */
/* A step of the wall clock is seen at the first look at the kernel's clock
 * after that: times that are noted meanwhile are those of the clock as it was,
 * wrong or not. Long enough that a message needs one look at one clock, even
 * one that is stepped by a tracer. */
#define WALL_NS (QUICK_CLOCK_NS - NS_PER_MS)

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
    item->clock = it->clock;
    item->clock.valid = 0; /* the wall clock is looked at as well */
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

/* receive_clock_look - and how far the wall clock is ahead now */
void receive_clock_look(struct receive *item)
{
    item->now_ns = quick_clock_look(&item->clock, item->now_ns);
    if (item->now_ns < item->wall_old)
        return;
    item->wall_ns = clock_wall_ns() - item->now_ns;
    item->wall_old = item->now_ns + WALL_NS;
}

void receive_waited(struct receive *item)
{
    receive_look(item);
    spin_hit(&item->spin);
}
