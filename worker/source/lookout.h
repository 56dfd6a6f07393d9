/* lookout.h - tells when the name of an open queue is removed
 *
 * WHAT   An inotify watch on the queue (IN_ATTRIB, as its link count falls),
 *        and where that cannot be had, a look each 30 s.
 * WHO    open, close: the engine's thread. again: whoever replaced the queue,
 *        one at a time. `gone` is called in the peeker, more than once maybe.
 * OWNS   The inotify descriptor. Borrows the queue.
 * FAILS  open: -ENOMEM.
 */
#ifndef WORKER_SOURCE_LOOKOUT_H
#define WORKER_SOURCE_LOOKOUT_H

struct lookout; /* opaque; body in lookout.c */
struct loop;
struct queue;
struct timers;

/* A queue that is gone already is not told of: look once after this. */
int lookout_open(struct lookout **out, struct loop *loop, struct timers *timers,
                 struct queue *queue, void (*gone)(void *arg), void *arg);
/* The queue's descriptor stands for another queue now. */
void lookout_again(struct lookout *l);
void lookout_close(struct lookout **lookout); /* NULL-safe; sets NULL */

#endif
