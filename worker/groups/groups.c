/* groups.c - ordered groups: one delivery of a group at a time, in order (see
 * groups.h) */
#include "worker/groups/groups.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/quick_lock.h"
#include "worker/groups/group_table.h"
#include "worker/rules/attention.h"

TAILQ_HEAD(group_list, group);

/* m = under mtx   c = constant after open   a = written under mtx, read
 * freely */
struct groups {
    struct quick_lock mtx;
    struct group_table table; /* m */
    /* m  groups in state QUEUED, first in, first out; a group whose quantum
     * lasts goes to the front */
    struct group_list runs;
    /* m  groups in state BLOCKED or HELD; first those with items to park */
    struct group_list blocked;
    unsigned quantum;            /* m */
    bool keep_front;             /* c  GROUP_FRONT is not parked */
    atomic_size_t ready;         /* a  groups on `runs` */
    atomic_size_t waiting;       /* a  items that wait in their groups */
    atomic_size_t parkable;      /* a  items that could be parked */
    atomic_size_t held;          /* a  groups in state HELD */
    _Atomic uint64_t parked;     /* a  messages, of all groups */
    struct attention *attention; /* c  ATTEND_GROUP is ours; NULL: none */
    bool attends;                /* m  the bit is set */
};

/* Release the lock after a change, and update the attention bit. While a
 * message waits, is parked, or may run, ATTEND_GROUP keeps work items from
 * taking messages by the short path. */
static inline void groups_unlock(struct groups *g)
{
    bool busy = (atomic_load_explicit(&g->waiting, memory_order_relaxed) |
                 atomic_load_explicit(&g->ready, memory_order_relaxed) |
                 atomic_load_explicit(&g->parked, memory_order_relaxed)) != 0;

    if (__builtin_expect(busy != g->attends, 0) && g->attention) {
        g->attends = busy;
        attention_set(g->attention, ATTEND_GROUP, busy ? ATTEND_GROUP : 0);
    }
    quick_unlock(&g->mtx);
}

/* Return the group of that key, or NULL if the group is idle or unknown. */
static inline struct group *group_find_locked(const struct groups *g,
                                              const char *key, size_t size)
{
    uint64_t hash = group_hash(key, size);
    struct group *group = group_table_find(&g->table, hash, key, size);

    return group && group->state != GROUP_IDLE ? group : NULL;
}

/* While a group is leased, its next item is out of its place, in `ahead`. If no
 * message of the group is parked, groups_lease moves it there, and groups_peek
 * and groups_take need no lock. Otherwise groups_peek moves it. */

/* The value of `used` in a group that was leased out of its turn. Its quantum
 * is used up, so it goes to the end of the run queue when the lease ends. */
#define USED_UP UINT16_MAX

/* Add to a counter without an atomic addition, because only the thread that
 * holds the lock writes it. */
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

int groups_open(struct groups **out, unsigned quantum, bool keep_front,
                struct attention *attention)
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
    TAILQ_INIT(&g->runs);
    TAILQ_INIT(&g->blocked);
    groups_set_quantum(g, quantum);
    g->keep_front = keep_front;
    g->attention = attention;
    *out = g;
    return 0;
}

void groups_set_quantum(struct groups *g, unsigned quantum)
{
    quick_lock(&g->mtx);
    g->quantum = quantum < USED_UP ? quantum : USED_UP;
    groups_unlock(g);
}

void groups_close(struct groups **groups)
{
    struct groups *g = *groups;

    if (!g)
        return;
    *groups = NULL;
    group_table_fini(&g->table);
    free(g);
}

/* ---- states ---- */

static bool group_is_blocked(const struct group *group)
{
    return group->state == GROUP_BLOCKED || group->state == GROUP_HELD;
}

static size_t group_parkable(const struct groups *g, const struct group *group)
{
    return group->items.count - (g->keep_front ? group->items.fronts : 0);
}

/* Take a group off the list that its state put it on. */
static void group_unlink_locked(struct groups *g, struct group *group)
{
    if (group->state == GROUP_QUEUED) {
        TAILQ_REMOVE(&g->runs, group, link);
        counter_sub(&g->ready, 1);
    } else if (group_is_blocked(group)) {
        TAILQ_REMOVE(&g->blocked, group, link);
        counter_sub(&g->parkable, group_parkable(g, group));
        if (group->state == GROUP_HELD)
            counter_sub(&g->held, 1);
    }
    group->state = GROUP_IDLE;
}

