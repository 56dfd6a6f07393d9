/* groups_spooled.c - see groups_spooled.h */
#include "scripts/mqctl/look/groups_spooled.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS_MOST 20000 /* that are in memory at a time */

int group_key_order(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int way = memcmp(a, b, a_size < b_size ? a_size : b_size);

    return way ? way : (a_size > b_size) - (a_size < b_size);
}

static int order(const struct group_spooled *a, const struct group_spooled *b)
{
    return group_key_order(a->key, a->size, b->key, b->size);
}

/* RB_GENERATE_STATIC needs a macro that glibc does not have. */
RB_GENERATE_INTERNAL(spooled_tree, group_spooled, node, order,
                     static __attribute__((unused)))

struct group_spooled *groups_spooled_first(const struct groups_spooled *g)
{
    return RB_MIN(spooled_tree, (struct spooled_tree *)&g->all);
}

void groups_spooled_drop(struct groups_spooled *g, struct group_spooled *one)
{
    RB_REMOVE(spooled_tree, &g->all, one);
    g->count--;
    free(one);
}

void groups_spooled_free(struct groups_spooled *g)
{
    while (g->count)
        groups_spooled_drop(g, groups_spooled_first(g));
}

/* One look at the spool. */
struct reading {
    struct groups_spooled *g;
    const char *after; /* keys behind this one */
    size_t size;
};

static struct group_spooled *find(const struct groups_spooled *g,
                                  const char *key, size_t size)
{
    struct group_spooled *at = RB_ROOT(&g->all);
    int way;

    while (at && (way = group_key_order(key, size, at->key, at->size)) != 0)
        at = way < 0 ? RB_LEFT(at, node) : RB_RIGHT(at, node);
    return at;
}

/* add - the first message of a group; one with a later key makes room */
static int add(struct groups_spooled *g, const struct message_seen *seen)
{
    struct group_spooled *one = malloc(sizeof *one + seen->group_size);

    if (!one)
        return -ENOMEM;
    *one = (struct group_spooled){.count = 1,
                                  .head = seen->id,
                                  .received_ns = seen->received_ns,
                                  .last = messages_spooled_key(seen),
                                  .size = seen->group_size};
    memcpy(one->key, seen->group, seen->group_size);
    RB_INSERT(spooled_tree, &g->all, one);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the tree has it */
    g->more |= ++g->count > GROUPS_MOST;
    if (g->count > GROUPS_MOST)
        groups_spooled_drop(g, RB_MAX(spooled_tree, &g->all));
    return 0;
}

/* later - whether a key is behind those that are kept: some of its messages
 * were left out */
static bool later(const struct groups_spooled *g, const char *key, size_t size)
{
    const struct group_spooled *last =
        g->more ? RB_MAX(spooled_tree, (struct spooled_tree *)&g->all) : NULL;

    return last && group_key_order(key, size, last->key, last->size) > 0;
}

/* row_count - visit: rows come in the order of their turns */
static int row_count(const struct message_seen *seen, void *arg)
{
    const struct reading *r = arg;
    struct group_spooled *one;

    if (!seen->group || later(r->g, seen->group, seen->group_size) ||
        group_key_order(seen->group, seen->group_size, r->after, r->size) <= 0)
        return 0;
    one = find(r->g, seen->group, seen->group_size);
    if (!one)
        return add(r->g, seen);
    one->count++;
    one->last = messages_spooled_key(seen);
    return 0;
}

int groups_spooled_read(struct groups_spooled *g, struct messages *m,
                        const char *after, size_t size, const char *only)
{
    const struct waiting_filter filter = m->filter;
    struct reading r = {g, after, size};
    int err;

    g->more = false;
    m->filter.states = WAITING_BIT(WAITING_SPOOLED);
    m->filter.group = only;
    err = messages_each(m, "spool-0", row_count, &r);
    m->filter = filter;
    if (err)
        groups_spooled_free(g);
    return err;
}
