/* groups.c - ordered groups (see groups.h) */
#include "worker/groups.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "worker/group_table.h"

TAILQ_HEAD(group_list, group);

/* m = under mtx   c = constant after open   a = written under mtx, read freely */
struct groups {
    pthread_mutex_t mtx;
    struct group_table table;  /* m */
    struct group_list runs;    /* m  QUEUED, FIFO */
    struct group_list blocked; /* m  BLOCKED and HELD */
    unsigned quantum;          /* c */
    atomic_size_t ready;       /* a  groups on `runs` */
    atomic_size_t waiting;     /* a  items in their places */
    atomic_size_t stuck;       /* a  of those, in groups on `blocked` */
    atomic_size_t held;        /* a  groups in state HELD */
    _Atomic uint64_t parked;   /* a  of all groups */
};

/* by_turn - higher priority first, first in first out inside one */
static int by_turn(const struct group_item *a, const struct group_item *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority ? -1 : 1;
    return (a->seq > b->seq) - (a->seq < b->seq);
}

/* RB_GENERATE_STATIC needs a macro that glibc does not have. */
RB_GENERATE_INTERNAL(group_items, group_item, node, by_turn,
                     static __attribute__((unused)))

/* counter_add - the lock is held: nobody else writes */
static void counter_add(atomic_size_t *counter, size_t n)
{
    atomic_store_explicit(
        counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
        memory_order_release);
}

static void counter_sub(atomic_size_t *counter, size_t n)
{
    counter_add(counter, (size_t)0 - n);
}

int groups_open(struct groups **out, unsigned quantum)
{
    struct groups *g = calloc(1, sizeof *g);
    int err;

    *out = NULL;
    if (!g)
        return -ENOMEM;
    err = group_table_init(&g->table);
    if (err) {
        free(g);
        return err;
    }
    pthread_mutex_init(&g->mtx, NULL);
    TAILQ_INIT(&g->runs);
    TAILQ_INIT(&g->blocked);
    g->quantum = quantum;
    *out = g;
    return 0;
}

void groups_close(struct groups **groups)
{
    struct groups *g = *groups;

    if (!g)
        return;
    *groups = NULL;
    group_table_fini(&g->table);
    pthread_mutex_destroy(&g->mtx);
    free(g);
}

/* unlink_locked - off the list that its state put it on */
static void unlink_locked(struct groups *g, struct group *group)
{
    if (group->state == GROUP_QUEUED) {
        TAILQ_REMOVE(&g->runs, group, link);
        counter_sub(&g->ready, 1);
    } else if (group->state == GROUP_BLOCKED || group->state == GROUP_HELD) {
        TAILQ_REMOVE(&g->blocked, group, link);
        counter_sub(&g->stuck, group->count);
        if (group->state == GROUP_HELD)
            counter_sub(&g->held, 1);
    }
    group->state = GROUP_IDLE;
}

/* queue_locked - to the run queue */
static void queue_locked(struct groups *g, struct group *group, bool front)
{
    unlink_locked(g, group);
    group->state = GROUP_QUEUED;
    if (front)
        TAILQ_INSERT_HEAD(&g->runs, group, link);
    else
        TAILQ_INSERT_TAIL(&g->runs, group, link);
    counter_add(&g->ready, 1);
}

/* block_locked - to the blocked ones, in one of their two states */
static void block_locked(struct groups *g, struct group *group,
                         enum group_state state)
{
    unlink_locked(g, group);
    group->state = (uint8_t)state;
    group->used = 0;
    TAILQ_INSERT_TAIL(&g->blocked, group, link);
    counter_add(&g->stuck, group->count);
    if (state == GROUP_HELD)
        counter_add(&g->held, 1);
}

/* next_locked - a group whose head is settled: deliver on, or forget it
 * While items of it are on their way to the store, nothing that comes after
 * them may run: it stays blocked, without a head, until parking ends.
 */
static void next_locked(struct groups *g, struct group *group)
{
    group->head = 0;
    if (group->parking) {
        block_locked(g, group, GROUP_BLOCKED);
    } else if (group->count || group->parked) {
        bool over = ++group->used >= g->quantum;

        if (over)
            group->used = 0;
        queue_locked(g, group, !over);
    } else {
        unlink_locked(g, group);
        group_table_remove(&g->table, group);
    }
}

