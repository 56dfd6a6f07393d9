/* dispatch.h - messages of groups: from where they wait to a thread
 *
 * WHAT   Puts groups.h to work: what waits for its group is lent; what is
 *        behind a blocked head is parked in the source when few more can be
 *        lent; a lease ends with the verdict. docs/ordering.md.
 * WHO    Pool threads; dispatch_add of fresh messages inside of
 *        flow.take_lock, so that a group's order is the source's. restore, and
 *        add at recovery: the engine. groups, held, list, shut, reopen,
 *        closing, set_quantum: also the loop.
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

/* `most`: above the index of every message that is ever lent. */
int dispatch_open(struct flow *f, unsigned most);
void dispatch_close(struct flow *f);
/* Read what the source knows of groups, before any message is added. */
int dispatch_restore(struct flow *f);

/* Return true if no message of a group waits, lent or parked. */
bool dispatch_empty(const struct flow *f);
/* Return true if one more message may be received, which may be of a group:
 * --lookahead and --max-parked allow it. */
bool dispatch_room(struct flow *f);
/* Return true if a group has something to deliver or to park. */
bool dispatch_ready(const struct flow *f);
/* Return true if something is to be parked, and no thread does. */
bool dispatch_must_park(const struct flow *f);
/* Put a message, whose header is read, in its place in its group: HANDED_OVER,
 * or -ENOMEM. A close of the group is not looked at. */
int dispatch_add(struct flow *f, struct delivery *d);
/* Do the same, or lease the group if it has nothing else: TAKEN, the caller
 * delivers the message. TAKEN as well if a close of the group refuses the
 * message: it is unfit now. */
int dispatch_enter(struct flow *f, struct delivery *d);
/* Handle a message that is due. TAKEN: it is its group's head, leased now, and
 * is to be delivered; or it is cancelled, and is to be settled. -EINPROGRESS:
 * its group does not know it as its head yet, ask again soon. PUT_BY: the room
 * for groups is taken. Else as dispatch_enter. */
int dispatch_due(struct flow *f, struct delivery *d);
/* Lease a group and read its next message into `d`. -EAGAIN: there is none. */
int dispatch_take(struct flow *f, unsigned lane, struct delivery *d);
/* Park what is behind blocked heads, until more can be lent. */
void dispatch_relieve(struct flow *f);

/* Take a message out of the line of its group, wherever it is there; it is the
 * caller's until dispatch_pulled. NULL: it does not wait there. */
struct message *dispatch_pull(struct flow *f, struct header_text key,
                              uint64_t seq);
/* End dispatch_pull: the message came to its end (`gone`) and is not released
 * yet, or goes back to its place. */
void dispatch_pulled(struct flow *f, struct header_text key, struct message *m,
                     bool gone);
/* Let held groups go on that have no letter left. Returns their number, or
 * -errno if the source did not answer for one of them; others may go on. */
int dispatch_release(struct flow *f);

/* Visit the messages of a group that wait, as groups_list does. */
int dispatch_list(struct flow *f, const char *key, size_t size,
                  bool (*visit)(const struct message *m, void *arg), void *arg);
/* Close a group: messages received before have their turn, messages received
 * until all of these have come to their end are refused. `last`: the number of
 * the group's last message that waits for its turn at the source; 0: none does.
 * -ENOENT if there is no message of the group; -ENOMEM. */
int dispatch_shut(struct flow *f, const char *key, size_t size, int64_t last);
/* Let a group take messages again, also those that a finished close refuses.
 * -ENOENT if it was not closed, and there is no message of it. */
int dispatch_reopen(struct flow *f, const char *key, size_t size);
/* Return true if a group is closing, or its close may still refuse messages. */
bool dispatch_closes(const struct flow *f);
/* Return what closings_keys does. */
char *dispatch_closing(struct flow *f, size_t *bytes);

/* End the lease of a group after the verdict on message `seq` is durable.
 * `letter`: it may have been one that an operator sent again. */
void dispatch_settled(struct flow *f, struct group *lease, enum group_end end,
                      uint64_t seq, bool letter);
/* Do the same as GROUP_GOES_ON, for a message that is no letter. */
void dispatch_done(struct flow *f, struct group *lease);
/* Handle a stored message that died without a lease: its group does not wait
 * for it any more, or is held. */
void dispatch_died(struct flow *f, struct header_text group, uint64_t seq);
/* Put a message that was not delivered first in line again; ends the lease. */
void dispatch_return(struct flow *f, struct group *lease, struct message *m);

#endif
