/* process.c - start a child, look a process up (see process.h) */
#include "worker/process/process.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/process_stat.h"
#include "worker/loop/signals.h"

/* The thread sanitizer's clone takes every child for that of a fork, and shared
 * memory for a copy: under it, glibc's own. */
#ifdef __SANITIZE_THREAD__
extern __typeof__(clone) __clone;
#define clone __clone
#endif

/* usable - 0 if `path` is a file that we may execute */
static int usable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* process_find - as execvp(3) would find it */
int process_find(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    int err = -ENOENT;

    if (strchr(name, '/')) {
        if (snprintf(out, PATH_MAX, "%s", name) >= PATH_MAX)
            return -ENAMETOOLONG;
        return usable(out);
    }
    for (const char *at = path ? path : "/usr/bin:/bin"; at;) {
        size_t n = strcspn(at, ":");
        int len = n == 0 ? snprintf(out, PATH_MAX, "./%s", name)
                         : snprintf(out, PATH_MAX, "%.*s/%s", (int)n, at, name);

        if (len > 0 && len < PATH_MAX) {
            int one = usable(out);

            if (one == 0)
                return 0;
            if (one == -EACCES)
                err = one;
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return err;
}

/* ---- start ---- */

#define STACK (16u << 10) /* of the child, which makes a few system calls */

/* All signals that this program ignores, which execve(2) does not undo, or
 * catches by a function that must not run in the child. Asked for once, at the
 * first start: nothing of it changes while handlers run. A worker that is no
 * part of another program has none. */
static int changed[_NSIG];
static size_t changed_count;
static pthread_once_t changed_once = PTHREAD_ONCE_INIT;

static void changed_find(void)
{
    struct sigaction now;

    for (int sig = 1; sig < _NSIG; sig++)
        if (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_DFL &&
            now.sa_handler != signals_nothing)
            changed[changed_count++] = sig;
}

/* tick - now, in the unit of a process's start, as the kernel makes it
 * (fs/proc/array.c, field 22) */
static uint64_t tick(void)
{
    struct timespec now;
    uint64_t ns_a_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);

    clock_gettime(CLOCK_BOOTTIME, &now);
    return ((uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec) /
           ns_a_tick;
}

/* What the child is told and what it tells; it is in the parent's memory. */
struct birth {
    const char *path;
    char *const *argv, *const *env;
    const int *fds;
    int alive;     /* key of the count of living handlers; 0: not counted */
    uint64_t tick; /* when it was there */
    int err;       /* why there is no new program; 0: there is one */
};

/* child - of clone(2), in the memory of the worker until it execs
 * It changes nothing there but `birth`. So it makes system calls only, and sets
 * signals and descriptors by the calls of the kernel: what a sanitizer has in
 * the place of sigaction(3) and dup(2) would note the change as one of the
 * worker's. None of the descriptors is 0, 1 or 2 already.
 */
__attribute__((no_sanitize("address"), no_sanitize("thread"))) static int
child(void *arg)
{
    static const unsigned long dfl[8]; /* of the kernel's form; SIG_DFL is 0 */
    struct birth *b = arg;
    sigset_t none;
    int err = 0;

    b->tick = tick();
    if (setsid() < 0)
        err = errno;
    for (int i = 0; i < 3 && !err; i++)
        if (b->fds[i] >= 0 && syscall(SYS_dup3, b->fds[i], i, 0) < 0)
            err = errno;
    for (size_t i = 0; i < changed_count; i++)
        syscall(SYS_rt_sigaction, changed[i], dfl, NULL, _NSIG / 8);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (b->alive)
        alive_enter(b->alive);
    if (!err) {
        execve(b->path, b->argv, b->env);
        err = errno;
    }
    b->err = err;
    _exit(127);
}

/* process_start - clone(2) as vfork(2) does it, with a stack for the child
 * posix_spawn(3) would set each of the 64 signals, ask four times for a limit,
 * and map and unmap a stack for the child. The caller's thread blocks all
 * signals, so that no handler of the worker runs in the child.
 *
 * All other descriptors of ours are close-on-exec. Until it execs, the child
 * shares the lock on the state directory (flock(2) belongs to the open file),
 * so a worker that gets the lock after our death sees every handler running
 * under its own name.
 *
 * The child gets its own session, and so its own process group: a handler that
 * asks for a password (ssh, sudo) finds no terminal and fails. In the worker's
 * session, SIGTTIN would stop the handler for ever. setsid(2) takes 3 us more
 * than setpgid(2) where the kernel groups sessions for its scheduler, of some
 * 700 us for a start.
 *
 * Its start lies between two looks at the clock, the second one by the child as
 * its first deed; it is known if both are the same tick. To ask /proc costs
 * 25 us.
 */
int process_start(struct process *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3], int alive)
{
    struct birth b = {
        .path = path, .argv = argv, .env = env, .fds = fds, .alive = alive};
    _Alignas(16) char stack[STACK];
    siginfo_t info;

    pthread_once(&changed_once, changed_find);
    out->start = tick();
    out->pid =
        clone(child, stack + sizeof stack,
              CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &b, &out->end);
    if (out->pid < 0)
        return -errno;
    if (b.err) {
        while (waitid(P_PID, (id_t)out->pid, &info, WEXITED) < 0 &&
               errno == EINTR)
            ;
        close(out->end);
        return -b.err;
    }
    if (b.tick != out->start)
        out->start = process_start_time(out->pid);
    return 0;
}

/* process_group_signal - a stopped process cannot end: SIGCONT with SIGTERM */
void process_group_signal(pid_t leader, int sig)
{
    if (kill(-leader, sig) < 0)
        kill(leader, sig);
    if (sig == SIGTERM && kill(-leader, SIGCONT) < 0)
        kill(leader, SIGCONT);
}