/* insert_locked - an item to its place */
static void insert_locked(struct groups *g, struct group *group,
                          struct group_item *item)
{
    item->group = group;
    RB_INSERT(group_items, &group->items, item);
    group->count++;
    counter_add(&g->waiting, 1);
    if (group->state == GROUP_BLOCKED || group->state == GROUP_HELD)
        counter_add(&g->stuck, 1);
}

/* remove_locked - and out of it */
static void remove_locked(struct groups *g, struct group *group,
                          struct group_item *item)
{
    RB_REMOVE(group_items, &group->items, item);
    group->count--;
    counter_sub(&g->waiting, 1);
    if (group->state == GROUP_BLOCKED || group->state == GROUP_HELD)
        counter_sub(&g->stuck, 1);
}

/* groups_add - a message of a group came */
int groups_add(struct groups *g, const char *key, size_t size,
               struct group_item *item)
{
    struct group *group;
    int err = 0;

    pthread_mutex_lock(&g->mtx);
    group = group_table_find(&g->table, key, size);
    if (!group)
        group = group_table_add(&g->table, key, size);
    if (!group) {
        err = -ENOMEM;
    } else if (group->closing) {
        err = -ESHUTDOWN;
    } else {
        insert_locked(g, group, item);
        /* A held group runs what an operator sent again, nothing else. */
        if (group->state == GROUP_IDLE ||
            (group->state == GROUP_HELD && item->priority == GROUP_FRONT))
            queue_locked(g, group, false);
    }
    pthread_mutex_unlock(&g->mtx);
    return err;
}

/* groups_lease - the first group of the run queue */
struct group *groups_lease(struct groups *g)
{
    struct group *group;

    if (groups_ready(g) == 0)
        return NULL;
    pthread_mutex_lock(&g->mtx);
    group = TAILQ_FIRST(&g->runs);
    if (group) {
        unlink_locked(g, group);
        group->state = GROUP_RUNNING;
    }
    pthread_mutex_unlock(&g->mtx);
    return group;
}

bool groups_low_turn(const struct group *lease)
{
    return lease->high >= GROUP_HIGH_ROW;
}

/* groups_peek - first in turn, or first of the lowest priority when that has
 * its turn; what must go first goes first always */
struct group_item *groups_peek(struct groups *g, struct group *lease)
{
    struct group_item *item, *last;

    pthread_mutex_lock(&g->mtx);
    item = RB_MIN(group_items, &lease->items);
    if (item && item->priority != GROUP_FRONT && groups_low_turn(lease)) {
        last = RB_MAX(group_items, &lease->items);
        if (last->priority != item->priority)
            item = RB_NFIND(group_items, &lease->items,
                            &(struct group_item){.priority = last->priority});
    }
    pthread_mutex_unlock(&g->mtx);
    return item;
}

uint64_t groups_parked_of(struct groups *g, struct group *lease)
{
    uint64_t n;

    pthread_mutex_lock(&g->mtx);
    n = lease->parked;
    pthread_mutex_unlock(&g->mtx);
    return n;
}

const char *groups_key(const struct group *lease, size_t *size)
{
    *size = lease->key_size;
    return lease->key;
}

/* groups_take - it is delivered now */
void groups_take(struct groups *g, struct group *lease, struct group_item *item,
                 uint32_t priority)
{
    pthread_mutex_lock(&g->mtx);
    if (groups_low_turn(lease) || priority == 0)
        lease->high = 0;
    else
        lease->high++;
    if (item) {
        remove_locked(g, lease, item);
    } else {
        lease->parked--;
        g->parked--;
    }
    pthread_mutex_unlock(&g->mtx);
}

/* groups_unpark - an operator took it away, or the count was wrong */
void groups_unpark(struct groups *g, struct group *lease)
{
    pthread_mutex_lock(&g->mtx);
    g->parked -= lease->parked;
    lease->parked = 0;
    pthread_mutex_unlock(&g->mtx);
}

