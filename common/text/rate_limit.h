/* rate_limit.h - so many a second, without drift
 *
 * WHAT   The k-th step is due at start + k / rate on the monotonic clock. After
 *        a stall at most one second's worth is caught up with at full speed.
 * WHO    One thread.
 * OWNS   Nothing; embedded in the caller.
 * FAILS  rate_limit_wait: -EINTR.
 */
#ifndef COMMON_TEXT_RATE_LIMIT_H
#define COMMON_TEXT_RATE_LIMIT_H

#include <stdint.h>

struct rate_limit {
    uint64_t rate; /* a second; 0 = as fast as it goes */
    uint64_t start_ns, steps;
};

void rate_limit_start(struct rate_limit *p, uint64_t rate, uint64_t now_ns);
/* When the next step is due, and count it. */
uint64_t rate_limit_next(struct rate_limit *p, uint64_t now_ns);
/* Sleep until the next step is due: 0, or -EINTR (the step is not counted). */
int rate_limit_wait(struct rate_limit *p);

#endif
