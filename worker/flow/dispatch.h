/* dispatch.h - messages of groups: from where they wait to a thread
 *
 * WHAT   Puts groups.h to work: what waits for its group is lent; what is
 *        behind a blocked head is parked in the source when few more can be
 *        lent; a lease ends with the verdict. docs/ordering.md.
 * WHO    Pool threads; dispatch_add of fresh messages inside of flow.solo, so
 *        that a group's order is the source's. restore, and add at recovery:
 *        the engine. groups, held, list, shut, reopen, closing, set_quantum:
 *        also the loop.
 * OWNS   The messages that wait in their groups.
 * FAILS  -errno of the source, -ENOMEM.
 */
#ifndef WORKER_FLOW_DISPATCH_H
#define WORKER_FLOW_DISPATCH_H

#include <stdbool.h>

#include "worker/groups/groups.h"
#include "worker/rules/delivery.h"
#include "worker/rules/verdict.h"

struct flow;
struct dispatch; /* opaque; body in dispatch.c */

/* What became of a message that was to be taken. */
enum taken {
    TAKEN,       /* it is the caller's */
    HANDED_OVER, /* its group has it */
    PUT_BY,      /* the source has it again, parked or as before */
    TAKEN_NONE,  /* it was settled without a handler */
};

/* `most`: all messages that are ever lent have an index below. */
int dispatch_open(struct dispatch **out, struct flow *f, unsigned most);
void dispatch_close(struct dispatch **dispatch);
/* At start, before any message is added: what the source knows. */
int dispatch_restore(struct flow *f);

/* Whether no message of a group waits, held or parked. */
bool dispatch_empty(const struct flow *f);
/* Whether one more message may be received, as it may be of a group. */
bool dispatch_room(struct flow *f);
/* Whether a group has something to deliver, or something is to be parked. */
bool dispatch_ready(const struct flow *f);
/* Whether something is to be parked, and nobody does. */
bool dispatch_must_park(const struct flow *f);
/* A message of a group, read, to its place there: HANDED_OVER, or -ENOMEM.
 * Whether its group is closed is not asked. */
int dispatch_add(struct flow *f, struct delivery *d);
/* As dispatch_add; but TAKEN, the caller delivers it, if its group had nothing
 * else: it is leased; or if its group refuses it: it is unfit now. */
int dispatch_enter(struct flow *f, struct delivery *d);
/* One whose time has come: TAKEN if it is its group's head, leased now, and is
 * to be delivered; -EINPROGRESS if its group does not know it as its head yet,
 * ask again soon; PUT_BY if the room for groups is taken; else as
 * dispatch_add. */
int dispatch_due(struct flow *f, struct delivery *d);
/* One whose time has come, and that ends without a handler: 0, and `d` has the
 * lease of its group if it is the head; -EINPROGRESS as dispatch_due. */
int dispatch_end(struct flow *f, struct delivery *d);
/* The next message of a group, leased, in `d`. -EAGAIN none. */
int dispatch_take(struct flow *f, unsigned lane, struct delivery *d);
/* When few more can be lent: park what is behind blocked heads. */
void dispatch_relieve(struct flow *f);

/* Take one that waits out of the line of its group, wherever it is there; it
 * is the caller's until dispatch_pulled. NULL: it does not wait there. */
struct message *dispatch_pull(struct flow *f, struct header_text key,
                              uint64_t seq);
/* `gone`: it came to its end, and is not released yet. Else it is back in its
 * place. */
void dispatch_pulled(struct flow *f, struct header_text key, struct message *m,
                     bool gone);
/* Let held groups go on that have no letter left: how many, or -errno: of one
 * the source did not tell; others may go on. */
int dispatch_release(struct flow *f);
size_t dispatch_held(const struct flow *f);
void dispatch_set_quantum(struct flow *f, unsigned quantum);
/* Groups that are known now. */
size_t dispatch_groups(const struct flow *f);

/* Visit the messages of a group that wait, as groups_list. */
int dispatch_list(struct flow *f, const char *key, size_t size,
                  bool (*visit)(const struct message *m, void *arg), void *arg);
/* Close a group: what was received before has its turn, what is received until
 * all of that has come to its end is refused. `last`: the last of it that waits
 * for its turn at the source, by the number that others see; 0: none does.
 * -ENOENT if there is no message of it; -ENOMEM. */
int dispatch_shut(struct flow *f, const char *key, size_t size, int64_t last);
/* It takes messages again, also those that a close refuses that is over.
 * -ENOENT if it was not closed, and there is no message of it. */
int dispatch_reopen(struct flow *f, const char *key, size_t size);
/* Return true if a group is closing, or its close may refuse messages still. */
bool dispatch_closes(const struct flow *f);
/* As closings_keys. */
char *dispatch_closing(struct flow *f, size_t *bytes);

/* The verdict on message `seq` is durable. `letter`: it may have been one that
 * an operator sent again. Ends the lease. */
void dispatch_settled(struct flow *f, struct group *lease, enum group_end end,
                      uint64_t seq, bool letter);
/* The same as GROUP_GOES_ON, of a message that is no letter. */
void dispatch_done(struct flow *f, struct group *lease);
/* A stored message died without a lease: its group does not wait for it any
 * more, or is held. */
void dispatch_died(struct flow *f, struct header_text group, uint64_t seq);
/* It was not delivered: first in line again. Ends the lease. */
void dispatch_return(struct flow *f, struct group *lease, struct message *m);

#endif
