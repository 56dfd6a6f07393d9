/* groups.h - ordered groups: one delivery of a group at a time, in order
 *
 * WHAT   The messages that wait in each group, and a run queue of groups that
 *        have something to deliver. A thread leases a group, delivers one
 *        message of it, and gives it back; no thread ever waits for a group.
 *        A pure data structure under one mutex: it knows nothing of slots, rows
 *        or handlers. docs/design/machines.md draws the states.
 * WHO    Called by dispatch.c and settle.c of the flow, on any thread. A leased
 *        group belongs to the thread that leased it. groups_open, _restore,
 *        _close: the engine's thread.
 * OWNS   The groups. A group without any message is forgotten; the memory of
 *        the last GROUPS_KEPT forgotten groups is reused. Items belong to the
 *        caller.
 * FAILS  groups_add: -ENOMEM; -ENAMETOOLONG if the key is too long.
 */
#ifndef WORKER_GROUPS_GROUPS_H
#define WORKER_GROUPS_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/basics.h"

struct attention; /* attention.h */
struct groups;    /* opaque; body in groups.c */
struct message;   /* message.h */
struct group;     /* a group; callers have a pointer to it as their lease */

/* A message that waits in its group. */
struct group_item {
    uint64_t seq;            /* order inside one priority */
    uint32_t priority;       /* higher first; GROUP_FRONT: before all of them */
    bool letter;             /* a held group waits for it; see groups_pull */
    struct message *message; /* the caller's; not read here */
    /* Set by groups_add: */
    struct group *group;
    struct group_item *next; /* next of the same priority; NULL: none */
    /* For the first item of a priority: the last item of that priority, and the
     * first item of the next lower priority. */
    struct group_item *tail, *lower;
};
#define GROUP_FRONT UINT32_MAX

#define GROUP_KEY_MAX 256 /* bytes of a key */

/* A group's key, in memory of the caller. */
struct group_key {
    const char *at; /* not NUL-terminated */
    size_t size;
};

/* Messages of priority above 0 in a row, after which a message of the lowest
 * waiting priority gets its turn. */
#define GROUP_HIGH_ROW 7

/* Create the groups. With `keep_front`, items of priority GROUP_FRONT are never
 * parked. While a message waits, is parked, or may run, ATTEND_GROUP of
 * `attention` is set; `attention` may be NULL. */
int groups_open(struct groups **out, unsigned quantum, bool keep_front,
                struct attention *attention);
/* Change the quantum; it takes effect with the next turn of each group. */
void groups_set_quantum(struct groups *g, unsigned quantum);
void groups_close(struct groups **g); /* NULL-safe; frees what is there */

/* Put an item in its place in its group. The caller makes all calls for one
 * group in receive order. */
int groups_add(struct groups *g, const char *key, size_t size,
               struct group_item *item);

/* Lease the group of a message that is the group's only message, and count the
 * message as taken, so that it need not be put in a place first. Returns
 * -EAGAIN if the group has other messages, or if another group is on the run
 * queue: the caller then adds the message with groups_add. Other errors are
 * -ENOMEM and -ENAMETOOLONG. */
int groups_pass(struct groups *g, const char *key, size_t size,
                uint32_t priority, struct group **lease);
/* Lease the next group that has something to deliver; NULL if there is no such
 * group. The group is RUNNING until one of the four calls that end a lease. */
struct group *groups_lease(struct groups *g);
/* Return the next item of a leased group; NULL if the group has no item. Items
 * that are added after the call come after it. If the lease ends without
 * groups_take, the item goes back to its place; until then groups_waiting does
 * not count it. */
struct group_item *groups_peek(struct groups *g, struct group *lease);
/* Return true if the lowest priority of the leased group has its turn. */
bool groups_low_turn(const struct group *lease);
/* Return how many messages of the leased group are parked. */
uint64_t groups_parked_of(const struct group *lease);
const char *groups_key(const struct group *lease, size_t *size);
/* Count `item` as taken for a delivery; NULL: a parked message was taken. */
void groups_take(struct groups *g, struct group *lease, struct group_item *item,
                 uint32_t priority);
/* Set the count of the group's parked messages to 0, because the store has none
 * of them. */
void groups_unpark(struct groups *g, struct group *lease);

/* ---- the end of a lease ---- */

