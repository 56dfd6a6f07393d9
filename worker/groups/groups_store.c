/* groups_store.c - ordered groups: parking, and groups that a letter holds (see
 * groups.h) */
#include "worker/groups/groups_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void groups_keep_front(struct groups *g)
{
    g->keep_front = true;
}

/* groups_restore - called before any item is added */
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

/* groups_hold_late - hold the group now, or have it checked again
 * A leased group cannot be held before its lease ends. One with an item of
 * GROUP_FRONT runs that first. For one that is held, another thread may have
 * looked for letters before this one was there. All three are marked; the
 * thread that ends the lease (groups_release) or lifts the hold (groups_unhold)
 * sees the mark and looks for letters again.
 */
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

/* held_size - bytes that the keys of all held groups take */
static size_t held_size(const struct groups *g)
{
    struct group *group;
    size_t bytes = 0;

    TAILQ_FOREACH (group, &g->blocked, link)
        if (group->state == GROUP_HELD)
            bytes += sizeof(size_t) + group->key_size;
    return bytes;
}

/* groups_held_keys - copies, as the caller asks the store about them without
 * the lock */
char *groups_held_keys(struct groups *g, size_t *bytes)
{
    struct group *group;
    char *keys = NULL, *at;

    quick_lock(&g->mtx);
    *bytes = held_size(g);
    if (*bytes)
        keys = malloc(*bytes);
    if (!keys)
        *bytes = 0;
    at = keys;
    TAILQ_FOREACH (group, &g->blocked, link)
        if (keys && group->state == GROUP_HELD) {
            size_t size = group->key_size;

            memcpy(at, &size, sizeof size);
            memcpy(at + sizeof size, group->key, size);
            at += sizeof size + size;
        }
    groups_unlock(g);
    return keys;
}

/* groups_park_begin - each group counts its items that are on their way */
size_t groups_park_begin(struct groups *g, struct group_item **items,
                         size_t room)
{
    struct group *group;
    size_t n = 0;

    quick_lock(&g->mtx);
    while (n < room && (group = TAILQ_FIRST(&g->blocked)) != NULL &&
           group_parkable(g, group)) {
        items[n] = g->keep_front ? group_items_behind(&group->items)
                                 : group_items_first(&group->items);
        group_remove_locked(g, group, items[n++]);
        group->parking++;
    }
    groups_unlock(g);
    return n;
}

/* groups_park_one - a delayed message goes from row to row; its group stays
 * known until that is written */
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

/* arrived_locked - one item of the group is not on its way any more */
static void arrived_locked(struct groups *g, struct group *group)
{
    group->parking--;
    if (group->state == GROUP_PARKING)
        group_wake_locked(g, group);
}

/* groups_pull - a group that has nothing else to deliver waits for it */
struct group_item *groups_pull(struct groups *g, const char *key, size_t size,
                               uint64_t seq,
                               bool (*letter)(const struct group_item *item))
{
    struct group_item *item = NULL;
    struct group *group;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    if (group)
        item = group_items_find(&group->items, seq);
    if (item && item->priority == GROUP_FRONT && g->keep_front &&
        (group->recheck || letter(item)))
        item = NULL;
    if (item) {
        group_cut_locked(g, group, item);
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
    arrived_locked(g, item->group);
    groups_unlock(g);
}

/* groups_park_end - a group may go on when its last item has arrived */
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
        arrived_locked(g, group);
    }
    groups_unlock(g);
}
