/* bench_peers.c - the worker beside servers that people would use instead
 *
 * All get the same bodies and the same handler: a shell script that reads the
 * body and writes its length, so that each arrival is checked. The clock runs
 * from the first send until the last handler has said so; before it one message
 * goes all the way, so that whatever had to start has started. The rows called
 * -call have no handler: they show what the way through the server costs.
 * Consumers of beanstalkd and of Redis are by hand: take, run, done, on one
 * connection, as their clients do it. amqp-consume is RabbitMQ's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/bench/feed.h"
#include "tests/bench/library.h"
#include "tests/bench/peers.h"
#include "tests/bench/program.h"

#define SIZE 64

/* ---- the handler ---- */

struct handler {
    char path[PATH_MAX + 16];
    FILE *said; /* a line of each */
};

static void handler_make(struct handler *h)
{
    char fifo[PATH_MAX + 16];
    int fd;

    snprintf(h->path, sizeof h->path, "%s/handle", place->dir);
    snprintf(fifo, sizeof fifo, "%s/said", place->dir);
    fd = open(h->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    if (fd < 0 ||
        dprintf(fd, "#!/bin/sh\nread -r body\necho ${#body} >%s\n", fifo) < 0)
        fail(errno, "%s", h->path);
    close(fd);
    if (mkfifo(fifo, 0600) < 0)
        fail(errno, "%s", fifo);
    fd = open(fifo, O_RDWR | O_CLOEXEC); /* it has no end between two */
    h->said = fd < 0 ? NULL : fdopen(fd, "r");
    if (!h->said)
        fail(errno, "%s", fifo);
}

/* Wait for `n` handlers, each of which must have had the whole body. */
static void handler_wait(struct handler *h, unsigned long n)
{
    char text[16];

    while (n-- > 0) {
        if (!fgets(text, sizeof text, h->said))
            fail(errno, "the handler");
        if (strtoul(text, NULL, 10) != SIZE)
            fail(0, "a handler got a body of %s", text);
    }
}

/* Measure from the first send of process `sender`, which has just begun. */
static enum measured rate(struct handler *h, const struct task *task,
                          uint64_t from_ns, int sender, double value[ROWS_MOST])
{
    handler_wait(h, task->n);
    value[0] = (double)task->n * 1e9 / (double)(clock_mono_ns() - from_ns);
    child_done(sender, "the sender");
    return MEASURED;
}

/* ---- ours ---- */

static enum measured worker(const struct task *task, double value[ROWS_MOST])
{
    struct handler h = {.said = NULL};
    uint64_t from;
    int pid;

    handler_make(&h);
    pid = program_start((const char *[]){"-c", "1", "--", h.path, NULL});
    program_send((int)feed_open(O_WRONLY), 1, SIZE);
    handler_wait(&h, 1);
    from = clock_mono_ns();
    rate(&h, task, from, feed_start(task), value);
    program_stop(pid);
    return MEASURED;
}

/* ---- theirs ---- */

/* Run the handler with the body as its stdin. */
static void handle(const struct handler *h, const struct peer_link *l)
{
    char *argv[] = {(char *)h->path, NULL};
    posix_spawn_file_actions_t files;
    int fds[2], err;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0 ||
        write(fds[1], l->body, l->size) != (ssize_t)l->size)
        fail(errno, "a pipe");
    close(fds[1]);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, fds[0], STDIN_FILENO);
    err = posix_spawn(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(fds[0]);
    if (err)
        fail(err, "%s", argv[0]);
    child_done(pid, "a handler");
}

/* Start a process that takes a message, runs it, reports it done, for ever. */
static int consumer_start(const struct peer *peer, const struct handler *h)
{
    static struct peer_link l;
    int pid = fork_bound();

    if (pid > 0)
        return pid;
    peer_open(peer, &l);
    for (;;) {
        peer->take(&l);
        handle(h, &l);
        peer->done(&l);
    }
}

static enum measured command_rate(const struct peer *peer,
                                  const struct task *task,
                                  double value[ROWS_MOST])
{
    struct handler h = {.said = NULL};
    uint64_t from;

    if (peer_start(peer) != MEASURED)
        return NOT_BUILT;
    handler_make(&h);
    (void)consumer_start(peer, &h);
    child_done(peer_send(peer, 1, SIZE), "the sender");
    handler_wait(&h, 1);
    from = clock_mono_ns();
    return rate(&h, task, from, peer_send(peer, task->n, SIZE), value);
}