static void group_run_locked(struct groups *g, struct group *group)
{
    group_unlink_locked(g, group);
    group->state = GROUP_RUNNING;
}

/* Put a group on the run queue, at its front or its end. */
static void group_queue_locked(struct groups *g, struct group *group,
                               bool front)
{
    group_unlink_locked(g, group);
    group->state = GROUP_QUEUED;
    if (front)
        TAILQ_INSERT_HEAD(&g->runs, group, link);
    else
        TAILQ_INSERT_TAIL(&g->runs, group, link);
    counter_add(&g->ready, 1);
}

/* Block a group; `state` is BLOCKED or HELD. */
static void group_block_locked(struct groups *g, struct group *group,
                               enum group_state state)
{
    size_t parkable = group_parkable(g, group);

    group_unlink_locked(g, group);
    group->state = (uint8_t)state;
    if (parkable)
        TAILQ_INSERT_HEAD(&g->blocked, group, link);
    else
        TAILQ_INSERT_TAIL(&g->blocked, group, link);
    counter_add(&g->parkable, parkable);
    if (state == GROUP_HELD)
        counter_add(&g->held, 1);
}

/* Put a group at the end of the run queue if it has messages, or else make it
 * idle. While items of the group are being written to the store, no later
 * message may run. */
static void group_wake_locked(struct groups *g, struct group *group)
{
    group->head = 0;
    group->used = 0;
    if (group->parking) {
        group_unlink_locked(g, group);
        group->state = GROUP_PARKING;
    } else if (group->items.count || group->parked) {
        group_queue_locked(g, group, false);
    } else {
        group_unlink_locked(g, group);
        group_table_rest(&g->table, group);
    }
}

/* Update the count of items to park, after a blocked group has changed that had
 * `was` of them before. Groups with items to park stay in front. */
static void count_parkable_locked(struct groups *g, struct group *group,
                                  size_t was)
{
    size_t is = group_parkable(g, group);

    if (is == was)
        return;
    counter_add(&g->parkable, is - was);
    if (is && was)
        return;
    TAILQ_REMOVE(&g->blocked, group, link);
    if (is)
        TAILQ_INSERT_HEAD(&g->blocked, group, link);
    else
        TAILQ_INSERT_TAIL(&g->blocked, group, link);
}

static void group_insert_locked(struct groups *g, struct group *group,
                                struct group_item *item)
{
    bool blocked = group_is_blocked(group);
    size_t was = blocked ? group_parkable(g, group) : 0;

    item->group = group;
    group_items_add(&group->items, item);
    counter_add(&g->waiting, 1);
    if (blocked)
        count_parkable_locked(g, group, was);
    /* A held group runs only letters that an operator has sent again. */
    if (group->state == GROUP_IDLE ||
        (group->state == GROUP_HELD && item->priority == GROUP_FRONT))
        group_queue_locked(g, group, false);
}

static void item_out_locked(struct groups *g, struct group *group,
                            struct group_item *item)
{
    bool blocked = group_is_blocked(group);
    size_t was = blocked ? group_parkable(g, group) : 0;

    group_items_remove(&group->items, item);
    counter_sub(&g->waiting, 1);
    if (blocked)
        count_parkable_locked(g, group, was);
}

/* Find the group of that key, or create it. Returns 0 with the lock held; or
 * -ENOMEM or -ENAMETOOLONG without the lock. */
static int group_lock(struct groups *g, const char *key, size_t size,
                      struct group **group)
{
    uint64_t hash = group_hash(key, size);

    if (size > GROUP_KEY_MAX)
        return -ENAMETOOLONG;
    quick_lock(&g->mtx);
    *group = group_table_get(&g->table, hash, key, size);
    if (*group)
        return 0;
    groups_unlock(g);
    return -ENOMEM;
}

int groups_add(struct groups *g, const char *key, size_t size,
               struct group_item *item)
{
    struct group *group;
    int err = group_lock(g, key, size, &group);

    if (err)
        return err;
    group_insert_locked(g, group, item);
    groups_unlock(g);
    return 0;
}

/* ---- a lease ---- */

bool groups_low_turn(const struct group *lease)
{
    return lease->high >= GROUP_HIGH_ROW;
}

