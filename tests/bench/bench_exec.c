/* bench_exec.c - a process for each message, against doing only that
 *
 * Nobody inside tells when a process for a message was started: the sender
 * does. Once the queue is full, each message that it gets rid of is one that
 * the worker has taken.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>

#include "common/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/program.h"
#include "tests/bench/rivals.h"

#define SIZE 64

static enum measured worker(const struct task *task, double value[ROWS_MOST])
{
    /* The queue is full, each thread has a message, and some are done. */
    unsigned long warm = (unsigned long)task->depth + 2 * task->threads + 8;
    mqd_t mq = feed_open(O_WRONLY);
    char threads[16], most[24];
    uint64_t before;
    int pid;

    snprintf(threads, sizeof threads, "%u", task->threads);
    snprintf(most, sizeof most, "%lu", warm + task->n);
    pid = program_start((const char *[]){
        "-c", threads, "--max-deliveries", most, "--timeout",
        task->how & HOW_LIMIT ? "60s" : "none", "--", SPAWNED, NULL});
    program_send((int)mq, warm, SIZE);
    before = clock_mono_ns();
    program_send((int)mq, task->n, SIZE);
    value[0] = (double)task->n * 1e9 / (double)(clock_mono_ns() - before);
    child_done(pid, "mqworker");
    return MEASURED;
}

static const struct duel duels[] = {
    {.rows = {{"exec-1", SPAWNED ", -c 1 / posix_spawn and waitpid, 1 thread",
               "/s", MORE, 0.95, 1.0}},
     .ours = {.go = worker},
     .rival = {.go = spawn_rate},
     .task = {.n = 300, .depth = 10, .size = SIZE, .threads = 1}},
    {.rows = {{"exec-2", SPAWNED ", -c 2 / posix_spawn and waitpid, 2 threads",
               "/s", MORE, 0.95, 1.0}},
     .ours = {.go = worker},
     .rival = {.go = spawn_rate},
     .task = {.n = 500, .depth = 10, .size = SIZE, .threads = 2}},
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
