/* dead_queue.h - --dead-letter-queue: dead letters to a POSIX queue
 *
 * WHAT   Moves dead letters from the store into a kernel queue, in order of
 *        death, as it has room. A letter stays in the store until it was sent;
 *        one that is in flight is left alone. After trouble a timer tries
 *        again.
 * WHO    open, close: the engine. poke: any thread. room: the peeker.
 * OWNS   The queue. Sends on a pool thread.
 * FAILS  open: a problem of queue_open.
 */
#ifndef WORKER_DEAD_QUEUE_H
#define WORKER_DEAD_QUEUE_H

#include "common/problem.h"

struct engine;
struct dead_queue; /* opaque; body in dead_queue.c */

int dead_queue_open(struct dead_queue **out, struct engine *e,
                    struct problem *p);
/* A letter died, or there is room: move what can be moved. */
void dead_queue_poke(struct dead_queue *q);
void dead_queue_close(struct dead_queue **q); /* after the pool; sets NULL */

#endif
