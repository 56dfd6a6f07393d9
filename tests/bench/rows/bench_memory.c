/* bench_memory.c - what a worker holds once all of its threads have worked */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <time.h>

#include "common/base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/program.h"
#include "tests/bench/rivals.h"

#define SIZE 64

/* Wait until the worker has taken all; then its memory no longer grows. */
static void empty_wait(mqd_t mq)
{
    const struct timespec nap = {.tv_nsec = (long)NS_PER_MS};
    struct mq_attr attr;

    do {
        nanosleep(&nap, NULL);
        if (mq_getattr(mq, &attr) < 0)
            fail(errno, "mq_getattr");
    } while (attr.mq_curmsgs > 0);
}

static enum measured worker(const struct task *task, double value[ROWS_MOST])
{
    mqd_t mq = feed_open(O_WRONLY);
    int pid = program_start((const char *[]){"-c", "4", "--", SPAWNED, NULL});

    program_send((int)mq, task->n, SIZE);
    empty_wait(mq);
    value[0] = status_bytes(pid, "VmRSS:");
    value[1] = status_bytes(pid, "RssAnon:") + status_bytes(pid, "RssShmem:");
    program_stop(pid);
    return MEASURED;
}

#define MIB (1024.0 * 1024.0)

static const struct duel duels[] = {
    {.rows = {{"memory", "mqworker -c 4, queue of 10 x 8 KiB: resident", "B",
               LESS, 8 * MIB, 4 * MIB},
              {"memory-private",
               "the same, without what is in files "
               "(programs, libraries, custody)",
               "B", LESS, 0, 0}},
     .ours = {.go = worker},
     .task = {.n = 200, .depth = 10, .size = FEED_MOST},
     .whole = true},
};

const struct section section_memory = {
    .name = "memory",
    .what = "resident memory of mqworker",
    .usual = true,
    DUELS(duels),
};
