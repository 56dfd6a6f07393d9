/* dead_letters.h - dead letters of a POSIX queue, while its worker runs
 *
 * WHAT   --dead-letter-queue: moves letters from the store to another queue, in
 *        the order in which they died; letters that do not fit stay.
 *        --keep-dead, --max-dead: removes the oldest letters, those that died
 *        too long ago and those that are too many.
 *        Replays: finds the letter of a message that an operator sent again;
 *        the message becomes a run of the letter's row. At the start, letters
 *        that were on their way in a queue that is gone are dead again.
 *        A letter in flight is never moved or removed: it is claimed
 *        (due_rows.h).
 * WHO    open, close: the engine. start: when recovery is done. wake: any
 *        thread. Replays: mq_link (source_mq.h), by the thread that received
 *        the message, and by recovery.
 * OWNS   The other queue, and a chore each, which run on pool threads.
 * FAILS  open: a problem. What a store or queue refuses is tried again.
 */
#ifndef WORKER_SOURCE_MQ_DEAD_LETTERS_H
#define WORKER_SOURCE_MQ_DEAD_LETTERS_H

#include "common/base/problem.h"

struct dead_letters; /* opaque; body in dead_letters.c */
struct source_mq;

/* Set q->dead_letters. */
int dead_letters_open(struct source_mq *q, struct problem *p);
/* Make letters dead again whose queue went down with the machine. */
void dead_letters_start(struct source_mq *q);
/* There are more letters, or another setting. Never waits; nothing happens
 * before recovery has found all slots, as a letter may be in one. */
void dead_letters_wake(struct source_mq *q);
/* Call it after the pool. */
void dead_letters_close(struct source_mq *q);

#endif
