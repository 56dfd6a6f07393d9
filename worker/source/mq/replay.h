/* replay.h - letters that come out of the queue again
 *
 * WHAT   Looks whether a message is a letter which an operator sent again. One
 *        that is becomes a run of the letter's row: done removes the letter, a
 *        new death makes it the same letter. Of several copies of it one is
 *        that, and the others are repeats.
 * WHO    The thread that receives a message, and recovery.
 * OWNS   The claim on the row (due_rows.h), until the message is settled.
 * FAILS  -errno: the store cannot be asked; nothing has changed, ask again.
 */
#ifndef WORKER_SOURCE_MQ_REPLAY_H
#define WORKER_SOURCE_MQ_REPLAY_H

#include "worker/source/mq/lent.h"

struct due_rows;
struct header;
struct store;

/* enum source_link; also marks a message that says it is a letter and is none
 * as one that may have run already. */
int replay_link(struct store *store, struct due_rows *due_rows, struct lent *l,
                const struct header *header);

#endif
