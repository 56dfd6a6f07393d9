/* delivery_read.h - the message in a slot, as it is lent
 *
 * WHAT   Fills a delivery from a slot; carries out what the handler's side asks
 *        of the message's owner, in the slot.
 * WHO    The thread that owns the slot.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef WORKER_SOURCE_MQ_DELIVERY_READ_H
#define WORKER_SOURCE_MQ_DELIVERY_READ_H

#include "common/custody/slot.h"
#include "worker/rules/delivery.h"

/* Look at a HELD slot: header, id (assigned and written to the slot if there is
 * none yet), body, group. `separator`: where the group of a message without a
 * header ends; 0: such a message has none. */
void delivery_read(struct delivery *d, struct slot *slot, char separator);
/* The facts of a message that is in a slot, its word as it is or was. */
void message_read(struct message *m, struct slot *slot, struct slot_word word);
/* It may have run already, though nobody of ours ran it. */
void delivery_mark(struct delivery *d);

#endif
