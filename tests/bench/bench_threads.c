/* bench_threads.c - when a second receiving thread pays off
 *
 * One process sends 64-byte messages; 1, 2, 4 and 8 threads receive them as
 * the worker does, without blocking and with poll(2) when nothing is there, and
 * then work for so many microseconds. Prints messages a second, the best of some
 * rounds: what disturbs only slows down. And what it costs to wake a thread
 * that sleeps: half a round trip between two.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"

#define ROUNDS  9
#define THREADS 8
#define TRIPS   4000

static char name[64];
static _Atomic unsigned left;
static uint64_t work_ns;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* receive - until all messages were taken by somebody */
static void *receive(void *arg)
{
    mqd_t mq = mq_open(name, O_RDONLY | O_NONBLOCK);
    struct pollfd fd = {.fd = (int)mq, .events = POLLIN};
    char body[64];

    (void)arg;
    if (mq == (mqd_t)-1)
        die("mq_open");
    while (atomic_load(&left) > 0) {
        if (mq_receive(mq, body, sizeof body, NULL) >= 0) {
            uint64_t end = clock_mono_ns() + work_ns;

            atomic_fetch_sub(&left, 1);
            while (work_ns && clock_mono_ns() < end)
                ;
        } else if (errno == EAGAIN) {
            poll(&fd, 1, 1);
        } else {
            die("mq_receive");
        }
    }
    mq_close(mq);
    return NULL;
}

/* sender - a process, as senders are */
static pid_t sender(unsigned messages)
{
    pid_t pid = fork();
    char body[64] = {0};
    mqd_t mq;

    if (pid != 0)
        return pid;
    mq = mq_open(name, O_WRONLY);
    while (messages-- > 0)
        if (mq_send(mq, body, sizeof body, 0) < 0)
            _exit(1);
    _exit(0);
}

/* rate - messages a second */
static double rate(unsigned threads, unsigned messages)
{
    pthread_t thread[THREADS];
    uint64_t before = clock_mono_ns();
    pid_t pid;

    atomic_store(&left, messages);
    pid = sender(messages);
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, receive, NULL) != 0)
            die("pthread_create");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    waitpid(pid, NULL, 0);
    return messages * 1e9 / (double)(clock_mono_ns() - before);
}

/* compare - threads in turn, so that a busy machine spoils all alike */
static void compare(unsigned us, unsigned messages)
{
    static const unsigned threads[] = {1, 2, 4, THREADS};
    enum { KINDS = sizeof threads / sizeof *threads };
    double best[KINDS] = {0};

    work_ns = us * NS_PER_US;
    for (unsigned r = 0; r < ROUNDS; r++)
        for (unsigned k = 0; k < KINDS; k++) {
            double now = rate(threads[k], messages);

            if (now > best[k])
                best[k] = now;
        }
    printf("%7u", us);
    for (unsigned k = 0; k < KINDS; k++)
        printf(" %9.0f", best[k]);
    printf("\n");
}

/* ---- waking ---- */

static struct {
    pthread_mutex_t mtx;
    pthread_cond_t turned;
    unsigned turn;
} ball = {.mtx = PTHREAD_MUTEX_INITIALIZER, .turned = PTHREAD_COND_INITIALIZER};

/* play - hand the ball over TRIPS times */
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

/* wake_us - half a round trip */
static double wake_once(void)
{
    uint64_t before = clock_mono_ns();
    pthread_t other;

    if (pthread_create(&other, NULL, play, &ball) != 0)
        die("pthread_create");
    play(NULL);
    pthread_join(other, NULL);
    return (double)(clock_mono_ns() - before) / (2.0 * TRIPS * 1e3);
}

/* wake_us - the best of some */
static double wake_us(void)
{
    double best = wake_once();

    for (unsigned r = 1; r < ROUNDS; r++) {
        double now = wake_once();

        if (now < best)
            best = now;
    }
    return best;
}

static void clean(void)
{
    mq_unlink(name);
}

int main(void)
{
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 64};
    mqd_t mq;

    snprintf(name, sizeof name, "/bench_threads.%d", (int)getpid());
    mq = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
    if (mq == (mqd_t)-1)
        die(name);
    mq_close(mq);
    atexit(clean);
    printf("waking a thread: %.1f us\n", wake_us());
    printf("work us  1 thread         2         4         8   messages a "
           "second\n");
    compare(0, 20000);
    compare(3, 10000);
    compare(6, 10000);
    compare(20, 5000);
    compare(100, 1000);
    return 0;
}
