/* group_items.h - the items of one group, in the order of delivery
 *
 * WHAT   A list for each priority, in the order of sequences, and a tree of the
 *        first items of the lists. First in, first out inside one priority
 *        costs the same however many wait; an item that comes late finds its
 *        place from the front of its list.
 * WHO    groups.c and its neighbours, under their lock.
 * OWNS   Nothing: the items are the caller's.
 * FAILS  Never.
 */
#ifndef WORKER_GROUPS_GROUP_ITEMS_H
#define WORKER_GROUPS_GROUP_ITEMS_H

#include "worker/groups/groups.h"

#pragma GCC visibility push(hidden)

RB_HEAD(item_tree, group_item);

/* All zero is empty. */
struct group_items {
    struct item_tree firsts; /* of each priority */
    uint32_t count;
    uint32_t fronts; /* of them, GROUP_FRONT */
};

void group_items_add(struct group_items *items, struct group_item *item);
/* `item` is the first one of its priority. */
void group_items_remove(struct group_items *items, struct group_item *item);
/* Any item; those of its priority that come before it are read. */
void group_items_cut(struct group_items *items, struct group_item *item);
/* The one with that sequence; all are read. NULL if there is none. */
struct group_item *group_items_find(const struct group_items *items,
                                    uint64_t seq);
/* NULL if there is none. */
struct group_item *group_items_first(const struct group_items *items);
/* The first one that is not GROUP_FRONT. */
struct group_item *group_items_behind(const struct group_items *items);
/* The first one of the lowest priority there is. */
struct group_item *group_items_low(const struct group_items *items);
/* All, in turn, until `visit` is false. */
void group_items_each(const struct group_items *items,
                      bool (*visit)(const struct group_item *item, void *arg),
                      void *arg);
/* Every invariant; NULL or what is wrong. */
const char *group_items_check(const struct group_items *items);

#pragma GCC visibility pop

#endif
