/* row_restore.h - a stored message to a slot
 *
 * WHAT   Reads a row of the store into a FREE slot, which is HELD after it.
 * WHO    The thread that owns the slot.
 * OWNS   Nothing.
 * FAILS  -ENOENT gone or in another state; -EMSGSIZE larger than a slot, it is
 *        a dead letter now; else the store's error. The slot is FREE then.
 */
#ifndef WORKER_SOURCE_MQ_ROW_RESTORE_H
#define WORKER_SOURCE_MQ_ROW_RESTORE_H

#include "common/store/store.h"
#include "worker/rules/delivery.h"

/* What it works on, all borrowed; constant once the worker runs. */
struct row_restore {
    struct store *store;
    size_t room; /* of a slot's body */
    /* The row is a letter now. By the thread that calls row_restore. */
    void (*died)(void *arg, const struct store_row *m);
    void *arg;
};

int row_restore(const struct row_restore *l, int64_t row,
                enum store_state state, struct slot *slot, struct delivery *d);

#endif