/* Take the next item out of its place, so that a delayed message that is added
 * from now on cannot come before it. The next item is the first item of
 * GROUP_FRONT; otherwise the first item of the lowest priority, when that
 * priority has its turn; otherwise the first item. */
static void item_ahead_locked(struct groups *g, struct group *group)
{
    struct group_item *item = group->items.first;

    if (item && item->priority != GROUP_FRONT && groups_low_turn(group))
        while (item->lower)
            item = item->lower;
    group->ahead = item;
    if (item)
        item_out_locked(g, group, item);
}

struct group *groups_lease(struct groups *g)
{
    struct group *group;

    if (atomic_load(&g->ready) == 0)
        return NULL;
    quick_lock(&g->mtx);
    group = TAILQ_FIRST(&g->runs);
    if (group) {
        group_run_locked(g, group);
        if (group->parked == 0)
            item_ahead_locked(g, group);
    }
    groups_unlock(g);
    return group;
}

struct group_item *groups_peek(struct groups *g, struct group *lease)
{
    if (lease->ahead)
        return lease->ahead;
    quick_lock(&g->mtx);
    item_ahead_locked(g, lease);
    groups_unlock(g);
    return lease->ahead;
}

uint64_t groups_parked_of(const struct group *lease)
{
    return atomic_load(&lease->parked);
}

const char *groups_key(const struct group *lease, size_t *size)
{
    *size = lease->key_size;
    return lease->key;
}

/* Count messages above priority 0 in a row. The lowest priority keeps its turn
 * while items of GROUP_FRONT go first. */
static void count_high(struct group *lease, const struct group_item *item,
                       uint32_t priority)
{
    bool front = item && item->priority == GROUP_FRONT;

    if (priority == 0 || (groups_low_turn(lease) && !front))
        lease->high = 0;
    else if (!groups_low_turn(lease))
        lease->high++;
}

/* Called by the thread that has the lease. Only the count of parked messages
 * needs the lock. */
void groups_take(struct groups *g, struct group *lease, struct group_item *item,
                 uint32_t priority)
{
    count_high(lease, item, priority);
    if (item) { /* item_ahead_locked took it out of its place */
        lease->ahead = NULL;
        return;
    }
    quick_lock(&g->mtx);
    lease->parked--;
    g->parked--;
    groups_unlock(g);
}

/* Called by the work item that has received the message. Messages that wait,
 * run or are parked keep their group from being idle, so no message of an idle
 * group can come before this message. The attention bit stays as it is, so
 * quick_unlock is enough. With `flatten` the whole search for the group is
 * compiled into one stack frame. */
__attribute__((flatten)) int groups_pass(struct groups *g, const char *key,
                                         size_t size, uint32_t priority,
                                         struct group **lease)
{
    uint64_t hash = group_hash(key, size);
    struct group *group;
    int err = -EAGAIN;

    *lease = NULL;
    if (size > GROUP_KEY_MAX)
        return -ENAMETOOLONG;
    quick_lock(&g->mtx);
    if (atomic_load(&g->ready) == 0) {
        group = group_table_get(&g->table, hash, key, size);
        if (!group) {
            err = -ENOMEM;
        } else if (group->state == GROUP_IDLE) { /* on no list */
            err = 0;
            *lease = group;
            group->state = GROUP_RUNNING;
            count_high(group, NULL, priority);
        }
    }
    quick_unlock(&g->mtx);
    return err;
}

void groups_unpark(struct groups *g, struct group *lease)
{
    quick_lock(&g->mtx);
    g->parked -= lease->parked;
    lease->parked = 0;
    groups_unlock(g);
}

/* ---- the end of a lease ---- */

/* Put the item `ahead` back into its place, because it was not taken. */
static void ahead_return_locked(struct groups *g, struct group *lease)
{
    struct group_item *item = lease->ahead;

    lease->ahead = NULL;
    if (item)
        group_insert_locked(g, lease, item);
}

/* End a lease, and unlock. Returns false, and keeps the lease, if the group was
 * marked for a recheck. The group goes to the front of the run queue while its
 * quantum lasts. Not inline, so that groups_release stays short. */
__attribute__((noinline)) static bool release_rest(struct groups *g,
                                                   struct group *lease)
{
    bool recheck = lease->recheck;

