/* dispatch.h - messages of groups: from where they wait to a thread
 *
 * WHAT   Applies groups.h to messages. A message that waits in its group is
 *        lent by the source. When slots or the lookahead run out, messages
 *        behind a blocked head are parked: the source stores them. A thread
 *        that delivers a message of a group has a lease of the group until the
 *        verdict. docs/ordering.md explains groups to users.
 * WHO    Pool threads. dispatch_add and dispatch_enter of fresh messages are
 *        called inside of flow.take_lock, so that a group's order is the
 *        source's. restore, and add at recovery: the engine. shut, reopen,
 *        closing: also the loop.
 * OWNS   The messages that wait in their groups.
 * FAILS  -errno of the source, -ENOMEM.
 */
#ifndef WORKER_FLOW_DISPATCH_H
#define WORKER_FLOW_DISPATCH_H

#include <stdbool.h>

#include "worker/groups/groups.h"
#include "worker/rules/delivery.h"
#include "worker/rules/verdict.h"

/* A copy of the key of a group that is closing. */
struct closing_key {
    size_t size;
    char at[GROUP_KEY_MAX];
};

struct flow;
struct source_group; /* source.h */
struct dispatch;     /* opaque; body in dispatch.c */

/* Result of an attempt to take a message. */
enum taken {
    TAKEN,       /* the caller has the message */
    HANDED_OVER, /* the message waits in its group */
    PUT_BACK,    /* the source has it again, parked or as before */
    TAKEN_NONE,  /* the message was settled without a handler */
};

/* Open the groups. The index of each lent message is below `most`. */
int dispatch_open(struct flow *f, unsigned most);
void dispatch_close(struct flow *f);
/* Restore one group that the source knows, before any message is added: the
 * visitor of source_local_ops.groups. */
int dispatch_restore(void *flow, const struct source_group *group);

/* Return true if no message of a group waits, lent or parked. */
bool dispatch_empty(const struct flow *f);
/* Return true if --lookahead and --max-parked allow one more message to be
 * received, because it may be of a group. */
bool dispatch_room(struct flow *f);
/* Return true if a group has something to deliver or to park. */
bool dispatch_ready(const struct flow *f);
/* Return true if messages have to be parked, and no thread is parking. */
bool dispatch_must_park(const struct flow *f);
/* Add a message, whose header is read, to its group, even if the group is
 * closing. Returns HANDED_OVER or -ENOMEM. */
int dispatch_add(struct flow *f, struct delivery *d);
/* Do the same, or lease the group if it has no other message: then return
 * TAKEN, and the caller delivers the message. If a close of the group refuses
 * the message, mark it unfit and return TAKEN as well. */
int dispatch_enter(struct flow *f, struct delivery *d);
/* Handle a due message. Returns TAKEN if it is the head of its group, which is
 * leased now, or if it is cancelled and has to be settled; -EINPROGRESS if it
 * cannot enter its group yet: call again soon; PUT_BACK if the lookahead is
 * used up; else like dispatch_enter. */
int dispatch_due(struct flow *f, struct delivery *d);
/* Lease a group and read its next message into `d`. Returns -EAGAIN if no group
 * has a message that may run. */
int dispatch_take(struct flow *f, unsigned lane, struct delivery *d);
/* Park messages behind blocked heads until there is room again. */
void dispatch_relieve(struct flow *f);

/* End groups_pull: the message was settled (`gone`) but not released yet, or
 * returns to its position. */
void dispatch_pulled(struct flow *f, struct header_text key,
                     struct group_item *item, bool gone);
/* Release the held groups that have no letter left, and have their messages
 * taken: the source's event `letters_gone`. Returns 0, or -errno if the source
 * failed for one of them; others may be released then. */
int dispatch_release(struct flow *f);

/* Close a group: messages received before the call still run; messages received
 * after it, until all of the former are settled, are refused. `last` is the
 * number of the group's last message that waits for its turn at the source; 0:
 * there is none. Returns -ENOENT if the group has no message; -ENOMEM. */
int dispatch_shut(struct flow *f, const char *key, size_t size, int64_t last);
/* Let a group accept messages again, also those that a finished close refuses.
 * Returns -ENOENT if the group was not closed and has no message. */
int dispatch_reopen(struct flow *f, const char *key, size_t size);
/* Return true if a group is closing, or its close may still refuse messages. */
bool dispatch_closes(const struct flow *f);
/* Copy the keys of all groups that are still closing. The caller frees the
 * copies. NULL and a count above 0: out of memory. */
struct closing_key *dispatch_closing(struct flow *f, size_t *count);

/* End the lease of a group after the verdict on message `seq` is durable.
 * `letter`: the message may have been a replayed letter. */
void dispatch_settled(struct flow *f, struct group *lease, enum group_end end,
                      uint64_t seq, bool letter);
/* Do the same with GROUP_GOES_ON, for a message that is no letter. */
void dispatch_done(struct flow *f, struct group *lease);
/* Unblock or hold the group of a stored message that died without a lease. */
void dispatch_died(struct flow *f, struct header_text group, uint64_t seq);
/* Return a message that was not delivered to the front of its group, and end
 * the lease; without a lease, to the front of the ready list. */
void dispatch_return(struct flow *f, struct message *m, struct group *lease);

#endif
