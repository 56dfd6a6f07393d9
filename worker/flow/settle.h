/* settle.h - verdict -> done | retry | dead
 *
 * WHAT   Makes a verdict durable, then gives the slot back. What cannot be
 *        written (disk full) keeps its slot and is tried again by the wheel.
 * WHO    Pool threads; settle_recover: the engine at start.
 * OWNS   The delivery's slot, until it is free or pending.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_FLOW_SETTLE_H
#define WORKER_FLOW_SETTLE_H

#include "common/store/store.h"
#include "worker/rules/delivery.h"
#include "worker/flow/flow.h"

/* What became of the slot. */
enum settled {
    SETTLED_FREE, /* it is FREE; the caller has it still */
    SETTLED_KEPT, /* it is held, pending or stays for the next start */
};

/* A handler ended. */
enum settled settle(struct flow *f, struct delivery *d, struct outcome *out);
/* Dead without having run. `error` may be NULL. */
enum settled settle_dead(struct flow *f, struct delivery *d,
                         enum dead_reason reason, const char *error);
/* A second copy of a letter that was taken already: it is no message of its own
 * and comes to nothing. */
enum settled settle_repeat(struct flow *f, struct delivery *d);
/* Not due yet: to the store until the header's not-before. Many, in one commit:
 * the slots are free (and released) or kept after it. */
#define SETTLE_LATER_MOST 16
void settle_later(struct flow *f, struct slot *const *slots, size_t n);

/* A stored message cannot be run, and is a letter now; `flow` is the
 * flow. */
void settle_died(void *flow, const struct store_row *m);
/* When its not-before is over: clock_steady_ns, for a row. */
uint64_t settle_due(const struct delivery *d);

#endif
