/* timers.h - the timer service: wheel + timerfd + one lock
 *
 * WHAT   Start and cancel from any thread; callbacks run in the peeker, with no
 *        lock held.
 * WHO    Any thread; timers_run and timers_fd: the peeker.
 * OWNS   The wheel and the timerfd. A timer is embedded in the caller's struct.
 * FAILS  open: -errno. Starting cannot fail.
 */
#ifndef WORKER_TIMERS_H
#define WORKER_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wheel.h"

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
/* As timers_start, unless it is pending for an earlier time. */
void timers_start_earlier(struct timers *t, struct timer *timer,
                          uint64_t when_ns);
/* True exactly if it was pending: its callback will not run. After false it has
 * run or is running. */
bool timers_cancel(struct timers *t, struct timer *timer);
/* As timers_cancel, and a callback that is running has returned. Not from a
 * callback of the same timer. */
bool timers_cancel_sync(struct timers *t, struct timer *timer);

int timers_fd(const struct timers *t); /* readable: call timers_run */
void timers_run(struct timers *t);

#endif
