/* group_dispatch.h - messages of groups: from slots and the store to a thread
 *
 * WHAT   Puts groups.h to work: what waits for its group sits in slots; what is
 *        behind a blocked head moves to the store when slots get scarce; a
 *        lease ends with the verdict. docs/ordering.md.
 * WHO    Pool threads; dispatch_add of fresh messages under receive_mtx, so
 *        that a group's order is the queue's.
 * OWNS   The slots of messages that wait in their groups.
 * FAILS  -errno of the store, -ENOMEM.
 */
#ifndef WORKER_FLOW_GROUP_DISPATCH_H
#define WORKER_FLOW_GROUP_DISPATCH_H

#include <stdbool.h>

#include "common/store/store.h"
#include "worker/rules/delivery.h"
#include "worker/groups/groups.h"

struct flow;
struct dispatch; /* opaque; body in group_dispatch.c */

/* Not an error: the message is in its group, its slot is not the caller's any
 * more. */
#define HANDED_OVER 1
/* Nor this: it is in the store, parked or as before, and its slot is FREE and
 * still the caller's. */
#define PUT_BY 2

int dispatch_open(struct dispatch **out, struct flow *f, unsigned slots);
void dispatch_close(struct dispatch **dispatch);
/* At start, before any message is added: what the store knows. */
int dispatch_restore(struct flow *f);

/* Whether no message of a group waits, held or parked. */
bool dispatch_empty(const struct flow *f);
/* Whether one more message may be received, as it may be of a group. */
bool dispatch_room(struct flow *f);
/* Whether a group has something to deliver, or something is to be parked. */
bool dispatch_ready(const struct flow *f);
/* Whether something is to be parked, and nobody does. */
bool dispatch_stuck(const struct flow *f);
/* A message of a group, HELD and read: HANDED_OVER, or 0: the caller delivers
 * it (it is broken now, as its group was closed), or -ENOMEM. */
int dispatch_add(struct flow *f, struct delivery *d);
/* As dispatch_add; but 0 as well if its group had nothing else: it is leased.
 *  */
int dispatch_enter(struct flow *f, struct delivery *d);
/* A stored one whose time has come: 0 if it is its group's head, leased now,
 * and is to be delivered; -EINPROGRESS if its group does not know it as its
 * head yet, ask again soon; PUT_BY if the slots for groups are taken; else as
 * dispatch_add. Of PUT_BY the row has landed. */
int dispatch_due(struct flow *f, struct delivery *d);
/* The next message of a group, leased, in `d`. A parked one is read to `slot`.
 * -EAGAIN none. */
int dispatch_take(struct flow *f, struct slot *slot, struct delivery *d);
/* When slots get scarce: park what is behind blocked heads. */
void dispatch_relieve(struct flow *f);

/* Let held groups go on that have no letter left: how many, or -errno: of one
 * the store did not tell; others may go on. */
int dispatch_release(struct flow *f);
size_t dispatch_held(const struct flow *f);
void dispatch_set_quantum(struct flow *f, unsigned quantum);
/* Groups that are known now. */
size_t dispatch_groups(const struct flow *f);

/* Visit the slots of a group that wait, as groups_list. */
int dispatch_list(struct flow *f, const char *key, size_t size,
                  bool (*visit)(const struct slot *slot, void *arg), void *arg);
/* As groups_shut. */
int dispatch_shut(struct flow *f, const char *key, size_t size);

/* The verdict is durable: `row` as stored, NULL: gone. `letter`: it may have
 * been one that an operator sent again. Ends the lease. */
void dispatch_settled(struct flow *f, struct group *lease,
                      const struct store_row *row, bool letter);
/* A stored message died without a delivery: its group does not wait for it, or
 * is held. */
void dispatch_died(struct flow *f, const struct store_row *row);
/* It was not delivered: first in line again. Ends the lease. */
void dispatch_return(struct flow *f, struct group *lease, struct slot *slot);

#endif
