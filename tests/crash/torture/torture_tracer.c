/* torture_tracer.c - see torture_tracer.h
 *
 * PTRACE_GET_SYSCALL_INFO (Linux 5.3) tells which call a thread is in and where
 * its next instruction is, on any processor. With PTRACE_O_TRACECLONE each new
 * thread is traced from its first instruction, so none is missed; it begins
 * with a SIGSTOP.
 */
#include "tests/crash/torture/torture_tracer.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cli/complain.h"
#include "tests/crash/torture/torture.h"

#define LIMIT_S 60 /* for a quiet machine */
#define OPTIONS \
    (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)

static long call(enum __ptrace_request request, pid_t tid, unsigned long data)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace(2) wants it so */
    return ptrace(request, tid, NULL, (void *)data);
}

unsigned tracer_limit_s(void)
{
    const char *text = getenv("MQW_TEST_SLOW");
    unsigned long times = text ? strtoul(text, NULL, 10) : 1;

    return LIMIT_S * (unsigned)(times ? times : 1);
}

/* Wait for a child. The alarm of cli_interrupt_catch ends the call with EINTR
 * when the time is over, and an interrupt by the user ends it immediately. */
pid_t tracer_wait(pid_t pid, int *status)
{
    pid_t came;

    alarm(tracer_limit_s());
    came = waitpid(pid, status, __WALL);
    if (came < 0)
        torture_die("waiting for a worker: %s",
                    cli_interrupt_seen() ? "interrupted"
                    : errno == EINTR     ? "no event in time"
                                         : strerror(errno));
    alarm(0);
    return came;
}

/* Return the signal to deliver when the thread continues; 0 for the tracer's
 * own stops. */
static unsigned long signal_of(int status)
{
    int signal = WSTOPSIG(status);

    return status >> 16 || signal == SIGTRAP || signal == (SIGTRAP | 0x80) ||
                   signal == SIGSTOP
               ? 0
               : (unsigned long)signal;
}

/* ---- stops ---- */

void tracer_child(void)
{
    if (call(PTRACE_TRACEME, 0, 0) < 0)
        _exit(TRACER_REFUSAL);
}

/* Call `act` for each existing thread. None is missed, because a new thread
 * begins with a stop that is waited for later. */
static void threads_each(const struct tracer *tr, void (*act)(pid_t, pid_t))
{
    struct dirent *e;
    char path[64];
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/task", (int)tr->pid);
    dir = opendir(path);
    while (dir && (e = readdir(dir)))
        if (e->d_name[0] != '.')
            act(tr->pid, (pid_t)atoi(e->d_name));
    if (dir)
        closedir(dir);
}

/* Continue a stopped thread until its next system call; a running one is not
 * affected. */
static void thread_watch(pid_t pid, pid_t tid)
{
    (void)pid;
    (void)call(PTRACE_SYSCALL, tid, 0);
}

static void info_of(pid_t tid, struct __ptrace_syscall_info *info)
{
    memset(info, 0, sizeof *info);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace(2) wants it so */
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof *info, info) <= 0)
        torture_die("PTRACE_GET_SYSCALL_INFO: %s", strerror(errno));
}

static unsigned long word_at(pid_t pid, unsigned long at)
{
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace(2) wants it so */
    return (unsigned long)ptrace(PTRACE_PEEKDATA, pid, (void *)at, NULL);
}

/* Hide the vDSO, so that reads of the clock are system calls: the vDSO repeats
 * a read that a tick of the kernel interrupts, which happens to nearly all
 * reads of a stepped thread. After exec the stack has argc, argv, a 0, the
 * environment, a 0, pairs
 */
static void vdso_hide(pid_t pid)
{
    struct __ptrace_syscall_info info;
    unsigned long at, type;

    info_of(pid, &info);
    at = info.stack_pointer;
    at += (word_at(pid, at) + 2) * sizeof at;
    while (word_at(pid, at))
        at += sizeof at;
    for (at += sizeof at; (type = word_at(pid, at)) != AT_NULL;
         at += 2 * sizeof at)
        if (type == AT_SYSINFO_EHDR &&
            /* NOLINTNEXTLINE(performance-no-int-to-ptr): as above */
            ptrace(PTRACE_POKEDATA, pid, (void *)at, (void *)AT_IGNORE) < 0)
            torture_die("PTRACE_POKEDATA: %s", strerror(errno));
}

