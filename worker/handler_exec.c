/* handler_exec.c - a process for each message (see handler.h, docs/handlers)
 *
 * stdin is the body in a memory file, so there is no pipe to block on; stderr is
 * a pipe that is read here. The process is waited for, not the end of its
 * stderr: a grandchild may keep that open.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/string.h>
#include <bsd/sys/queue.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/environment.h"
#include "worker/handler.h"
#include "worker/process.h"
#include "worker/tail.h"

#define EXIT_NOT_EXECUTABLE 126 /* as shells report it */
#define EXIT_NOT_FOUND      127
#define DRAIN_BYTES         (128u << 10) /* twice what a pipe holds */

/* One that runs; on the stack of its pool thread. */
struct running {
    LIST_ENTRY(running) link;
    pid_t pid; /* not reaped while it is on the list, so the number is ours */
};

/* m = under mtx   c = constant after open   a = atomic */
struct handler {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    pthread_mutex_t mtx;
    LIST_HEAD(, running) running; /* m */
    char path[PATH_MAX];          /* m  where the command was found */
    int signal;                   /* m  sent by stop; 0: none yet */
};

/* What a pool thread keeps for its runs. */
struct scratch {
    struct environment env;
    struct tail tail;
};
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_free(void *arg)
{
    struct scratch *s = arg;

    environment_close(&s->env);
    free(s);
}

static void scratch_key_make(void)
{
    if (pthread_key_create(&scratch_key, scratch_free) != 0)
        abort();
}

/* scratch_get - this thread's own, made at its first run; NULL: no memory */
static struct scratch *scratch_get(void)
{
    struct scratch *s = pthread_getspecific(scratch_key);

    if (!s) {
        s = calloc(1, sizeof *s);
        if (s && pthread_setspecific(scratch_key, s) != 0) {
            free(s);
            s = NULL;
        }
    }
    return s;
}

static int exec_open(struct handler **out, const struct settings *settings,
                     uint64_t nonce, struct problem *p)
{
    struct handler *h = calloc(1, sizeof *h);
    int err;

    *out = NULL;
    pthread_once(&scratch_once, scratch_key_make);
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = environment_base_open(&h->base, settings->queue,
                                settings->max_attempts, nonce);
    if (err) {
        free(h);
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    h->set = settings;
    pthread_mutex_init(&h->mtx, NULL);
    LIST_INIT(&h->running);
    err = process_find(settings->command[0], h->path);
    if (err) {
        h->path[0] = '\0';
        log_error("handler_not_found", F_STR("command", settings->command[0]),
                  F_STR("error", strerror(-err)),
                  F_STR("next", "messages are kept; put the command in place "
                                "and they run"));
    }
    *out = h;
    return 0;
}

static void exec_close(struct handler **handler)
{
    struct handler *h = *handler;

    if (!h)
        return;
    *handler = NULL;
    environment_base_close(&h->base);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

/* body_file - a file that holds the body, read from its start; or -errno */
static int body_file(const struct delivery *d)
{
    int fd = memfd_create("mqworker-body", MFD_CLOEXEC);
    size_t at = 0;

    if (fd < 0)
        return -errno;
    while (at < d->body_size) {
        /* pwrite leaves the offset, which the child shares, at the start. */
        ssize_t n = pwrite(fd, d->body + at, d->body_size - at, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int err = n < 0 ? -errno : -EIO;

            close(fd);
            return err;
        }
        at += (size_t)n;
    }
    return fd;
}

/* not_started - the message is not to blame */
__attribute__((format(printf, 2, 3))) static void
not_started(struct outcome *out, const char *fmt, ...)
{
    va_list args;

    out->kind = OUTCOME_NOT_STARTED;
    va_start(args, fmt);
    vsnprintf(out->error, sizeof out->error, fmt, args);
    va_end(args);
}

/* spawn_locked - start the command where it was found, else look again */
static int spawn_locked(struct handler *h, pid_t *pid, char *const env[],
                        const int fds[3])
{
    char **argv = h->set->command;
    int err = -ENOENT;

    if (h->path[0])
        err = process_start(pid, h->path, argv, env, fds);
    if (err == -ENOENT || err == -EACCES) {
        err = process_find(argv[0], h->path);
        if (!err)
            err = process_start(pid, h->path, argv, env, fds);
        else
            h->path[0] = '\0';
    }
    return err;
}

/* start - spawn and enter it among those that stop() reaches
 * posix_spawn runs outside the lock; a stop that came meanwhile is made up for
 * when the pid is entered.
 */
static int start(struct handler *h, struct running *r, char *const env[],
                 const int fds[3])
{
    char path[PATH_MAX];
    int err, sig;

    pthread_mutex_lock(&h->mtx);
    strlcpy(path, h->path, sizeof path);
    pthread_mutex_unlock(&h->mtx);
    err = path[0] ? process_start(&r->pid, path, h->set->command, env, fds)
                  : -ENOENT;
    pthread_mutex_lock(&h->mtx);
    if (err == -ENOENT || err == -EACCES)
        err = spawn_locked(h, &r->pid, env, fds);
    sig = h->signal;
    if (!err) {
        LIST_INSERT_HEAD(&h->running, r, link);
        if (sig)
            kill(-r->pid, sig);
    }
    pthread_mutex_unlock(&h->mtx);
    return err;
}

/* pipe_read - what is there now; false at the end of the stream */
static bool pipe_read(int fd, struct tail *t, size_t *total)
{
    char buf[4096];
    ssize_t n = read(fd, buf, sizeof buf);

    if (n > 0) {
        tail_add(t, buf, (size_t)n);
        *total += (size_t)n;
    }
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* watch - read stderr until the process has ended */
static void watch(int pidfd, int err_fd, struct tail *t)
{
    struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN},
                            {.fd = err_fd, .events = POLLIN}};
    size_t total = 0;

    while (fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0)
            continue; /* EINTR */
        if (fds[0].revents)
            break;
        if (fds[1].revents && !pipe_read(err_fd, t, &total))
            fds[1].fd = -1;
    }
    while (fds[1].fd < 0 && poll(fds, 1, -1) < 0)
        ;
    /* What it wrote before it ended is in the pipe; what a grandchild goes on
     * writing is not waited for. */
    for (total = 0; fds[1].fd >= 0 && total < DRAIN_BYTES;) {
        size_t before = total;

        if (!pipe_read(err_fd, t, &total) || total == before)
            break;
    }
}

