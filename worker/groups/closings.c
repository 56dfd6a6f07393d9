/* closings.c - groups that are closing (see closings.h) */
#include "worker/groups/closings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void closings_fini(struct closings *c)
{
    struct closing *one;

    while ((one = LIST_FIRST(&c->all)) != NULL)
        closings_remove(c, one);
}

int closings_add(struct closings *c, const char *key, size_t size,
                 uint64_t from, int64_t last)
{
    struct closing *one = calloc(1, sizeof *one + size);

    if (!one)
        return -ENOMEM;
    one->from = from;
    one->last = last;
    one->size = size;
    memcpy(one->key, key, size);
    LIST_INSERT_HEAD(&c->all, one, link);
    atomic_fetch_add(&c->count, 1);
    return 0;
}

void closings_remove(struct closings *c, struct closing *one)
{
    LIST_REMOVE(one, link);
    atomic_fetch_sub(&c->count, 1);
    free(one);
}

static bool closing_is_of(const struct closing *one, const char *key,
                          size_t size)
{
    return one->size == size && memcmp(one->key, key, size) == 0;
}

struct closing *closings_find(const struct closings *c, const char *key,
                              size_t size)
{
    struct closing *one;

    LIST_FOREACH (one, &c->all, link)
        if (!one->until && closing_is_of(one, key, size))
            break;
    return one;
}

bool closings_refuse(const struct closings *c, const char *key, size_t size,
                     uint64_t seq)
{
    const struct closing *one;

    LIST_FOREACH (one, &c->all, link)
        if (seq >= one->from && (!one->until || seq < one->until) &&
            closing_is_of(one, key, size))
            break;
    return one != NULL;
}

bool closings_open(struct closings *c, const char *key, size_t size)
{
    struct closing *one = LIST_FIRST(&c->all), *next;
    bool any = false;

    for (; one; one = next) {
        next = LIST_NEXT(one, link);
        if (!closing_is_of(one, key, size))
            continue;
        closings_remove(c, one);
        any = true;
    }
    return any;
}

void closings_prune(struct closings *c)
{
    struct closing *one = LIST_FIRST(&c->all), *next;

    for (; one; one = next) {
        next = LIST_NEXT(one, link);
        if (one->until)
            closings_remove(c, one);
    }
}

char *closings_keys(const struct closings *c, size_t *bytes)
{
    const struct closing *one;
    char *keys, *at;

    *bytes = 0;
    LIST_FOREACH (one, &c->all, link)
        *bytes += one->until ? 0 : sizeof one->size + one->size;
    keys = at = *bytes ? malloc(*bytes) : NULL;
    if (!keys)
        *bytes = 0;
    LIST_FOREACH (one, &c->all, link) {
        if (one->until || !keys)
            continue;
        memcpy(at, &one->size, sizeof one->size);
        memcpy(at + sizeof one->size, one->key, one->size);
        at += sizeof one->size + one->size;
    }
    return keys;
}
