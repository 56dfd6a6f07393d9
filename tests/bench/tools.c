/* tools.c - what measurements need (see bench.h) */
#include "tests/bench/bench.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

void fail(int err, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (err)
        fprintf(stderr, "bench: %s: %s\n", text, strerror(err));
    else
        fprintf(stderr, "bench: %s\n", text);
    _exit(1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double at_part(double *of, size_t n, double part)
{
    qsort(of, n, sizeof *of, by_value);
    return of[(size_t)((double)(n - 1) * part)];
}

uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int fork_bound(void)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0)
        fail(errno, "fork");
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before that */
        _exit(1);
    return 0;
}

void child_done(int pid, const char *what)
{
    int status;

    if (waitpid(pid, &status, 0) != pid)
        fail(errno, "waitpid");
    if (WIFSIGNALED(status))
        fail(0, "%s: ended by signal %d", what, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        fail(0, "%s: exit %d", what, WEXITSTATUS(status));
}

double status_bytes(int pid, const char *field)
{
    char path[64], line[256];
    double kib = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    f = fopen(path, "re");
    while (f && kib < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtod(line + strlen(field), NULL);
    if (f)
        fclose(f);
    if (kib < 0)
        fail(0, "%s has no %s", path, field);
    return kib * 1024;
}
