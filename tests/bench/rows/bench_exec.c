/* bench_exec.c - a process for each message, beside programs that do only that
 *
 * The sender does the measuring, because nothing inside a worker reports a
 * started process. Once the queue is full, each message sent is one that the
 * worker has taken.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/program.h"
#include "tests/bench/rivals.h"

#define SIZE 64

/* Return after how many messages the queue is full, each thread has one, and
 * some are done. */
static unsigned long warm_of(const struct task *task)
{
    return (unsigned long)task->depth + 2 * task->threads + 8;
}

/* Measure how fast process `pid` takes messages. It ends after the last. */
static enum measured rate(const struct task *task, int pid,
                          double value[ROWS_MOST])
{
    mqd_t mq = feed_open(O_WRONLY);
    uint64_t before;

    program_send((int)mq, warm_of(task), SIZE);
    before = clock_mono_ns();
    program_send((int)mq, task->n, SIZE);
    value[0] = (double)task->n * 1e9 / (double)(clock_mono_ns() - before);
    child_done(pid, "who takes the messages");
    return MEASURED;
}

static enum measured worker(const struct task *task, double value[ROWS_MOST])
{
    char threads[16], most[24];

    snprintf(threads, sizeof threads, "%u", task->threads);
    snprintf(most, sizeof most, "%lu", warm_of(task) + task->n);
    return rate(
        task,
        program_start((const char *[]){
            "-c", threads, "--max-deliveries", most, "--timeout",
            task->how & HOW_LIMIT ? "60s" : "none", "--", SPAWNED, NULL}),
        value);
}

/* Measure a loop by hand under the same conditions. */
static enum measured by_hand(const struct task *task, double value[ROWS_MOST])
{
    int pid = fork_bound();

    if (pid == 0)
        spawn_floor(task->threads, warm_of(task) + task->n);
    return rate(task, pid, value);
}

static const struct duel duels[] = {
    {.rows = {{"exec-1", SPAWNED ", -c 1 / posix_spawn and waitpid, 1 thread",
               "/s", MORE, 0.95, 1.0}},
     .ours = {.go = worker},
     .rival = {.go = spawn_rate},
     .task = {.n = 300, .depth = 10, .size = SIZE, .threads = 1},
     .times = 2},
    {.rows = {{"exec-2", SPAWNED ", -c 2 / posix_spawn and waitpid, 2 threads",
               "/s", MORE, 0.95, 1.0}},
     .ours = {.go = worker},
     .rival = {.go = spawn_rate},
     .task = {.n = 500, .depth = 10, .size = SIZE, .threads = 2},
     .times = 2},
    {.rows = {{"floor-exec-1",
               "a loop by hand with what any worker needs / posix_spawn and "
               "waitpid, 1 thread",
               "/s", MORE, 0, 0}},
     .ours = {.go = by_hand},
     .rival = {.go = spawn_rate},
     .task = {.n = 300, .depth = 10, .size = SIZE, .threads = 1},
     .times = 2},
    {.rows = {{"floor-exec-2",
               "a loop by hand with what any worker needs / posix_spawn and "
               "waitpid, 2 threads",
               "/s", MORE, 0, 0}},
     .ours = {.go = by_hand},
     .rival = {.go = spawn_rate},
     .task = {.n = 500, .depth = 10, .size = SIZE, .threads = 2},
     .times = 2},
    {.rows = {{"exec-limit", SPAWNED ", -c 1, with a time limit / without",
               "/s", MORE, 0, 0}},
     .ours = {.go = worker, .how = HOW_LIMIT},
     .rival = {.go = worker},
     .task = {.n = 300, .depth = 10, .size = SIZE, .threads = 1}},
};

const struct section section_exec = {
    .name = "exec",
    .what = "a process for each message",
    .usual = true,
    DUELS(duels),
};
