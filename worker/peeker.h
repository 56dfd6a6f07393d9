/* peeker.h - the one waiting thread
 *
 * WHAT   epoll_wait on the queue, the timers, signals and a wake-up. It never
 *        receives and never runs a handler. The queue is waited on only while
 *        armed (peek mode): once, until the next message. A thread of the pool
 *        that has nothing else to do waits in its place (linger) and takes the
 *        message itself: one thread switch to a message, not two.
 * WHO    open, run, close: the engine's thread. arm, wake, watch: any thread.
 *        linger: pool threads.
 * OWNS   The epoll set, the signalfd, the eventfds.
 * FAILS  open: -errno.
 */
#ifndef WORKER_PEEKER_H
#define WORKER_PEEKER_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct engine;
struct peeker; /* opaque; body in peeker.c */

/* Another descriptor to wait on, once for each peeker_watch. */
struct peeker_source {
    int fd;
    void (*ready)(struct peeker_source *source);
    bool added; /* peeker's */
};

/* The signals that the peeker takes. They must be blocked before any thread is
 * started: peeker_block_signals. */
void peeker_block_signals(void);

int peeker_open(struct peeker **out, struct engine *e);
/* Wait and dispatch until engine_finished. */
void peeker_run(struct peeker *p);
void peeker_close(struct peeker **p); /* NULL-safe; sets NULL */

/* Enter peek mode; no effect if it is entered. */
void peeker_arm(struct peeker *p);
/* Peek mode by the calling thread; false: it is entered already. Then it waits
 * with lingered; true: there may be a message. False: peeker_release, or
 * another queue. */
bool peeker_linger(struct peeker *p);
bool peeker_lingered(struct peeker *p);
/* Work goes on with peek mode off: see whether a handler keeps its thread. */
void peeker_look_soon(struct peeker *p);
/* Nobody lingers from here on. */
void peeker_release(struct peeker *p);
bool peeker_armed(const struct peeker *p);
/* The queue's descriptor stands for another queue now. Under receive_mtx. */
void peeker_queue_changed(struct peeker *p);
/* Make peeker_run look at engine_finished. */
void peeker_wake(struct peeker *p);
/* One-shot: `events` as epoll_ctl(2). */
int peeker_watch(struct peeker *p, struct peeker_source *source,
                 uint32_t events);

#endif
