/* groups_look.c - ordered groups: looking (see groups.h) */
#include "worker/groups/groups_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

bool groups_leased(struct groups *g, const char *key, size_t size)
{
    struct group *group;
    bool leased;

    quick_lock(&g->mtx);
    group = group_find_locked(g, key, size);
    leased = group && group->state == GROUP_RUNNING;
    groups_unlock(g);
    return leased;
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

/* ---- for tests ---- */

struct sums {
    size_t ready, waiting, parkable, held, blocked;
    uint64_t parked;
};

/* state_check - whether a group has only what its state allows */
static const char *state_check(const struct group *group,
                               const struct group_item *first)
{
    bool front = first && first->priority == GROUP_FRONT;

    switch ((enum group_state)group->state) {
    case GROUP_IDLE:
        if (!group->kept)
            return "an idle group stays that is not kept";
        if (first || group->parked || group->parking || group->ahead ||
            group->recheck || group->used || group->high)
            return "an idle group has something left";
        break;
    case GROUP_QUEUED:
        if (!first && !group->parked)
            return "a queued group has nothing to deliver";
        break;
    case GROUP_HELD:
        if (front)
            return "a held group keeps back what was sent again";
        break;
    case GROUP_PARKING:
        if (!group->parking)
            return "a group waits for parking that is over";
        break;
    case GROUP_BLOCKED:
    case GROUP_RUNNING:
        break;
    }
    if (group->head && group->state != GROUP_BLOCKED &&
        group->state != GROUP_RUNNING)
        return "a head, but not blocked";
    if (group->state == GROUP_BLOCKED && !group->head)
        return "blocked without a head";
    return NULL;
}

/* names - whether an item names its group */
static bool names(const struct group_item *item, void *arg)
{
    const struct group **group = arg;

    if (item->group != *group)
        *group = NULL;
    return *group;
}

/* group_check - one group; adds to the sums */
static const char *group_check(const struct groups *g,
                               const struct group *group, struct sums *sums)
{
    const struct group *named = group;
    const char *wrong = group_items_check(&group->items);

    group_items_each(&group->items, names, &named);
    if (!wrong && named != group)
        wrong = "an item names another group";
    if (!wrong)
        wrong = state_check(group, group_items_first(&group->items));
    sums->ready += group->state == GROUP_QUEUED;
    sums->waiting += group->items.count;
    sums->parkable += group_is_blocked(group) ? group_parkable(g, group) : 0;
    sums->held += group->state == GROUP_HELD;
    sums->blocked += group_is_blocked(group);
    sums->parked += group->parked;
    return wrong;
}

/* lists_check - each group is on the list of its state, and on no other */
static const char *lists_check(const struct groups *g, const struct sums *sums)
{
    struct group *group;
    size_t runs = 0, blocked = 0;
    bool none = false;

    TAILQ_FOREACH (group, &g->runs, link) {
        if (group->state != GROUP_QUEUED)
            return "a group on the run queue has another state";
        runs++;
    }
    TAILQ_FOREACH (group, &g->blocked, link) {
        if (!group_is_blocked(group))
            return "a group on the list of the blocked has another state";
        if (none && group_parkable(g, group))
            return "a blocked group with items is behind one without";
        none = group_parkable(g, group) == 0;
        blocked++;
    }
    if (runs != sums->ready || blocked != sums->blocked)
        return "a group is not on the list of its state";
    return NULL;
}

const char *groups_check(struct groups *g)
{
    struct sums sums = {0};
    const char *wrong;

    quick_lock(&g->mtx);
    wrong = group_table_check(&g->table);
    for (size_t i = 0; i < g->table.size && !wrong; i++)
        if (g->table.slots[i].group)
            wrong = group_check(g, g->table.slots[i].group, &sums);
    if (!wrong && (sums.ready != g->ready || sums.waiting != g->waiting ||
                   sums.parkable != g->parkable || sums.held != g->held ||
                   sums.parked != g->parked))
        wrong = "a sum over all groups is wrong";
    if (!wrong)
        wrong = lists_check(g, &sums);
    groups_unlock(g);
    return wrong;
}
