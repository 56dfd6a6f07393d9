/* group_table.c - groups by key (see group_table.h) */
#include "worker/group_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_LEAST 64

/* hash_of - FNV-1a over 8 bytes at a time, with a final mix
 * Keys come from senders; a sender that builds collisions slows its own queue
 * down, so no secret is mixed in.
 */
static uint64_t hash_of(const char *key, size_t size)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ size, word;

    for (; size >= sizeof word; key += sizeof word, size -= sizeof word) {
        memcpy(&word, key, sizeof word);
        h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, key, size);
    h = (h ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

int group_table_init(struct group_table *t)
{
    *t = (struct group_table){.size = SIZE_LEAST};
    t->buckets = calloc(t->size, sizeof(struct group *));
    return t->buckets ? 0 : -ENOMEM;
}

void group_table_fini(struct group_table *t)
{
    for (size_t i = 0; t->buckets && i < t->size; i++) {
        struct group *group;

        while ((group = t->buckets[i]) != NULL) {
            t->buckets[i] = group->chain;
            free(group);
        }
    }
    free(t->buckets);
    *t = (struct group_table){0};
}

/* resize - spread over another number of buckets; without memory, not */
static void resize(struct group_table *t, size_t size)
{
    struct group **buckets = calloc(size, sizeof(struct group *));

    if (!buckets)
        return;
    for (size_t i = 0; i < t->size; i++) {
        struct group *group;

        while ((group = t->buckets[i]) != NULL) {
            t->buckets[i] = group->chain;
            group->chain = buckets[group->hash & (size - 1)];
            buckets[group->hash & (size - 1)] = group;
        }
    }
    free(t->buckets);
    t->buckets = buckets;
    t->size = size;
}

struct group *group_table_find(const struct group_table *t, const char *key,
                               size_t size)
{
    uint64_t hash = hash_of(key, size);
    struct group *group = t->buckets[hash & (t->size - 1)];

    while (group && (group->hash != hash || group->key_size != size ||
                     memcmp(group->key, key, size) != 0))
        group = group->chain;
    return group;
}

struct group *group_table_add(struct group_table *t, const char *key,
                              size_t size)
{
    struct group *group = malloc(sizeof *group + size);
    struct group **bucket;

    if (!group)
        return NULL;
    memset(group, 0, sizeof *group);
    RB_INIT(&group->items);
    group->hash = hash_of(key, size);
    group->key_size = (uint16_t)size;
    memcpy(group->key, key, size);
    if (t->count >= t->size)
        resize(t, t->size * 2);
    bucket = &t->buckets[group->hash & (t->size - 1)];
    group->chain = *bucket;
    *bucket = group;
    t->count++;
    return group;
}

void group_table_remove(struct group_table *t, struct group *group)
{
    struct group **at = &t->buckets[group->hash & (t->size - 1)];

    while (*at != group)
        at = &(*at)->chain;
    *at = group->chain;
    t->count--;
    free(group);
    if (t->size > SIZE_LEAST && t->count < t->size / 8)
        resize(t, t->size / 2);
}
