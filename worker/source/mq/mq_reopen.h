/* mq_reopen.h - the queue was deleted under us: drain it, open the name again
 *
 * WHAT   logind deletes an ordinary user's queues at logout, and administrators
 *        re-create queues, while the worker holds the old one.
 * WHO    open, close: the engine. gone: any thread. now: inside of flow.solo.
 * OWNS   A watch on the name of the queue.
 * FAILS  open: a problem. now: -errno, the old queue stays.
 */
#ifndef WORKER_SOURCE_MQ_MQ_REOPEN_H
#define WORKER_SOURCE_MQ_MQ_REOPEN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/problem.h"

struct loop;
struct queue;
struct settings;
struct timers;
struct mq_reopen; /* opaque; body in mq_reopen.c */

/* What it works on, and whom it tells; all of it outlives it. */
struct mq_reopen_setup {
    const struct settings *set;
    struct queue *queue;
    struct timers *timers;
    struct loop *loop;
    size_t room; /* of a slot's body */
    /* The name is gone, or a look is due: somebody has to drain it. */
    void (*gone)(void *arg);
    /* The queue's descriptor stands for another queue now; inside now. */
    void (*moved)(void *arg);
    /* It cannot go on with this queue: the worker ends with `status`. */
    void (*ended)(void *arg, const char *why, int status);
    void *arg;
};

int mq_reopen_open(struct mq_reopen **out, const struct mq_reopen_setup *setup,
                   struct problem *p);
void mq_reopen_close(struct mq_reopen **r); /* NULL-safe; sets NULL */
/* Whether the queue's name is gone. */
bool mq_reopen_gone(const struct mq_reopen *r);
/* The old queue is empty: take the new one. */
int mq_reopen_now(struct mq_reopen *r);

#endif
