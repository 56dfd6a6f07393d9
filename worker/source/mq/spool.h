/* spool.h - messages wait on the disk instead of in the queue (--spool)
 *
 * WHAT   Moves messages from the queue to the store as they come, many in one
 *        commit, and gives them out in the order in which the queue would have:
 *        the highest priority first, then the oldest. One that has nobody
 *        before it is given out at once. docs/design/spool.md has the states
 *        and what a kill in each of them means.
 * WHO    open to close: the engine's thread. The others: source_mq, by the
 *        threads that source.h names. A thread of its own waits for the queue.
 * OWNS   The slots of messages that are on their way to the disk; the file of
 *        ends; that thread.
 * FAILS  open, recovered: a problem with status 71 or 73.
 */
#ifndef WORKER_SOURCE_MQ_SPOOL_H
#define WORKER_SOURCE_MQ_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/problem.h"

struct lent;
struct message;
struct slot;
struct source_mq; /* source_mq.h */
struct spool;     /* opaque; body in spool.c */

/* ---- for the engine ---- */

/* Set q->spool_there. The spool is on (q->spool is set) where the settings have
 * --spool, or there is what an earlier worker spooled; else it can be turned on
 * later. */
int spool_open(struct source_mq *q, struct problem *p);
/* Recovery has seen all slots. NULL-safe. */
int spool_recovered(struct spool *sp, struct problem *p);
/* What is in the queue, and in slots that are not lent, goes to the disk, and
 * nothing more is taken. No thread takes any more. NULL-safe. */
void spool_stop(struct spool *sp);
/* All that was lent is settled, or stays in custody. */
void spool_close(struct source_mq *q);

/* ---- for source_mq; a message that the spool lends has a key in lent.spooled
 * if there is a row of it ---- */

/* As the operations of source.h. */
int spool_take(struct spool *sp, unsigned lane, uint64_t wall_ns,
               struct message **out);
bool spool_queued(const struct spool *sp, int64_t number);
void spool_tuned(struct spool *sp);
/* Another queue is behind the descriptor. Inside take. */
void spool_moved(struct spool *sp);
/* A message of which there is a row is done or discarded: its slot is FREE on
 * 0. */
int spool_end(struct spool *sp, struct lent *l);
/* Return how many wait. Any thread. */
uint64_t spool_waits(const struct spool *sp);
/* Return true if take is worth a call although the queue is empty. Any
 * thread. */
bool spool_ready(const struct spool *sp);
/* All is recovered: messages come from here on. */
void spool_start(struct spool *sp);
/* Take over a message that is HELD, and in its slot only: it gets in line. */
void spool_adopt(struct spool *sp, struct lent *l);
/* An operator is about to cancel the rows whose keys, with a minus, are in
 * `numbers`: until release none of them is lent. skip: those that were. release
 * has of each number whether it is done. Both by one thread. */
void spool_seize(struct spool *sp, const int64_t *numbers, size_t n,
                 bool *skip);
void spool_release(struct spool *sp, const bool *done);

enum spool_at {               /* where the message of a slot is */
                SPOOL_AT_NOT, /* its slot is the only place */
                SPOOL_AT_ROW, /* there is a row of it as well */
                /* The same, and the row is not to run: it is taken again, and
                * comes to its end then. */
                SPOOL_AT_CANCELLED,
                SPOOL_AT_ENDED, /* it ended, of which the row tells nothing */
};
/* Find the message of a slot at recovery, which is not FREE and no run of a row
 * of the messages. */
int spool_find(struct spool *sp, const struct slot *slot, enum spool_at *out);
/* Return lent.spooled of a message that find says SPOOL_AT_ROW of. */
int64_t spool_key_of(const struct slot *slot);
/* Write into the row what the slot says, with the crash of a message that
 * ran. */
int spool_note(struct spool *sp, const struct slot *slot);

/* ---- for tests ---- */

/* How a stop ended with messages in the queue. */
struct spool_last {
    int got;              /* at the last look; or -errno */
    bool full, slot_free; /* the spool; none waits in a slot any more */
};
/* Why they were left, and what to do before a reboot. */
const char *spool_left_why(const struct spool_last *last);
const char *spool_left_next(const struct spool_last *last);

#endif
