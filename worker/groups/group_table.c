/* group_table.c - groups by key, and the items of each (see group_table.h) */
#include "worker/groups/group_table.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the items of one group ---- */

/* Return where the list of that priority is linked, or would be. */
static struct group_item **list_find(struct group_items *items,
                                     uint32_t priority)
{
    struct group_item **at = &items->first;

    while (*at && (*at)->priority > priority)
        at = &(*at)->lower;
    return at;
}

void group_items_add(struct group_items *items, struct group_item *item)
{
    struct group_item **list = list_find(items, item->priority);
    struct group_item *first = *list, *at;

    items->count++;
    items->fronts += item->priority == GROUP_FRONT;
    item->next = NULL;
    if (!first || first->priority != item->priority) { /* a list of its own */
        item->tail = item;
        item->lower = first;
        *list = item;
    } else if (item->seq >= first->tail->seq) {
        first->tail->next = item;
        first->tail = item;
    } else if (item->seq < first->seq) { /* it came late, and leads the list */
        item->tail = first->tail;
        item->lower = first->lower;
        item->next = first;
        *list = item;
    } else {
        for (at = first; at->next->seq <= item->seq; at = at->next)
            continue;
        item->next = at->next;
        at->next = item;
    }
}

/* The removed item is not written to. */
void group_items_remove(struct group_items *items, struct group_item *item)
{
    struct group_item **list = list_find(items, item->priority);
    struct group_item *first = *list, *at = first, *next = item->next;

    items->count--;
    items->fronts -= item->priority == GROUP_FRONT;
    if (first != item) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it is listed */
        while (at->next != item)
            at = at->next;
        at->next = next;
        if (first->tail == item)
            first->tail = at;
    } else if (next) {
        next->tail = item->tail;
        next->lower = item->lower;
        *list = next;
    } else {
        *list = item->lower;
    }
}

void group_items_each(const struct group_items *items,
                      bool (*visit)(const struct group_item *item, void *arg),
                      void *arg)
{
    struct group_item *first = items->first, *at;

    for (; first; first = first->lower)
        for (at = first; at; at = at->next)
            if (!visit(at, arg))
                return;
}

/* ---- groups by key ---- */

/* Linear probing. A removed group leaves no mark: the groups behind its slot
 * move up. */

#define SIZE_LEAST  256
#define SPARES_MOST 1024
/* Groups with keys up to this size have allocations of one size, for reuse. */
#define KEY_SHORT ((size_t)128 - sizeof(struct group))

/* Pack up to 8 bytes into a number, without a loop. Different bytes of the same
 * size give different numbers. */
static uint64_t key_word(const char *key, size_t size)
{
    uint32_t low, high;
    uint64_t word = 0;

    if (size >= 8) {
        memcpy(&word, key, 8);
        word = le64toh(word);
    } else if (size >= 4) {
        memcpy(&low, key, 4);
        /* cppcheck-suppress pointerOutOfBoundsCond ; size is not 8 here */
        memcpy(&high, key + size - 4, 4);
        word = (uint64_t)le32toh(high) << 32 | le32toh(low);
    } else if (size) {
        word = (uint64_t)(unsigned char)key[0] << 16 |
               (uint64_t)(unsigned char)key[size / 2] << 8 |
               /* cppcheck-suppress arrayIndexOutOfBoundsCond ; size < 4 here */
               (unsigned char)key[size - 1];
    }
    return word;
}

/* Hash 8 bytes at a time; the last 8 may overlap those before. The last steps
 * are invertible, so two different keys of the same size, up to GROUP_KEY_WORD,
 * never have the same hash. Keys come from senders; a sender that builds
 * collisions slows its own queue down, so no secret is mixed in. */
uint64_t group_hash(const char *key, size_t size)
{
    uint64_t h = size * UINT64_C(0x9e3779b97f4a7c15);

    for (; size > GROUP_KEY_WORD; key += 8, size -= 8) {
        h = (h ^ key_word(key, 8)) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
        if (size < 16) {
            key -= 16 - size;
            size = 16;
        }
    }
    h ^= key_word(key, size);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
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

/* Put a group in the first empty slot. */
static void slot_place(struct group_table *t, struct group_slot slot)
{
    size_t i = (size_t)slot.hash & (t->size - 1);

    while (t->slots[i].group)
        i = (i + 1) & (t->size - 1);
    t->slots[i] = slot;
}

/* Move the groups to another number of slots. Returns -ENOMEM, and changes
 * nothing, if there is no memory for them. */
static int slots_resize(struct group_table *t, size_t size)
{
    struct group_table old = *t;
    struct group_slot *slots = calloc(size, sizeof *slots);

    if (!slots)
        return -ENOMEM;
    t->slots = slots;
    t->size = size;
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].group)
            slot_place(t, old.slots[i]);
    free(old.slots);
    return 0;
}

