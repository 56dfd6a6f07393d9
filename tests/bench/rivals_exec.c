/* rivals_exec.c - the least that a process for each message can cost
 *
 * It is compared with spawn_rate in rivals.c, and does only what the contract
 * of a handler requires on top: no custody, no verdict, no time limit, and no
 * counter but that of messages.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/libc.h"
#include "tests/bench/feed.h"
#include "tests/bench/rivals.h"

/* a = atomic   c = constant while threads run */
static struct {
    unsigned long n;        /* c */
    atomic_ulong done;      /* a */
    posix_spawnattr_t attr; /* c */
} crew;

/* Start the process: stdin is the body's file, stderr an end of the pipe. */
static pid_t start(int body, int err)
{
    static char program[] = SPAWNED;
    static char *const argv[] = {program, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, body, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    errno = posix_spawn(&pid, program, &actions, &crew.attr, argv, environ);
    if (errno)
        fail(errno, "%s", program);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

/* Run one message. */
static void serve(const char *message, size_t size)
{
    int body = memfd_create("body", MFD_CLOEXEC), err[2];
    struct pollfd fds[2] = {{.events = POLLIN}, {.events = POLLIN}};
    char line[64];
    pid_t pid;

    if (body < 0 || pwrite(body, message, size, 0) != (ssize_t)size ||
        pipe2(err, O_CLOEXEC | O_NONBLOCK) < 0)
        fail(errno, "a file and a pipe");
    pid = start(body, err[1]);
    close(body);
    fds[0].fd = pidfd_open(pid, 0);
    fds[1].fd = err[0];
    if (fds[0].fd < 0)
        fail(errno, "pidfd_open");
    while (!fds[0].revents)
        poll(fds, 2, -1);
    while (read(err[0], line, sizeof line) > 0)
        ;
    close(fds[0].fd);
    close(err[1]);
    child_done(pid, SPAWNED);
    close(err[0]);
}

/* Serve messages until all are done, then end the process. */
static void *serve_thread(void *arg)
{
    mqd_t mq = feed_open(O_RDONLY);
    char message[FEED_MOST];
    unsigned priority;
    ssize_t size;

    for (;;) {
        size = mq_receive(mq, message, sizeof message, &priority);
        if (size < 0)
            fail(errno, "mq_receive");
        serve(message, (size_t)size);
        if (atomic_fetch_add(&crew.done, 1) + 1 == crew.n)
            _exit(0);
    }
    return arg;
}

void spawn_floor(unsigned threads, unsigned long n)
{
    sigset_t all;

    crew.n = n;
    sigfillset(&all);
    posix_spawnattr_init(&crew.attr);
    posix_spawnattr_setflags(&crew.attr,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigdefault(&crew.attr, &all);
    for (unsigned i = 0; i < threads; i++) {
        pthread_t thread;

        if (pthread_create(&thread, NULL, serve_thread, NULL) != 0)
            fail(EAGAIN, "pthread_create");
    }
    for (;;)
        pause();
}
