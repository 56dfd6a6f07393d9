/* peeker.h - peek mode: waiting for the queue without receiving
 *
 * WHAT   The queue is waited on only while armed (peek mode): once, until the
 *        next message, by the event loop. A thread of the pool that has nothing
 *        else to do waits in its place (enter, wait) and takes the message
 *        itself: one thread switch to a message, not two.
 * WHO    open, close: the engine's thread. arm, look_soon, look_later: any
 *        thread. enter, wait: pool threads.
 * OWNS   An eventfd and a timer.
 * FAILS  open: -errno.
 */
#ifndef WORKER_LOOP_PEEKER_H
#define WORKER_LOOP_PEEKER_H

#include <stdbool.h>

#include "worker/loop/loop.h"
#include "worker/loop/timers.h"

struct peeker; /* opaque; body in peeker.c */

/* A handler that takes longer: another thread waits for the queue, too. */
#define PEEKER_STUCK_MS 2

/* Constant while the peeker is open. The calls are made with `arg`. */
struct peeker_setup {
    struct loop *loop;
    struct timers *timers;
    int (*fd)(void *arg);     /* the queue's, readable while it has messages */
    void (*ready)(void *arg); /* there may be a message; in the loop */
    void (*trouble)(void *arg, const char *what, int err); /* any thread */
    void *arg;
};

int peeker_open(struct peeker **out, const struct peeker_setup *setup);
void peeker_close(struct peeker **p); /* NULL-safe; sets NULL */

/* Enter peek mode; no effect if it is entered. */
void peeker_arm(struct peeker *p);
/* Peek mode by the calling thread; false: it is entered already. Then it waits
 * with peeker_wait; true: there may be a message. False: peeker_release, or
 * another queue. */
bool peeker_enter(struct peeker *p);
bool peeker_wait(struct peeker *p);
/* Work goes on with peek mode off: have the loop run a round soon (after
 * PEEKER_STUCK_MS), to see whether a handler keeps its thread. Later: the
 * thread waited, and its handler is most likely quick; it was counted as one
 * that runs (gate_enter) before the call. */
void peeker_look_soon(struct peeker *p);
void peeker_look_later(struct peeker *p);
/* No thread enters from here on. */
void peeker_release(struct peeker *p);
bool peeker_armed(const struct peeker *p);
/* The queue's descriptor stands for another queue now. Inside of flow.solo. */
void peeker_queue_changed(struct peeker *p);

#endif