enum tracer_caught tracer_start(struct tracer *tr, pid_t pid)
{
    int status;

    *tr = (struct tracer){.pid = pid};
    tracer_wait(pid, &status);
    if (!WIFSTOPPED(status))
        return WIFEXITED(status) && WEXITSTATUS(status) == TRACER_REFUSAL
                   ? TRACER_REFUSED
                   : TRACER_ENDED;
    if (call(PTRACE_SETOPTIONS, pid, OPTIONS) < 0)
        torture_die("PTRACE_SETOPTIONS: %s", strerror(errno));
    vdso_hide(pid);
    return TRACER_CAUGHT;
}

/* Wait for a stop of the traced thread, or of any thread while tr->tid is 0;
 * other threads are continued. Return 0 when the worker has exited. */
static pid_t next_stop(struct tracer *tr, int *status)
{
    for (;;) {
        pid_t tid = tracer_wait(-1, status);

        if (!WIFSTOPPED(*status)) {
            tr->reaped = tid == tr->pid;
            tr->status = *status;
            if (tr->reaped)
                return 0;
        } else if (tr->tid == 0 || tid == tr->tid) {
            return tid;
        } else {
            (void)call(PTRACE_CONT, tid, signal_of(*status));
        }
    }
}

/* Find the addresses at which a process has mapped an object. */
static void object_find(pid_t pid, const char *object, uint64_t *begin,
                        uint64_t *end)
{
    char path[64], line[512];
    FILE *f;

    *begin = *end = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        uint64_t from, to;

        if (!strstr(line, object) ||
            sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2)
            continue;
        *begin = *begin ? *begin : from;
        *end = to;
    }
    if (f)
        fclose(f);
}

/* Return true if the thread has stopped at the successful return of that system
 * call. */
static bool call_returned(struct tracer *tr, pid_t tid, int status,
                          uint64_t number)
{
    struct __ptrace_syscall_info info;
    bool inside = tid == tr->inside;

    if (WSTOPSIG(status) != (SIGTRAP | 0x80))
        return false;
    info_of(tid, &info);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (info.entry.nr == number)
            tr->inside = tid;
        if (info.entry.nr == SYS_clock_gettime)
            tr->clock_ip = info.instruction_pointer;
        return false;
    }
    if (inside)
        tr->inside = 0;
    tr->after_ip = info.instruction_pointer;
    return inside && !info.exit.is_error;
}

/* Stop the thread that is the nth to return from that system call. */
static enum tracer_caught stop_after(struct tracer *tr, uint64_t number,
                                     unsigned nth)
{
    int status;
    pid_t tid;

    tr->tid = 0;
    threads_each(tr, thread_watch);
    while ((tid = next_stop(tr, &status)) != 0) {
        if (call_returned(tr, tid, status, number) && --nth == 0) {
            tr->tid = tid;
            return TRACER_CAUGHT;
        }
        (void)call(PTRACE_SYSCALL, tid, signal_of(status));
    }
    return TRACER_ENDED;
}

enum tracer_caught tracer_catch(struct tracer *tr, unsigned nth)
{
    return stop_after(tr, SYS_mq_timedreceive, nth);
}

/* Catch a system call made through syscall(2). The function is also in our own
 * libc, at another address, from which the worker's address follows. */
enum tracer_caught tracer_catch_call(struct tracer *tr, uint64_t number)
{
    enum tracer_caught caught = stop_after(tr, number, 1);
    uint64_t ours, theirs, end;

    object_find(getpid(), "libc.so", &ours, &end);
    object_find(tr->pid, "libc.so", &theirs, &end);
    tr->call_ip = (uint64_t)(uintptr_t)syscall - ours + theirs;
    tr->after_ip = 0;
    return caught;
}

/* ---- one thread ---- */

void tracer_pass(struct tracer *tr, const char *object)
{
    object_find(tr->pid, object, &tr->pass_from, &tr->pass_to);
}

