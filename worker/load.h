/* load.h - a stored message to a slot
 *
 * WHAT   Reads a row of the store into a FREE slot, which is HELD after it.
 * WHO    The thread that owns the slot.
 * OWNS   Nothing.
 * FAILS  -ENOENT gone or in another state; -EMSGSIZE larger than a slot, it is
 *        a dead letter now; else the store's error. The slot is FREE then.
 */
#ifndef WORKER_LOAD_H
#define WORKER_LOAD_H

#include "common/store.h"
#include "worker/delivery.h"

struct engine;

int load_row(struct engine *e, int64_t row, enum store_state state,
             struct slot *slot, struct delivery *d);

#endif