void groups_release(struct groups *g, struct group *lease)
{
    pthread_mutex_lock(&g->mtx);
    next_locked(g, lease);
    pthread_mutex_unlock(&g->mtx);
}

void groups_block(struct groups *g, struct group *lease, int64_t head)
{
    pthread_mutex_lock(&g->mtx);
    lease->head = head;
    block_locked(g, lease, GROUP_BLOCKED);
    pthread_mutex_unlock(&g->mtx);
}

void groups_hold(struct groups *g, struct group *lease)
{
    pthread_mutex_lock(&g->mtx);
    lease->head = 0;
    block_locked(g, lease, GROUP_HELD);
    pthread_mutex_unlock(&g->mtx);
}

/* groups_return - first in line again, and its group too */
void groups_return(struct groups *g, struct group *lease,
                   struct group_item *item)
{
    pthread_mutex_lock(&g->mtx);
    item->priority = GROUP_FRONT;
    insert_locked(g, lease, item);
    queue_locked(g, lease, true);
    pthread_mutex_unlock(&g->mtx);
}

/* groups_resume - the head's retry is due */
struct group *groups_resume(struct groups *g, const char *key, size_t size,
                            int64_t row)
{
    struct group *group;

    pthread_mutex_lock(&g->mtx);
    group = group_table_find(&g->table, key, size);
    if (group && (group->state != GROUP_BLOCKED || group->head != row))
        group = NULL;
    if (group) {
        unlink_locked(g, group);
        group->state = GROUP_RUNNING;
    }
    pthread_mutex_unlock(&g->mtx);
    return group;
}

void groups_unhold(struct groups *g, const char *key, size_t size)
{
    struct group *group;

    pthread_mutex_lock(&g->mtx);
    group = group_table_find(&g->table, key, size);
    if (group && group->state == GROUP_HELD)
        next_locked(g, group);
    pthread_mutex_unlock(&g->mtx);
}

/* groups_held_keys - for whoever asks the store about them, without the lock */
char *groups_held_keys(struct groups *g, size_t *bytes)
{
    struct group *group;
    char *keys = NULL;
    size_t at = 0;

    *bytes = 0;
    pthread_mutex_lock(&g->mtx);
    TAILQ_FOREACH (group, &g->blocked, link)
        if (group->state == GROUP_HELD)
            *bytes += sizeof(size_t) + group->key_size;
    if (*bytes)
        keys = malloc(*bytes);
    if (keys)
        TAILQ_FOREACH (group, &g->blocked, link)
            if (group->state == GROUP_HELD) {
                size_t size = group->key_size;

                memcpy(keys + at, &size, sizeof size);
                memcpy(keys + at + sizeof size, group->key, size);
                at += sizeof size + size;
            }
    pthread_mutex_unlock(&g->mtx);
    return keys;
}

/* groups_restore - before any item is added */
int groups_restore(struct groups *g, const char *key, size_t size,
                   uint64_t parked, int64_t head, bool held)
{
    struct group *group;

    if (!parked && !head && !held)
        return 0;
    pthread_mutex_lock(&g->mtx);
    group = group_table_add(&g->table, key, size);
    if (group) {
        group->parked = parked;
        g->parked += parked;
        group->head = head;
        if (head)
            block_locked(g, group, GROUP_BLOCKED);
        else if (held)
            block_locked(g, group, GROUP_HELD);
        else
            queue_locked(g, group, false);
    }
    pthread_mutex_unlock(&g->mtx);
    return group ? 0 : -ENOMEM;
}

/* groups_park_begin - out of their places; each group remembers how many */
size_t groups_park_begin(struct groups *g, struct group_item **items,
                         size_t room)
{
    struct group *group;
    size_t n = 0;

    pthread_mutex_lock(&g->mtx);
    TAILQ_FOREACH (group, &g->blocked, link) {
        struct group_item *item;

        while (n < room && (item = RB_MIN(group_items, &group->items))) {
            remove_locked(g, group, item);
            group->parking++;
            items[n++] = item;
        }
    }
    pthread_mutex_unlock(&g->mtx);
    return n;
}

