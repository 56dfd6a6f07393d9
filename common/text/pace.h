/* pace.h - so many a second, without drift
 *
 * WHAT   The k-th step is due at start + k / rate on the monotonic clock. After
 *        a stall at most one second's worth is caught up with at full speed.
 * WHO    One thread.
 * OWNS   Nothing; embedded in the caller.
 * FAILS  pace_wait: -EINTR.
 */
#ifndef COMMON_TEXT_PACE_H
#define COMMON_TEXT_PACE_H

#include <stdint.h>

struct pace {
    uint64_t rate; /* a second; 0 = as fast as it goes */
    uint64_t start_ns, steps;
};

void pace_start(struct pace *p, uint64_t rate, uint64_t now_ns);
/* When the next step is due, and count it. */
uint64_t pace_next(struct pace *p, uint64_t now_ns);
/* Sleep until the next step is due: 0, or -EINTR (the step is not counted). */
int pace_wait(struct pace *p);

#endif
