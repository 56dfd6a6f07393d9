/* row.h - a message in a slot, and the row of it in the store
 *
 * WHAT   Copies what a message is from one to the other.
 * WHO    The thread that owns the slot.
 * OWNS   Nothing; a row borrows the slot's body and the delivery's group.
 * FAILS  Never.
 */
#ifndef WORKER_SOURCE_MQ_ROW_H
#define WORKER_SOURCE_MQ_ROW_H

#include "common/store/store.h"
#include "worker/rules/delivery.h"

/* What the store keeps of a message. */
void row_make(struct store_row *m, const struct delivery *d);
/* The row's data are in the body of a FREE slot: the rest of the record, and it
 * is HELD. */
void row_hold(struct slot *slot, const struct store_row *m);

#endif