#ifdef __x86_64__
/* Set a debug register, of which each thread has its own. */
static void debug_set(const struct tracer *tr, size_t which, uint64_t value)
{
    size_t at = offsetof(struct user, u_debugreg) + which * sizeof value;

    /* NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace(2) wants it so */
    if (ptrace(PTRACE_POKEUSER, tr->tid, (void *)at, (void *)value) < 0)
        torture_die("PTRACE_POKEUSER: %s", strerror(errno));
}

/* Let a call of the object's function run until it returns or has made `n`
 * stops at system calls; return how many stops it made. */
static uint64_t object_pass(struct tracer *tr, uint64_t n,
                            struct __ptrace_syscall_info *info)
{
    uint64_t stops = 0, back = word_at(tr->tid, info->stack_pointer);
    int status;

    debug_set(tr, 0, back);
    debug_set(tr, 7, 1); /* enable the first for instruction addresses */
    do {
        (void)call(PTRACE_SYSCALL, tr->tid, 0);
        if (!next_stop(tr, &status))
            torture_die("the worker ended in a library");
        stops += WSTOPSIG(status) == (SIGTRAP | 0x80);
        info_of(tr->tid, info);
    } while (stops < n && (WSTOPSIG(status) != SIGTRAP ||
                           info->instruction_pointer != back));
    debug_set(tr, 7, 0);
    return stops;
}
/* Stop at writes to four words of a slot, 8 bytes each. */
static void words_watch(const struct tracer *tr, uint64_t slot)
{
    static const unsigned at[] = {0, 8, 16, 96};

    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        debug_set(tr, i, slot + at[i]);
    debug_set(tr, 7, 0x99990055);
}

/* Return true if the call of syscall(2) that begins here is mq_timedreceive. */
static bool is_receive(const struct tracer *tr)
{
    size_t at = offsetof(struct user, regs.rdi);

    /* NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace(2) wants it so */
    return ptrace(PTRACE_PEEKUSER, tr->tid, (void *)at, NULL) ==
           SYS_mq_timedreceive;
}
#else
static void words_watch(const struct tracer *tr, uint64_t slot)
{
    (void)tr;
    (void)slot;
}

static bool is_receive(const struct tracer *tr)
{
    (void)tr;
    return false; /* the limit of the caller ends the steps */
}

static uint64_t object_pass(struct tracer *tr, uint64_t n,
                            struct __ptrace_syscall_info *info)
{
    (void)tr;
    (void)n;
    (void)info;
    return 0; /* the object is stepped through as well */
}
#endif

/* Make one step of the thread. If it calls a function of the object to skip,
 * let the whole call run, or `most` stops in it, and count them in *stops.
 * *again: the thread is back at mq_timedreceive. Return false if the worker has
 * exited. */
static bool thread_step(struct tracer *tr, uint64_t most, uint64_t *stops,
                        uint64_t *ip, bool *again)
{
    struct __ptrace_syscall_info info;
    unsigned long signal = 0;
    int status;

    *stops = 0;
    do {
        /* This fails if another thread has just ended the worker. */
        (void)call(PTRACE_SINGLESTEP, tr->tid, signal);
        if (!next_stop(tr, &status))
            return false;
        signal = signal_of(status);
    } while (signal || WSTOPSIG(status) == SIGSTOP);
    info_of(tr->tid, &info);
    if (most > 0 &&
        info.instruction_pointer - tr->pass_from < tr->pass_to - tr->pass_from)
        *stops = object_pass(tr, most, &info);
    *ip = info.instruction_pointer;
    *again = *ip == tr->after_ip || (*ip == tr->call_ip && is_receive(tr));
    return true;
}

uint64_t tracer_step(struct tracer *tr, uint64_t n, tracer_visit *visit,
                     void *arg, bool *again)
{
    uint64_t steps = 0, stops, ip;

    *again = false;
    while (steps < n && !*again) {
        if (!thread_step(tr, n - steps - 1, &stops, &ip, again)) {
            *again = true;
            break;
        }
        steps += 1 + stops;
        if (visit)
            visit(arg, ip);
    }
    return steps;
}

/* Return true if the instruction before `ip` is a system call. If that
 * instruction was jumped over, one step too many is counted, which is
 * harmless. */