/* groups_park_end - a group whose last item has arrived may go on */
void groups_park_end(struct groups *g, struct group_item *const *items,
                     size_t n, bool parked)
{
    pthread_mutex_lock(&g->mtx);
    for (size_t i = 0; i < n; i++) {
        struct group *group = items[i]->group;

        group->parking--;
        if (parked) {
            group->parked++;
            g->parked++;
        } else {
            insert_locked(g, group, items[i]);
        }
        if (group->parking == 0 && group->state == GROUP_BLOCKED &&
            group->head == 0)
            next_locked(g, group);
    }
    pthread_mutex_unlock(&g->mtx);
}

size_t groups_ready(const struct groups *g)
{
    return atomic_load(&g->ready);
}

size_t groups_waiting(const struct groups *g)
{
    return atomic_load(&g->waiting);
}

size_t groups_stuck(const struct groups *g)
{
    return atomic_load(&g->stuck);
}

size_t groups_held(const struct groups *g)
{
    return atomic_load(&g->held);
}

uint64_t groups_parked(const struct groups *g)
{
    return atomic_load(&g->parked);
}

size_t groups_count(struct groups *g)
{
    size_t n;

    pthread_mutex_lock(&g->mtx);
    n = g->table.count;
    pthread_mutex_unlock(&g->mtx);
    return n;
}

int groups_list(struct groups *g, const char *key, size_t size,
                bool (*visit)(const struct group_item *item, void *arg),
                void *arg)
{
    struct group_item *item;
    struct group *group;

    pthread_mutex_lock(&g->mtx);
    group = group_table_find(&g->table, key, size);
    if (group)
        RB_FOREACH (item, group_items, &group->items)
            if (!visit(item, arg))
                break;
    pthread_mutex_unlock(&g->mtx);
    return group ? 0 : -ENOENT;
}

/* groups_shut - it is freed when its last message is settled */
int groups_shut(struct groups *g, const char *key, size_t size)
{
    struct group *group;

    pthread_mutex_lock(&g->mtx);
    group = group_table_find(&g->table, key, size);
    if (group)
        group->closing = true;
    pthread_mutex_unlock(&g->mtx);
    return group ? 0 : -ENOENT;
}

/* group_check - one group; adds to the sums */
static const char *group_check(const struct group *group, size_t sums[4],
                               uint64_t *parked)
{
    bool off = group->state == GROUP_BLOCKED || group->state == GROUP_HELD;
    struct group_item *item, *before = NULL;
    size_t n = 0;

    RB_FOREACH (item, group_items, (struct group_items *)&group->items) {
        if (item->group != group)
            return "an item names another group";
        if (before && by_turn(before, item) >= 0)
            return "items are out of order";
        before = item;
        n++;
    }
    if (n != group->count)
        return "a group's count is wrong";
    if (group->state == GROUP_IDLE)
        return "an idle group is kept";
    if (group->state == GROUP_QUEUED && !n && !group->parked)
        return "a queued group has nothing to deliver";
    if (group->head && group->state != GROUP_BLOCKED &&
        group->state != GROUP_RUNNING)
        return "a head, but not blocked";
    sums[0] += group->state == GROUP_QUEUED;
    sums[1] += n;
    sums[2] += off ? n : 0;
    sums[3] += group->state == GROUP_HELD;
    *parked += group->parked;
    return NULL;
}

const char *groups_check(struct groups *g)
{
    const char *wrong = NULL;
    size_t sums[4] = {0}, count = 0;
    uint64_t parked = 0;

    pthread_mutex_lock(&g->mtx);
    for (size_t i = 0; i < g->table.size && !wrong; i++)
        for (struct group *at = g->table.buckets[i]; at && !wrong;
             at = at->chain) {
            wrong = group_check(at, sums, &parked);
            count++;
        }
    if (!wrong && count != g->table.count)
        wrong = "the table's count is wrong";
    if (!wrong &&
        (sums[0] != g->ready || sums[1] != g->waiting || sums[2] != g->stuck ||
         sums[3] != g->held || parked != g->parked))
        wrong = "a sum over all groups is wrong";
    pthread_mutex_unlock(&g->mtx);
    return wrong;
}
