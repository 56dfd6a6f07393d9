/* rivals.c - see rivals.h */
#include "tests/bench/rivals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/bench/feed.h"
#include "tests/bench/work.h"

#define JOURNAL_BYTES (128 << 20) /* then it is written over */
#define THREADS_MOST  64
#define SLOTS         4

static struct tally tally;

/* Receive a message without blocking in mq_receive. `priority` may be NULL. */
static inline size_t next(mqd_t mq, char body[FEED_MOST], unsigned *priority)
{
    struct pollfd p = {.fd = (int)mq, .events = POLLIN};
    ssize_t n;

    while ((n = mq_receive(mq, body, FEED_MOST, priority)) < 0) {
        if (errno != EAGAIN)
            fail(errno, "mq_receive");
        poll(&p, 1, -1);
    }
    return (size_t)n;
}

enum measured bare_rate(const struct task *task, double value[ROWS_MOST])
{
    static char body[FEED_MOST];
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);

    tally_start(&tally, task);
    do
        next(mq, body, NULL);
    while (!tally_count(&tally));
    value[0] = tally_rate(&tally);
    return MEASURED;
}

static void *sleep_on(void *arg)
{
    pause();
    return arg;
}

void second_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, sleep_on, NULL) != 0)
        fail(EAGAIN, "pthread_create");
}

/* Map some slots of a file in memory. */
static char *slots_map(void)
{
    const size_t size = SLOTS * FEED_MOST;
    char path[PATH_MAX + 16], *slots;
    int fd;

    snprintf(path, sizeof path, "%s/slots", place->dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, (off_t)size) != 0)
        fail(errno, "%s", path);
    slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slots == MAP_FAILED)
        fail(errno, "%s", path);
    memset(slots, 0xff, size);
    close(fd);
    return slots;
}

enum measured floor_rate(const struct task *task, double value[ROWS_MOST])
{
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);
    char *slots = slots_map();
    unsigned priority;
    size_t at = 0;

    second_thread();
    tally_start(&tally, task);
    do
        next(mq, slots + at++ % SLOTS * FEED_MOST, &priority);
    while (!tally_count(&tally));
    value[0] = tally_rate(&tally);
    return MEASURED;
}

enum measured journal_rate(const struct task *task, double value[ROWS_MOST])
{
    static char body[FEED_MOST], path[PATH_MAX + 16];
    mqd_t mq = feed_open(O_RDONLY | O_NONBLOCK);
    off_t at = 0;
    int fd;

    snprintf(path, sizeof path, "%s/journal", place->dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(errno, "%s", path);
    tally_start(&tally, task);
    do {
        size_t n = next(mq, body, NULL);

        if (pwrite(fd, body, n, at % JOURNAL_BYTES) != (ssize_t)n)
            fail(errno, "%s", path);
        at += (off_t)n;
    } while (!tally_count(&tally));
    value[0] = tally_rate(&tally);
    return MEASURED;
}

enum measured blocking_rate(const struct task *task, double value[ROWS_MOST])
{
    static char body[FEED_MOST];
    mqd_t mq = feed_open(O_RDONLY);

