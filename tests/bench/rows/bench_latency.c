/* bench_latency.c - from mq_send to the first instruction of the receiver
 *
 * A process sends a message now and then, with the time in it: so rarely that
 * everybody sleeps in between, and at random moments, so that no timer of the
 * kernel keeps step with it. Both sides have the same sender.
 *
 * The rows are about a receiver that waits. So the sender goes on only when its
 * first message has arrived, the next few do not count either (the thread that
 * took the first may not be the one that waits), and one more is sent after the
 * last, because the sender's exit would delay the last one.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/library.h"
#include "tests/bench/rivals.h"

#define SAMPLES_MOST 4096
#define GAP_NS       NS_PER_MS /* and up to as much again */
#define WARM         8         /* messages that do not count */

static struct {
    unsigned long seen, n, want;
    int up[2]; /* a pipe: the first message has arrived */
    double ns[SAMPLES_MOST];
} late;

/* Note that a message arrived; return true for the last. */
static bool late_note(const void *body)
{
    uint64_t now = clock_mono_ns(), sent;

    memcpy(&sent, body, sizeof sent);
    if (late.seen++ == 0 && write(late.up[1], "", 1) != 1)
        fail(errno, "the pipe to the sender");
    if (late.seen > WARM && late.n < late.want)
        late.ns[late.n++] = (double)(now - sent);
    return late.seen == WARM + late.want + 1;
}

/* Start the sender. */
static int trickle_start(const struct task *task)
{
    char body[64] = "", up;
    uint64_t seed = task->run;
    mqd_t mq;
    int pid;

    late.want = task->n < SAMPLES_MOST ? task->n : SAMPLES_MOST;
    if (pipe2(late.up, O_CLOEXEC) < 0)
        fail(errno, "pipe");
    pid = fork_bound();
    if (pid > 0)
        return pid;
    mq = feed_open(O_WRONLY);
    for (unsigned long i = 0; i < WARM + late.want + 1; i++) {
        long gap = (long)(GAP_NS + random_next(&seed) % GAP_NS);
        uint64_t now;

        nanosleep(&(struct timespec){.tv_sec = gap / (long)NS_PER_S,
                                     .tv_nsec = gap % (long)NS_PER_S},
                  NULL);
        now = clock_mono_ns();
        memcpy(body, &now, sizeof now);
        if (mq_send(mq, body, sizeof body, 0) < 0)
            fail(errno, "mq_send");
        if (i == 0 && read(late.up[0], &up, 1) != 1)
            fail(errno, "the pipe from the receiver");
    }
    _exit(0);
}

/* Fill in the values of the rows. */
static enum measured late_values(int sender, double value[ROWS_MOST])
{
    child_done(sender, "the sender");
    value[0] = at_part(late.ns, late.n, 0.5);
    value[1] = at_part(late.ns, late.n, 0.99);
    return MEASURED;
}

static enum measured blocked(const struct task *task, double value[ROWS_MOST])
{
    char body[64];
    mqd_t mq = feed_open(O_RDONLY);
    int sender = trickle_start(task);

    do {
        if (mq_receive(mq, body, sizeof body, NULL) < 0)
            fail(errno, "mq_receive");
    } while (!late_note(body));
    return late_values(sender, value);
}

/* Do by hand what a receiver must do to lose no message: wait with poll(2). If
 * a thread is blocked in mq_receive, the kernel takes the message from the
 * queue for it before its memory has it, and a kill then loses it. `also`: a
 * second descriptor to wait for, or -1. */
static enum measured poll_on(const struct task *task, int also,
                             double value[ROWS_MOST])
{
    char body[64];
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);
    struct pollfd fds[] = {{.fd = (int)mq, .events = POLLIN},
                           {.fd = also, .events = POLLIN}};
    int sender = trickle_start(task);

    for (;;) {
        if (poll(fds, also < 0 ? 1 : 2, -1) < 0)
            fail(errno, "poll");
        if (mq_receive(mq, body, sizeof body, NULL) < 0)
            fail(errno, "mq_receive");
        if (late_note(body))
            return late_values(sender, value);
    }
}

static enum measured polled(const struct task *task, double value[ROWS_MOST])
{
    return poll_on(task, -1, value);
}

/* Do the same in a thread that another one can tell to end, or to open the
 * queue again: it waits for a second descriptor, too. */
static enum measured told(const struct task *task, double value[ROWS_MOST])
{
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (event < 0)
        fail(errno, "eventfd");
    second_thread();
    return poll_on(task, event, value);
}

static int handle(const struct mqw_message *m, struct mqw_context *c)
{
    if (late_note(m->body))
        mqw_stop(mqw_worker_of(c));
    return MQW_DONE;
}

static enum measured worker(const struct task *task, double value[ROWS_MOST])
{
    int sender = trickle_start(task);

    library_run(task, handle, NULL);
    return late_values(sender, value);
}

static const struct duel duels[] = {
    {.rows = {{"latency-median",
               "mq_send to handler, -c 2, asleep / a thread blocked in "
               "mq_receive; median",
               "ns", LESS, 2.0, 1.3},
              {"latency-p99", "the same; 99 of 100 are quicker", "ns", LESS,
               2.0, 1.3}},
     .ours = {.go = worker},
     .rival = {.go = blocked},
     .task = {.n = 500, .depth = 10, .size = 64, .threads = 2},
     .times = 3,
     .whole = true},
    {.rows = {{"floor-latency-median",
               "poll and then mq_receive by hand / a thread blocked in "
               "mq_receive; median",
               "ns", LESS, 0, 0},
              {"floor-latency-p99", "the same; 99 of 100 are quicker", "ns",
               LESS, 0, 0}},
     .ours = {.go = polled},
     .rival = {.go = blocked},
     .task = {.n = 500, .depth = 10, .size = 64, .threads = 1},
     .times = 3,
     .whole = true},
    {.rows = {{"floor-told-median",
               "the same of a thread that another one can tell to end, by a "
               "second descriptor / a thread blocked in mq_receive; median",
               "ns", LESS, 0, 0},
              {"floor-told-p99", "the same; 99 of 100 are quicker", "ns", LESS,
               0, 0}},
     .ours = {.go = told},
     .rival = {.go = blocked},
     .task = {.n = 500, .depth = 10, .size = 64, .threads = 1},
     .times = 3,
     .whole = true},
};

const struct section section_latency = {
    .name = "latency",
    .what = "from mq_send to the first instruction of a handler",
    .usual = true,
    DUELS(duels),
};
