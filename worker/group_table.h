/* group_table.h - groups by key: a chained hash table that grows and shrinks
 *
 * WHAT   The struct of a group, and the table that finds it.
 * WHO    groups.c only, under its lock.
 * OWNS   The groups in it, and a few freed ones for reuse.
 * FAILS  -ENOMEM / NULL. Without memory to grow it gets slower, not wrong.
 */
#ifndef WORKER_GROUP_TABLE_H
#define WORKER_GROUP_TABLE_H

#include <bsd/sys/queue.h>

#include "worker/groups.h"

enum group_state {
    GROUP_IDLE,    /* nothing to deliver; only between two steps */
    GROUP_QUEUED,  /* on the run queue */
    GROUP_RUNNING, /* leased */
    GROUP_BLOCKED, /* its head waits for a retry, or parking is under way */
    GROUP_HELD,    /* its head died, an operator decides */
};

RB_HEAD(group_items, group_item);

struct group {
    struct group *chain;
    TAILQ_ENTRY(group) link; /* run queue, or the list of blocked ones */
    struct group_items items;
    uint64_t hash;
    uint64_t parked;  /* messages in the store behind its head */
    int64_t head;     /* BLOCKED: the row that waits; 0: none */
    uint32_t count;   /* items */
    uint32_t parking; /* items on their way to the store */
    uint16_t used;    /* of the quantum */
    uint16_t high;    /* messages of priority above 0 in a row */
    uint8_t state;    /* enum group_state */
    bool closing;
    uint16_t key_size;
    char key[];
};

struct group_table {
    struct group **buckets;
    size_t size;  /* of buckets, a power of two */
    size_t count; /* groups */
};

int group_table_init(struct group_table *t);
void group_table_fini(struct group_table *t); /* frees the groups */
struct group *group_table_find(const struct group_table *t, const char *key,
                               size_t size);
/* A new group in state IDLE; the key must not be there. NULL: no memory. */
struct group *group_table_add(struct group_table *t, const char *key,
                              size_t size);
void group_table_remove(struct group_table *t, struct group *group);

#endif
