/* mq_reopen.h - a queue whose name is removed under the worker
 *
 * WHAT   logind deletes an ordinary user's queues at logout, and administrators
 *        re-create queues, while the worker holds the old one. The old queue is
 *        drained, then the name is opened again. The removal is noticed by
 *        inotify (IN_ATTRIB, as the link count falls), and where that cannot be
 *        had by a look each 30 s.
 * WHO    watch, open, close: the engine. now: inside of flow.take_lock.
 *        mq_name_watch_again: the thread that replaced the queue, one at a
 *        time. `gone` is called in the peeker, maybe more than once.
 * OWNS   The inotify descriptor. Borrows the queue.
 * FAILS  watch: a problem; open: -ENOMEM. now: -errno, the old queue stays.
 */
#ifndef WORKER_SOURCE_MQ_MQ_REOPEN_H
#define WORKER_SOURCE_MQ_MQ_REOPEN_H

#include <stdbool.h>

#include "common/base/problem.h"

struct loop;
struct mq_name_watch; /* opaque; body in mq_reopen.c */
struct queue;
struct source_mq;
struct timers;

/* Watch the worker's queue: q->name_gone is set when its name is gone. */
int mq_reopen_watch(struct source_mq *q, struct problem *p);
/* Open the name again, when the old queue is empty. */
int mq_reopen_now(struct source_mq *q);

/* Watch the name of any queue. `gone` is not called for a queue that is gone
 * already: check once after this. */
int mq_name_watch_open(struct mq_name_watch **out, struct loop *loop,
                       struct timers *timers, struct queue *queue,
                       void (*gone)(void *arg), void *arg);
/* Watch the new queue after the one behind the descriptor was replaced. */
void mq_name_watch_again(struct mq_name_watch *l);
/* NULL-safe; sets NULL. */
void mq_name_watch_close(struct mq_name_watch **watch);

#endif
