/* group_table.h - groups by key, and the items of each
 *
 * WHAT   The items of one group: a list for each priority, in the order of
 *        sequences; the first items of these lists are a list, too. First in,
 *        first out inside one priority costs the same however many wait; an
 *        item that comes late finds its place from the front of its list.
 *        The groups: an open hash table that grows and shrinks. Hashes lie
 *        beside the pointers, so that a search that finds nothing, growing and
 *        shrinking touch no group. A group that comes to rest is forgotten by
 *        all but the table, which keeps some for their next messages.
 * WHO    groups.c, under its lock; group_hash: any thread.
 * OWNS   The groups in it, GROUPS_KEPT of them at rest at most, and a few
 *        freed ones for reuse. The items are the caller's.
 * FAILS  NULL: no memory. When there is none to grow, the table gets slower
 *        first and refuses when it is full.
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
/* Remove an item; those of its priority that come before it are read. */
void group_items_remove(struct group_items *items, struct group_item *item);
/* Visit all items in their order, until `visit` returns false. */
void group_items_each(const struct group_items *items,
                      bool (*visit)(const struct group_item *item, void *arg),
                      void *arg);

/* ---- groups by key ---- */

#define GROUPS_KEPT 64

enum group_state {
    GROUP_IDLE,    /* nothing of it is here: at rest, or between two steps */
    GROUP_QUEUED,  /* on the run queue */
    GROUP_RUNNING, /* leased */
    GROUP_BLOCKED, /* its head waits for a retry */
    GROUP_HELD,    /* its head died, an operator decides */
    GROUP_PARKING, /* its head is settled, items go to the store */
};

/* The fields that a message without trouble needs come first, in one line of
 * the cache. */
struct group {
    TAILQ_ENTRY(group) link; /* run queue, or the list of blocked ones */
    struct group_items items;
    struct group_item *ahead; /* lessee's: next, out of its place, not taken */
    _Atomic uint64_t parked;  /* messages in the store behind its head */
    uint32_t parking;         /* items on their way to the store */
    uint32_t hash;            /* its lower half */
    uint16_t used;            /* messages of the quantum */
    uint16_t high;            /* lessee's: messages above priority 0 in a row */
    uint16_t key_size;
    uint8_t state;    /* enum group_state */
    bool recheck : 1; /* a letter came while it was leased or held */
    bool kept : 1;    /* in `kept` of the table */
    int64_t head;     /* the row that waits; 0: none */
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
    struct group *spare; /* freed ones, by link.tqe_next */
    unsigned spares;
    /* Groups that stay in the table when they come to rest, whatever their
     * state is now. NULL: none yet. The oldest place is used next. */
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
/* Return the group of that key. If there is none, or it is at rest, it is as
 * new, in state IDLE. NULL: no memory. */
struct group *group_table_get(struct group_table *t, uint64_t hash,
                              const char *key, size_t size);
void group_table_remove(struct group_table *t, struct group *group);
/* Keep a group in the table; called by group_table_rest. */
void group_table_keep(struct group_table *t, struct group *group);
/* Bring a group to rest that has nothing here and is on no list. It stays in
 * the table, in place of the one that has been kept for longest: so a group
 * that gets one message after the other is not made and removed for each of
 * them. */
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