    lease->recheck = false;
    if (!recheck) {
        ahead_return_locked(g, lease);
        if (lease->parking || (lease->items.count == 0 && lease->parked == 0) ||
            lease->used + 1u >= g->quantum) {
            group_wake_locked(g, lease);
        } else {
            lease->used++;
            group_queue_locked(g, lease, true);
        }
    }
    groups_unlock(g);
    return !recheck;
}

/* Called by the thread that has the lease, after the message is settled.
 * Usually the message was the only message of its group. In that case the
 * attention bit stays as it is, and quick_unlock is enough. */
bool groups_release(struct groups *g, struct group *lease)
{
    uint64_t more;

    quick_lock(&g->mtx);
    more = atomic_load_explicit(&lease->parked, memory_order_relaxed) |
           lease->items.count | lease->parking;
    if (more || lease->ahead || lease->recheck)
        return release_rest(g, lease);
    group_table_rest(&g->table, lease);
    quick_unlock(&g->mtx);
    return true;
}

void groups_block(struct groups *g, struct group *lease, int64_t head)
{
    quick_lock(&g->mtx);
    ahead_return_locked(g, lease);
    lease->head = head;
    group_block_locked(g, lease, GROUP_BLOCKED);
    groups_unlock(g);
}

void groups_hold(struct groups *g, struct group *lease)
{
    quick_lock(&g->mtx);
    ahead_return_locked(g, lease);
    lease->head = 0;
    lease->used = 0;
    lease->recheck = false;
    if (lease->items.fronts)
        group_queue_locked(g, lease, false);
    else
        group_block_locked(g, lease, GROUP_HELD);
    groups_unlock(g);
}

/* Make the message the first of its group, and the group the first on the run
 * queue. */
void groups_return(struct groups *g, struct group *lease,
                   struct group_item *item)
{
    quick_lock(&g->mtx);
    ahead_return_locked(g, lease);
    lease->head = 0;
    item->priority = GROUP_FRONT;
    group_insert_locked(g, lease, item);
    group_queue_locked(g, lease, true);
    groups_unlock(g);
}

/* The head runs before the group's turn; the items behind it wait for the turn.
 */
struct group *groups_resume(struct groups *g, const char *key, size_t size,
                            int64_t row, bool *leased)
{
    struct group *group;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    if (leased)
        *leased = group && group->state == GROUP_RUNNING;
    if (group && (group->state != GROUP_BLOCKED || group->head != row))
        group = NULL;
    if (group) {
        group_run_locked(g, group);
        group->used = USED_UP;
    }
    groups_unlock(g);
    return group;
}

/* ---- between memory and the store ---- */

int groups_restore(struct groups *g, const char *key, size_t size,
                   uint64_t parked, int64_t head, bool held)
{
    struct group *group;
    int err;

    if (size <= GROUP_KEY_MAX && !parked && !head && !held)
        return 0;
    err = group_lock(g, key, size, &group);
    if (err)
        return err;
    if (group->state != GROUP_IDLE) {
        err = -EEXIST;
    } else {
        group->parked = parked;
        g->parked += parked;
        group->head = head;
        if (head || held)
            group_block_locked(g, group, head ? GROUP_BLOCKED : GROUP_HELD);
        else
            group_queue_locked(g, group, false);
    }
    groups_unlock(g);
    return err;
}

/* Three kinds of groups are only marked for a recheck: a leased group, which
 * cannot be held before its lease ends; a group with an item of GROUP_FRONT,
 * which runs first; and a held group, because another thread may have looked
 * for letters before this letter was there. */
int groups_hold_late(struct groups *g, const char *key, size_t size)
{
    struct group *group;
    int held = group_lock(g, key, size, &group);

    if (held)
        return held;
    if (group->state == GROUP_RUNNING || group->items.fronts ||
        group->state == GROUP_HELD) {
        group->recheck = true;
    } else if (group->state != GROUP_BLOCKED) {
        held = YES;
        group->used = 0;
        group_block_locked(g, group, GROUP_HELD);
    }
    groups_unlock(g);
    return held;
}

bool groups_unhold(struct groups *g, const char *key, size_t size)
{
    struct group *group;
    bool recheck = false;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    if (group && group->state == GROUP_HELD) {
        recheck = group->recheck;
        group->recheck = false;
        if (!recheck)
            group_wake_locked(g, group);
    }
    groups_unlock(g);
    return !recheck;
}

/* The bytes of the keys are behind the array, because a million groups may be
 * held. */
