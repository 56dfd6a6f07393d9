/* row.h - a message in a slot, and the row of it in the store
 *
 * WHAT   Copies what a message is from one to the other.
 * WHO    The thread that owns the slot.
 * OWNS   Nothing; a row borrows the slot's body and the group.
 * FAILS  row_restore: -ENOENT gone or in another state; -EMSGSIZE larger than a
 *        slot, it is a dead letter now; else the store's error. The slot is
 *        FREE then.
 */
#ifndef WORKER_SOURCE_MQ_ROW_H
#define WORKER_SOURCE_MQ_ROW_H

#include "common/store/store.h"
#include "worker/source/mq/lent.h"

struct source_mq;

/* What the store keeps of a message. */
void row_make(struct store_row *row, const struct lent *l,
              struct header_text group, size_t header_size);
/* One that cannot be run: nothing is lost, it is a dead letter. */
int row_too_large(struct source_mq *q, struct store_row *m);
/* A stored message into a FREE slot, which is HELD after it. */
int row_restore(struct source_mq *q, int64_t row, enum store_state state,
                struct lent *l);

#endif
