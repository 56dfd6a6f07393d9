/* decision.h - what flow decided about a message, and what follows from it
 *
 * WHAT   The verdict as the source makes it durable, and what this worker wants
 *        to do after that: count it, tell it, end the lease of its group, say
 *        so to the handler's side.
 * WHO    settle.c and unsettled.c, on any thread; died: the thread that took
 *        the row (on_died in worker/engine.c).
 * OWNS   Nothing; a decision borrows what it points to.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_DECISION_H
#define WORKER_FLOW_DECISION_H

#include "worker/flow/flow.h"
#include "worker/rules/delivery.h"
#include "worker/source/source.h"

/* Who discarded a message. */
enum discarded_by {
    DISCARDED_BY_HANDLER,
    DISCARDED_BY_OPERATOR,
    DISCARDED_AS_DUPLICATE, /* another message has its unique key */
    DISCARDED_AS_REPEAT,    /* it is a second copy of a letter */
};

struct decision {
    struct settle s;
    enum mqw_verdict verdict;     /* s.kind may become DISCARD */
    enum discarded_by discarded;  /* of DISCARD */
    struct group *lease;          /* of its group; NULL: none */
    struct counters_block *count; /* where it is counted; NULL: the rest */
    bool stored;                  /* the message was MESSAGE_STORED */
    uint64_t max_attempts;        /* the message's own; 0: the worker's */
    uint64_t took_ns;             /* the handler */
    uint64_t end_ns;              /* wall; when the handler ended */
    uint64_t wait_ns;             /* until the retry */
};

/* Begin a decision on the message, which gets an id if it has none. */
void decision_init(struct decision *dec, const struct delivery *d,
                   enum mqw_verdict verdict);
/* Do what follows from a decision that is durable now: count it, log it, end
 * the lease of the group and tell the handler's side. The message can still be
 * read. */
void decision_done(struct flow *f, const struct decision *dec);
/* Do what follows from a decision whose claim was gone: nothing was written,
 * and the source gives the message again. */
void decision_stale(struct flow *f, const struct decision *dec);
/* Put a message that was not delivered first in line again, in its group if it
 * has one. */
void decision_give_back(struct flow *f, struct message *m, struct group *lease);
/* Do what follows when a stored message could not be run and became a letter.
 */
void decision_died(struct flow *f, const struct source_death *death);

#endif
