/* torture_tracer.c - see torture_tracer.h
 *
 * PTRACE_GET_SYSCALL_INFO (Linux 5.3) tells which call a thread is in and where
 * its next instruction is, on any processor.
 */
#include "tests/crash/torture_tracer.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "tests/crash/torture.h"

#define THREADS  256
#define CATCH_NS (5 * NS_PER_S) /* until a message has been received */
#define TICK_NS  (100 * NS_PER_US)

/* Threads that are traced. */
struct threads {
    pid_t pid, tids[THREADS];
    size_t count;
    bool refused, ended;
};

static long call(enum __ptrace_request request, pid_t tid, void *at, void *data)
{
    return ptrace(request, tid, at, data);
}

static void *number(unsigned long n)
{
    return (void *)n; /* NOLINT(performance-no-int-to-ptr): ptrace(2) */
}

/* ---- all threads ---- */

static bool known(const struct threads *t, pid_t tid)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->tids[i] == tid)
            return true;
    return false;
}

static void forget(struct threads *t, pid_t tid)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->tids[i] == tid) {
            t->tids[i] = t->tids[--t->count];
            return;
        }
}

/* seize - a thread that ends just now is none */
static void seize(struct threads *t, pid_t tid)
{
    if (known(t, tid) || t->count == THREADS)
        return;
    if (call(PTRACE_SEIZE, tid, NULL,
             number(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) < 0) {
        t->refused |= errno != ESRCH;
        return;
    }
    t->tids[t->count++] = tid;
    (void)call(PTRACE_INTERRUPT, tid, NULL, NULL);
}

/* seize_all - those that there are now */
static void seize_all(struct threads *t)
{
    char path[64];
    struct dirent *e;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/task", (int)t->pid);
    dir = opendir(path);
    while (dir && (e = readdir(dir)))
        if (e->d_name[0] != '.')
            seize(t, (pid_t)atoi(e->d_name));
    if (dir)
        closedir(dir);
}

/* stopped - whether the thread has stopped; one that is gone is forgotten */
static bool stopped(struct threads *t, pid_t tid, int flags, int *status)
{
    siginfo_t how = {0};

    /* The leader's end is the driver's to reap. */
    if (waitid(P_PID, (id_t)tid, &how,
               WEXITED | WSTOPPED | WNOWAIT | __WALL | flags) < 0) {
        forget(t, tid);
        t->ended |= tid == t->pid;
        return false;
    }
    if (how.si_pid == 0)
        return false;
    if (how.si_code == CLD_EXITED || how.si_code == CLD_KILLED ||
        how.si_code == CLD_DUMPED) {
        forget(t, tid);
        if (tid == t->pid)
            t->ended = true;
        else
            (void)waitpid(tid, status, __WALL);
        return false;
    }
    if (waitpid(tid, status, __WALL) != tid || !WIFSTOPPED(*status))
        torture_die("tracer: thread %d: %x", (int)tid, (unsigned)*status);
    return true;
}

/* signal_of - what is to be delivered as it goes on: no stop of ours */
static unsigned long signal_of(int status)
{
    int signal = WSTOPSIG(status);

    return status >> 16 || signal == SIGTRAP || signal == (SIGTRAP | 0x80)
               ? 0
               : (unsigned long)signal;
}

/* let_go - it runs as if nobody had traced it */
static void let_go(struct threads *t, pid_t tid)
{
    int status;

    (void)call(PTRACE_INTERRUPT, tid, NULL, NULL);
    if (stopped(t, tid, 0, &status)) {
        (void)call(PTRACE_DETACH, tid, NULL, number(signal_of(status)));
        forget(t, tid);
    }
}

static void let_all_go(struct threads *t, pid_t but)
{
    for (size_t i = t->count; i-- > 0;)
        if (i < t->count && t->tids[i] != but)
            let_go(t, t->tids[i]);
}

/* ---- a message ---- */

static void info_of(pid_t tid, struct __ptrace_syscall_info *info)
{
    memset(info, 0, sizeof *info);
    if (call(PTRACE_GET_SYSCALL_INFO, tid, number(sizeof *info), info) <= 0)
        torture_die("PTRACE_GET_SYSCALL_INFO: %s", strerror(errno));
}

/* What is seen at a stop of a thread. */
struct seen {
    pid_t in[THREADS]; /* threads that are inside of mq_timedreceive */
    size_t count;
};

static void enters(struct seen *s, pid_t tid)
{
    if (s->count < THREADS)
        s->in[s->count++] = tid;
}

/* leaves - whether it was inside */
static bool leaves(struct seen *s, pid_t tid)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->in[i] == tid) {
            s->in[i] = s->in[--s->count];
            return true;
        }
    return false;
}

