/* groups_check.h - check every invariant of ordered groups, from inside
 *
 * WHAT   The checks read what groups.h does not show: so this is the one place
 *        that compiles groups.c and group_table.c into a test.
 * WHO    Tests of groups, while no other thread uses them.
 * OWNS   Nothing.
 * FAILS  Each check returns NULL, or what is wrong.
 */
#ifndef TESTS_UNIT_GROUPS_GROUPS_CHECK_H
#define TESTS_UNIT_GROUPS_GROUPS_CHECK_H

/* NOLINTBEGIN(bugprone-suspicious-include): it looks inside */
#include "worker/groups/group_table.c"
#include "worker/groups/groups.c"
/* NOLINTEND(bugprone-suspicious-include) */

/* Check the list of one priority. */
static const char *list_check(const struct group_item *first, size_t *count)
{
    const struct group_item *at = first;

    for (; at->next; at = at->next, ++*count)
        if (at->next->priority != first->priority || at->next->seq < at->seq)
            return "items are out of order";
    ++*count;
    return at == first->tail ? NULL : "the tail is not the last item";
}

static inline const char *group_items_check(const struct group_items *items)
{
    struct group_item *at = items->first, *next;
    const char *wrong = NULL;
    size_t count = 0, fronts = 0;

    for (; at && !wrong; at = next) {
        wrong = list_check(at, &count);
        if (at->priority == GROUP_FRONT)
            fronts = count;
        next = at->lower;
        if (next && next->priority >= at->priority)
            wrong = "priorities are out of order";
    }
    if (!wrong && (count != items->count || fronts != items->fronts))
        wrong = "the count of items is wrong";
    return wrong;
}

/* Find a group by its own key. */
static const struct group *group_by_key(const struct group_table *t,
                                        const struct group *group)
{
    return group_table_find(t, group_hash(group->key, group->key_size),
                            group->key, group->key_size);
}

/* Check that the groups in `kept` are marked as kept, and no others. */
static const char *kept_check(const struct group_table *t)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->size; i++)
        kept += t->slots[i].group && t->slots[i].group->kept;
    for (size_t i = 0; i < GROUPS_KEPT && t->kept[i]; i++, kept--) {
        const struct group *group = t->kept[i];

        if (!group->kept || group_by_key(t, group) != group)
            return "a group that is kept is not in the table";
    }
    return kept ? "a group is kept twice, or has no place" : NULL;
}

static inline const char *group_table_check(const struct group_table *t)
{
    size_t count = 0;

    for (size_t i = 0; i < t->size; i++) {
        const struct group *group = t->slots[i].group;

        if (!group)
            continue;
        if (t->slots[i].hash != group_hash(group->key, group->key_size) ||
            (uint32_t)t->slots[i].hash != group->hash)
            return "a group has another hash";
        if (group_by_key(t, group) != group)
            return "a group cannot be found";
        count++;
    }
    if (count != t->count || count >= t->size)
        return "the table's count is wrong";
    return kept_check(t);
}

struct sums {
    size_t ready, waiting, parkable, held, blocked;
    uint64_t parked;
};

/* Check that a group has only what its state allows. */
static const char *state_check(const struct group *group,
                               const struct group_item *first)
{
    bool front = first && first->priority == GROUP_FRONT;

    switch ((enum group_state)group->state) {
    case GROUP_IDLE:
        if (!group->kept)
            return "an idle group that is not kept stays";
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
        return "a group has a head, but is not blocked";
    if (group->state == GROUP_BLOCKED && !group->head)
        return "a blocked group has no head";
    return NULL;
}

/* Check that an item names its group. */
static bool item_names(const struct group_item *item, void *arg)
{
    const struct group **group = arg;

    if (item->group != *group)
        *group = NULL;
    return *group;
}

/* Check one group, and add it to the sums. */
static const char *group_check(const struct groups *g,
                               const struct group *group, struct sums *sums)
{
    const struct group *named = group;
    const char *wrong = group_items_check(&group->items);

    group_items_each(&group->items, item_names, &named);
    if (!wrong && named != group)
        wrong = "an item names another group";
    if (!wrong)
        wrong = state_check(group, group->items.first);
    sums->ready += group->state == GROUP_QUEUED;
    sums->waiting += group->items.count;
    sums->parkable += group_is_blocked(group) ? group_parkable(g, group) : 0;
    sums->held += group->state == GROUP_HELD;
    sums->blocked += group_is_blocked(group);
    sums->parked += group->parked;
    return wrong;
}

/* Check that each group is on the list of its state, and on no other. */
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

static inline const char *groups_check(struct groups *g)
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

#endif
