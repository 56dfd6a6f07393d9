/* mqctl_ask.c - see mqctl_ask.h */
#include "scripts/mqctl/mqctl_ask.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"
#include "common/file/unix_socket.h"
#include "common/state/worker_lock.h"

#define ANSWER_MAX 65536
#define PATIENCE   (3 * NS_PER_S) /* a worker answers in a millisecond */

/* refused - why there is nobody to talk to */
static int refused(const struct statedir *dir, const char *queue,
                   const char *path, int err, struct problem *p)
{
    char pidfile[PATH_MAX], who[32] = "a worker";
    pid_t pid;

    if ((err == -ENOENT || err == -ECONNREFUSED) &&
        statedir_path(dir, STATEDIR_PIDFILE, pidfile, NULL) == 0 &&
        worker_lock_look(pidfile, &pid) == WORKER_RUNS) {
        if (pid)
            snprintf(who, sizeof who, "worker %d", (int)pid);
        problem_fill(p, EX_TEMPFAIL,
                     "%s runs on %s, but nobody listens at %s: it starts or "
                     "ends just now, or the socket was removed, which it makes "
                     "again within seconds; try again, or use signals "
                     "(mqworker(8))",
                     who, queue, path);
    } else if (err == -ENOENT || err == -ECONNREFUSED)
        problem_fill(p, EX_UNAVAILABLE,
                     "no worker runs on %s with this state directory (nobody "
                     "listens at %s); start one with mqworker %s -- COMMAND, "
                     "or give its --state-dir",
                     queue, path, queue);
    else if (err == -EACCES || err == -EPERM)
        problem_fill(p, EX_NOPERM, "%s: %s; run as the worker's user or root",
                     path, errno_text(-err));
    else
        problem_fill(p, EX_UNAVAILABLE, "%s: %s; look whether the worker runs",
                     path, errno_text(-err));
    return err;
}

/* line_read - read up to a newline, within a time; bytes or -errno */
static ssize_t line_read(int fd, char *buf, size_t room)
{
    uint64_t end = clock_mono_ns() + PATIENCE;
    size_t used = 0;

    while (used < room) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = clock_mono_ns();
        int n = now < end ? poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) : 0;
        ssize_t got = n > 0 ? recv(fd, buf + used, room - used, 0) : 0;

        if (n < 0 || got < 0)
            return -errno;
        if (n == 0)
            return -ETIMEDOUT;
        if (got == 0)
            return -EPIPE;
        used += (size_t)got;
        if (buf[used - 1] == '\n')
            return (ssize_t)used;
    }
    return -EMSGSIZE;
}

/* talk - one line out, one object in. A worker that refuses the connection says
 * why and closes it, maybe before our line is out: its answer can still be
 * read. */
static int talk(int fd, const char *line, json_t **out)
{
    static char buf[ANSWER_MAX];
    ssize_t n = (ssize_t)strlen(line);
    bool sent = send(fd, line, (size_t)n, MSG_NOSIGNAL) == n &&
                send(fd, "\n", 1, MSG_NOSIGNAL) == 1;

    n = sent || errno == EPIPE ? line_read(fd, buf, sizeof buf) : -EPIPE;
    if (n < 0)
        return (int)n;
    *out = json_loadb(buf, (size_t)n, 0, NULL);
    return json_is_object(*out) ? 0 : -EPROTO;
}

/* ask - one request */
int ask(const struct statedir *dir, const char *queue, const char *line,
        json_t **out, struct problem *p)
{
    char path[PATH_MAX];
    int fd, err;

    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", dir->folder, STATEDIR_CONTROL) >=
        (int)sizeof path)
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of the control socket is too long");
    fd = unix_socket_connect(path);
    if (fd < 0)
        return refused(dir, queue, path, fd, p);
    err = talk(fd, line, out);
    close(fd);
    if (!err)
        return 0;
    json_decref(*out);
    *out = NULL;
    return problem_set(p, EX_TEMPFAIL, -err,
                       "the worker of %s does not answer: %s; try again, look "
                       "at its log, or use signals (mqworker(8))",
                       queue, errno_text(-err));
}

/* ---- the end of a worker ---- */

pid_t ask_runs(const struct statedir *dir)
{
    char pidfile[PATH_MAX];
    pid_t pid = 0;

    if (statedir_path(dir, STATEDIR_PIDFILE, pidfile, NULL) < 0 ||
        worker_lock_look(pidfile, &pid) != WORKER_RUNS)
        return 0;
    return pid;
}

/* quiet - until the worker closes its side of a connection, on which it has
 * nothing to say, or the time is over. Without one it is just about to go, or
 * has too many clients: look again in a moment. */
static void quiet(const struct statedir *dir, uint64_t left_ns)
{
    char path[PATH_MAX];
    struct pollfd p = {.fd = -1, .events = POLLIN};
    uint64_t most = 10 * NS_PER_MS;

    if (snprintf(path, sizeof path, "%s/%s", dir->folder, STATEDIR_CONTROL) <
        (int)sizeof path)
        p.fd = unix_socket_connect(path);
    if (p.fd >= 0)
        most = 60 * NS_PER_S;
    if (most > left_ns)
        most = left_ns;
    (void)poll(&p, p.fd >= 0 ? 1 : 0, (int)(most / NS_PER_MS) + 1);
    if (p.fd >= 0)
        close(p.fd);
}

int ask_until_gone(const struct statedir *dir, pid_t pid, uint64_t limit_ns)
{
    uint64_t end = ns_add(clock_mono_ns(), limit_ns), now;

    while (ask_runs(dir) == pid) {
        now = clock_mono_ns();
        if (now >= end)
            return -ETIMEDOUT;
        quiet(dir, end - now);
    }
    return 0;
}
