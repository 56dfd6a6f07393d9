/* clock_watch.h - notice clock steps and the resume of the machine
 *
 * WHAT   A timer of CLOCK_REALTIME that never expires. The kernel cancels it
 *        when somebody sets the clock, and when the machine resumes
 *        (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
 * WHO    open, close: the engine. `set` is called in the loop.
 * OWNS   A descriptor; embedded in the caller's struct.
 * FAILS  open: -errno.
 */
#ifndef WORKER_LOOP_CLOCK_WATCH_H
#define WORKER_LOOP_CLOCK_WATCH_H

#include "worker/loop/loop.h"

struct clock_watch {
    struct loop_source source; /* fd -1: not open */
    void (*set)(void *arg);
    void *arg;
};

int clock_watch_open(struct clock_watch *w, struct loop *l,
                     void (*set)(void *arg), void *arg);
void clock_watch_close(struct clock_watch *w); /* Also for a watch that is not
                                                  open. */

#endif
