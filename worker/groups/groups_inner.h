/* groups_inner.h - what the files of groups.h share
 *
 * WHAT   The struct, and the steps from one state of a group to another.
 * WHO    groups*.c, with the lock held where a name ends in _locked.
 * OWNS   Nothing of its own.
 * FAILS  Never.
 */
#ifndef WORKER_GROUPS_GROUPS_INNER_H
#define WORKER_GROUPS_GROUPS_INNER_H

#include <stdatomic.h>

#include "common/base/quick_lock.h"
#include "worker/groups/group_table.h"
#include "worker/rules/attention.h"

#pragma GCC visibility push(hidden)

TAILQ_HEAD(group_list, group);

/* m = under mtx   c = constant after open   a = written under mtx, read
 * freely */
struct groups {
    struct quick_lock mtx;
    struct group_table table; /* m */
    struct group_list runs;   /* m  QUEUED; first in, first out, but for one
                               * whose quantum lasts */
    /* m  BLOCKED and HELD; those with something to park before the others */
    struct group_list blocked;
    unsigned quantum;            /* m */
    bool keep_front;             /* c  GROUP_FRONT is not parked */
    atomic_size_t ready;         /* a  groups on `runs` */
    atomic_size_t waiting;       /* a  items in their places */
    atomic_size_t parkable;      /* a  to park, of the groups on `blocked` */
    atomic_size_t held;          /* a  groups in state HELD */
    _Atomic uint64_t parked;     /* a  of all groups */
    struct attention *attention; /* c  ATTEND_GROUP is ours; NULL: none */
    bool attends;                /* m  the bit is set */
};

/* The end of each change: the next receive goes the long way as long as
 * something waits, is parked, or may run. */
static inline void groups_unlock(struct groups *g)
{
    bool busy = (atomic_load_explicit(&g->waiting, memory_order_relaxed) |
                 atomic_load_explicit(&g->ready, memory_order_relaxed) |
                 atomic_load_explicit(&g->parked, memory_order_relaxed)) != 0;

    if (__builtin_expect(busy != g->attends, 0) && g->attention) {
        g->attends = busy;
        attention_set(g->attention, ATTEND_GROUP, busy ? ATTEND_GROUP : 0);
    }
    quick_unlock(&g->mtx);
}

/* The group of that key; NULL: nothing of it is here. */
static inline struct group *group_find_locked(const struct groups *g,
                                              const char *key, size_t size)
{
    uint64_t hash = group_hash(key, size);
    struct group *group = group_table_find(&g->table, hash, key, size);

    return group && group->state != GROUP_IDLE ? group : NULL;
}
/* The group of that key, or a new one. 0: the lock is held on return. -ENOMEM,
 * -ENAMETOOLONG. */
int group_lock(struct groups *g, const char *key, size_t size,
               struct group **group);
/* Whether a group is on the list of the blocked ones. */
bool group_is_blocked(const struct group *group);
/* How many of its items could be parked. */
size_t group_parkable(const struct groups *g, const struct group *group);
void group_queue_locked(struct groups *g, struct group *group, bool front);
/* `state` is BLOCKED or HELD. */
void group_block_locked(struct groups *g, struct group *group,
                        enum group_state state);
/* The head is settled or gone: put the group on the run queue, or have it wait
 * for parking to end, or forget it. */
void group_wake_locked(struct groups *g, struct group *group);
/* Put an item in its place. A group that had nothing to deliver goes to the run
 * queue. */
void group_insert_locked(struct groups *g, struct group *group,
                         struct group_item *item);
void group_remove_locked(struct groups *g, struct group *group,
                         struct group_item *item);
/* The same of one that is not the first of its priority. */
void group_cut_locked(struct groups *g, struct group *group,
                      struct group_item *item);

#pragma GCC visibility pop

#endif
