/* closings.c - groups that are closing (see closings.h)
 *
 * A group may be closed again while messages that its last close refuses are
 * on their way: then it has two of them, by the first sequence.
 */
#include "worker/groups/closings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Compare two keys by their bytes. */
static int bytes_order(const char *a, size_t a_size, const char *b,
                       size_t b_size)
{
    int way = memcmp(a, b, a_size < b_size ? a_size : b_size);

    return way ? way : (a_size > b_size) - (a_size < b_size);
}

static int closing_order(const struct closing *a, const struct closing *b)
{
    int way = bytes_order(a->key, a->size, b->key, b->size);

    return way ? way : (a->from > b->from) - (a->from < b->from);
}

/* RB_GENERATE_STATIC needs a macro that glibc does not have. */
RB_GENERATE_INTERNAL(closing_tree, closing, node, closing_order,
                     __attribute__((unused)) static)

void closings_fini(struct closings *c)
{
    struct closing *one;

    while ((one = RB_MIN(closing_tree, &c->all)) != NULL)
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
    if (RB_INSERT(closing_tree, &c->all, one)) { /* from there on already */
        free(one);
        return 0;
    }
    atomic_fetch_add(&c->count, 1);
    return 0;
}

void closings_end(struct closings *c, struct closing *one, uint64_t until)
{
    one->until = until;
    c->over++;
}

void closings_remove(struct closings *c, struct closing *one)
{
    c->over -= one->until != 0;
    RB_REMOVE(closing_tree, &c->all, one);
    atomic_fetch_sub(&c->count, 1);
    free(one);
}

/* Find the first close of a group; NULL: there is none. */
static struct closing *closing_first(const struct closings *c, const char *key,
                                     size_t size)
{
    struct closing *at = RB_ROOT(&c->all), *first = NULL;

    while (at) {
        int way = bytes_order(at->key, at->size, key, size);

        if (way == 0)
            first = at;
        at = way < 0 ? RB_RIGHT(at, node) : RB_LEFT(at, node);
    }
    return first;
}

/* Find the next close of the same group; NULL: there is none. */
static struct closing *closing_next(struct closing *one)
{
    struct closing *next = RB_NEXT(closing_tree, NULL, one);

    return next && bytes_order(one->key, one->size, next->key, next->size) == 0
               ? next
               : NULL;
}

struct closing *closings_find(const struct closings *c, const char *key,
                              size_t size)
{
    struct closing *one = closing_first(c, key, size);

    while (one && one->until)
        one = closing_next(one);
    return one;
}

bool closings_refuse(const struct closings *c, const char *key, size_t size,
                     uint64_t seq)
{
    struct closing *one = closing_first(c, key, size);

    while (one && (seq < one->from || (one->until && seq >= one->until)))
        one = closing_next(one);
    return one != NULL;
}

bool closings_open(struct closings *c, const char *key, size_t size)
{
    struct closing *one = closing_first(c, key, size), *next;
    bool any = one != NULL;

    for (; one; one = next) {
        next = closing_next(one);
        closings_remove(c, one);
    }
    return any;
}

void closings_prune(struct closings *c)
{
    struct closing *one = RB_MIN(closing_tree, &c->all), *next;

    for (; one && c->over; one = next) {
        next = RB_NEXT(closing_tree, NULL, one);
        if (one->until)
            closings_remove(c, one);
    }
}

char *closings_keys(const struct closings *c, size_t *bytes)
{
    struct closing_tree *all = (struct closing_tree *)&c->all;
    char *keys, *at;
    struct closing *one;

    *bytes = 0;
    RB_FOREACH (one, closing_tree, all)
        *bytes += one->until ? 0 : sizeof one->size + one->size;
    keys = at = *bytes ? malloc(*bytes) : NULL;
    if (!keys)
        *bytes = 0;
    RB_FOREACH (one, closing_tree, all) {
        if (one->until || !keys)
            continue;
        memcpy(at, &one->size, sizeof one->size);
        memcpy(at + sizeof one->size, one->key, one->size);
        at += sizeof one->size + one->size;
    }
    return keys;
}
