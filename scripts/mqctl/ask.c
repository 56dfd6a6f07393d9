/* ask.c - see ask.h */
#include "scripts/mqctl/ask.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "common/base/safe_text.h"
#include "common/base/unix_socket.h"
#include "common/cli/json_line.h"
#include "common/state/worker_lock.h"
#include "scripts/mqctl/proc.h"

#define ANSWER_MAX 65536
#define PATIENCE   (3 * NS_PER_S) /* for an answer, which takes about 1 ms */

#define WORKER_NAME 32

bool worker_has_unit(const char *queue)
{
    char path[QUEUE_NAME_MAX + 32];

    snprintf(path, sizeof path, "/etc/mqworker%s.conf", queue);
    return queue[0] == '/' && access("/run/systemd/system", F_OK) == 0 &&
           access(path, F_OK) == 0;
}

const char *worker_start_text(const char *queue, char buf[START_TEXT])
{
    if (worker_has_unit(queue))
        snprintf(buf, START_TEXT, "systemctl start mqworker@%s", queue + 1);
    else
        snprintf(buf, START_TEXT, "mqworker %s -- COMMAND", SHELL_QUEUE(queue));
    return buf;
}

static bool worker_is_absent(int err)
{
    return err == -ENOENT || err == -ECONNREFUSED;
}

/* "worker 123", or "a worker" if the pid is unknown. */
static const char *worker_name(pid_t pid, char buf[WORKER_NAME])
{
    snprintf(buf, WORKER_NAME, "worker %d", (int)pid);
    return pid ? buf : "a worker";
}

/* Explain why a worker that holds the lock does not answer; `what` is the
 * observation. */
static int answer_missing(const struct statedir *dir, const char *queue,
                          const char *what, int err, struct problem *p)
{
    enum worker_phase phase = worker_phase(dir);
    char who[WORKER_NAME];
    struct worker_wait wait = {0};

    /* A stopping worker drops its locks one after the other, so its phase may
     * be wrong until it has exited, soon: wait for that. */
    while (phase != WORKER_PHASE_NONE && phase != WORKER_PHASE_STARTING &&
           worker_phase_wait(dir, &wait))
        phase = worker_phase(dir);
    if (phase == WORKER_PHASE_STARTING || phase == WORKER_PHASE_STOPPING)
        problem_fill(p, EX_TEMPFAIL,
                     "%s of %s is %s and does not take orders; try again in a "
                     "few seconds",
                     worker_name(ask_runs(dir), who), queue,
                     phase == WORKER_PHASE_STARTING ? "starting" : "stopping");
    else if (phase == WORKER_PHASE_NONE)
        problem_fill(
            p, EX_UNAVAILABLE,
            "no worker is running on %s any more: it exited before it answered",
            queue);
    else
        problem_fill(p, EX_TEMPFAIL, "%s is running on %s, but %s",
                     worker_name(ask_runs(dir), who), queue, what);
    return err;
}

/* Send one line and read the answer, one object. A worker that refuses the
 * connection says why and closes it, maybe before our line is out: its answer
 * can still be read. */
static int line_ask(int fd, const char *line, json_t **out)
{
    static char buf[ANSWER_MAX];
    char all[STATEDIR_BEFORE_SIZE + STATEDIR_REQUEST];
    uint64_t end = clock_mono_ns() + PATIENCE, now;
    /* The deadline keeps the worker from carrying out an order after we stopped
     * waiting for the answer. */
    ssize_t n = snprintf(all, sizeof all, STATEDIR_BEFORE "%" PRIu64 " %s\n",
                         clock_wall_ns() + PATIENCE, line);
    bool sent =
        n < (ssize_t)sizeof all && send(fd, all, (size_t)n, MSG_NOSIGNAL) == n;
    size_t used = 0;

    if (!sent && errno != EPIPE)
        return -EPIPE;
    while (used == 0 || buf[used - 1] != '\n') {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready;

        if (used == sizeof buf)
            return -EMSGSIZE;
        now = clock_mono_ns();
        ready = now < end ? poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) : 0;
        n = ready > 0 ? recv(fd, buf + used, sizeof buf - used, 0) : 0;
        if (ready < 0 || n < 0)
            return -errno;
        if (n == 0)
            return ready ? -EPIPE : -ETIMEDOUT;
        used += (size_t)n;
    }
    *out = json_loadb(buf, used, 0, NULL);
    return json_is_object(*out) ? 0 : -EPROTO;
}

