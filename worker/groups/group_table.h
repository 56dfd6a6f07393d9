/* group_table.h - groups by key, and the items of each
 *
 * WHAT   The items of one group: a list for each priority, ordered by sequence.
 *        The first items of these lists are linked as well. Adding the newest
 *        item and removing the oldest one cost the same however many wait; the
 *        place of an item that comes late is searched from the front.
 *        The groups: an open hash table that grows and shrinks. Each hash is
 *        stored beside its pointer, so that growing, shrinking and a search
 *        that finds nothing read no group. A group at rest has no message; the
 *        table keeps some groups at rest for their next messages.
 * WHO    groups.c, under its lock; group_hash: any thread.
 * OWNS   The groups in it, GROUPS_KEPT of them at rest at most, and a few
 *        freed ones for reuse. The items are the caller's.
 * FAILS  NULL: no memory. Without memory to grow, the table first gets slower;
 *        once it is full, it adds no group.
 */
#ifndef WORKER_GROUPS_GROUP_TABLE_H
#define WORKER_GROUPS_GROUP_TABLE_H

#include <bsd/sys/queue.h>

#include "worker/groups/groups.h"

#pragma GCC visibility push(hidden)

/* All zero is empty. */
struct group_items {
    struct group_item *first; /* of the highest priority; NULL: none */
    uint32_t count;
    uint32_t fronts; /* items of GROUP_FRONT */
};

void group_items_add(struct group_items *items, struct group_item *item);
/* Remove an item. Reads each item of its priority that comes before it. */
void group_items_remove(struct group_items *items, struct group_item *item);
/* Visit all items in their order, until `visit` returns false. */
void group_items_each(const struct group_items *items,
                      bool (*visit)(const struct group_item *item, void *arg),
                      void *arg);

/* ---- groups by key ---- */

#define GROUPS_KEPT 64

enum group_state {
    GROUP_IDLE,    /* it has no message: at rest, or between two steps */
    GROUP_QUEUED,  /* on the run queue */
    GROUP_RUNNING, /* leased */
    GROUP_BLOCKED, /* its head waits for a retry */
    GROUP_HELD,    /* its head died, an operator decides */
    GROUP_PARKING, /* its head is settled, items go to the store */
};

/* The fields that a message without trouble needs come first, in one line of
 * the cache. */
struct group {
    TAILQ_ENTRY(group) link; /* run queue, or list of blocked groups */
    struct group_items items;
    struct group_item *ahead; /* for the thread with the lease: the next item,
                               * taken out of its place */
    _Atomic uint64_t parked;  /* messages in the store behind its head */
    uint32_t parking;         /* items on their way to the store */
    uint32_t hash;            /* lower half of the key's hash */
    uint16_t used;            /* messages delivered of the quantum */
    uint16_t high;            /* messages above priority 0 in a row */
    uint16_t key_size;
    uint8_t state;    /* enum group_state */
    bool recheck : 1; /* a letter came while it was leased or held */
    bool kept : 1;    /* in `kept` of the table */
    int64_t head;     /* row of the message that waits for a retry; 0: none */
    char key[];
};

struct group_slot {
    struct group *group; /* NULL: nothing there */
    uint64_t hash;
};

struct group_table {
    struct group_slot *slots;
    size_t size;         /* a power of two */
    size_t count;        /* groups */
    struct group *spare; /* freed groups, linked by link.tqe_next */
    unsigned spares;
    /* Groups that stay in the table when they come to rest; they may be in any
     * state now. NULL: none yet. The oldest group is replaced next. */
    struct group *kept[GROUPS_KEPT];
    unsigned kept_next;
};

/* No two keys of one size up to GROUP_KEY_WORD have the same hash. */
uint64_t group_hash(const char *key, size_t size);
#define GROUP_KEY_WORD 8

int group_table_init(struct group_table *t);
void group_table_fini(struct group_table *t); /* frees the groups */
struct group *group_table_find(const struct group_table *t, uint64_t hash,
                               const char *key, size_t size);
/* Return the group of that key. If there is none, it is made, in state IDLE.
 * Returns NULL without memory. */
struct group *group_table_get(struct group_table *t, uint64_t hash,
                              const char *key, size_t size);
void group_table_remove(struct group_table *t, struct group *group);
/* Keep a group in the table; called by group_table_rest. */
void group_table_keep(struct group_table *t, struct group *group);
/* Bring a group to rest that has no message and is on no list. It stays in the
 * table, in place of the group that was kept for longest, so that a group that
 * gets one message after another is not made and removed for each of them. */
static inline void group_table_rest(struct group_table *t, struct group *group)
{
    group->state = GROUP_IDLE;
    group->head = 0;
    group->used = 0;
    group->high = 0;
    group->recheck = false;
    if (!group->kept)
        group_table_keep(t, group);
}
/* Count the groups that are not at rest. */
size_t group_table_busy(const struct group_table *t);

#pragma GCC visibility pop

#endif
