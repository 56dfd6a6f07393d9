/* group_table.c - groups by key, and the items of each (see group_table.h) */
#include "worker/groups/group_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the items of one group ---- */

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

/* ---- groups by key ---- */

/* Linear probing. A removed group leaves no mark: the ones behind it move up.
 */

#define SIZE_LEAST  256
#define SPARES_MOST 1024
/* Groups with a key up to this size are all of one size: any can be reused. */
#define KEY_SHORT ((size_t)128 - sizeof(struct group))

/* word_of - up to 8 bytes, without a loop; all of them, if the size is known */
static uint64_t word_of(const char *key, size_t size)
{
    uint32_t low, high;
    uint64_t word = 0;

    if (size >= 8) {
        memcpy(&word, key, 8);
    } else if (size >= 4) {
        memcpy(&low, key, 4);
        memcpy(&high, key + size - 4, 4);
        word = (uint64_t)high << 32 | low;
    } else if (size) {
        word = (uint64_t)(unsigned char)key[0] << 16 |
               (uint64_t)(unsigned char)key[size / 2] << 8 |
               (unsigned char)key[size - 1];
    }
    return word;
}

/* group_hash - 8 bytes at a time, the last 8 overlap
 * Each step of the end can be undone, so a key of one word gives no hash that
 * another of its size gives. Keys come from senders; a sender that builds
 * collisions slows its own queue down, so no secret is mixed in.
 */
uint64_t group_hash(const char *key, size_t size)
{
    uint64_t h = size * UINT64_C(0x9e3779b97f4a7c15);

    for (; size > GROUP_KEY_WORD; key += 8, size -= 8) {
        h = (h ^ word_of(key, 8)) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
        if (size < 16) {
            key -= 16 - size;
            size = 16;
        }
    }
    h ^= word_of(key, size);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
}

/* slots_alloc - all empty */
static int slots_alloc(struct group_table *t, size_t size)
{
    struct group_slot *slots = calloc(size, sizeof *slots);

    if (!slots)
        return -ENOMEM;
    t->slots = slots;
    t->size = size;
    return 0;
}

int group_table_init(struct group_table *t)
{
    *t = (struct group_table){0};
    return slots_alloc(t, SIZE_LEAST);
}

void group_table_fini(struct group_table *t)
{
    for (size_t i = 0; i < t->size; i++)
        free(t->slots[i].group);
    while (t->spare) {
        struct group *next = TAILQ_NEXT(t->spare, link);

        free(t->spare);
        t->spare = next;
    }
    free(t->slots);
    *t = (struct group_table){0};
}

/* place - put a group in the first empty slot */
static void place(struct group_table *t, struct group_slot slot)
{
    size_t i = slot.hash & (t->size - 1);

    while (t->slots[i].group)
        i = (i + 1) & (t->size - 1);
    t->slots[i] = slot;
}

/* resize - move to another number of slots; without memory, stay */
static void resize(struct group_table *t, size_t size)
{
    struct group_table old = *t;

    if (slots_alloc(t, size))
        return;
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].group)
            place(t, old.slots[i]);
    free(old.slots);
}

/* same - memcmp, without a call for the usual key: two words, which may
 * overlap */
static inline bool same(const char *a, const char *b, size_t size)
{
    if (size > 16)
        return memcmp(a, b, size) == 0;
    return memcmp(a, b, 8) == 0 && memcmp(a + size - 8, b + size - 8, 8) == 0;
}

/* is_it - compare the keys; the hashes are equal, so those of one word are */
static bool is_it(const struct group *group, const char *key, size_t size)
{
    return group->key_size == size &&
           (size <= GROUP_KEY_WORD || same(group->key, key, size));
}

/* search - the slot of a group, or the empty one that it would get */
static inline size_t search(const struct group_table *t, uint64_t hash,
                            const char *key, size_t size)
{
    size_t i = hash & (t->size - 1);

    while (t->slots[i].group &&
           !(t->slots[i].hash == hash && is_it(t->slots[i].group, key, size)))
        i = (i + 1) & (t->size - 1);
    return i;
}

struct group *group_table_find(const struct group_table *t, uint64_t hash,
                               const char *key, size_t size)
{
    return t->slots[search(t, hash, key, size)].group;
}

/* group_new - reuse a freed group, or allocate one */
static struct group *group_new(struct group_table *t, size_t key_size)
{
    bool small = key_size <= KEY_SHORT;
    struct group *group = small ? t->spare : NULL;

