/* settle.h - verdict -> done | retry | dead
 *
 * WHAT   Decides what becomes of a message, and has the source make that
 *        durable. What the source refuses (disk full) is tried again by the
 *        wheel; what it settles late goes on when it says so.
 * WHO    Pool threads; the engine at start.
 * OWNS   Nothing; the message is not the caller's any more after each of these.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_FLOW_SETTLE_H
#define WORKER_FLOW_SETTLE_H

#include "common/message/dead_reason.h"
#include "worker/flow/flow.h"
#include "worker/rules/delivery.h"

/* A handler ended. */
void settle(struct flow *f, struct delivery *d, struct outcome *out);
/* Dead without having run. `error` may be NULL. */
void settle_dead(struct flow *f, struct delivery *d, enum dead_reason reason,
                 const char *error);
/* A second copy of a letter that was taken already: it is no message of its own
 * and comes to nothing. */
void settle_repeat(struct flow *f, struct delivery *d);
/* An operator cancelled it, and nobody has run it since: discarded. */
void settle_cancelled(struct flow *f, struct delivery *d);
/* Its claim is gone: it comes again, and is not worth a run. */
void settle_stale(struct flow *f, struct delivery *d);
/* Not due yet: to the source until the header's not-before. Many, in one
 * commit. */
#define SETTLE_LATER_MOST 16
void settle_later(struct flow *f, struct message *const *list, size_t n);

/* When its not-before is over: clock_steady_ns. */
uint64_t settle_due(const struct delivery *d);

#endif
