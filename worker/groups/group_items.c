/* group_items.c - the items of one group (see group_items.h) */
#include "worker/groups/group_items.h"

/* by_priority - higher first; sequences order the lists */
static int by_priority(const struct group_item *a, const struct group_item *b)
{
    return (a->priority < b->priority) - (a->priority > b->priority);
}

/* RB_GENERATE_STATIC needs a macro that glibc does not have. */
RB_GENERATE_INTERNAL(item_tree, group_item, node, by_priority,
                     static __attribute__((unused)))

/* set_only - `first` heads the only list, so it is the whole tree */
static void set_only(struct group_items *items, struct group_item *first)
{
    RB_SET(first, NULL, node);
    RB_COLOR(first, node) = RB_BLACK;
    RB_ROOT(&items->firsts) = first;
}

/* replace - `now` heads the list of its priority in place of `was`; NULL: the
 * list is empty */
static void replace(struct group_items *items, struct group_item *was,
                    struct group_item *now)
{
    bool only = RB_ROOT(&items->firsts) == was && !RB_LEFT(was, node) &&
                !RB_RIGHT(was, node);

    if (now)
        now->tail = was->tail;
    if (only && now) {
        set_only(items, now);
        return;
    }
    RB_REMOVE(item_tree, &items->firsts, was);
    if (now)
        RB_INSERT(item_tree, &items->firsts, now);
}

/* add_late - an item that is not the last of its list */
static void add_late(struct group_items *items, struct group_item *first,
                     struct group_item *item)
{
    struct group_item *at = first;

    if (item->seq < first->seq) {
        item->next = first;
        /* NOLINTNEXTLINE(readability-suspicious-call-argument): item leads */
        replace(items, first, item);
        return;
    }
    while (at->next->seq <= item->seq)
        at = at->next;
    item->next = at->next;
    at->next = item;
}

/* group_items_add - put an item in its place */
void group_items_add(struct group_items *items, struct group_item *item)
{
    struct group_item *first = RB_ROOT(&items->firsts);

    item->next = NULL;
    item->tail = item;
    items->fronts += item->priority == GROUP_FRONT;
    if (items->count++ == 0) {
        set_only(items, item);
        return;
    }
    if (first->priority != item->priority)
        first = RB_FIND(item_tree, &items->firsts, item);
    if (!first) {
        RB_INSERT(item_tree, &items->firsts, item);
    } else if (item->seq < first->tail->seq) {
        add_late(items, first, item);
    } else {
        first->tail->next = item;
        first->tail = item;
    }
}

/* group_items_remove - take an item out; the only one is not written to */
void group_items_remove(struct group_items *items, struct group_item *item)
{
    items->fronts -= item->priority == GROUP_FRONT;
    if (--items->count == 0)
        RB_ROOT(&items->firsts) = NULL;
    else
        replace(items, item, item->next);
}

/* group_items_cut - also from the middle of its list */
void group_items_cut(struct group_items *items, struct group_item *item)
{
    struct group_item *first = RB_FIND(item_tree, &items->firsts, item);
    struct group_item *at = first;

    if (!first || first == item) { /* it has one: its own, or itself */
        group_items_remove(items, item);
        return;
    }
    while (at->next != item)
        at = at->next;
    at->next = item->next;
    if (first->tail == item)
        first->tail = at;
    items->fronts -= item->priority == GROUP_FRONT;
    items->count--;
}

struct group_item *group_items_find(const struct group_items *items,
                                    uint64_t seq)
{
    struct group_item *first = group_items_first(items), *at;

    for (; first; first = RB_NEXT(item_tree, NULL, first))
        for (at = first; at; at = at->next)
            if (at->seq == seq)
                return at;
    return NULL;
}

struct group_item *group_items_first(const struct group_items *items)
{
    struct group_item *first = RB_ROOT(&items->firsts);

    while (items->count > 1 && RB_LEFT(first, node))
        first = RB_LEFT(first, node);
    return first;
}

struct group_item *group_items_behind(const struct group_items *items)
{
    struct group_item *first = group_items_first(items);

    if (items->count == items->fronts)
        return NULL;
    return items->fronts ? RB_NEXT(item_tree, NULL, first) : first;
}

struct group_item *group_items_low(const struct group_items *items)
{
    return RB_MAX(item_tree, (struct item_tree *)&items->firsts);
}

void group_items_each(const struct group_items *items,
                      bool (*visit)(const struct group_item *item, void *arg),
                      void *arg)
{
    struct group_item *first = group_items_first(items), *at;

    for (; first; first = RB_NEXT(item_tree, NULL, first))
        for (at = first; at; at = at->next)
            if (!visit(at, arg))
                return;
}

/* list_check - the list of one priority */
static const char *list_check(const struct group_item *first, size_t *count)
{
    const struct group_item *at = first;

    for (; at->next; at = at->next, ++*count)
        if (at->next->priority != first->priority || at->next->seq < at->seq)
            return "items are out of order";
    ++*count;
    return at == first->tail ? NULL : "the last item is another one";
}

const char *group_items_check(const struct group_items *items)
{
    struct group_item *at = group_items_first(items), *next;
    const char *wrong = NULL;
    size_t count = 0, fronts = 0;

    for (; at && !wrong; at = next) {
        wrong = list_check(at, &count);
        if (at->priority == GROUP_FRONT)
            fronts = count;
        next = RB_NEXT(item_tree, NULL, at);
        if (next && by_priority(at, next) >= 0)
            wrong = "priorities are out of order";
    }
    if (!wrong && (count != items->count || fronts != items->fronts))
        wrong = "the count of items is wrong";
    return wrong;
}
