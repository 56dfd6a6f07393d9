/* timers.h - the timer service: wheel + timerfd + one lock
 *
 * WHAT   Starts and cancels timers from any thread; their callbacks run in the
 *        peeker, with no lock held, in the order of (deadline, start).
 *        For a time limit: timers_start_after starts it, and timers_cancel
 *        returns true if the work ended in time. For each start exactly one of
 *        two things happens: a cancel returns true, or the callback is called.
 * WHO    Any thread. timers_run: the event loop, whose thread is the peeker.
 *        open, close, timers_fd: the engine's thread.
 * OWNS   The wheel and the timerfd. A timer is embedded in the caller's struct.
 * FAILS  open: -errno. Starting cannot fail.
 */
#ifndef WORKER_LOOP_TIMERS_H
#define WORKER_LOOP_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wheel/wheel.h"

struct timers; /* opaque; body in timers.c */

struct timer {
    struct wheel_timer wheel;
    void (*fire)(struct timer *timer);
};

int timers_open(struct timers **out);
void timers_close(struct timers **timers); /* NULL-safe; sets NULL */

void timer_init(struct timer *timer, void (*fire)(struct timer *timer));
/* Fire at the monotonic time `when_ns`; a pending timer is moved. */
void timers_start(struct timers *t, struct timer *timer, uint64_t when_ns);
/* Fire `limit_ns` from now. Of two timers with the same limit the one that was
 * started first fires first. */
void timers_start_after(struct timers *t, struct timer *timer,
                        uint64_t limit_ns);
/* Fire at `when_ns`, unless the timer is pending for an earlier time. */
void timers_start_earlier(struct timers *t, struct timer *timer,
                          uint64_t when_ns);
/* Cancel a timer. Returns true if it was pending: its callback will not run.
 * After false the callback, if it was ever due, has run or is running. */
bool timers_cancel(struct timers *t, struct timer *timer);
/* Cancel, and wait for a running callback. On return the timer is not pending,
 * even if its callback started it again, and may be freed. Not from a callback.
 * Returns true if the timer was pending. */
bool timers_cancel_sync(struct timers *t, struct timer *timer);

int timers_fd(const struct timers *t); /* readable: call timers_run */
void timers_run(struct timers *t);

#endif
