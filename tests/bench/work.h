/* work.h - what a handler does in the time that it takes
 *
 * WHAT   Busy: looks at the clock until the time is over, so that a processor
 *        is taken. Sleeping: as if it waited for a disk or another host.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef TESTS_BENCH_WORK_H
#define TESTS_BENCH_WORK_H

#include <time.h>

#include "common/base/clock.h"
#include "tests/bench/bench.h"

static inline void work(const struct task *task)
{
    struct timespec time = {.tv_nsec = (long)task->work_ns};
    uint64_t end;

    if (task->how & HOW_SLEEPS) {
        nanosleep(&time, NULL);
        return;
    }
    end = clock_mono_ns() + task->work_ns;
    while (clock_mono_ns() < end)
        ;
}

#endif