/* Let the group's next message run, after the message of this lease is settled.
 * Returns false if a letter of the group came during the lease
 * (groups_hold_late): the lease continues, and the caller searches the store
 * for letters and holds the group if there is one. The next call returns true,
 * unless one more letter came. */
bool groups_release(struct groups *g, struct group *lease);
/* Block the group until its failed message, which waits as row `head`, is due
 * (groups_resume). */
void groups_block(struct groups *g, struct group *lease, int64_t head);
/* Hold the group of a message that died until groups_unhold, or until an item
 * of priority GROUP_FRONT comes. If the group has such an item already, that
 * item runs and the group is not held. */
void groups_hold(struct groups *g, struct group *lease);
/* Put a taken message that was not delivered back in front of its group. */
void groups_return(struct groups *g, struct group *lease,
                   struct group_item *item);

/* Lease the group of the head `row`, which is due. Returns NULL if the row is
 * not that group's head. `*leased` is set to true if another thread has leased
 * the group, so that its next state is not known yet; `leased` may be NULL. */
struct group *groups_resume(struct groups *g, const char *key, size_t size,
                            int64_t row, bool *leased);
/* Return true if the group has a message here, is leased, blocked or held. */
bool groups_known(struct groups *g, const char *key, size_t size);
/* Hold the group of a message that died without a lease. Returns YES if the
 * group is held now. Returns NO if the group waits for its head; and also if
 * the group is leased, held, or has an item of GROUP_FRONT: groups_release or
 * groups_unhold then returns false later, so that its caller searches the store
 * for letters. Errors are -ENOMEM and -ENAMETOOLONG. */
int groups_hold_late(struct groups *g, const char *key, size_t size);
/* Let a held group continue, because the store has no letter of it. Returns
 * false if a letter came after the caller's search of the store
 * (groups_hold_late): the group stays held, and the caller searches again. */
bool groups_unhold(struct groups *g, const char *key, size_t size);
/* Copy the keys of all held groups, so that the caller can search the store for
 * their letters. The caller frees the copies, which are one block. NULL and
 * a count above 0: out of memory. */
struct group_key *groups_held_keys(struct groups *g, size_t *count);

/* Restore a group with the parked messages, the head and the hold that the
 * store has. Called on the engine's thread at the start, before any item is
 * added. -EEXIST: the group exists already. */
int groups_restore(struct groups *g, const char *key, size_t size,
                   uint64_t parked, int64_t head, bool held);

/* ---- parking: items of blocked groups move to the store ---- */

/* Take up to `room` items of blocked groups out of their places, in order. The
 * items belong to the caller until groups_park_end. */
size_t groups_park_begin(struct groups *g, struct group_item **items,
                         size_t room);
/* Begin to park one item that is in no place yet. A group without other
 * messages waits until the item is parked; a queued or leased group does not
 * wait. Errors are those of groups_add. */
int groups_park_one(struct groups *g, const char *key, size_t size,
                    struct group_item *item);
/* End parking. With `parked` the items are in the store; otherwise they go back
 * to their places. */
void groups_park_end(struct groups *g, struct group_item *const *items,
                     size_t n, bool parked);
/* Undo groups_park_one: the item is neither in its place nor parked. */
void groups_park_undo(struct groups *g, struct group_item *item);
/* Take the item with that sequence out of its place; items behind it may run in
 * the meantime. The item belongs to the caller, who calls groups_park_end to
 * put it back, or groups_park_undo after its message was settled. Returns NULL
 * if the group has no such item. With keep_front, returns NULL also for an item
 * of GROUP_FRONT whose group might have to be held without the item: because
 * the item is a letter, or because another letter came meanwhile. */
struct group_item *groups_pull(struct groups *g, const char *key, size_t size,
                               uint64_t seq);

/* ---- looking ---- */

size_t groups_ready(const struct groups *g);    /* groups to lease now */
size_t groups_waiting(const struct groups *g);  /* items in their places */
size_t groups_parkable(const struct groups *g); /* items to park now */
uint64_t groups_parked(const struct groups *g);
size_t groups_count(struct groups *g);
size_t groups_held(const struct groups *g); /* groups that are held */
/* Visit the items of a group, in the order they would be delivered, until
 * `visit` returns false. `visit` runs under the lock and must not call back.
 * Returns -ENOENT if the group is idle or unknown. */
int groups_list(struct groups *g, const char *key, size_t size,
                bool (*visit)(const struct group_item *item, void *arg),
                void *arg);

#endif
