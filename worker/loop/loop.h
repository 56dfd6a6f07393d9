/* loop.h - the event loop: descriptors and deadlines, on one thread
 *
 * WHAT   Waits in epoll for descriptors, the timers and a wake-up, and calls
 *        the function of each source that is ready.
 *        clock_watch: a timer of CLOCK_REALTIME that never expires. The kernel
 *        cancels it, and `set` is called, when somebody sets the clock or the
 *        machine resumes (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
 *        dirty: two marks that any part sets. One says that the worker's state
 *        has changed: status.c shows it in the next round of the loop. The
 *        other says that its numbers have changed: a timer calls `count` soon.
 * WHO    open, add, wait, close, init: the engine's thread. watch, wake,
 *        dirty_: any thread. All callbacks: the thread in loop_wait, without a
 *        lock. They must not block.
 * OWNS   The epoll set, an eventfd, and a descriptor for each clock_watch. A
 *        source is embedded in the caller's struct, which closes its
 *        descriptor.
 * FAILS  open, add, watch: -errno.
 */
#ifndef WORKER_LOOP_LOOP_H
#define WORKER_LOOP_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

struct loop; /* opaque; body in loop.c */

/* A descriptor to wait for. */
struct loop_source {
    int fd;
    void (*ready)(struct loop_source *source);
};

int loop_open(struct loop **out, struct timers *timers);
void loop_close(struct loop **loop); /* NULL-safe; sets NULL */
/* Call `ready` whenever one of `events` (epoll_ctl(2)) occurs. */
int loop_add(struct loop *l, struct loop_source *source, uint32_t events);
/* Call `ready` once, for the next event. To get the event after that, call
 * loop_watch again; the source may have a new descriptor by then. */
int loop_watch(struct loop *l, struct loop_source *source, uint32_t events);
/* End the next wait, or the current one. Safe in a signal handler. */
void loop_wake(struct loop *l);
/* Wait for `ms` at most (-1: without a limit), and call `ready` of each source
 * that has an event. Returns false if the time passed without an event. */
bool loop_wait(struct loop *l, int ms);

/* ---- clock_watch ---- */

struct clock_watch {
    struct loop_source source; /* fd -1: not open */
    void (*set)(void *arg);
    void *arg;
};

int clock_watch_open(struct clock_watch *w, struct loop *l,
                     void (*set)(void *arg), void *arg);
/* Does nothing if the watch is not open. */
void clock_watch_close(struct clock_watch *w);

/* ---- dirty ---- */

/* a = atomic   c = constant after init */
struct dirty {
    struct timers *timers;     /* c  set before the first dirty_count */
    struct loop *loop;         /* c  set before the first dirty_state_now */
    struct timer timer;        /* fires when it is time to count */
    void (*count)(void *arg);  /* c */
    void *arg;                 /* c */
    atomic_bool state;         /* a */
    atomic_bool counted_soon;  /* a  the timer was started */
    _Atomic uint64_t pause_ns; /* a  until the next count */
};

void dirty_init(struct dirty *d, uint64_t pause_ns, void (*count)(void *arg),
                void *arg);
/* Mark the state as changed. */
void dirty_state(struct dirty *d);
/* Mark the state as changed, and end the loop's wait, so that it is shown. */
void dirty_state_now(struct dirty *d);
/* Clear the mark. Returns true if it was set; if not, it costs only a load. */
static inline bool dirty_state_take(struct dirty *d)
{
    return atomic_load_explicit(&d->state, memory_order_relaxed) &&
           atomic_exchange(&d->state, false);
}
/* Have `count` called soon. If it will be already, the call costs one load. */
void dirty_count(struct dirty *d);

#endif
