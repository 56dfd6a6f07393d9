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
/* Opaque here: arguments of the calls below. */
struct flow;
struct gate;

/* If a handler takes longer, another thread waits for the queue, too. */
#define PEEKER_STUCK_MS 2

/* Constant while the peeker is open. */
struct peeker_setup {
    struct loop *loop;
    struct timers *timers;
    struct flow *flow;
    /* Return the descriptor that is readable if there are messages. */
    int (*fd)(const struct flow *flow);
    /* Start a work item, because there may be a message. In the loop. */
    bool (*ready)(struct flow *flow);
    struct gate *gate;
    /* Log that the queue cannot be watched. Any thread. */
    void (*trouble)(struct gate *gate, const char *what, int err);
};

int peeker_open(struct peeker **out, const struct peeker_setup *setup);
void peeker_close(struct peeker **p); /* NULL-safe; sets NULL */

/* Enter peek mode, unless it is entered. */
void peeker_arm(struct peeker *p);
/* Enter peek mode for the calling thread. Returns false if it is entered. */
bool peeker_enter(struct peeker *p);
/* Then wait. Returns true if there may be a message; false after
 * peeker_release, or if there is another queue. */
bool peeker_wait(struct peeker *p);
/* Have the loop check after PEEKER_STUCK_MS whether a handler keeps its thread,
 * because work goes on with peek mode off. Later: after a wait of the thread,
 * whose handler is most likely quick; the thread was counted (gate_enter)
 * before the call. */
void peeker_look_soon(struct peeker *p);
void peeker_look_later(struct peeker *p);
/* Let no thread enter any more. */
void peeker_release(struct peeker *p);
bool peeker_armed(const struct peeker *p);
/* Handle a change of the queue's descriptor. Inside of flow.take_lock. */
void peeker_queue_changed(struct peeker *p);

#endif