static enum measured call_rate(const struct peer *peer, const struct task *task,
                               double value[ROWS_MOST])
{
    static struct peer_link l;
    static struct tally tally;

    if (peer_start(peer) != MEASURED)
        return NOT_BUILT;
    peer_open(peer, &l);
    tally_plan(&tally, task->n);
    tally.sender = peer_send(peer, task->n, SIZE);
    do {
        peer->take(&l);
        if (l.size != SIZE)
            fail(0, "a body of %zu bytes came", l.size);
        peer->done(&l);
    } while (!tally_count(&tally));
    value[0] = tally_rate(&tally);
    return MEASURED;
}

#define PEER(name)                                               \
    static enum measured name##_command(const struct task *task, \
                                        double value[ROWS_MOST]) \
    {                                                            \
        return command_rate(&peer_##name, task, value);          \
    }                                                            \
    static enum measured name##_call(const struct task *task,    \
                                     double value[ROWS_MOST])    \
    {                                                            \
        return call_rate(&peer_##name, task, value);             \
    }
PEER(beanstalkd)
PEER(redis_list)
PEER(redis_stream)

static enum measured rabbit_command(const struct task *task,
                                    double value[ROWS_MOST])
{
    char url[RABBIT_URL];
    struct handler h = {.said = NULL};
    uint64_t from;
    int pid;

    if (rabbit_start(url) != MEASURED)
        return NOT_BUILT;
    handler_make(&h);
    pid = fork_bound();
    if (pid == 0) {
        execlp("amqp-consume", "amqp-consume", "-u", url, "-q", RABBIT_QUEUE,
               "-p", "10", h.path, (char *)NULL);
        fail(errno, "amqp-consume");
    }
    child_done(rabbit_send(url, 1, SIZE), "amqp-publish");
    handler_wait(&h, 1);
    from = clock_mono_ns();
    return rate(&h, task, from, rabbit_send(url, task->n, SIZE), value);
}

/* ---- the rows ---- */

#define COMMAND                                            \
    {                                                      \
        .n = 1000, .depth = 10, .size = SIZE, .threads = 1 \
    }
#define CALL                                                                   \
    {                                                                          \
        .n = 20000, .depth = 10, .size = SIZE, .threads = 1, .how = HOW_SENDER \
    }

static const struct duel duels[] = {
    {.rows = {{"beanstalkd", "a script, -c 1 / beanstalkd, its log on the disk",
               "/s", MORE, 0, 0}},
     .ours = {.go = worker},
     .rival = {.go = beanstalkd_command},
     .task = COMMAND},
    {.rows = {{"redis-list",
               "a script, -c 1 / Redis, BLMOVE to a list of what runs, LREM",
               "/s", MORE, 0, 0}},
     .ours = {.go = worker},
     .rival = {.go = redis_list_command},
     .task = COMMAND},
    {.rows = {{"redis-stream",
               "a script, -c 1 / Redis, XREADGROUP, XACK and XDEL", "/s", MORE,
               0, 0}},
     .ours = {.go = worker},
     .rival = {.go = redis_stream_command},
     .task = COMMAND},
    {.rows = {{"rabbitmq",
               "a script, -c 1 / RabbitMQ, a durable queue, amqp-consume", "/s",
               MORE, 0, 0}},
     .ours = {.go = worker},
     .rival = {.go = rabbit_command},
     .task = COMMAND},
    {.rows = {{"beanstalkd-call", "a function, -c 1 / reserve and delete", "/s",
               MORE, 0, 0}},
     .ours = {.go = library_rate},
     .rival = {.go = beanstalkd_call},
     .task = CALL},
    {.rows = {{"redis-list-call", "a function, -c 1 / BLMOVE and LREM", "/s",
               MORE, 0, 0}},
     .ours = {.go = library_rate},
     .rival = {.go = redis_list_call},
     .task = CALL},
    {.rows = {{"redis-stream-call",
               "a function, -c 1 / XREADGROUP, XACK and XDEL", "/s", MORE, 0,
               0}},
     .ours = {.go = library_rate},
     .rival = {.go = redis_stream_call},
     .task = CALL},
};

const struct section section_peers = {
    .name = "peers",
    .what = "servers that people would use instead, end to end",
    DUELS(duels),
};