struct group_key *groups_held_keys(struct groups *g, size_t *count)
{
    struct group_key *keys = NULL, *key;
    struct group *group;
    size_t size = 0;
    char *at;

    quick_lock(&g->mtx);
    *count = groups_held(g);
    TAILQ_FOREACH (group, &g->blocked, link)
        if (group->state == GROUP_HELD)
            size += sizeof *keys + group->key_size;
    if (size > 0 && (keys = malloc(size)) != NULL) {
        key = keys;
        at = (char *)(keys + *count);
        TAILQ_FOREACH (group, &g->blocked, link)
            if (group->state == GROUP_HELD) {
                memcpy(at, group->key, group->key_size);
                *key++ = (struct group_key){at, group->key_size};
                at += group->key_size;
            }
    }
    groups_unlock(g);
    return keys;
}

size_t groups_park_begin(struct groups *g, struct group_item **items,
                         size_t room)
{
    struct group *group;
    size_t n = 0;

    quick_lock(&g->mtx);
    while (n < room && (group = TAILQ_FIRST(&g->blocked)) != NULL &&
           group_parkable(g, group)) {
        items[n] = group->items.first;
        if (g->keep_front && items[n]->priority == GROUP_FRONT)
            items[n] = items[n]->lower;
        item_out_locked(g, group, items[n++]);
        group->parking++;
    }
    groups_unlock(g);
    return n;
}

/* Count a delayed message, whose row is about to be parked, so that its group
 * stays in the table until the row is written. */
int groups_park_one(struct groups *g, const char *key, size_t size,
                    struct group_item *item)
{
    struct group *group;
    int err = group_lock(g, key, size, &group);

    if (err)
        return err;
    item->group = group;
    group->parking++;
    if (group->state == GROUP_IDLE)
        group->state = GROUP_PARKING;
    groups_unlock(g);
    return 0;
}

/* Count the end of one write to the store, successful or not. */
static void group_arrived_locked(struct groups *g, struct group *group)
{
    group->parking--;
    if (group->state == GROUP_PARKING)
        group_wake_locked(g, group);
}

/* A group without another message leaves the run queue until the item is
 * parked. */
struct group_item *groups_pull(struct groups *g, const char *key, size_t size,
                               uint64_t seq)
{
    struct group_item *item = NULL, *first;
    struct group *group;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    for (first = group ? group->items.first : NULL; first && !item;
         first = first->lower)
        for (item = first; item && item->seq != seq; item = item->next)
            continue;
    if (item && item->priority == GROUP_FRONT && g->keep_front &&
        (group->recheck || item->letter))
        item = NULL;
    if (item) {
        item_out_locked(g, group, item);
        group->parking++;
        if (group->state == GROUP_QUEUED && !group->items.count &&
            !group->parked)
            group_wake_locked(g, group);
    }
    groups_unlock(g);
    return item;
}

void groups_park_undo(struct groups *g, struct group_item *item)
{
    quick_lock(&g->mtx);
    group_arrived_locked(g, item->group);
    groups_unlock(g);
}

void groups_park_end(struct groups *g, struct group_item *const *items,
                     size_t n, bool parked)
{
    quick_lock(&g->mtx);
    for (size_t i = 0; i < n; i++) {
        struct group *group = items[i]->group;

        if (parked) {
            group->parked++;
            g->parked++;
        } else {
            group_insert_locked(g, group, items[i]);
        }
        group_arrived_locked(g, group);
    }
    groups_unlock(g);
}

/* ---- looking ---- */

size_t groups_ready(const struct groups *g)
{
    return atomic_load(&g->ready);
}

size_t groups_waiting(const struct groups *g)
{
    return atomic_load(&g->waiting);
}

size_t groups_parkable(const struct groups *g)
{
    return atomic_load(&g->parkable);
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

    quick_lock(&g->mtx);
    n = group_table_busy(&g->table);
    groups_unlock(g);
    return n;
}

bool groups_known(struct groups *g, const char *key, size_t size)
{
    bool known;

    quick_lock(&g->mtx);
    known = group_find_locked(g, key, size) != NULL;
    groups_unlock(g);
    return known;
}

int groups_list(struct groups *g, const char *key, size_t size,
                bool (*visit)(const struct group_item *item, void *arg),
                void *arg)
{
    struct group *group;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    if (group)
        group_items_each(&group->items, visit, arg);
    groups_unlock(g);
    return group ? 0 : -ENOENT;
}