    if (group) {
        t->spare = TAILQ_NEXT(group, link);
        t->spares--;
    } else {
        group = malloc(sizeof *group + (small ? KEY_SHORT : key_size));
    }
    return group;
}

/* group_free - keep a few for reuse */
static void group_free(struct group_table *t, struct group *group)
{
    if (group->key_size > KEY_SHORT || t->spares >= SPARES_MOST) {
        free(group);
        return;
    }
    TAILQ_NEXT(group, link) = t->spare;
    t->spare = group;
    t->spares++;
}

/* add - a new group; not inline, as a group is mostly found */
__attribute__((noinline)) static struct group *
add(struct group_table *t, uint64_t hash, const char *key, size_t size)
{
    struct group *group;

    if (t->count >= t->size / 4 * 3)
        resize(t, t->size * 2);
    if (t->count + 1 >= t->size) /* one slot stays empty: it ends a search */
        return NULL;
    group = group_new(t, size);
    if (!group)
        return NULL;
    *group = (struct group){.hash = (uint32_t)hash, .key_size = (uint16_t)size};
    memcpy(group->key, key, size);
    place(t, (struct group_slot){group, hash});
    t->count++;
    return group;
}

struct group *group_table_get(struct group_table *t, uint64_t hash,
                              const char *key, size_t size)
{
    struct group *group = t->slots[search(t, hash, key, size)].group;

    return group ? group : add(t, hash, key, size);
}

/* close_gap - slot `gap` is free: groups that would have wanted it move up */
static void close_gap(struct group_table *t, size_t gap)
{
    size_t mask = t->size - 1;

    for (size_t i = (gap + 1) & mask; t->slots[i].group; i = (i + 1) & mask) {
        size_t home = t->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - gap) & mask)) {
            t->slots[gap] = t->slots[i];
            gap = i;
        }
    }
    t->slots[gap].group = NULL;
}

void group_table_remove(struct group_table *t, struct group *group)
{
    size_t i = group->hash & (t->size - 1);

    while (t->slots[i].group != group)
        i = (i + 1) & (t->size - 1);
    close_gap(t, i);
    t->count--;
    group_free(t, group);
    if (t->size > SIZE_LEAST && t->count < t->size / 16)
        resize(t, t->size / 4);
}

/* group_table_keep - in place of one that is removed, now if it is at rest, or
 * when it comes to rest; so not more than GROUPS_KEPT are ever at rest */
void group_table_keep(struct group_table *t, struct group *group)
{
    struct group *was = t->kept[t->kept_next];

    t->kept[t->kept_next] = group;
    t->kept_next = (t->kept_next + 1) % GROUPS_KEPT;
    group->kept = true;
    if (!was)
        return;
    was->kept = false;
    if (was->state == GROUP_IDLE)
        group_table_remove(t, was);
}

size_t group_table_busy(const struct group_table *t)
{
    size_t resting = 0;

    for (size_t i = 0; i < GROUPS_KEPT && t->kept[i]; i++)
        resting += t->kept[i]->state == GROUP_IDLE;
    return t->count - resting;
}

/* own - what its key finds */
static const struct group *own(const struct group_table *t,
                               const struct group *group)
{
    return group_table_find(t, group_hash(group->key, group->key_size),
                            group->key, group->key_size);
}

/* kept_check - those in `kept` are kept, and no others */
static const char *kept_check(const struct group_table *t)
{
    size_t kept = 0;

    for (size_t i = 0; i < t->size; i++)
        kept += t->slots[i].group && t->slots[i].group->kept;
    for (size_t i = 0; i < GROUPS_KEPT && t->kept[i]; i++, kept--) {
        const struct group *group = t->kept[i];

        if (!group->kept || own(t, group) != group)
            return "a group that is kept is not in the table";
    }
    return kept ? "a group is kept twice, or has no place" : NULL;
}

const char *group_table_check(const struct group_table *t)
{
    size_t count = 0;

    for (size_t i = 0; i < t->size; i++) {
        const struct group *group = t->slots[i].group;

        if (!group)
            continue;
        if (t->slots[i].hash != group_hash(group->key, group->key_size) ||
            (uint32_t)t->slots[i].hash != group->hash)
            return "a group has another hash";
        if (own(t, group) != group)
            return "a group cannot be found";
        count++;
    }
    if (count != t->count || count >= t->size)
        return "the table's count is wrong";
    return kept_check(t);
}
