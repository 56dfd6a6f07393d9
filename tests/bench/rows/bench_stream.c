/* bench_stream.c - a long-lived child that answers each message
 *
 * The child is this program (answer.c); it takes the time from its first
 * answers to its last. The bare round trip has neither queue nor sender, so it
 * is more than any consumer of a queue can reach; the second rival takes its
 * messages from the same queue as ours, with a sender beside.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/answer.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/place.h"
#include "tests/bench/program.h"
#include "tests/bench/rivals.h"

#define WARM_PART 20 /* of the messages: before the clock runs */
#define SIZE      64

/* Start mqworker and its child for up to `n` messages. */
static int stream_start(const struct task *task, const char *file,
                        unsigned long n)
{
    char window[16], most[24], warm[24], size[16], filled[24];
    bool fills = n > 1 && !(task->how & HOW_SENDER);
    const char *how = task->how & HOW_BATCH ? "batch" : NULL, *depth = NULL;

    snprintf(window, sizeof window, "%u", task->threads);
    snprintf(size, sizeof size, "%d", SIZE);
    snprintf(filled, sizeof filled, "%ld", task->depth);
    if (fills) { /* the first message, then whole fillings */
        how = size, depth = filled;
        n = 1 +
            (n - 1) / (unsigned long)task->depth * (unsigned long)task->depth;
    }
    snprintf(most, sizeof most, "%lu", n);
    snprintf(warm, sizeof warm, "%lu", n / WARM_PART);
    return program_start((const char *[]){
        "-c", "1", "--stream", "--window", window, "--max-deliveries", most,
        "--max-attempts", "1", "--", place->self, ANSWER, file, warm, most, how,
        depth, NULL});
}

/* Return the messages a second that the child wrote; 0: nothing. */
static double result(const char *file)
{
    double rate = 0;
    FILE *f = fopen(file, "re");

    if (f) {
        if (fscanf(f, "%lf", &rate) != 1)
            rate = 0;
        fclose(f);
    }
    return rate;
}

/* Return whether this mqworker has --stream: a command that is started for each
 * message gets another stdin, and writes no result. */
static bool stream_built(const struct task *task, const char *file)
{
    mqd_t mq = feed_open(O_WRONLY);
    int pid = stream_start(task, file, 1);

    program_send((int)mq, 1, SIZE);
    child_done(pid, "mqworker --stream");
    mq_close(mq);
    return result(file) > 0;
}

/* Send the message at which the child fills the queue. */
static void first_send(void)
{
    mqd_t mq = feed_open(O_WRONLY);

    program_send((int)mq, 1, SIZE);
    mq_close(mq);
}

static enum measured worker(const struct task *task, double value[ROWS_MOST])
{
    char probe[PATH_MAX + 16], file[PATH_MAX + 16];
    int pid, sender = 0;

    snprintf(probe, sizeof probe, "%s/probe", place->dir);
    snprintf(file, sizeof file, "%s/answered", place->dir);
    if (task->run == 0 && !stream_built(task, probe))
        return NOT_BUILT;
    if (task->how & HOW_SENDER)
        sender = feed_start(task);
    pid = stream_start(task, file, task->n);
    if (!sender)
        first_send();
    child_done(pid, "mqworker --stream");
    if (sender)
        child_done(sender, "the sender");
    value[0] = result(file);
    if (value[0] == 0)
        fail(0, "mqworker --stream: its child did not answer %lu messages",
             task->n);
    return MEASURED;
}

static const struct duel duels[] = {
    {.rows = {{"stream-1",
               "--stream, -c 1, window 1, queue filled before / round trip on "
               "a socket pair",
               "/s", MORE, 0.75, 0.9}},
     .ours = {.go = worker},
     .rival = {.go = trip_rate},
     .task = {.n = 50000, .depth = DEEP, .size = SIZE, .threads = 1}},
    {.rows = {{"stream-1-sender",
               "--stream, -c 1, window 1, a sender beside / the same "
               "round trip, no queue and no sender",
               "/s", MORE, 0, 0}},
     .ours = {.go = worker, .how = HOW_SENDER},
     .rival = {.go = trip_rate},
     .task = {.n = 50000, .depth = DEEP, .size = SIZE, .threads = 1}},
    {.rows = {{"stream-1-queue",
               "--stream, -c 1, window 1 / the same round "
               "trip for each message of a queue",
               "/s", MORE, 0, 0}},
     .ours = {.go = worker, .how = HOW_SENDER},
     .rival = {.go = trip_rate, .how = HOW_SENDER},
     .task = {.n = 50000, .depth = DEEP, .size = SIZE, .threads = 1}},
    {.rows = {{"stream-limit",
               "a round trip for each message of a queue, a "
               "sender beside / no queue",
               "/s", MORE, 0, 0}},
     .ours = {.go = trip_rate, .how = HOW_SENDER},
     .rival = {.go = trip_rate},
     .task = {.n = 50000, .depth = DEEP, .size = SIZE}},
    {.rows = {{"stream-32",
               "--stream, -c 1, window 32 / window 1, a write for "
               "each answer",
               "/s", MORE, 2, 5}},
     .ours = {.go = worker, .threads = 32},
     .rival = {.go = worker, .threads = 1},
     .task = {.n = 50000, .depth = DEEP, .size = SIZE, .how = HOW_SENDER}},
    {.rows = {{"stream-32-batch",
               "--stream, -c 1, window 32 / window 1, a "
               "write for all that was read",
               "/s", MORE, 0, 0}},
     .ours = {.go = worker, .threads = 32},
     .rival = {.go = worker, .threads = 1},
     .task = {.n = 50000,
              .depth = DEEP,
              .size = SIZE,
              .how = HOW_BATCH | HOW_SENDER}},
};

const struct section section_stream = {
    .name = "stream",
    .what = "a long-lived child, beside a sender",
    .usual = true,
    DUELS(duels),
};