static bool is_call(const struct tracer *tr, uint64_t ip)
{
#ifdef __x86_64__
    return (word_at(tr->tid, ip - 2) & 0xffff) == 0x050f;
#else
    (void)tr;
    (void)ip;
    return true;
#endif
}

uint64_t tracer_changes(struct tracer *tr, uint64_t n, tracer_look *look,
                        void *arg, bool *again)
{
    uint64_t changes = 0, stops, ip;

    *again = false;
    while (changes < n && !*again) {
        if (!thread_step(tr, n - changes, &stops, &ip, again)) {
            *again = true;
            break;
        }
        changes += stops;
        if (changes < n)
            changes += look(arg) || is_call(tr, ip);
    }
    return changes;
}

void tracer_watch(struct tracer *tr, uint64_t offset)
{
    tr->watched = offset;
}

/* Watch the slot as soon as an mmap of the custody file has returned. */
static void slot_watch(struct tracer *tr)
{
    struct __ptrace_syscall_info info;
    char path[64], line[512];
    uint64_t from, to, at;
    FILE *f;

    info_of(tr->tid, &info);
    if (!tr->maps || info.op != PTRACE_SYSCALL_INFO_EXIT) {
        tr->maps =
            info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_mmap;
        return;
    }
    tr->maps = false;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)tr->pid);
    f = fopen(path, "re");
    while (f && !tr->watches && fgets(line, sizeof line, f)) {
        tr->watches = strstr(line, "/custody\n") &&
                      sscanf(line, "%" SCNx64 "-%" SCNx64 " rw-s %" SCNx64,
                             &from, &to, &at) == 3 &&
                      tr->watched - at < to - from;
        if (tr->watches)
            words_watch(tr, from + tr->watched - at);
    }
    if (f)
        fclose(f);
}

bool tracer_shares(const struct tracer *tr)
{
    char path[64], line[512], rights[8];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/maps", (int)tr->pid);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = sscanf(line, "%*s %7s", rights) == 1 && rights[1] == 'w' &&
                rights[3] == 's' && !strstr(line, "/store.db-shm");
    if (f)
        fclose(f);
    return found;
}

uint64_t tracer_calls(struct tracer *tr, uint64_t n, bool *ended)
{
    unsigned long signal = 0;
    uint64_t stops = 0;
    int status;

    *ended = false;
    while (stops < n && !*ended) {
        (void)call(PTRACE_SYSCALL, tr->tid, signal);
        *ended = !next_stop(tr, &status);
        signal = *ended ? 0 : signal_of(status);
        if (*ended)
            break;
        stops +=
            WSTOPSIG(status) == (SIGTRAP | 0x80) ||
            (tr->watches && status >> 16 == 0 && WSTOPSIG(status) == SIGTRAP);
        if (tr->watched && !tr->watches)
            slot_watch(tr);
    }
    return stops;
}

void tracer_run(struct tracer *tr)
{
    (void)call(PTRACE_CONT, tr->tid, 0);
}

void tracer_serve(struct tracer *tr)
{
    int status;
    pid_t tid;

    while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
        if (WIFSTOPPED(status))
            (void)call(PTRACE_CONT, tid, signal_of(status));
        else if (tid == tr->pid)
            torture_die("the worker ended by itself");
}

/* Stop a thread; signals that stop it before are passed on. */
static void thread_hold(pid_t pid, pid_t tid)
{
    int status;

    syscall(SYS_tgkill, pid, tid, SIGSTOP);
    while (tracer_wait(tid, &status) == tid && WIFSTOPPED(status) &&
           WSTOPSIG(status) != SIGSTOP)
        (void)call(PTRACE_CONT, tid, signal_of(status));
}

void tracer_hold(struct tracer *tr)
{
    threads_each(tr, thread_hold);
}

/* Kill and reap the worker: its tracer must reap the threads first, then the
 * process. */
void tracer_kill(struct tracer *tr)
{
    int status;

    if (tr->reaped)
        return;
    kill(tr->pid, SIGKILL);
    while (tracer_wait(-1, &status) != tr->pid || WIFSTOPPED(status))
        continue;
}
