/* lost_replays.h - letters that were on their way in a queue that is gone
 *
 * WHAT   At the start: letters that were sent again and were still in the queue
 *        as the machine went down are dead again. One whose message was taken
 *        out of the queue is not: it runs from its slot. Where the store cannot
 *        be written then, a timer tries again.
 * WHO    init, start: the engine, when recovery is done.
 * OWNS   The timer.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_SOURCE_MQ_LOST_REPLAYS_H
#define WORKER_SOURCE_MQ_LOST_REPLAYS_H

#include <stdint.h>

#include "worker/loop/pool.h"
#include "worker/loop/timers.h"

struct dirty;
struct due_rows;
struct store;

/* c = constant once it is started, set by the engine   j = start, then the job;
 * of these one at a time */
struct lost_replays {
    const char *queue, *folder; /* c */
    struct store *store;        /* c */
    struct due_rows *due_rows;  /* c */
    struct timers *timers;      /* c */
    struct pool *pool;          /* c */
    struct dirty *dirty;        /* c */
    void (*letters)(void *arg); /* c  there are more than before */
    void *arg;                  /* c */
    struct timer timer;
    struct pool_job job;
    uint64_t wait_ns; /* j  until the next try; 0: no trouble so far */
};

void lost_replays_init(struct lost_replays *r);
void lost_replays_start(struct lost_replays *r);

#endif
