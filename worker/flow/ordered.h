/* ordered.h - messages of groups: from slots and the store to a thread
 *
 * WHAT   Puts groups.h to work: what waits for its group sits in slots; what is
 *        behind a blocked head moves to the store when slots get scarce; a
 *        lease ends with the verdict. docs/ordering.
 * WHO    Pool threads; ordered_add of fresh messages under receive_mtx, so that
 *        a group's order is the queue's.
 * OWNS   The slots of messages that wait in their groups.
 * FAILS  -errno of the store, -ENOMEM.
 */
#ifndef WORKER_FLOW_ORDERED_H
#define WORKER_FLOW_ORDERED_H

#include <stdbool.h>

#include "common/store/store.h"
#include "worker/rules/delivery.h"
#include "worker/groups/groups.h"

struct flow;
struct ordered; /* opaque; body in ordered.c */

/* Not an error: the message is in its group, its slot is not the caller's any
 * more. */
#define HANDED_OVER 1
/* Nor this: it is in the store, parked or as before, and its slot is FREE and
 * still the caller's. */
#define PUT_BY 2

int ordered_open(struct ordered **out, struct flow *f, unsigned slots);
void ordered_close(struct ordered **o);
/* At start, before any message is added: what the store knows. */
int ordered_restore(struct flow *f);

/* Whether no message of a group waits, held or parked. */
bool ordered_empty(const struct flow *f);
/* Whether one more message may be received, as it may be of a group. */
bool ordered_room(struct flow *f);
/* Whether a group has something to deliver, or something is to be parked. */
bool ordered_ready(const struct flow *f);
/* Whether something is to be parked, and nobody does. */
bool ordered_stuck(const struct flow *f);
/* A message of a group, HELD and read: HANDED_OVER, or 0: the caller delivers
 * it (it is broken now, as its group was closed), or -ENOMEM. */
int ordered_add(struct flow *f, struct delivery *d);
/* As ordered_add; but 0 as well if its group had nothing else: it is leased. */
int ordered_enter(struct flow *f, struct delivery *d);
/* A stored one whose time has come: 0 if it is its group's head, leased now,
 * and is to be delivered; -EINPROGRESS if its group does not know it as its
 * head yet, ask again soon; PUT_BY if the slots for groups are taken; else as
 * ordered_add. Of PUT_BY the row has landed. */
int ordered_due(struct flow *f, struct delivery *d);
/* The next message of a group, leased, in `d`. A parked one is read to `slot`.
 * -EAGAIN none. */
int ordered_take(struct flow *f, struct slot *slot, struct delivery *d);
/* When slots get scarce: park what is behind blocked heads. */
void ordered_relieve(struct flow *f);

/* Let held groups go on that have no letter left: how many, or -errno: of one
 * the store did not tell; others may go on. */
int ordered_release(struct flow *f);
size_t ordered_held(const struct flow *f);
void ordered_set_quantum(struct flow *f, unsigned quantum);
/* Groups that are known now. */
size_t ordered_groups(const struct flow *f);

/* Visit the slots of a group that wait, as groups_list. */
int ordered_list(struct flow *f, const char *key, size_t size,
                 bool (*visit)(const struct slot *slot, void *arg), void *arg);
/* As groups_shut. */
int ordered_shut(struct flow *f, const char *key, size_t size);

/* The verdict is durable: `row` as stored, NULL: gone. `letter`: it may have
 * been one that an operator sent again. Ends the lease. */
void ordered_settled(struct flow *f, struct group *lease,
                     const struct store_row *row, bool letter);
/* A stored message died without a delivery: its group does not wait for it, or
 * is held. */
void ordered_died(struct flow *f, const struct store_row *row);
/* It was not delivered: first in line again. Ends the lease. */
void ordered_return(struct flow *f, struct group *lease, struct slot *slot);

#endif
