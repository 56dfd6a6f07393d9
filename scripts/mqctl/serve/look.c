/* look.c - see look.h */
#include "scripts/mqctl/serve/look.h"

#include <bsd/string.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/libc.h"
#include "common/cli/complain.h"

struct look {
    pid_t pid; /* 0: the slot is free */
    int out, err;
    struct look_job job;
};
/* Slots for requests, followed by slots for jobs. */
#define PLACES (LOOKS_MAX + LOOKS_JOBS)
static struct look looks[PLACES];

void look_child(int in, int out, int err, int death)
{
    sigset_t none;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, death);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (null < 0 || dup2(in < 0 ? null : in, 0) < 0 ||
        dup2(out < 0 ? null : out, 1) < 0 || dup2(err < 0 ? null : err, 2) < 0)
        _exit(EX_OSERR);
    closefrom(3);
}

int look_possible(void)
{
    int one = memfd_create("mqctl-serve", MFD_CLOEXEC);
    int two = one >= 0 ? memfd_create("mqctl-serve", MFD_CLOEXEC) : -1;
    int err = two < 0 ? -errno : 0;

    if (one >= 0)
        close(one);
    if (two >= 0)
        close(two);
    return err;
}

pid_t look_start(const struct look_job *job)
{
    /* The look of a job has no limit. */
    size_t at = job->limit_s ? 0 : LOOKS_MAX;
    size_t end = job->limit_s ? LOOKS_MAX : PLACES;
    struct look *l;
    pid_t pid;
    int status;

    while (at < end && looks[at].pid)
        at++;
    if (at == end)
        return -EAGAIN;
    l = &looks[at];
    l->job = *job;
    l->out = memfd_create("mqctl-serve", MFD_CLOEXEC);
    l->err = memfd_create("mqctl-serve-stderr", MFD_CLOEXEC);
    fflush(NULL);
    pid = l->out >= 0 && l->err >= 0 ? fork() : -1;
    if (pid == 0) {
        look_child(job->input, l->out, l->err, job->limit_s ? SIGKILL : SIGINT);
        alarm(job->limit_s);
        status = job->run(job->arg);
        if (fflush(stdout) != 0 && !status)
            status = EX_IOERR;
        _exit(status);
    }
    if (pid < 0) {
        pid = -errno;
        if (l->out >= 0)
            close(l->out);
        if (l->err >= 0)
            close(l->err);
        return pid;
    }
    l->pid = pid;
    return pid;
}

char *look_output(const struct look_end *end)
{
    char *text = calloc(1, end->size + 1);

    if (text && pread(end->out, text, end->size, 0) != (ssize_t)end->size) {
        free(text);
        text = NULL;
    }
    close(end->out);
    return text;
}

/* Free the slot of a look that has ended, and give its owner the result. */
static void look_finish(struct look *l, int status)
{
    struct look_end end = {
        .status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
        .out = l->out,
    };
    struct look_job job = l->job;
    char text[4 * LOOK_LINE];
    struct stat st;
    off_t from;
    ssize_t n;

    /* The error is the last line that the child wrote to standard error. */
    from = lseek(l->err, 0, SEEK_END) - (off_t)(sizeof text - 1);
    n = pread(l->err, text, sizeof text - 1, from > 0 ? from : 0);
    text[n > 0 ? n : 0] = '\0';
    strlcpy(end.line, complaint_of(text), LOOK_LINE);
    close(l->err);
    end.size = fstat(l->out, &st) == 0 ? (size_t)st.st_size : 0;
    l->pid = 0;
    job.ended(&end, job.owner);
}

void look_reap(void)
{
    int status;

    for (size_t i = 0; i < PLACES; i++)
        if (looks[i].pid && waitpid(looks[i].pid, &status, WNOHANG) > 0)
            look_finish(&looks[i], status);
}

void look_end_all(void)
{
    int status = 0;

    for (size_t i = 0; i < PLACES; i++) {
        if (looks[i].pid == 0)
            continue;
        kill(looks[i].pid, looks[i].job.limit_s ? SIGKILL : SIGINT);
        (void)waitpid(looks[i].pid, &status, 0);
        if (looks[i].job.limit_s == 0) {
            look_finish(&looks[i], status);
            continue;
        }
        close(looks[i].out);
        close(looks[i].err);
        looks[i].pid = 0;
    }
}
