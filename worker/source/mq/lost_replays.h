/* lost_replays.h - letters that were on their way in a queue that is gone
 *
 * WHAT   At the start: letters that were sent again and were still in the queue
 *        as the machine went down are dead again. One whose message was taken
 *        out of the queue is not: it runs from its slot. Where the store cannot
 *        be written then, the chore tries again.
 * WHO    init, start: the engine, when recovery is done.
 * OWNS   Its chore.
 * FAILS  Never towards the caller.
 */
#ifndef WORKER_SOURCE_MQ_LOST_REPLAYS_H
#define WORKER_SOURCE_MQ_LOST_REPLAYS_H

#include "worker/loop/chore.h"

struct dirty;
struct due_rows;
struct store;

/* c = constant once it is started, set by the engine */
struct lost_replays {
    const char *queue, *folder; /* c */
    struct store *store;        /* c */
    struct due_rows *due_rows;  /* c */
    struct timers *timers;      /* c */
    struct pool *pool;          /* c */
    struct dirty *dirty;        /* c */
    void (*letters)(void *arg); /* c  there are more than before */
    void *arg;                  /* c */
    struct chore chore;
};

void lost_replays_init(struct lost_replays *r);
void lost_replays_start(struct lost_replays *r);

#endif
