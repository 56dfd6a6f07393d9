/* child.c - a long-lived process and the pipes to it (see child.h) */
#include "worker/process/child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "worker/process/process.h"

void child_init(struct child *c)
{
    *c = (struct child){.in = -1, .out = -1, .err = -1, .end = -1, .statm = -1};
    pthread_mutex_init(&c->mtx, NULL);
}

void child_fini(struct child *c)
{
    pthread_mutex_destroy(&c->mtx);
}

void child_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void child_close_all(struct child *c)
{
    child_close(&c->in);
    child_close(&c->out);
    child_close(&c->err);
    child_close(&c->end);
    child_close(&c->statm);
}

/* pipe_open - `ours` does not block; the other end is a plain one */
static int pipe_open(int *ours, int *theirs, bool we_write)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    *ours = fds[we_write];
    *theirs = fds[!we_write];
    return fcntl(*ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* Open everything, or nothing. */
int child_start(struct child *c, const struct child_spec *spec)
{
    const struct environment_base *b = spec->base;
    char **env = reallocarray(NULL, b->count + 2, sizeof *env);
    int fds[3] = {-1, -1, -1}, err = env ? 0 : -ENOMEM, sig;
    char mark[ENVIRONMENT_MARK], statm[32];
    struct process started;

    if (!err)
        err = pipe_open(&c->in, &fds[0], true);
    if (!err)
        err = pipe_open(&c->out, &fds[1], false);
    if (!err)
        err = pipe_open(&c->err, &fds[2], false);
    if (!err) {
        /* The worker's environment and the child's mark. */
        memcpy(env, b->vars, b->count * sizeof *env);
        env[b->count] = (char *)environment_mark(b->nonce, spec->mark, mark);
        env[b->count + 1] = NULL;
        c->mark = spec->mark;
        err = command_start(spec->command, &started, env, fds);
    }
    free(env);
    for (int i = 0; i < 3; i++)
        child_close(&fds[i]);
    if (err) {
        child_close_all(c);
        return err;
    }
    /* From here on child_signal reaches the child; a stop that came during the
     * start has not. */
    pthread_mutex_lock(&c->mtx);
    c->pid = started.pid;
    c->end = started.end;
    c->start = started.start;
    sig = atomic_load(spec->signal);
    if (sig)
        process_group_signal(c->pid, sig);
    pthread_mutex_unlock(&c->mtx);
    snprintf(statm, sizeof statm, "/proc/%d/statm", (int)c->pid);
    if (spec->measured)
        c->statm = open(statm, O_RDONLY | O_CLOEXEC); /* -1: not measured */
    return 0;
}

void child_signal(struct child *c, int sig)
{
    pthread_mutex_lock(&c->mtx);
    if (c->pid)
        process_group_signal(c->pid, sig);
    pthread_mutex_unlock(&c->mtx);
}

/* Read the second number of proc_pid_statm(5), which is in pages. */
uint64_t child_rss(const struct child *c)
{
    char text[128], *at;
    ssize_t n = c->statm < 0 ? -1 : pread(c->statm, text, sizeof text - 1, 0);

    if (n <= 0)
        return 0;
    text[n] = '\0';
    at = strchr(text, ' ');
    return at ? strtoull(at, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Clear the pid before its number is free. */
bool child_reap(struct child *c, siginfo_t *how)
{
    pid_t pid = c->pid;
    int err;

    pthread_mutex_lock(&c->mtx);
    c->pid = 0;
    pthread_mutex_unlock(&c->mtx);
    *how = (siginfo_t){0};
    while ((err = waitid(P_PID, (id_t)pid, how, WEXITED)) < 0 && errno == EINTR)
        ;
    child_close_all(c);
    return err == 0;
}
