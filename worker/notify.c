/* notify.c - the service manager (see notify.h)
 *
 * The protocol is two manual pages, sd_notify(3) and sd_listen_fds(3): some
 * variables, descriptors from 3 on, and datagrams of KEY=VALUE lines. This file
 * implements it without libsystemd, so that every build has it.
 */
#include "worker/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/safe_text.h"
#include "common/mq/queue.h"
#include "worker/engine.h"

#define FIRST_FD   3
#define FEED_PART  2                 /* feeds in each $WATCHDOG_USEC */
#define FEED_AGAIN (100 * NS_PER_MS) /* after the manager had no room */
#define STOP_MORE  (10 * NS_PER_S)   /* to write verdicts after the handlers */
#define SAY_S      1 /* longest wait for room in the manager's socket, s */

/* Read a number from the environment, and remove it there. 0: there is none, or
 * it is not for this process: a shell or another service that passed the
 * variable on has its own pid in `pid`. `pid_optional`: that may be missing. */
static uint64_t number_take(const char *name, const char *pid,
                            bool pid_optional, int64_t most)
{
    const char *number = getenv(name), *whose = getenv(pid);
    const char *wrong = NULL;
    bool ours = whose
                    ? strtonum(whose, 1, INT_MAX, &wrong) == getpid() && !wrong
                    : pid_optional;
    int64_t n = number && ours ? strtonum(number, 1, most, &wrong) : 0;

    /* NOLINTBEGIN(concurrency-mt-unsafe): before there are threads */
    unsetenv(name);
    unsetenv(pid);
    /* NOLINTEND(concurrency-mt-unsafe) */
    return wrong ? 0 : (uint64_t)n;
}

