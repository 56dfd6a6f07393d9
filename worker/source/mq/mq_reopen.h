/* mq_reopen.h - a queue whose name is removed under the worker
 *
 * WHAT   logind deletes an ordinary user's queues at logout, and administrators
 *        re-create queues, while the worker has the old one open. The worker
 *        drains the old queue, then opens the name again. It notices the
 *        removal by inotify (IN_ATTRIB, because the link count changes), or
 *        without inotify by a check every 30 s.
 * WHO    mq_reopen_watch, mq_name_watch_open, _close: the engine's thread.
 *        mq_reopen_now: a work item, under flow.take_lock. mq_name_watch_again:
 *        the thread that replaced the queue, one at a time. `gone` is called in
 *        the peeker, maybe more than once.
 * OWNS   The inotify descriptor. Borrows the queue.
 * FAILS  mq_reopen_watch: a problem. mq_name_watch_open: -ENOMEM.
 *        mq_reopen_now: -errno, and the old queue stays.
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

/* Watch the worker's queue: q->name_gone is set when its name is removed. */
int mq_reopen_watch(struct source_mq *q, struct problem *p);
/* Open the name again, when the old queue is empty. */
int mq_reopen_now(struct source_mq *q);

/* Watch the name of any queue. `gone` is not called for a name that was removed
 * before this call, so check queue_gone once after it. */
int mq_name_watch_open(struct mq_name_watch **out, struct loop *loop,
                       struct timers *timers, struct queue *queue,
                       void (*gone)(void *arg), void *arg);
/* Watch the new queue after the one behind the descriptor was replaced. */
void mq_name_watch_again(struct mq_name_watch *l);
/* NULL-safe; sets NULL. */
void mq_name_watch_close(struct mq_name_watch **watch);

#endif