int ask(const struct statedir *dir, const char *queue, const char *line,
        json_t **out, struct problem *p)
{
    char path[PATH_MAX], what[128], start[START_TEXT];
    struct worker_wait wait = {0};
    pid_t pid = ask_runs(dir);
    struct process_stat st;
    struct holder h;
    int fd, err;

    *out = NULL;
    /* A worker (of our PID namespace) that a signal stopped cannot answer. */
    if (pid && process_stat(pid, &st) && st.state == 'T' &&
        holder_is(&h, pid, queue))
        return problem_set(p, EX_TEMPFAIL, EHOSTDOWN,
                           "worker %d of %s is stopped by a signal (SIGSTOP, "
                           "or ^Z in its terminal); continue it with fg there, "
                           "or with kill -CONT %d",
                           (int)pid, queue, (int)pid);
    if (snprintf(path, sizeof path, "%s/%s", dir->folder, STATEDIR_CONTROL) >=
        (int)sizeof path)
        return problem_set(p, EX_CANTCREAT, ENAMETOOLONG,
                           "the path of the control socket is too long");
    do /* a starting worker gets some time to listen */
        fd = unix_socket_connect(path);
    while (worker_is_absent(fd) && worker_phase(dir) != WORKER_PHASE_NONE &&
           worker_phase_wait(dir, &wait));
    if (fd >= 0) {
        err = line_ask(fd, line, out);
        close(fd);
        if (!err)
            return 0;
        json_decref(*out);
        *out = NULL;
        snprintf(what, sizeof what,
                 "does not answer: %s. Try again, check its log, or use "
                 "signals (mqworker(8))",
                 errno_text(-err));
        return answer_missing(dir, queue, what, err, p);
    }
    /* Explain why no connection could be made. */
    if (worker_is_absent(fd) && worker_phase(dir) != WORKER_PHASE_NONE)
        return answer_missing(
            dir, queue,
            "its control socket was removed. The worker restarts when its "
            "handlers have finished: try again then, or use signals "
            "(mqworker(8))",
            fd, p);
    if (worker_is_absent(fd))
        problem_fill(p, EX_UNAVAILABLE,
                     "no worker is running on %s with this state directory (no "
                     "process listens at %s); start one with %s, or give the "
                     "worker's --state-dir",
                     queue, path, worker_start_text(queue, start));
    else if (fd == -EAGAIN)
        return answer_missing(dir, queue,
                              "it accepts no more connections. Try again, "
                              "check its log, or use signals (mqworker(8))",
                              fd, p);
    else if (fd == -EACCES || fd == -EPERM)
        problem_fill(p, EX_NOPERM, "%s: %s; run as the worker's user or root",
                     path, errno_text(-fd));
    else
        problem_fill(p, EX_UNAVAILABLE,
                     "%s: %s; check whether the worker is running", path,
                     errno_text(-fd));
    return fd;
}

int ask_status(const json_t *answer, const char **why)
{
    int status = (int)json_integer_value(json_object_get(answer, "status"));

    *why = json_text_of(answer, "error");
    if (!*why)
        *why = "the worker gave no reason";
    return json_is_true(json_object_get(answer, "ok")) ? 0
           : status                                    ? status
                                                       : EX_TEMPFAIL;
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

int ask_until_gone(const struct statedir *dir, pid_t pid, uint64_t limit_ns)
{
    uint64_t end = ns_add(clock_mono_ns(), limit_ns), now, most;
    char path[PATH_MAX];

    while (ask_runs(dir) == pid) {
        struct pollfd p = {.fd = -1, .events = POLLIN};

        now = clock_mono_ns();
        if (now >= end)
            return -ETIMEDOUT;
        /* The worker closes its side of an idle connection when it exits. If
         * there is no connection, it is about to exit, or has too many clients:
         * check again in a moment. */
        if (snprintf(path, sizeof path, "%s/%s", dir->folder,
                     STATEDIR_CONTROL) < (int)sizeof path)
            p.fd = unix_socket_connect(path);
        most = p.fd >= 0 ? 60 * NS_PER_S : 10 * NS_PER_MS;
        if (most > end - now)
            most = end - now;
        (void)poll(&p, p.fd >= 0 ? 1 : 0, (int)(most / NS_PER_MS) + 1);
        if (p.fd >= 0)
            close(p.fd);
    }
    return 0;
}
