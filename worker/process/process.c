/* process.c - processes of handlers (see process.h) */
#include "worker/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>
#include <bsd/stdlib.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/libc.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/process_stat.h"
#include "worker/config/settings.h"
#include "worker/loop/signals.h"
#include "worker/process/environment.h"

/* The thread sanitizer's clone assumes that a child has a copy of the memory,
 * as after fork(2), so use glibc's own clone under it. */
#ifdef __SANITIZE_THREAD__
extern __typeof__(clone) __clone;
#define clone __clone
#endif

/* Return 0 if `path` is a file that we may execute, else -errno. */
static int file_usable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EACCES;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* Search like execvp(3). */
int process_find(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    int err = -ENOENT;

    if (strchr(name, '/')) {
        if (snprintf(out, PATH_MAX, "%s", name) >= PATH_MAX)
            return -ENAMETOOLONG;
        return file_usable(out);
    }
    for (const char *at = path ? path : "/usr/bin:/bin"; at;) {
        size_t n = strcspn(at, ":");
        int len = n == 0 ? snprintf(out, PATH_MAX, "./%s", name)
                         : snprintf(out, PATH_MAX, "%.*s/%s", (int)n, at, name);

        if (len > 0 && len < PATH_MAX) {
            int one = file_usable(out);

            if (one == 0)
                return 0;
            if (one == -EACCES)
                err = one;
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return err;
}

#define STACK (16u << 10) /* of the child, which makes a few system calls */

/* The signals to set to their defaults in the child: this program ignores them,
 * which execve(2) does not undo, or handles them by a function that must not
 * run in the child. Collected once, at the first start, because they do not
 * change while handlers run. Empty unless another program embeds the worker. */
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

/* Return the time in the unit of a process's start, computed as the kernel does
 * (fs/proc/array.c, field 22). */
static uint64_t boot_ticks(void)
{
    struct timespec now;
    uint64_t ns_a_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);

    clock_gettime(CLOCK_BOOTTIME, &now);
    return ((uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec) /
           ns_a_tick;
}

siginfo_t process_wait(pid_t pid, int flags, struct usage *usage)
{
    struct kernel_rusage used = {0};
    siginfo_t info = {0};
    long rc;

    do
        rc = syscall(SYS_waitid, P_PID, pid, &info, WEXITED | flags, &used);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        info = (siginfo_t){.si_errno = errno};
    if (usage)
        *usage = (struct usage){
            .cpu_ns = (uint64_t)(used.user_s + used.system_s) * NS_PER_S +
                      (uint64_t)(used.user_us + used.system_us) * NS_PER_US,
            .peak_bytes = (uint64_t)used.peak_kib << 10};
    return info;
}

void process_peak_check(struct usage *usage)
{
    struct rusage own;

    if (getrusage(RUSAGE_SELF, &own) < 0 ||
        usage->peak_bytes <= (uint64_t)own.ru_maxrss << 10)
        usage->peak_bytes = 0;
}

/* Close a descriptor that was opened as a test. Returns 0; -errno if it was not
 * opened, unless that was for lack of room, which is no denial and may change
 * until the call is needed. */
static int fd_probe(int fd)
{
    if (fd >= 0)
        close(fd);
    return fd >= 0 || errno == EMFILE || errno == ENFILE || errno == ENOMEM
               ? 0
               : -errno;
}

/* ---- the end of a process ----
 *
 * Linux older than 5.3 has no pidfds, and a filter of system calls may deny
 * them. An eventfd then takes the place of each pidfd, and a thread writes it
 * when the process has ended. */

#define END_STACK   (128u << 10)
#define END_LOOK_NS (10 * NS_PER_MS) /* between checks of another's child */

static bool has_pidfds; /* constant after pidfds_once */
static pthread_once_t pidfds_once = PTHREAD_ONCE_INIT;

/* The argument of end_watch_main, which frees it. */
struct end_watch {
    int fd;           /* copy of the eventfd */
    sem_t started;    /* posted once `p` is set */
    struct process p; /* pid <= 0: the start failed, and the thread exits */
};

static void pidfds_probe(void)
{
    has_pidfds = fd_probe(pidfd_open(getpid(), 0)) == 0;
}

/* Main function of a thread: wait for the end of its process, then make the
 * eventfd readable. A child stays a zombie; a process that is not our child is
 * checked every END_LOOK_NS. */
static void *end_watch_main(void *arg)
{
    struct end_watch *w = arg;
    struct process_stat now;

    while (sem_wait(&w->started) < 0) /* EINTR */
        ;
    if (w->p.pid > 0 && process_wait(w->p.pid, WNOWAIT, NULL).si_code == 0)
        while (process_stat(w->p.pid, &now) && now.start == w->p.start &&
               now.state != 'Z')
            nanosleep(&(struct timespec){.tv_nsec = END_LOOK_NS}, NULL);
    eventfd_write(w->fd, 1);
    close(w->fd);
    sem_destroy(&w->started);
    free(w);
    return NULL;
}

/* Open the eventfd and start its thread. process_start does this before it
 * starts the process, because this may fail and a started process could then
 * not be watched. */
static int end_watch_open(struct end_watch **out, int *fd)
{
    struct end_watch *w = calloc(1, sizeof *w);
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int err = 0;

    *fd = -1;
    if (!w)
        return -ENOMEM;
    *fd = eventfd(0, EFD_CLOEXEC);
    w->fd = *fd < 0 ? -1 : fcntl(*fd, F_DUPFD_CLOEXEC, 3);
    if (w->fd < 0)
        err = -errno;
    sem_init(&w->started, 0, 0);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, END_STACK);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!err)
        err = -pthread_create(&thread, &attr, end_watch_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (!err) {
        *out = w;
        return 0;
    }
    fd_close(fd);
    fd_close(&w->fd);
    sem_destroy(&w->started);
    free(w);
    return err;
}

int process_watch(struct process *p)
{
    struct end_watch *w = NULL;
    int err = 0;

    pthread_once(&pidfds_once, pidfds_probe);
    if (has_pidfds) {
        p->end = pidfd_open(p->pid, 0);
        return p->end < 0 ? -errno : 0;
    }
    err = end_watch_open(&w, &p->end);
    if (!err) {
        w->p = *p;
        sem_post(&w->started);
    }
    return err;
}

void process_reap(const struct process *p)
{
    siginfo_t info;

    if (has_pidfds &&
        (waitid(P_PIDFD, (id_t)p->end, &info, WEXITED | WNOHANG) == 0 ||
         errno != EINVAL)) /* Linux 5.3 */
        return;
    if (process_start_time(p->pid) == p->start)
        (void)process_wait(p->pid, WNOHANG, NULL);
}

int process_signal(const struct process *p, int sig)
{
    if (has_pidfds)
        return pidfd_send_signal(p->end, sig, NULL, 0) < 0 ? -errno : 0;
    if (process_start_time(p->pid) != p->start)
        return -ESRCH;
    return kill(p->pid, sig) < 0 ? -errno : 0;
}

/* ---- start ---- */

/* Arguments and results of child_main, in the parent's memory. */
struct birth {
    const char *path;
    char *const *argv, *const *env;
    const int *fds;
    int alive;     /* key of the count of living handlers; 0: not counted */
    uint64_t tick; /* time of the child's first action */
    int err;       /* errno of the failed start; 0: the program was started */
};

/* Main function of the child, which runs in the memory of the worker until
 * execve(2). It must change nothing there except `birth`, so it only makes
 * system calls. It calls the kernel directly for signals and descriptors,
 * because a sanitizer's sigaction(3) and dup(2) would record the change as the
 * worker's own. None of the descriptors is 0, 1 or 2 already. */
__attribute__((no_sanitize("address"), no_sanitize("thread"))) static int
child_main(void *arg)
{
    static const unsigned long dfl[8]; /* of the kernel's form; SIG_DFL is 0 */
    struct birth *b = arg;
    sigset_t none;
    int err = 0;

    b->tick = boot_ticks();
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

/* Call clone(2) as vfork(2) does, with a stack for the child. posix_spawn(3)
 * would set each of the 64 signals, ask four times for a limit, and map and
 * unmap a stack. The caller's thread blocks all signals, so that no signal
 * handler of the worker runs in the child.
 *
 * All other descriptors of ours are close-on-exec. Until its execve, the child
 * shares the lock on the state directory (flock(2) belongs to the open file).
 * So when a new worker gets the lock after our death, all handlers that we
 * started are in or behind execve(2), and leftovers.c waits until their mark
 * can be read.
 *
 * The child gets its own session, and so its own process group: a handler that
 * asks for a password (ssh, sudo) finds no terminal and fails. In the worker's
 * session, SIGTTIN would stop the handler for ever. A start takes some 700 us;
 * setsid(2) takes 3 us of them more than setpgid(2), if the kernel groups
 * sessions for its scheduler.
 *
 * The start time is read from the clock, because reading it from /proc costs 25
 * us: once before clone(2), and by the child as its first action. If the two
 * ticks differ, it is read from /proc after all. */
int process_start(struct process *out, const char *path, char *const argv[],
                  char *const env[], const int fds[3], int alive)
{
    struct birth b = {
        .path = path, .argv = argv, .env = env, .fds = fds, .alive = alive};
    _Alignas(16) char stack[STACK];
    struct end_watch *watch = NULL;
    int err = 0;

    pthread_once(&changed_once, changed_find);
    pthread_once(&pidfds_once, pidfds_probe);
    if (!has_pidfds)
        err = end_watch_open(&watch, &out->end);
    if (err)
        return err;
    out->start = boot_ticks();
    out->pid =
        clone(child_main, stack + sizeof stack,
              CLONE_VM | CLONE_VFORK | (has_pidfds ? CLONE_PIDFD : 0) | SIGCHLD,
              &b, &out->end);
    err = out->pid < 0 ? -errno : 0;
    if (!err && !b.err && b.tick != out->start)
        out->start = process_start_time(out->pid);
    if (watch) {
        watch->p = *out;
        sem_post(&watch->started);
    }
    if (err) {
        if (watch)
            close(out->end);
        return err;
    }
    if (b.err) {
        (void)process_wait(out->pid, 0, NULL);
        close(out->end);
        return -b.err;
    }
    return 0;
}

/* SIGTERM does not end a stopped process, so send SIGCONT, too. */
void process_group_signal(pid_t leader, int sig)
{
    if (kill(-leader, sig) < 0)
        kill(leader, sig);
    if (sig == SIGTERM && kill(-leader, SIGCONT) < 0)
        kill(leader, SIGCONT);
}

/* ---- the command that is run for messages ---- */

/* Bytes of a first line that the kernel reads (BINPRM_BUF_SIZE). */
#define SCRIPT_LINE 256

/* Return true if the file is a script whose first line does not name an
 * executable program; `buf` gets the reason. */
static bool script_fault(const char *path, char buf[COMMAND_WHY])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char line[SCRIPT_LINE + 1];
    ssize_t n = fd < 0 ? -1 : read(fd, line, SCRIPT_LINE);
    char *program, *end;

    fd_close(&fd);
    if (n < 2 || memcmp(line, "#!", 2) != 0)
        return false;
    line[n] = '\0';
    line[strcspn(line, "\n")] = '\0';
    if (strchr(line, '\r')) {
        snprintf(buf, COMMAND_WHY,
                 "its first line ends in CR LF; convert it: sed -i 's/\\r$//' "
                 "%s",
                 path);
        return true;
    }
    program = line + 2 + strspn(line + 2, " \t");
    end = program + strcspn(program, " \t");
    *end = '\0';
    if (access(program, X_OK) == 0)
        return false;
    snprintf(buf, COMMAND_WHY, "its interpreter %s: %s", program,
             errno_text(errno));
    return true;
}

bool command_fault(struct command *c, char buf[COMMAND_WHY])
{
    char path[PATH_MAX];

    return process_find(c->argv[0], path) == 0 && script_fault(path, buf);
}

/* A name without a slash is searched for in $PATH, a name with a slash starts
 * from the working directory. */
const char *command_why(struct command *c, int err, char buf[COMMAND_WHY])
{
    static const char deleted[] = " (deleted)";
    char path[PATH_MAX], here[PATH_MAX];
    const char *name = c->argv[0], *end;
    ssize_t n;

    if (err == -ENOEXEC) {
        snprintf(buf, COMMAND_WHY,
                 "neither a program nor a script: its first line does not "
                 "start with #!");
        return buf;
    }
    if (err != -ENOENT)
        return errno_limit_text(-err, buf);
    if (process_find(name, path) == 0) {
        if (!script_fault(path, buf))
            snprintf(buf, COMMAND_WHY,
                     "its dynamic loader is missing, so it was probably built "
                     "for another system");
        return buf;
    }
    n = readlink("/proc/self/cwd", here, sizeof here - 1);
    here[n > 0 ? n : 0] = '\0';
    end = here + strlen(here) -
          (n > (ssize_t)strlen(deleted) ? strlen(deleted) : 0);
    if (strpbrk(name, " \t|&;<>$"))
        snprintf(buf, COMMAND_WHY,
                 "No such file or directory; to run a shell command line, use "
                 "-- sh -c 'LINE'");
    else if (!strchr(name, '/'))
        snprintf(buf, COMMAND_WHY, "not found in $PATH");
    else if (name[0] != '/' && strcmp(end, deleted) == 0)
        snprintf(buf, COMMAND_WHY,
                 "its working directory %.*s was removed; start the worker in "
                 "another directory",
                 (int)(end - here), here);
    else if (name[0] != '/')
        snprintf(buf, COMMAND_WHY, "No such file or directory, from %.90s",
                 here);
    else
        snprintf(buf, COMMAND_WHY, "%s", errno_text(ENOENT));
    return buf;
}

/* Look up the command, and log an error if it is not there. */
void command_init(struct command *c, char *const *argv, uint64_t nonce)
{
    int err = process_find(argv[0], c->path);
    char why[COMMAND_WHY];

    c->argv = argv;
    c->alive = alive_key(nonce);
    if (!err && !script_fault(c->path, why))
        return;
    if (err) {
        c->path[0] = '\0';
        command_why(c, err, why);
    }
    log_error("handler_not_found", F_STR("command", argv[0]),
              F_STR("error", why),
              F_STR("next", "messages are kept; install the command, and they "
                            "will run"));
}

/* Start the command where it was at init; if it is not there any more, look it
 * up again. */
int command_start(struct command *c, struct process *out, char *const env[],
                  const int fds[3])
{
    char path[PATH_MAX];
    int err = -ENOENT;

    if (c->path[0])
        err = process_start(out, c->path, c->argv, env, fds, c->alive);
    if (err != -ENOENT && err != -EACCES)
        return err;
    err = process_find(c->argv[0], path);
    return err ? err : process_start(out, path, c->argv, env, fds, c->alive);
}

/* ---- calls of the kernel that a filter may deny ---- */

/* A filter (seccomp(2)) makes a call fail with any errno, most often EPERM or
 * ENOSYS. The errors that the calls may return here without a filter (ECHILD,
 * lack of room) are no denial. */
int denied_check(const struct settings *set, struct problem *p)
{
    const char *call = "waitid";
    /* This process is no child of its own, so the answer is ECHILD, and no
     * child is reaped. */
    int err = -process_wait(getpid(), WNOHANG | WNOWAIT, NULL).si_errno;

    if (err == -ECHILD)
        err = 0;
    if (!err && !set->stream) {
        call = "memfd_create";
        err = fd_probe(memfd_create("mqworker-probe", MFD_CLOEXEC));
    }
    if (!err)
        return 0;
    return problem_set(
        p, EX_OSERR, -err,
        "handlers cannot be run: %s(2): %s; a filter of system calls (seccomp) "
        "denies it: allow waitid and memfd_create, systemd "
        "`SystemCallFilter=`, in a container its seccomp profile",
        call, errno_text(-err));
}

/* ---- a long-lived process ---- */

static void child_close_all(struct child *c)
{
    fd_close(&c->in);
    fd_close(&c->out);
    fd_close(&c->err);
    fd_close(&c->end);
    fd_close(&c->statm);
}

/* Open a pipe. `ours`, the end that we write or read, does not block; the
 * child's end does. */
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
    int *const ours[3] = {&c->in, &c->out, &c->err};
    char mark[ENVIRONMENT_MARK], statm[32];
    struct process started;

    for (int i = 0; i < 3 && !err; i++)
        err = pipe_open(ours[i], &fds[i], i == 0);
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
        fd_close(&fds[i]);
    if (err) {
        child_close_all(c);
        return err;
    }
    /* From here on child_signal reaches the child. A signal of the stop that
     * came during the start did not, so send it now. */
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

/* The pid is cleared before the child is reaped: after that, another process
 * may get the number, and child_signal must not reach it. */
siginfo_t child_reap(struct child *c)
{
    pid_t pid = c->pid;
    siginfo_t how;

    pthread_mutex_lock(&c->mtx);
    c->pid = 0;
    pthread_mutex_unlock(&c->mtx);
    how = process_wait(pid, 0, NULL);
    child_close_all(c);
    return how;
}
