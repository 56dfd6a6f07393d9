/* rate_limit.c - see rate_limit.h */
#include "common/text/rate_limit.h"

#include <errno.h>
#include <time.h>

#include "common/base/clock.h"

void rate_limit_start(struct rate_limit *p, uint64_t rate, uint64_t now_ns)
{
    *p = (struct rate_limit){.rate = rate, .start_ns = now_ns};
}

/* step_due - start + steps / rate; split, so that nothing overflows */
static uint64_t step_due(const struct rate_limit *p)
{
    uint64_t seconds = p->steps / p->rate;
    uint64_t rest = p->steps % p->rate;
    uint64_t part = p->rate < NS_PER_S
                        ? rest * NS_PER_S / p->rate
                        : (uint64_t)((double)rest * 1e9 / (double)p->rate);

    return p->start_ns + seconds * NS_PER_S + part;
}

uint64_t rate_limit_next(struct rate_limit *p, uint64_t now_ns)
{
    uint64_t due;

    if (p->rate == 0)
        return now_ns;
    due = step_due(p);
    if (now_ns > due && now_ns - due > NS_PER_S) {
        rate_limit_start(p, p->rate, now_ns - NS_PER_S);
        due = p->start_ns;
    }
    p->steps++;
    return due;
}

int rate_limit_wait(struct rate_limit *p)
{
    struct rate_limit before = *p;
    struct timespec until;
    uint64_t now, due;
    int err;

    if (p->rate == 0)
        return 0;
    now = clock_mono_ns();
    due = rate_limit_next(p, now);
    if (due <= now)
        return 0;
    until = (struct timespec){.tv_sec = (time_t)(due / NS_PER_S),
                              .tv_nsec = (long)(due % NS_PER_S)};
    err = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    if (err == EINTR)
        *p = before;
    return -err;
}
