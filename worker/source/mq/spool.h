/* spool.h - messages wait on the disk instead of in the queue (--spool)
 *
 * WHAT   Moves messages from the queue to the store as they come, many in one
 *        commit, and gives them out in the order in which the queue would have:
 *        the highest priority first, then the oldest. One that has nobody
 *        before it is given out at once. docs/design/spool.md has the states
 *        and what a kill in each of them means.
 * WHO    open to close: the engine's thread. The calls of source_mq are those
 *        of mq_spool_ops. A thread of its own waits for the queue.
 * OWNS   The slots of messages that are on their way to the disk; the file of
 *        ends; that thread.
 * FAILS  open, recovered: a problem with status 71 or 73.
 */
#ifndef WORKER_SOURCE_MQ_SPOOL_H
#define WORKER_SOURCE_MQ_SPOOL_H

#include "common/base/problem.h"

struct source_mq; /* source_mq.h */
struct spool;     /* opaque; body in spool_inner.h */

/* It is on (q->spool is set) where the settings have --spool, or there is what
 * an earlier worker spooled; else it can be turned on later. */
int spool_open(struct spool **out, struct source_mq *q, struct problem *p);
/* Recovery has seen all slots. */
int spool_recovered(struct spool *sp, struct problem *p);
/* What is in the queue, and in slots that are not lent, goes to the disk, and
 * nothing more is taken. No thread takes any more. NULL-safe. */
void spool_stop(struct spool *sp);
/* All that was lent is settled, or stays in custody. NULL-safe; sets NULL. */
void spool_close(struct spool **spool);

#endif
