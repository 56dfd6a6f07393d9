/* groups.c - ordered groups: adding, leasing, ending a lease (see groups.h)
 *
 * A lease takes the next item of its group out of its place (`ahead`). If
 * nothing of the group is parked, groups_lease does this at once, and peek and
 * take need no lock; else groups_peek does.
 */
#include "worker/groups/groups_inner.h"

#include <errno.h>
#include <stdlib.h>

/* `used` of a group that was leased out of its turn: its quantum is over. */
#define USED_UP UINT16_MAX

/* counter_add - a plain store will do: only the thread with the lock writes */
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
    TAILQ_INIT(&g->runs);
    TAILQ_INIT(&g->blocked);
    groups_set_quantum(g, quantum);
    *out = g;
    return 0;
}

void groups_set_quantum(struct groups *g, unsigned quantum)
{
    quick_lock(&g->mtx);
    g->quantum = quantum < USED_UP ? quantum : USED_UP;
    groups_unlock(g);
}

void groups_attend(struct groups *g, struct attention *attention)
{
    g->attention = attention;
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

bool group_is_blocked(const struct group *group)
{
    return group->state == GROUP_BLOCKED || group->state == GROUP_HELD;
}

size_t group_parkable(const struct groups *g, const struct group *group)
{
    return group->items.count - (g->keep_front ? group->items.fronts : 0);
}

/* unlink_locked - off the list that its state put it on */
static void unlink_locked(struct groups *g, struct group *group)
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

/* run_locked - to RUNNING, off the list that it is on */
static void run_locked(struct groups *g, struct group *group)
{
    unlink_locked(g, group);
    group->state = GROUP_RUNNING;
}

void group_queue_locked(struct groups *g, struct group *group, bool front)
{
    unlink_locked(g, group);
    group->state = GROUP_QUEUED;
    if (front)
        TAILQ_INSERT_HEAD(&g->runs, group, link);
    else
        TAILQ_INSERT_TAIL(&g->runs, group, link);
    counter_add(&g->ready, 1);
}

void group_block_locked(struct groups *g, struct group *group,
                        enum group_state state)
{
    size_t parkable = group_parkable(g, group);

    unlink_locked(g, group);
    group->state = (uint8_t)state;
    if (parkable)
        TAILQ_INSERT_HEAD(&g->blocked, group, link);
    else
        TAILQ_INSERT_TAIL(&g->blocked, group, link);
    counter_add(&g->parkable, parkable);
    if (state == GROUP_HELD)
        counter_add(&g->held, 1);
}

/* group_wake_locked - to the end of the run queue, or to be forgotten
 * While items of the group are on their way to the store, no later one may run.
 */
void group_wake_locked(struct groups *g, struct group *group)
{
    group->head = 0;
    group->used = 0;
    if (group->parking) {
        unlink_locked(g, group);
        group->state = GROUP_PARKING;
    } else if (group->items.count || group->parked) {
        group_queue_locked(g, group, false);
    } else {
        unlink_locked(g, group);
        group_table_rest(&g->table, group);
    }
}

/* count_parkable_locked - a blocked group had `was` items that could be parked;
 * count what it has now, and keep groups that have some in front */
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

void group_insert_locked(struct groups *g, struct group *group,
                         struct group_item *item)
{
    bool blocked = group_is_blocked(group);
    size_t was = blocked ? group_parkable(g, group) : 0;

    item->group = group;
    group_items_add(&group->items, item);
    counter_add(&g->waiting, 1);
    if (blocked)
        count_parkable_locked(g, group, was);
    /* A held group runs only what an operator sent again. */
    if (group->state == GROUP_IDLE ||
        (group->state == GROUP_HELD && item->priority == GROUP_FRONT))
        group_queue_locked(g, group, false);
}

/* out_locked - `out` takes an item from its group */
static inline void
out_locked(struct groups *g, struct group *group, struct group_item *item,
           void (*out)(struct group_items *items, struct group_item *item))
{
    bool blocked = group_is_blocked(group);
    size_t was = blocked ? group_parkable(g, group) : 0;

    out(&group->items, item);
    counter_sub(&g->waiting, 1);
    if (blocked)
        count_parkable_locked(g, group, was);
}

void group_remove_locked(struct groups *g, struct group *group,
                         struct group_item *item)
{
    out_locked(g, group, item, group_items_remove);
}

void group_cut_locked(struct groups *g, struct group *group,
                      struct group_item *item)
{
    out_locked(g, group, item, group_items_cut);
}

/* ---- coming ---- */

int group_lock(struct groups *g, const char *key, size_t size,
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

/* groups_add - a message of a group came */
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

/* next_item - the first item, or the first of the lowest priority when that has
 * its turn; GROUP_FRONT goes before both */
static struct group_item *next_item(const struct group *lease)
{
    struct group_item *item = group_items_first(&lease->items);

    if (item && item->priority != GROUP_FRONT && groups_low_turn(lease))
        item = group_items_low(&lease->items);
    return item;
}

/* ahead_locked - the next item leaves its place, so that a delayed message that
 * gets in line from now on cannot come before it */
static void ahead_locked(struct groups *g, struct group *group)
{
    group->ahead = next_item(group);
    if (group->ahead)
        group_remove_locked(g, group, group->ahead);
}

/* groups_lease - the first group of the run queue */
struct group *groups_lease(struct groups *g)
{
    struct group *group;

    if (atomic_load(&g->ready) == 0)
        return NULL;
    quick_lock(&g->mtx);
    group = TAILQ_FIRST(&g->runs);
    if (group) {
        run_locked(g, group);
        if (group->parked == 0)
            ahead_locked(g, group);
    }
    groups_unlock(g);
    return group;
}

struct group_item *groups_peek(struct groups *g, struct group *lease)
{
    if (lease->ahead)
        return lease->ahead;
    quick_lock(&g->mtx);
    ahead_locked(g, lease);
    groups_unlock(g);
    return lease->ahead;
}

uint64_t groups_parked_of(struct groups *g, struct group *lease)
{
    (void)g;
    return atomic_load(&lease->parked);
}

const char *groups_key(const struct group *lease, size_t *size)
{
    *size = lease->key_size;
    return lease->key;
}

/* count_high - messages above priority 0 in a row; the lowest priority keeps
 * its turn while items of GROUP_FRONT go first */
static void count_high(struct group *lease, const struct group_item *item,
                       uint32_t priority)
{
    bool front = item && item->priority == GROUP_FRONT;

    if (priority == 0 || (groups_low_turn(lease) && !front))
        lease->high = 0;
    else if (!groups_low_turn(lease))
        lease->high++;
}

/* groups_take - the lock is needed for parked messages only */
void groups_take(struct groups *g, struct group *lease, struct group_item *item,
                 uint32_t priority)
{
    count_high(lease, item, priority);
    if (item) { /* ahead_locked took it out of its place */
        lease->ahead = NULL;
        return;
    }
    quick_lock(&g->mtx);
    lease->parked--;
    g->parked--;
    groups_unlock(g);
}

/* groups_pass - no message of an idle group can be before this one
 * A message that waits, runs or is parked keeps its group from being idle.
 * Nothing that groups_unlock asks about changes. All that finds a group has one
 * frame.
 */
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
        } else if (group->state == GROUP_IDLE) { /* so it is on no list */
            err = 0;
            *lease = group;
            group->state = GROUP_RUNNING;
            count_high(group, NULL, priority);
        }
    }
    quick_unlock(&g->mtx);
    return err;
}

