/* decision.h - what flow decided about a message, and what follows from it
 *
 * WHAT   The verdict as the source makes it durable, and what this worker wants
 *        to do after that: count it, tell it, end the lease of its group, say
 *        so to the handler's side.
 * WHO    settle.c and unsettled.c, on any thread; died: the thread that took
 *        the row (on_died in worker/engine_source.c).
 * OWNS   Nothing; a decision borrows what it points to.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_DECISION_H
#define WORKER_FLOW_DECISION_H

#include "worker/flow/flow.h"
#include "worker/rules/delivery.h"
#include "worker/source/source.h"

struct decision {
    struct settle s;
    struct group *lease;          /* of its group; NULL: none */
    struct counters_block *count; /* where it is counted; NULL: the rest */
    bool stored;                  /* the message was MESSAGE_STORED */
    bool duplicate;               /* DISCARD: by its unique key */
    bool cancelled;               /* DISCARD: by an operator */
    bool repeat;                  /* DISCARD: a second copy of a letter */
    uint64_t max_attempts;        /* the message's own; 0: the worker's */
    uint64_t took_ns;             /* the handler */
    uint64_t end_ns;              /* wall; when the handler ended */
    uint64_t wait_ns;             /* until the retry */
};

/* As every decision on that message begins. */
void decision_init(struct decision *dec, const struct delivery *d,
                   enum settle_kind kind);
/* It is durable: what follows from it. The message can be read still. */
void decision_done(struct flow *f, const struct decision *dec);
/* The claim is gone: the message comes again, and this was in vain. */
void decision_stale(struct flow *f, const struct decision *dec);
/* Not delivered: first in line again, in its group if it has one. */
void decision_give_back(struct flow *f, struct message *m, struct group *lease);
/* A stored message cannot be run, and is a letter now. */
void decision_died(struct flow *f, const struct source_death *death);

#endif
