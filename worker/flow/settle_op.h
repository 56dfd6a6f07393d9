/* settle_op.h - what a verdict does to the store, and what follows from it
 *
 * WHAT   One durable step: a row is put or deleted. Then it is told and
 *        counted, the slot is free, the group and the due rows know.
 * WHO    settle.c and unsettled.c.
 * OWNS   Nothing; an op borrows what it points to.
 * FAILS  op_write: the store's error, nothing has happened.
 */
#ifndef WORKER_FLOW_SETTLE_OP_H
#define WORKER_FLOW_SETTLE_OP_H

#include "worker/flow/settle.h"

/* What a verdict does to the store. */
struct op {
    enum { OP_PUT, OP_DONE, OP_DISCARD } kind; /* the last two delete the row */
    bool letter;                  /* it may be one that was sent again */
    struct group *lease;          /* of its group; NULL: none */
    struct counters_block *count; /* where it is counted; NULL: the rest */
    uint64_t took_ns;             /* the handler */
    uint64_t end_ns;              /* wall; when the handler ended */
    uint64_t wait_ns;             /* until the retry */
    struct store_row row;
    const struct store_attempt *attempt; /* NULL: none */
    struct slot_word was;                /* of the slot, before */
};

/* Durable on 0. */
int op_write(struct flow *f, struct op *op);
/* It is durable: free the slot and go on. */
void op_retire(struct flow *f, struct slot *slot, const struct op *op,
               int64_t landed);
/* What op_retire does besides freeing the slot. */
void op_after(struct flow *f, const struct op *op, int64_t landed);
/* Not delivered: first in line again, in its group if it has one. */
void op_give_back(struct flow *f, struct slot *slot, struct group *lease);

#endif