/* reap - wait for the process; it leaves the list before its number is free
 * WNOWAIT: it has ended, and its number stays taken.
 */
static siginfo_t reap(struct handler *h, struct running *r, bool ended,
                      bool *stopped)
{
    siginfo_t info = {0};

    while (!ended &&
           waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOWAIT) < 0 &&
           errno == EINTR)
        ;
    pthread_mutex_lock(&h->mtx);
    LIST_REMOVE(r, link);
    *stopped = h->signal != 0;
    pthread_mutex_unlock(&h->mtx);
    while (waitid(P_PID, (id_t)r->pid, &info, WEXITED) < 0 && errno == EINTR)
        ;
    return info;
}

/* judge - exit status to verdict (docs/handlers) */
static void judge(const struct settings *set, const siginfo_t *info,
                  bool stopped, struct outcome *out)
{
    int code = info->si_status;

    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_RETRY;
    if (info->si_code != CLD_EXITED) {
        snprintf(out->error, sizeof out->error, "signal %d", code);
    } else {
        if (code != 0)
            snprintf(out->error, sizeof out->error, "exit %d", code);
        if (set->on_exit[code & 0xff] != EXIT_UNMAPPED)
            out->verdict = (enum mqw_verdict)set->on_exit[code & 0xff];
        else if (code == 0)
            out->verdict = MQW_DONE;
        else if (code == EX_DATAERR)
            out->verdict = MQW_DEAD;
        else if (code == EXIT_NOT_EXECUTABLE || code == EXIT_NOT_FOUND)
            not_started(out, "exit %d: the command %s", code,
                        code == EXIT_NOT_FOUND ? "was not found"
                                               : "is not executable");
    }
    if (stopped && out->verdict == MQW_RETRY)
        out->kind = OUTCOME_STOPPED;
}

/* supervise - from the start to the verdict */
static void supervise(struct handler *h, struct running *r, struct delivery *d,
                      int err_fd, struct outcome *out)
{
    struct scratch *s = scratch_get();
    siginfo_t info;
    bool stopped;
    int pidfd = pidfd_open(r->pid, 0);

    /* Start time first: a group without it is not killed by recovery, which
     * finds it by its mark all the same. */
    d->slot->handler_start = process_start_time(r->pid);
    atomic_store_explicit(&d->slot->handler_pgid, r->pid, memory_order_release);
    tail_init(&s->tail, d->id);
    if (pidfd >= 0) {
        watch(pidfd, err_fd, &s->tail);
        close(pidfd);
    } else {
        log_warn("handler_unwatched", F_STR("msg", d->id),
                 F_STR("error", strerror(errno)),
                 F_STR("next", "its stderr is dropped; raise ulimit -n"));
    }
    close(err_fd);
    out->ran = true;
    info = reap(h, r, pidfd >= 0, &stopped);
    tail_end(&s->tail, out);
    judge(h->set, &info, stopped, out);
}

/* exec_run - one message, one process */
static void exec_run(struct handler *h, struct delivery *d, struct outcome *out)
{
    struct scratch *s = scratch_get();
    struct running r = {.pid = -1};
    int err_pipe[2] = {-1, -1}, body, err;

    out->tail_size = 0;
    out->error[0] = '\0';
    out->ran = false;
    if (!s || environment_build(&s->env, &h->base, d) < 0) {
        not_started(out, "out of memory");
        return;
    }
    body = body_file(d);
    if (body < 0 || pipe2(err_pipe, O_CLOEXEC) < 0) {
        not_started(out, "no descriptor for the handler: %s",
                    strerror(body < 0 ? -body : errno));
        if (body >= 0)
            close(body);
        return;
    }
    fcntl(err_pipe[0], F_SETFL, O_NONBLOCK);
    err = start(h, &r, s->env.vars, (int[3]){body, -1, err_pipe[1]});
    close(body);
    close(err_pipe[1]);
    if (err) {
        close(err_pipe[0]);
        not_started(out, "cannot start %s: %s", h->set->command[0],
                    err == -ENOEXEC
                        ? "not a program, and no #! in its first line"
                        : strerror(-err));
        return;
    }
    supervise(h, &r, d, err_pipe[0], out);
}

/* exec_stop - signal every group that runs */
static void exec_stop(struct handler *h, int sig)
{
    struct running *r;

    pthread_mutex_lock(&h->mtx);
    h->signal = sig;
    LIST_FOREACH (r, &h->running, link) {
        kill(-r->pid, sig);
        if (sig == SIGTERM)
            kill(-r->pid, SIGCONT); /* a stopped process cannot end */
    }
    pthread_mutex_unlock(&h->mtx);
}

const struct handler_ops handler_exec = {
    .name = "exec",
    .guess_ns = NS_PER_MS,
    .open = exec_open,
    .run = exec_run,
    .stop = exec_stop,
    .close = exec_close,
};