/* groups_unpark - an operator removed the rows, or the count was wrong */
void groups_unpark(struct groups *g, struct group *lease)
{
    quick_lock(&g->mtx);
    g->parked -= lease->parked;
    lease->parked = 0;
    groups_unlock(g);
}

/* ---- the end of a lease ---- */

/* put_back_locked - the item that left its place and was not taken */
static void put_back_locked(struct groups *g, struct group *lease)
{
    struct group_item *item = lease->ahead;

    lease->ahead = NULL;
    if (item)
        group_insert_locked(g, lease, item);
}

/* release_locked - the group stays first while its quantum lasts */
static void release_locked(struct groups *g, struct group *lease)
{
    put_back_locked(g, lease);
    if (lease->parking || (lease->items.count == 0 && lease->parked == 0) ||
        lease->used + 1u >= g->quantum) {
        group_wake_locked(g, lease);
    } else {
        lease->used++;
        group_queue_locked(g, lease, true);
    }
}

/* is_last - nothing of the group is here but what its lessee had */
static inline bool is_last(const struct group *lease)
{
    uint64_t more = atomic_load_explicit(&lease->parked, memory_order_relaxed) |
                    lease->items.count | lease->parking;

    return !more && !lease->ahead && !lease->recheck;
}

/* release_rest - unlocks; not inline, as the usual way is short */
__attribute__((noinline)) static bool release_rest(struct groups *g,
                                                   struct group *lease)
{
    bool recheck = lease->recheck;

    lease->recheck = false;
    if (!recheck)
        release_locked(g, lease);
    groups_unlock(g);
    return !recheck;
}

/* groups_release - of the usual message, the group had this one only: nothing
 * that groups_unlock asks about changes */
bool groups_release(struct groups *g, struct group *lease)
{
    quick_lock(&g->mtx);
    if (!is_last(lease))
        return release_rest(g, lease);
    group_table_rest(&g->table, lease);
    quick_unlock(&g->mtx);
    return true;
}

void groups_block(struct groups *g, struct group *lease, int64_t head)
{
    quick_lock(&g->mtx);
    put_back_locked(g, lease);
    lease->head = head;
    group_block_locked(g, lease, GROUP_BLOCKED);
    groups_unlock(g);
}

/* groups_hold - a letter that an operator sent again meanwhile runs */
void groups_hold(struct groups *g, struct group *lease)
{
    quick_lock(&g->mtx);
    put_back_locked(g, lease);
    lease->head = 0;
    lease->used = 0;
    lease->recheck = false;
    if (lease->items.fronts)
        group_queue_locked(g, lease, false);
    else
        group_block_locked(g, lease, GROUP_HELD);
    groups_unlock(g);
}

/* groups_return - first in line again, and its group too */
void groups_return(struct groups *g, struct group *lease,
                   struct group_item *item)
{
    quick_lock(&g->mtx);
    put_back_locked(g, lease);
    lease->head = 0;
    item->priority = GROUP_FRONT;
    group_insert_locked(g, lease, item);
    group_queue_locked(g, lease, true);
    groups_unlock(g);
}

/* groups_resume - the head runs out of turn; the items after it wait for the
 * group's own turn */
struct group *groups_resume(struct groups *g, const char *key, size_t size,
                            int64_t row)
{
    struct group *group;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    if (group && (group->state != GROUP_BLOCKED || group->head != row))
        group = NULL;
    if (group) {
        run_locked(g, group);
        group->used = USED_UP;
    }
    groups_unlock(g);
    return group;
}
