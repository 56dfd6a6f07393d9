/* peeker.h - peek mode: waiting for the queue without receiving
 *
 * WHAT   In peek mode one thread waits until the queue has a message: either
 *        the event loop (arm), which then starts a work item; or a pool thread
 *        without other work (enter, wait), which then takes the message itself.
 *        The second way costs one thread switch instead of two.
 *        Outside of peek mode no thread waits: each work item finds the message
 *        when it takes its next one.
 * WHO    open, close, release: the engine's thread. enter, wait, look_later:
 *        pool threads that run work items (items.c). queue_changed: the thread
 *        that opens a removed queue again. All others: any thread.
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

/* If a handler runs for longer than this, the loop enters peek mode. */
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

/* Let the loop wait for the queue, unless some thread already does. */
void peeker_arm(struct peeker *p);
/* Enter peek mode for the calling thread. Returns false if the loop or
 * another thread is waiting, or after peeker_release. */
bool peeker_enter(struct peeker *p);
/* Wait, after peeker_enter. Returns true if there may be a message; false after
 * peeker_release, or if the queue was replaced. Leaves peek mode. */
bool peeker_wait(struct peeker *p);
/* Have the loop check in PEEKER_STUCK_MS (soon) or later whether a handler is
 * slow, because no other thread fetches messages while peek mode is off. After
 * peeker_wait call look_later, because the handler is most likely quick. Call
 * gate_enter first. */
void peeker_look_soon(struct peeker *p);
void peeker_look_later(struct peeker *p);
/* Let no more threads enter, and end the wait of the thread that has. */
void peeker_release(struct peeker *p);
bool peeker_armed(const struct peeker *p);
/* Note that another queue is behind the descriptor. Called by mq_reopen_now. */
void peeker_queue_changed(struct peeker *p);

#endif
