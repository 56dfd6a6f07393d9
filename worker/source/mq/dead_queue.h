/* dead_queue.h - --dead-letter-queue: dead letters to a POSIX queue
 *
 * WHAT   Moves dead letters from the store into a kernel queue, in order of
 *        death, as it has room. A letter stays in the store until it was sent;
 *        one that is in flight is left alone. After trouble a timer tries
 *        again.
 * WHO    open, close: the engine. wake: any thread.
 * OWNS   The queue. Sends on a pool thread.
 * FAILS  open: a problem of queue_open.
 */
#ifndef WORKER_SOURCE_MQ_DEAD_QUEUE_H
#define WORKER_SOURCE_MQ_DEAD_QUEUE_H

#include <stddef.h>

#include "common/base/problem.h"

struct dirty;
struct loop;
struct pool;
struct due_rows;
struct settings;
struct store;
struct timers;
struct dead_queue; /* opaque; body in dead_queue.c */

/* What it works on; all of it outlives it. */
struct dead_queue_setup {
    const struct settings *set;
    struct store *store;
    struct due_rows *due_rows;
    struct timers *timers;
    struct loop *loop;
    struct pool **pool; /* NULL once the pool is gone */
    struct dirty *dirty;
    size_t message_size; /* of the worker's own queue */
    size_t room;         /* of a slot's body */
};

int dead_queue_open(struct dead_queue **out,
                    const struct dead_queue_setup *setup, struct problem *p);
/* A letter died, or there is room: move what can be moved. */
void dead_queue_wake(struct dead_queue *q);
void dead_queue_close(struct dead_queue **q); /* after the pool; sets NULL */

#endif