void notify_init(struct notify *n)
{
    const char *text = getenv("NOTIFY_SOCKET");
    size_t size = text ? strlen(text) : 0;

    *n = (struct notify){.fd = -1};
    /* No handler inherits the descriptors that were passed in. If one of them
     * is not open, none was passed in. */
    n->inherited =
        (int)number_take("LISTEN_FDS", "LISTEN_PID", false, INT_MAX - FIRST_FD);
    for (int fd = FIRST_FD; fd < FIRST_FD + n->inherited; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            n->inherited = 0;
    n->feed_ns = number_take("WATCHDOG_USEC", "WATCHDOG_PID", true,
                             INT64_MAX / (int64_t)NS_PER_US) *
                 NS_PER_US / FEED_PART;
    /* The manager's socket: a path, or @ and an abstract name. A datagram
     * cannot be sent to anything else. */
    n->socket = text ? strdup(text) : NULL;
    n->to.sun_family = AF_UNIX;
    if (size > 1 && size < sizeof n->to.sun_path &&
        (text[0] == '/' || text[0] == '@')) {
        memcpy(n->to.sun_path, text, size);
        if (text[0] == '@')
            n->to.sun_path[0] = '\0';
        else
            size++; /* a path ends in NUL, an abstract name in its size */
        n->to_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    }
    /* NOLINTBEGIN(concurrency-mt-unsafe): no threads yet */
    unsetenv("LISTEN_FDNAMES");
    unsetenv("NOTIFY_SOCKET");
    /* NOLINTEND(concurrency-mt-unsafe) */
}

int notify_queue(const struct notify *n, struct settings *set,
                 struct problem *p)
{
    bool other = false;

    if (n->inherited == 0)
        return 0;
    set->passed_fd = 0;
    for (int fd = FIRST_FD; fd < FIRST_FD + n->inherited; fd++) {
        enum queue_match match = queue_match(fd, set->queue);

        other |= match == QUEUE_OTHER;
        if (match == QUEUE_SAME && !set->passed_fd)
            set->passed_fd = fd;
        else
            close(fd);
    }
    if (set->passed_fd)
        return 0;
    return problem_set(p, EX_USAGE, EINVAL,
                       "queue %s: what was passed in as descriptor %d is %s; "
                       "give ListenMessageQueue=%s in the socket unit",
                       set->queue, FIRST_FD,
                       other ? "another message queue" : "no message queue",
                       set->queue);
}

/* Send a datagram to the manager. Returns 0, or -errno if it was not delivered.
 * The socket is not connected, so that a manager that was started again gets
 * the next datagram. */
static int manager_tell(const struct notify *n, const char *text, int flags)
{
    ssize_t sent;

    do
        sent = sendto(n->fd, text, strlen(text), flags | MSG_NOSIGNAL,
                      (const struct sockaddr *)&n->to, n->to_size);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

/* Feed the watchdog. Called by the loop, which is therefore alive. If the
 * manager's socket is full, try again soon instead of waiting. */
static void watchdog_feed(struct timer *timer)
{
    struct notify *n = CONTAINER_OF(timer, struct notify, watchdog);
    int err = manager_tell(n, "WATCHDOG=1", MSG_DONTWAIT);

    timers_start_after(n->engine->flow.timers, timer,
                       err == -EAGAIN && n->feed_ns > FEED_AGAIN ? FEED_AGAIN
                                                                 : n->feed_ns);
}

/* Tell the manager once that the worker is stopping, and how long that may
 * take. */
static void stopping_say(struct notify *n, int flags)
{
    const struct settings *set = n->engine->flow.set;
    uint64_t most =
        ns_add(ns_add(set->grace_ns, 2 * set->kill_after_ns), STOP_MORE);
    char text[80];

    if (n->stopping)
        return;
    snprintf(text, sizeof text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64,
             most / NS_PER_US);
    n->stopping = manager_tell(n, text, flags) != -EAGAIN;
}

/* Send a new title, whose end may be text that a command printed. Called in the
 * loop. If there is no room, the title is dropped: the next one replaces it. */
static void title_read(struct status_reader *reader, const char *title)
{
    static const char status[] = "STATUS=";
    struct notify *n = CONTAINER_OF(reader, struct notify, reader);
    char text[512];

    /* Not before a restart: after STOPPING the manager kills the worker. */
    if (gate_held(&n->engine->flow.gate, HOLD_STOP) &&
        !engine_restarts(n->engine))
        stopping_say(n, MSG_DONTWAIT);
    memcpy(text, status, sizeof status);
    safe_text_copy(text + sizeof status - 1, sizeof text - (sizeof status - 1),
                   title, strlen(title));
    (void)manager_tell(n, text, MSG_DONTWAIT);
}

/* Ask the manager for ten more seconds. Called again and again while the engine
 * waits until messages in flight can be written. */
static void more_time_ask(void *arg)
{
    (void)manager_tell(arg, "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=10000000",
                       MSG_DONTWAIT);
}

void notify_begin(struct notify *n, struct engine *e)
{
    const struct timeval limit = {.tv_sec = SAY_S};
    int err = -EAFNOSUPPORT;

    n->engine = e;
    n->reader.read = title_read;
    timer_init(&n->watchdog, watchdog_feed);
    /* Without memory, the variable is not copied, but the address is set. */
    if (!n->to_size && (!n->socket || !n->socket[0]))
        return;
    if (n->to_size) {
        n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        err = n->fd < 0 || setsockopt(n->fd, SOL_SOCKET, SO_SNDTIMEO, &limit,
                                      sizeof limit) < 0
                  ? -errno
                  : manager_tell(n, "READY=1", 0);
    }
    if (err < 0)
        log_warn("manager_not_told", F_STR("error", errno_text(-err)),
                 F_STR("next", "no service manager listens at $NOTIFY_SOCKET: "
                               "unset it, or let a service manager start the "
                               "worker"));
    if (n->fd < 0)
        return;
    e->status.reader = &n->reader;
    e->waiting = more_time_ask;
    e->waiting_arg = n;
    if (n->feed_ns)
        watchdog_feed(&n->watchdog);
}

void notify_end(struct notify *n, bool restarts)
{
    (void)timers_cancel(n->engine->flow.timers, &n->watchdog);
    n->engine->status.reader = NULL;
    if (n->fd < 0)
        return;
    if (!restarts)
        stopping_say(n, 0);
    else if (n->feed_ns)
        (void)manager_tell(n, "WATCHDOG=1", 0);
}

/* Set a variable to a number, and its companion to our pid. */
static void number_pass(const char *name, const char *pid, uint64_t number)
{
    char text[24];

    /* NOLINTBEGIN(concurrency-mt-unsafe): the program ends */
    snprintf(text, sizeof text, "%" PRIu64, number);
    setenv(name, text, 1);
    snprintf(text, sizeof text, "%d", (int)getpid());
    setenv(pid, text, 1);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

void notify_pass(const struct notify *n, int queue)
{
    if (n->socket)
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): the program ends */
        setenv("NOTIFY_SOCKET", n->socket, 1);
    if (n->feed_ns)
        number_pass("WATCHDOG_USEC", "WATCHDOG_PID",
                    n->feed_ns * FEED_PART / NS_PER_US);
    if (queue < 0)
        return;
    /* dup2(2) clears the close-on-exec flag of a descriptor that it makes. */
    if (queue == FIRST_FD ? fcntl(queue, F_SETFD, 0) == 0
                          : dup2(queue, FIRST_FD) >= 0)
        number_pass("LISTEN_FDS", "LISTEN_PID", 1);
}