    tally_start(&tally, task);
    do {
        if (mq_receive(mq, body, FEED_MOST, NULL) < 0)
            fail(errno, "mq_receive");
    } while (!tally_count(&tally));
    value[0] = tally_rate(&tally);
    return MEASURED;
}

/* ---- threads ---- */

/* What the threads of a rival share; constant, but for the last three. */
static struct crew {
    const struct task *task;
    bool queue; /* there are messages to receive */
    bool turns; /* one receives at a time */
    sem_t over; /* all is counted; who is still blocked ends with the process */
    pthread_mutex_t turn; /* held by the one that receives */
    uint64_t number;      /* of its message; under the mutex */
} crew = {.turn = PTHREAD_MUTEX_INITIALIZER};

/* Start `threads` threads that run `body`. */
static void crew_start(const struct task *task, void *(*body)(void *),
                       pthread_t thread[THREADS_MOST])
{
    crew.task = task;
    sem_init(&crew.over, 0, 0);
    for (unsigned i = 0; i < task->threads; i++)
        if (pthread_create(&thread[i], NULL, body, NULL) != 0)
            fail(EAGAIN, "pthread_create");
}

/* Receive a message, with `turns` only when it is this thread's turn. */
static bool crew_receive(mqd_t mq, char body[FEED_MOST])
{
    bool got;

    if (!crew.turns)
        return mq_receive(mq, body, FEED_MOST, NULL) >= 0;
    pthread_mutex_lock(&crew.turn);
    got = mq_receive(mq, body, FEED_MOST, NULL) >= 0;
    crew.number += got;
    pthread_mutex_unlock(&crew.turn);
    return got;
}

/* Receive, work and count, for ever. */
static void *crew_thread(void *arg)
{
    char body[FEED_MOST];
    mqd_t mq = crew.queue ? feed_open(O_RDONLY) : (mqd_t)-1;

    (void)arg;
    while (!crew.queue || crew_receive(mq, body)) {
        if (crew.task->work_ns)
            work(crew.task);
        if (tally_count(&tally))
            sem_post(&crew.over);
    }
    fail(errno, "mq_receive");
}

/* Run the crew until all is counted. */
static enum measured crew_rate(const struct task *task, double *rate)
{
    pthread_t thread[THREADS_MOST];

    crew_start(task, crew_thread, thread);
    while (sem_wait(&crew.over) < 0)
        ;
    *rate = tally_rate(&tally);
    return MEASURED;
}

enum measured pool_rate(const struct task *task, double value[ROWS_MOST])
{
    crew.queue = true;
    tally_start(&tally, task);
    return crew_rate(task, &value[0]);
}

enum measured turns_rate(const struct task *task, double value[ROWS_MOST])
{
    crew.turns = true;
    return pool_rate(task, value);
}

enum measured ideal_rate(const struct task *task, double value[ROWS_MOST])
{
    tally_plan(&tally, task->n);
    return crew_rate(task, &value[0]);
}

/* ---- processes ---- */

static void *spawn_thread(void *arg)
{
    static char program[] = SPAWNED;
    static char *const argv[] = {program, NULL};
    unsigned long n = crew.task->n / crew.task->threads;

    (void)arg;
    while (n-- > 0) {
        pid_t pid;
        int err = posix_spawn(&pid, program, NULL, NULL, argv, environ);

        if (err)
            fail(err, "%s", program);
        child_done(pid, program);
    }
    return NULL;
}

enum measured spawn_rate(const struct task *task, double value[ROWS_MOST])
{
    unsigned long n = task->n / task->threads * task->threads;
    pthread_t thread[THREADS_MOST];
    uint64_t before = clock_mono_ns();

    crew_start(task, spawn_thread, thread);
    for (unsigned i = 0; i < task->threads; i++)
        pthread_join(thread[i], NULL);
    value[0] = (double)n * 1e9 / (double)(clock_mono_ns() - before);
    return MEASURED;
}

/* ---- a long-lived child ---- */

/* Start the child at the far end of the socket pair. */
static int echo_start(int fds[2])
{
    char body[FEED_MOST];
    ssize_t n;
    int pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        fail(errno, "socketpair");
    pid = fork_bound();
    if (pid > 0) {
        close(fds[1]);
        return pid;
    }
    close(fds[0]);
    while ((n = read(fds[1], body, sizeof body)) > 0)
        if (write(fds[1], body, (size_t)n) != n)
            _exit(1);
    _exit(n < 0);
}

enum measured trip_rate(const struct task *task, double value[ROWS_MOST])
{
    static char body[FEED_MOST];
    bool queue = task->how & HOW_SENDER;
    mqd_t mq = queue ? feed_open(O_RDONLY | O_NONBLOCK) : (mqd_t)-1;
    int fds[2], child = echo_start(fds);
    size_t size = task->size;

    if (queue)
        tally_start(&tally, task);
    else
        tally_plan(&tally, task->n);
    do {
        if (queue)
            size = next(mq, body, NULL);
        if (write(fds[0], body, size) != (ssize_t)size ||
            read(fds[0], body, sizeof body) != (ssize_t)size)
            fail(errno, "the child at the socket pair");
    } while (!tally_count(&tally));
    close(fds[0]);
    child_done(child, "the child at the socket pair");
    value[0] = tally_rate(&tally);
    return MEASURED;
}