int group_table_init(struct group_table *t)
{
    *t = (struct group_table){0};
    return slots_resize(t, SIZE_LEAST);
}

/* Return true if a group with the same hash has this key. Keys of one word have
 * the same hash only if they are equal. Up to 16 bytes are compared without a
 * call: as two words, which may overlap. */
static inline bool key_is(const struct group *group, const char *key,
                          size_t size)
{
    const char *own = group->key;

    if (group->key_size != size)
        return false;
    if (size <= GROUP_KEY_WORD)
        return true;
    if (size > 16)
        return memcmp(own, key, size) == 0;
    return memcmp(own, key, 8) == 0 &&
           memcmp(own + size - 8, key + size - 8, 8) == 0;
}

/* Return the slot of a group, or the empty one that it would get. */
static inline size_t key_slot(const struct group_table *t, uint64_t hash,
                              const char *key, size_t size)
{
    size_t i = (size_t)hash & (t->size - 1);

    while (t->slots[i].group &&
           !(t->slots[i].hash == hash && key_is(t->slots[i].group, key, size)))
        i = (i + 1) & (t->size - 1);
    return i;
}

struct group *group_table_find(const struct group_table *t, uint64_t hash,
                               const char *key, size_t size)
{
    return t->slots[key_slot(t, hash, key, size)].group;
}

/* Add a group: a freed one if its key is short, else a new one. Not inline,
 * because usually the group is found. */
__attribute__((noinline)) static struct group *
group_add(struct group_table *t, uint64_t hash, const char *key, size_t size)
{
    struct group *group = size <= KEY_SHORT ? t->spare : NULL;

    if (t->count >= t->size / 4 * 3)
        (void)slots_resize(t, t->size * 2);
    if (t->count + 1 >= t->size) /* a search ends at an empty slot */
        return NULL;
    if (group) {
        t->spare = TAILQ_NEXT(group, link);
        t->spares--;
    } else {
        group = malloc(sizeof *group + (size < KEY_SHORT ? KEY_SHORT : size));
    }
    if (!group)
        return NULL;
    *group = (struct group){.hash = (uint32_t)hash, .key_size = (uint16_t)size};
    memcpy(group->key, key, size);
    slot_place(t, (struct group_slot){group, hash});
    t->count++;
    return group;
}

struct group *group_table_get(struct group_table *t, uint64_t hash,
                              const char *key, size_t size)
{
    struct group *group = t->slots[key_slot(t, hash, key, size)].group;

    return group ? group : group_add(t, hash, key, size);
}

/* Move each later group into the gap if a search for it would end there. A few
 * freed groups are kept for reuse. */
void group_table_remove(struct group_table *t, struct group *group)
{
    size_t mask = t->size - 1, gap = (size_t)group->hash & mask;

    while (t->slots[gap].group != group)
        gap = (gap + 1) & mask;
    for (size_t i = (gap + 1) & mask; t->slots[i].group; i = (i + 1) & mask) {
        size_t home = (size_t)t->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - gap) & mask)) {
            t->slots[gap] = t->slots[i];
            gap = i;
        }
    }
    t->slots[gap].group = NULL;
    t->count--;
    if (group->key_size > KEY_SHORT || t->spares >= SPARES_MOST) {
        free(group);
    } else {
        TAILQ_NEXT(group, link) = t->spare;
        t->spare = group;
        t->spares++;
    }
    if (t->size > SIZE_LEAST && t->count < t->size / 16)
        (void)slots_resize(t, t->size / 4);
}

/* The group takes the place of the oldest kept group. If the oldest group is at
 * rest, it is removed now; if not, it is kept again when it comes to rest. So
 * at most GROUPS_KEPT groups are at rest. */
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
