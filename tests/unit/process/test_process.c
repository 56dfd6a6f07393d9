/* test_process.c - start a child, find out about it, wait for it */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "worker/loop/signals.h"
#include "worker/process/process.h"

static char sleep_word[] = "sleep", time_word[] = "1000";
static char *const sleeper[] = {sleep_word, time_word, NULL};
static char *const none[] = {NULL};
static struct process started;
static pid_t child;

/* Kill the process that a failed test has left. */
static void teardown(void)
{
    if (child > 0)
        kill(child, SIGKILL);
}

TestSuite(process, .fini = teardown);

/* Start a process that sleeps until `stop` kills it. */
static pid_t start(void)
{
    char path[PATH_MAX];

    cr_assert_eq(process_find("sleep", path), 0);
    cr_assert_eq(
        process_start(&started, path, sleeper, none, (int[]){-1, -1, -1}, 0),
        0);
    child = started.pid;
    return child;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    close(started.end);
    child = 0;
}

Test(process, stat_tells_parent_group_and_start)
{
    struct process_stat st;
    pid_t pid = start();

    cr_assert(process_stat(pid, &st));
    cr_assert_eq(st.parent, getpid());
    cr_assert_eq(st.group, pid);
    cr_assert_eq(st.start, process_start_time(pid));
    cr_assert_gt(st.start, 0);
    stop(pid);
    cr_assert_not(process_stat(pid, &st));
    cr_assert_eq(process_start_time(pid), 0);
}

/* process_start usually finds the time without reading /proc. */
Test(process, a_start_tells_when_it_was)
{
    for (unsigned i = 0; i < 50; i++) {
        pid_t pid = start();

        cr_assert_eq(started.start, process_start_time(pid));
        stop(pid);
    }
}

Test(process, a_start_gives_a_descriptor_that_tells_of_the_end)
{
    struct pollfd end = {.events = POLLIN};
    pid_t pid = start();

    end.fd = started.end;
    cr_assert_eq(fcntl(started.end, F_GETFD), FD_CLOEXEC);
    cr_assert_eq(poll(&end, 1, 0), 0);
    kill(pid, SIGKILL);
    cr_assert_eq(poll(&end, 1, 10000), 1);
    stop(pid);
}

/* tail keeps 64 MiB, and the shell waits for it. */
Test(process, an_end_tells_what_the_process_and_its_children_used)
{
    static const char script[] = "head -c 67108864 /dev/zero | "
                                 "tail -c 67108864 >/dev/null; exit 7";
    const char *argv[] = {"sh", "-c", script, NULL};
    struct usage usage, small = {.cpu_ns = 1, .peak_bytes = 1};
    siginfo_t info;

    cr_assert_eq(process_start(&started, "/bin/sh", (char *const *)argv,
                               environ, (int[]){-1, -1, -1}, 0),
                 0);
    info = process_wait(started.pid, WNOWAIT, NULL);
    cr_assert_eq(info.si_status, 7);
    info = process_wait(started.pid, 0, &usage);
    cr_assert(info.si_code == CLD_EXITED && info.si_status == 7 &&
              info.si_pid == started.pid);
    close(started.end);
    process_peak_check(&usage);
    cr_assert(usage.cpu_ns > 0 && usage.cpu_ns < 3600 * NS_PER_S);
    cr_assert_geq(usage.peak_bytes, 64u << 20);
    cr_assert_lt(usage.peak_bytes, 256u << 20);
    process_peak_check(&small);
    cr_assert_eq(small.peak_bytes, 0, "it may be the worker's peak");
    info = process_wait(started.pid, 0, &usage);
    cr_assert(info.si_code == 0 && info.si_errno == ECHILD);
    cr_assert(usage.cpu_ns == 0 && usage.peak_bytes == 0);
}

Test(process, what_cannot_be_started_leaves_nothing)
{
    struct process p;
    siginfo_t info;
    int next = dup(0);

    close(next);
    cr_assert_eq(process_start(&p, "/no/such/file", sleeper, none,
                               (int[]){-1, -1, -1}, 0),
                 -ENOENT);
    cr_assert_eq(process_start(&p, "/bin/sleep", sleeper, none,
                               (int[]){-1, 4000, -1}, 0),
                 -EBADF);
    cr_assert_eq(waitid(P_ALL, 0, &info, WEXITED | WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
    cr_assert_eq(dup(0), next, "a descriptor is left");
}

/* Check that a process ignores and blocks no signal, and kill it. */
static void unchanged_check(pid_t pid)
{
    char path[PATH_MAX], line[128];
    unsigned long long blocked = 1, ignored = 1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) {
        sscanf(line, "SigBlk: %llx", &blocked);
        sscanf(line, "SigIgn: %llx", &ignored);
    }
    fclose(f);
    stop(pid);
    cr_assert_eq(blocked, 0);
    cr_assert_eq(ignored & ~(3ULL << 31), 0, "%llx", ignored);
}

/* The first call of process_start notes which signals are ignored then, and
 * every start resets these in the child. */
Test(process, it_has_no_signal_ignored_or_blocked)
{
    sigset_t all;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    unchanged_check(start());
}

/* In the worker, a write to a pipe without a reader only fails with EPIPE. Its
 * child has the default action of SIGPIPE. */
Test(process, the_worker_ends_by_no_write_and_its_child_may)
{
    int fds[2];

    signals_block(true);
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    close(fds[0]);
    cr_assert_eq(write(fds[1], "x", 1), -1);
    cr_assert_eq(errno, EPIPE);
    close(fds[1]);
    unchanged_check(start());
}
