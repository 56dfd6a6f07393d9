/* mq_name_watch.h - tells when the name of an open queue is removed
 *
 * WHAT   An inotify watch on the queue (IN_ATTRIB, as its link count falls),
 *        and where that cannot be had, a look each 30 s.
 * WHO    open, close: the engine's thread. again: the thread that replaced the
 *        queue, one at a time. `gone` is called in the peeker, more than once
 *        maybe.
 * OWNS   The inotify descriptor. Borrows the queue.
 * FAILS  open: -ENOMEM.
 */
#ifndef WORKER_SOURCE_MQ_MQ_NAME_WATCH_H
#define WORKER_SOURCE_MQ_MQ_NAME_WATCH_H

struct mq_name_watch; /* opaque; body in mq_name_watch.c */
struct loop;
struct queue;
struct timers;

/* A queue that is gone already is not told of: look once after this. */
int mq_name_watch_open(struct mq_name_watch **out, struct loop *loop,
                       struct timers *timers, struct queue *queue,
                       void (*gone)(void *arg), void *arg);
/* The queue's descriptor stands for another queue now. */
void mq_name_watch_again(struct mq_name_watch *l);
void mq_name_watch_close(
    struct mq_name_watch **watch); /* NULL-safe; sets NULL */

#endif