/* received - the thread has stopped as mq_timedreceive returned a message */
static bool received(struct seen *s, pid_t tid, int status, uint64_t *ip)
{
    struct __ptrace_syscall_info info;

    if (WSTOPSIG(status) != (SIGTRAP | 0x80))
        return false;
    info_of(tid, &info);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (info.entry.nr == SYS_mq_timedreceive)
            enters(s, tid);
        return false;
    }
    *ip = info.instruction_pointer;
    return leaves(s, tid) && info.op == PTRACE_SYSCALL_INFO_EXIT &&
           !info.exit.is_error;
}

/* look - at each thread once: the one that received as the nth, or 0 */
static pid_t look(struct threads *t, struct seen *s, unsigned *nth,
                  uint64_t *ip)
{
    int status;

    for (size_t i = t->count; i-- > 0;) {
        pid_t tid;

        if (i >= t->count)
            continue;
        tid = t->tids[i];
        if (!stopped(t, tid, WNOHANG, &status))
            continue;
        if (received(s, tid, status, ip) && --*nth == 0)
            return tid;
        (void)call(PTRACE_SYSCALL, tid, NULL, number(signal_of(status)));
    }
    return 0;
}

enum tracer_caught tracer_catch(struct tracer *tr, pid_t pid, unsigned nth)
{
    uint64_t end = clock_mono_ns() + CATCH_NS;
    struct threads t = {.pid = pid};
    struct seen s = {.count = 0};
    pid_t tid = 0;

    while (!tid && !t.refused && !t.ended && clock_mono_ns() < end) {
        seize_all(&t); /* some may have been started */
        tid = look(&t, &s, &nth, &tr->after_ip);
    }
    let_all_go(&t, tid);
    tr->pid = pid;
    tr->tid = tid;
    return t.refused ? TRACER_REFUSED
           : t.ended ? TRACER_ENDED
           : tid     ? TRACER_CAUGHT
                     : TRACER_NOTHING;
}

/* ---- instructions ---- */

uint64_t tracer_step(struct tracer *tr, uint64_t n, bool *again)
{
    struct __ptrace_syscall_info info;
    unsigned long signal = 0;
    uint64_t steps = 0;
    int status;

    *again = false;
    while (steps < n && !*again) {
        if (call(PTRACE_SINGLESTEP, tr->tid, NULL, number(signal)) < 0 ||
            waitpid(tr->tid, &status, __WALL) != tr->tid || !WIFSTOPPED(status))
            torture_die("tracer: the thread ended after %llu instructions",
                        (unsigned long long)steps);
        signal = signal_of(status);
        if (signal)
            continue;
        steps++;
        info_of(tr->tid, &info);
        *again = info.instruction_pointer == tr->after_ip;
    }
    return steps;
}

/* tracer_kill - a thread that is traced is reaped by its tracer, and its
 * process after it */
void tracer_kill(struct tracer *tr)
{
    int status;

    kill(tr->pid, SIGKILL);
    while (tr->tid != tr->pid && waitpid(tr->tid, &status, __WALL) == tr->tid &&
           WIFSTOPPED(status))
        continue;
    if (waitpid(tr->pid, &status, __WALL) < 0)
        torture_die("waitpid: %s", strerror(errno));
}
