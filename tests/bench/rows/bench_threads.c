/* bench_threads.c - when another receiving thread pays off
 *
 * This measures the kernel, not the worker, and is why the worker wakes threads
 * as it does. Threads receive as the worker does, without blocking and with
 * poll(2) when the queue is empty, then are busy for some time; the rival is
 * one thread that does the same. The row "wake" is the cost of waking a thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>

#include "common/base/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/feed.h"
#include "tests/bench/work.h"

#define THREADS_MOST 8
#define TRIPS        4000

static struct tally tally;
static const struct task *todo;
static sem_t over;

/* Receive until the process ends. */
static void *receive(void *arg)
{
    char body[FEED_MOST];
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);
    struct pollfd fd = {.fd = (int)mq, .events = POLLIN};

    (void)arg;
    for (;;) {
        if (mq_receive(mq, body, sizeof body, NULL) < 0) {
            if (errno != EAGAIN)
                fail(errno, "mq_receive");
            poll(&fd, 1, -1);
            continue;
        }
        if (todo->work_ns)
            work(todo);
        if (tally_count(&tally))
            sem_post(&over);
    }
}

static enum measured threads(const struct task *task, double value[ROWS_MOST])
{
    pthread_t thread;

    todo = task;
    sem_init(&over, 0, 0);
    tally_start(&tally, task);
    for (unsigned i = 0; i < task->threads; i++)
        if (pthread_create(&thread, NULL, receive, NULL) != 0)
            fail(EAGAIN, "pthread_create");
    while (sem_wait(&over) < 0)
        ;
    value[0] = tally_rate(&tally);
    return MEASURED;
}

/* ---- waking ---- */

static struct {
    pthread_mutex_t mtx;
    pthread_cond_t turned;
    unsigned turn;
} ball = {.mtx = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER};

/* Hand the ball over TRIPS times. */
static void *play(void *arg)
{
    unsigned me = arg != NULL;

    pthread_mutex_lock(&ball.mtx);
    for (unsigned i = 0; i < TRIPS; i++) {
        while (ball.turn % 2 != me)
            pthread_cond_wait(&ball.turned, &ball.mtx);
        ball.turn++;
        pthread_cond_signal(&ball.turned);
    }
    pthread_mutex_unlock(&ball.mtx);
    return NULL;
}

/* Measure half a round trip between two threads. */
static enum measured wake(const struct task *task, double value[ROWS_MOST])
{
    uint64_t before = clock_mono_ns();
    pthread_t other;

    (void)task;
    if (pthread_create(&other, NULL, play, &ball) != 0)
        fail(EAGAIN, "pthread_create");
    play(NULL);
    pthread_join(other, NULL);
    value[0] = (double)(clock_mono_ns() - before) / (2.0 * TRIPS);
    return MEASURED;
}

#define ROW(us_, n_, threads_)                                               \
    {                                                                        \
        .rows = {{"threads-" #threads_ "-" #us_ "us",                        \
                  #threads_ " bare threads, busy for " #us_ " us / 1", "/s", \
                  MORE, 0, 0}},                                              \
        .ours = {.go = threads, .threads = (threads_)},                      \
        .rival = {.go = threads, .threads = 1},                              \
        .task = {                                                            \
            .n = (n_),                                                       \
            .depth = 10,                                                     \
            .size = 64,                                                      \
            .work_ns = (us_)*NS_PER_US,                                      \
            .how = HOW_SENDER,                                               \
        },                                                                   \
    }
#define ROWS(us_, n_) ROW(us_, n_, 2), ROW(us_, n_, 4), ROW(us_, n_, 8)

static const struct duel duels[] = {
    {.rows = {{"wake", "waking a thread", "ns", LESS, 0, 0}},
     .ours = {.go = wake}},
    ROWS(0, 50000),
    ROWS(3, 20000),
    ROWS(6, 20000),
    ROWS(20, 10000),
    ROWS(100, 2000),
};

const struct section section_threads = {
    .name = "threads",
    .what = "threads that receive from one queue of 10, without the worker",
    DUELS(duels),
};
