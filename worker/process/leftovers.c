/* leftovers.c - what handlers leave behind (see leftovers.h)
 *
 * How to learn that an orphan has ended: SIGCHLD is the only notice there is,
 * and the end of every handler sends one too. All threads block it, so that it
 * costs a handler's end no wake-up; a signalfd wakes the peeker for it, once in
 * PAUSE_NS at most. An idle worker has no handlers and is woken for orphans
 * only. A look for zombies at the end of each handler instead would cost each
 * of them a system call, and leave zombies as long as no message comes.
 *
 * Many handlers may be ended at once: all that they wait for hangs, and all
 * reach their limit. A search is a walk over /proc, so one walk serves all that
 * wait for one, as one sync serves many commits. And it is left out where
 * nothing at all was left behind, which one short read tells.
 *
 * A search is one walk over all of /proc. The kernel's lists of children would
 * be shorter, but are exact only for processes that are stopped
 * (proc_pid_task(5)), and are not there in every kernel.
 */
#include "worker/process/leftovers.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bsd/stdlib.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/loop/loop.h"
#include "worker/loop/timers.h"
#include "worker/process/environment.h"
#include "worker/process/process.h"
#include "worker/process/stderr_tail.h"

#define STEPS_MAX  256  /* of a chain of parents; more is a torn snapshot */
#define WARN_MS    1000 /* a process that does not go is named each second */
#define EVENTS     32
#define EXEC_LOOKS 1000 /* at a process in execve(2), 1 ms apart */

/* One process of the walk. */
struct seen {
    pid_t pid;
    struct process_stat stat;
    bool chosen;
};

/* One that was found; fd < 0: it has ended. */
struct found {
    pid_t pid;
    int fd;
};

struct process_search {
    int epoll; /* all pidfds */
    struct seen *seen;
    size_t seen_count, seen_room;
    struct found *found;
    size_t found_count, found_room, living;
    char *env; /* one environment, read whole */
    size_t env_room;
};

/* Ours is read by the rule that goes for others of our
 * user, too (proc(5), hidepid and ptrace access mode) */
static bool environ_readable(void)
{
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    char byte;
    bool ok = fd >= 0 && read(fd, &byte, 1) >= 0;

    if (fd >= 0)
        close(fd);
    return ok;
}

/* Judged by ourselves: a process that is there for sure
 * In another container or chroot an empty folder is an ordinary /proc to
 * opendir(3), and nothing in it looks like nobody there. The procfs of another
 * PID namespace knows us by another number or not at all, as it does handlers.
 */
const char *process_search_blind(void)
{
    char self[32] = "";
    struct statfs fs;
    struct process_stat stat;

    if (statfs("/proc", &fs) < 0)
        return errno_text(errno);
    if (fs.f_type != PROC_SUPER_MAGIC)
        return "no procfs is mounted there";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 ||
        strtol(self, NULL, 10) != getpid() || !process_stat(getpid(), &stat))
        return "it is of another PID namespace and does not show this process";
    if (!environ_readable())
        return "it does not let us read /proc/self/environ";
    return NULL;
}

int process_search_open(struct process_search **out)
{
    struct process_search *m = calloc(1, sizeof *m);

    *out = NULL;
    if (!m)
        return -ENOMEM;
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (m->epoll < 0) {
        int err = problem_code(errno);

        free(m);
        return err;
    }
    *out = m;
    return 0;
}

/* Out of the epoll set by hand: a child that another thread starts now
 * has the descriptor, too, until its execve, and closing ours would leave the
 * entry there, which tells of its end again and again */
static void found_release(struct process_search *m, struct found *f)
{
    (void)epoll_ctl(m->epoll, EPOLL_CTL_DEL, f->fd, NULL);
    close(f->fd);
    f->fd = -1;
}

/* What the last search found */
static void search_forget(struct process_search *m)
{
    for (size_t i = 0; i < m->found_count; i++)
        if (m->found[i].fd >= 0)
            found_release(m, &m->found[i]);
    m->found_count = m->seen_count = m->living = 0;
}

void process_search_close(struct process_search **marked)
{
    struct process_search *m = *marked;

    if (!m)
        return;
    *marked = NULL;
    search_forget(m);
    close(m->epoll);
    free(m->seen);
    free(m->found);
    free(m->env);
    free(m);
}

/* Its environment to m->env; its size, 0: gone, not ours to read */
static size_t env_read(struct process_search *m, pid_t pid)
{
    char path[32];
    size_t size = 0;
    ssize_t n = 0;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    do {
        size_t room = m->env_room ? m->env_room * 2 : 16384;

        size += (size_t)n;
        if (m->env_room - size < 4096) {
            char *more = realloc(m->env, room);

            if (!more)
                break;
            m->env = more;
            m->env_room = room;
        }
        n = read(fd, m->env + size, m->env_room - size - 1);
    } while (n > 0);
    close(fd);
    if (size > 0)
        m->env[size] = '\0';
    return size;
}

/* Note one process */
static int process_see(struct process_search *m, pid_t pid)
{
    struct seen s = {.pid = pid}, *seen;

    if (pid == getpid() || !process_stat(pid, &s.stat))
        return 0;
    seen = array_grow(m->seen, m->seen_count, &m->seen_room, sizeof s);
    if (!seen)
        return -ENOMEM;
    m->seen = seen;
    m->seen[m->seen_count++] = s;
    return 0;
}

/* See all processes but ourselves */
static int proc_walk(struct process_search *m)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int err = 0;

    if (!proc)
        return problem_code(errno);
    while (!err && (entry = readdir(proc)) != NULL)
        if (isdigit((unsigned char)entry->d_name[0]))
            err = process_see(m, (pid_t)strtol(entry->d_name, NULL, 10));
    closedir(proc);
    return err;
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct seen *)a)->pid, y = ((const struct seen *)b)->pid;

    return (x > y) - (x < y);
}

static struct seen *seen_find(const struct process_search *m, pid_t pid)
{
    struct seen key = {.pid = pid};

    return bsearch(&key, m->seen, m->seen_count, sizeof key, by_pid);
}

/* Whether we are among its parents */
static bool is_ours(const struct process_search *m, const struct seen *s)
{
    for (int i = 0; s && i < STEPS_MAX; i++) {
        if (s->stat.parent == getpid())
            return true;
        s = seen_find(m, s->stat.parent);
    }
    return false;
}

/* Whether one of its parents was chosen */
static bool has_chosen(const struct process_search *m, const struct seen *s)
{
    for (int i = 0; s && i < STEPS_MAX; i++) {
        s = seen_find(m, s->stat.parent);
        if (s && s->chosen)
            return true;
    }
    return false;
}

/* Of one of the groups; those who started it wait for it */
static bool is_leader(const struct process_search_choice *c, pid_t pid)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].group == pid)
            return true;
    return false;
}

/* Whether it shows no arguments; *gone: it has ended, or is the
 * kernel's own */
static bool process_is_bare(pid_t pid, bool *gone)
{
    char path[32], byte;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    *gone = readlink(path, &byte, 1) < 0;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    fd = *gone ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, &byte, 1);
    if (fd >= 0)
        close(fd);
    return n == 0;
}

/* Env_read, once it is out of execve(2)
 * There it has its new memory first, and arguments and environment in it later.
 * By then it has let go of our lock, which it had from the dead worker, so that
 * it must be waited for here. Not for ever: some have no environment at all.
 */
static size_t env_settled(struct process_search *m, pid_t pid)
{
    size_t size = env_read(m, pid);
    int looks = EXEC_LOOKS;
    bool gone = false;

    while (size == 0 && looks > 0) {
        looks -= process_is_bare(pid, &gone) ? 1 : EXEC_LOOKS / 4;
        if (gone)
            break;
        poll(NULL, 0, 1);
        size = env_read(m, pid);
    }
    return size;
}

/* By its group or its mark */
static bool is_meant(struct process_search *m,
                     const struct process_search_choice *c,
                     const struct seen *s)
{
    uint64_t seq;
    size_t size;

    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].group && c->of[i].group == s->stat.group)
            return true;
    if (c->groups_only || (c->ours && !is_ours(m, s)))
        return false;
    size = env_settled(m, s->pid);
    if (size == 0 || !environment_marked(m->env, size, c->nonce, &seq))
        return false;
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].seq == seq)
            return true;
    return false;
}

/* No longer of interest */
static void found_drop(struct process_search *m, struct found *f)
{
    found_release(m, f);
    m->living--;
}

/* One that was found has ended; take its status if it is our child */
static void found_ended(struct process_search *m, struct found *f)
{
    siginfo_t info;

    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): m->found has f */
    (void)waitid(P_PIDFD, (id_t)f->fd, &info, WEXITED | WNOHANG);
    found_drop(m, f);
}

/* A process that is gone is no error, nor is one whose number a
 * thread has by now (ENOENT, or EINVAL before 6.9) */
static int errno_or_gone(void)
{
    return errno == ESRCH || errno == EINVAL || errno == ENOENT ? 0 : -errno;
}

/* A descriptor for it, if it is still the one that was looked at */
static int found_hold(struct process_search *m, const struct seen *s)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct pollfd ended = {.events = POLLIN};
    struct found *f =
        array_grow(m->found, m->found_count, &m->found_room, sizeof *f);
    int fd = pidfd_open(s->pid, 0);

    if (f)
        m->found = f;
    if (fd < 0)
        return errno_or_gone();
    if (!f) {
        close(fd);
        return -ENOMEM;
    }
    if (process_start_time(s->pid) != s->stat.start) {
        close(fd);
        return 0;
    }
    f = &m->found[m->found_count];
    *f = (struct found){.pid = s->pid, .fd = fd};
    ev.data.u64 = m->found_count++;
    m->living++;
    ended.fd = fd;
    if (poll(&ended, 1, 0) > 0)
        found_ended(m, f);
    else if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
        return -errno;
    return 0;
}

/* Look, choose, choose what those started, hold */
int process_search_find(struct process_search *m,
                        const struct process_search_choice *c)
{
    int err;

    search_forget(m);
    err = proc_walk(m);
    if (err || m->seen_count == 0) /* /proc may show no process at all */
        return err;
    qsort(m->seen, m->seen_count, sizeof *m->seen, by_pid);
    for (size_t i = 0; i < m->seen_count; i++)
        m->seen[i].chosen = is_meant(m, c, &m->seen[i]);
    for (size_t i = 0; i < m->seen_count && !err; i++) {
        struct seen *s = &m->seen[i];

        if (is_leader(c, s->pid))
            continue;
        if (s->chosen || (!c->groups_only && has_chosen(m, s)))
            err = found_hold(m, s);
    }
    return err ? err : (int)m->living;
}

/* See who has ended */
size_t process_search_living(struct process_search *m)
{
    struct epoll_event events[EVENTS];
    int n = EVENTS;

    while (n == EVENTS) {
        n = epoll_wait(m->epoll, events, EVENTS, 0);
        for (int i = 0; i < n; i++)
            found_ended(m, &m->found[events[i].data.u64]);
    }
    return m->living;
}

int process_search_fd(const struct process_search *m)
{
    return m->epoll;
}

/* A process that stays is stuck in the kernel */
static void warn_living(const struct process_search *m)
{
    for (size_t i = 0; i < m->found_count; i++)
        if (m->found[i].fd >= 0)
            log_warn("process_stays", F_INT("pid", m->found[i].pid),
                     F_STR("next", "it was killed and has not ended; its "
                                   "message waits for it; see what it waits "
                                   "for in /proc/PID/stack"));
}

/* On return all of them are gone; how many
 * A process that we may not kill (it changed its user) does not keep us here.
 */
static int kill_found(struct process_search *m)
{
    struct pollfd p = {.fd = m->epoll, .events = POLLIN};
    int killed = 0;

    for (size_t i = 0; i < m->found_count; i++) {
        struct found *f = &m->found[i];

        if (f->fd < 0)
            continue;
        if (pidfd_send_signal(f->fd, SIGKILL, NULL, 0) == 0) {
            killed++;
        } else if (errno == ESRCH) {
            found_ended(m, f);
        } else {
            log_warn("process_not_killed", F_INT("pid", f->pid),
                     F_STR("error", errno_text(errno)));
            found_drop(m, f);
        }
    }
    while (process_search_living(m) > 0)
        if (poll(&p, 1, WARN_MS) == 0)
            warn_living(m);
    return killed;
}

/* Until nothing is found any more
 * A process that is killed cannot fork; one that was not reached yet can, so
 * the walk is repeated until it finds none.
 */
int process_search_end(struct process_search *m,
                       const struct process_search_choice *choice)
{
    int sum = 0, killed;

    do {
        int living = process_search_find(m, choice);

        if (living < 0)
            return living;
        killed = kill_found(m);
        sum += killed;
    } while (killed > 0);
    return sum;
}

#define PAUSE_NS (100 * NS_PER_MS)
#define BATCH    64 /* that one search is for */

/* One that waits for a search; on the stack of its thread. */
struct wish {
    STAILQ_ENTRY(wish) link;
    const struct leftovers_of *of;
    bool granted; /* m */
};

/* m = under mtx   c = constant after open   p = peeker only */
struct leftovers {
    uint64_t nonce;            /* c */
    struct timers *timers;     /* c */
    struct loop *loop;         /* c */
    struct loop_source source; /* p  the signalfd */
    struct timer pause;        /* until the source is watched again */
    int hurry; /* c  eventfd; readable from leftovers_hurry on */
    pthread_mutex_t mtx;
    pthread_cond_t ready;       /* m  a search has ended */
    STAILQ_HEAD(, wish) wishes; /* m  not taken by a search */
    bool searching;             /* m */
};

/* ---- orphans ---- */

/* All that have ended; never a handler, see the header */
static void orphans_reap(void)
{
    siginfo_t info = {0};

    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WNOTHREAD) == 0 &&
           info.si_pid != 0) {
        log_debug("orphan_reaped", F_INT("pid", info.si_pid));
        info.si_pid = 0;
    }
}

/* Report each child stopped since the last call; the kernel reports each stop
 * once. Check the children of all threads, and leave exit statuses to the
 * threads that started the handlers. */
static void stopped_report(void)
{
    siginfo_t info = {0};

    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        log_warn("handler_stopped", F_INT("pid", info.si_pid),
                 F_STR("signal", sigabbrev_np(info.si_status)),
                 F_STR("next", "to continue the handler, use kill -CONT PID; "
                               "otherwise its message waits for the time "
                               "limit. mqctl list shows the message"));
        info.si_pid = 0;
    }
}

/* Wait for the next SIGCHLD; one that came meanwhile is seen */
static void pause_ended(struct timer *timer)
{
    struct leftovers *s = CONTAINER_OF(timer, struct leftovers, pause);

    if (loop_watch(s->loop, &s->source, EPOLLIN) < 0)
        timers_start_after(s->timers, timer, PAUSE_NS);
}

/* Handle a handler or an orphan that exited or was stopped. Read
 * the signal before checking the children, so that a child that exits after the
 * check sends a new one.
 */
static void child_ended(struct loop_source *source)
{
    struct leftovers *s = CONTAINER_OF(source, struct leftovers, source);
    struct signalfd_siginfo info;

    while (read(source->fd, &info, sizeof info) == sizeof info)
        ;
    orphans_reap();
    stopped_report();
    timers_start_after(s->timers, &s->pause, PAUSE_NS);
}

/* SIGCHLD to the signalfd and nowhere else; the pool's threads
 * block all signals. Our parent may have set it to be ignored, which would take
 * the status of every handler from us. */
static int signals_ready(struct leftovers *s)
{
    sigset_t set;

    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->source.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->source.fd < 0 ? -errno : 0;
}

/* One of the list */
static bool pid_is_known(pid_t pid, const pid_t *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (known[i] == pid)
            return true;
    return false;
}

/* The main thread has no other child
 * When a process ends, the topmost processes that it leaves behind become the
 * main thread's children before that end can be seen. The kernel's list is
 * inexact while it changes, but its first entry is not; and while there are
 * known ones, nobody else takes the status of a child, so that it only grows.
 */
bool leftovers_none_but(const pid_t *known, size_t n)
{
    char path[64], pid[16];
    bool none;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    if (!f)
        return false;
    do
        none = fscanf(f, "%15s", pid) != 1;
    while (!none && pid_is_known((pid_t)strtol(pid, NULL, 10), known, n));
    none = none && !ferror(f);
    fclose(f);
    return none;
}

/* ---- open, close ---- */

/* What is left goes to the next subreaper when we end */
void leftovers_close(struct leftovers **leftovers)
{
    struct leftovers *s = *leftovers;

    if (!s)
        return;
    *leftovers = NULL;
    timers_cancel(s->timers, &s->pause);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    if (s->source.fd >= 0)
        close(s->source.fd);
    if (s->hurry >= 0)
        close(s->hurry);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->mtx);
    free(s);
}

int leftovers_open(struct leftovers **out, uint64_t nonce,
                   struct timers *timers, struct loop *loop)
{
    struct leftovers *s;
    int err;

    *out = NULL;
    if (gettid() != getpid())
        return -ENOTSUP;
    s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->nonce = nonce;
    s->timers = timers;
    s->loop = loop;
    s->source.ready = child_ended;
    s->source.fd = -1;
    timer_init(&s->pause, pause_ended);
    pthread_mutex_init(&s->mtx, NULL);
    pthread_cond_init(&s->ready, NULL);
    STAILQ_INIT(&s->wishes);
    s->hurry = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    err = s->hurry < 0 ? -errno : signals_ready(s);
    if (!err && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        err = -errno;
    if (!err)
        err = loop_watch(loop, &s->source, EPOLLIN);
    if (err)
        leftovers_close(&s);
    *out = s;
    return err;
}

/* ---- a handler that was ended ---- */

void leftovers_hurry(struct leftovers *s)
{
    uint64_t one = 1;

    (void)!write(s->hurry, &one, sizeof one);
}

/* What could not be looked for stays */
static void search_failed(const char *id, int err)
{
    log_warn("remains_not_searched", F_STR("msg", id),
             F_STR("error", errno_text(-err)),
             F_STR("next", "what the handler left outside of its process "
                           "group may still run; mount /proc, raise "
                           "ulimit -n"));
}

/* Until `fd` is readable; false: the grace is over
 * Its stderr is read meanwhile, or a handler that cleans up would wait for us.
 */
static bool grace_wait(struct leftovers *s, const struct leftovers_of *of,
                       int fd, int *stderr_fd)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
                               {.fd = s->hurry, .events = POLLIN},
                               {.fd = *stderr_fd, .events = POLLIN}};
        int ms = clock_ms_until(of->kill_at_ns);

        if (ms == 0 || (poll(fds, 3, ms) < 0 && errno != EINTR) ||
            fds[1].revents)
            return false;
        if (fds[2].revents && !stderr_tail_read(of->tail, *stderr_fd))
            *stderr_fd = -1;
        if (fds[0].revents)
            return true;
    }
}

/* Wait while any that was found lives; false: the grace is over */
static bool group_gone(struct leftovers *s, struct process_search *m,
                       const struct leftovers_of *of, int *stderr_fd)
{
    while (process_search_living(m) > 0)
        if (!grace_wait(s, of, process_search_fd(m), stderr_fd))
            return false;
    return true;
}

/* Until the group is gone or its time is over */
static void group_grace(struct leftovers *s, const struct leftovers_of *of,
                        int *stderr_fd)
{
    struct process_search_delivery one = {.group = of->group};
    struct process_search_choice choice = {
        .of = &one, .count = 1, .groups_only = true};
    struct process_search *m;
    int found = process_search_open(&m);

    if (!m) {
        search_failed(of->tail->id, found);
        return;
    }
    do {
        found = process_search_find(m, &choice);
        if (found < 0)
            search_failed(of->tail->id, found);
    } while (found > 0 && group_gone(s, m, of, stderr_fd));
    process_search_close(&m);
}

/* One for all of a batch */
static void batch_search(struct leftovers *s, struct wish *const *batch,
                         size_t n)
{
    struct process_search_delivery list[BATCH];
    struct process_search_choice choice = {
        .nonce = s->nonce, .of = list, .count = n, .ours = true};
    struct process_search *m;
    int killed = process_search_open(&m);

    for (size_t i = 0; i < n; i++)
        list[i] = (struct process_search_delivery){
            .seq = batch[i]->of->seq, .group = batch[i]->of->group};
    if (!killed)
        killed = process_search_end(m, &choice);
    process_search_close(&m);
    for (size_t i = 0; i < n && killed < 0; i++)
        search_failed(batch[i]->of->tail->id, killed);
    if (killed > 0)
        log_info("remains_killed",
                 F_STR("msg", n == 1 ? batch[0]->of->tail->id : NULL),
                 F_UINT("handlers", n), F_INT("processes", killed));
}

/* Search for those that wait; the lock is not held meanwhile */
static void grant_locked(struct leftovers *s)
{
    struct wish *batch[BATCH] = {0}, *w;
    size_t n = 0;

    while (n < BATCH && (w = STAILQ_FIRST(&s->wishes)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->wishes, link);
        batch[n++] = w;
    }
    s->searching = true;
    pthread_mutex_unlock(&s->mtx);
    batch_search(s, batch, n);
    pthread_mutex_lock(&s->mtx);
    s->searching = false;
    for (size_t i = 0; i < n; i++)
        batch[i]->granted = true;
    pthread_cond_broadcast(&s->ready);
}

/* A search that began after this call has found nothing more */
static void wish_search(struct leftovers *s, const struct leftovers_of *of)
{
    struct wish me = {.of = of};

    pthread_mutex_lock(&s->mtx);
    STAILQ_INSERT_TAIL(&s->wishes, &me, link);
    while (!me.granted) {
        if (s->searching)
            pthread_cond_wait(&s->ready, &s->mtx);
        else
            grant_locked(s);
    }
    pthread_mutex_unlock(&s->mtx);
}

/* Outside of its group at least */
static bool nothing_left(const struct leftovers_of *of)
{
    return leftovers_none_but(of->known, of->known_count);
}

/* Grace, SIGKILL, sweep
 * The leader may have moved to another group, so it is killed by its number as
 * well, which is not free before it is reaped.
 */
void leftovers_end(struct leftovers *s, const struct leftovers_of *of)
{
    struct pollfd leader = {.fd = of->end, .events = POLLIN};
    int fd = of->stderr_fd;

    if ((of->end < 0 || grace_wait(s, of, of->end, &fd)) &&
        clock_ms_until(of->kill_at_ns) != 0 && !nothing_left(of))
        group_grace(s, of, &fd);
    kill(-of->group, SIGKILL);
    kill(of->group, SIGKILL);
    while (of->end >= 0 && !leader.revents)
        (void)poll(&leader, 1, -1);
    if (!nothing_left(of))
        wish_search(s, of);
}

/* ---- of a dead worker ---- */

/* Until the process has ended; says so when that takes long */
static void wait_gone(int pidfd, pid_t pid)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    while (poll(&p, 1, WARN_MS) <= 0)
        log_warn("leftover_stays", F_INT("pid", pid),
                 F_STR("next", "its message waits until it has ended; see "
                               "what it waits for in /proc/PID/stack"));
}

/* A process group whose leader is the one we knew: it keeps its
 * number from anybody else. The leader is gone on return; the others of it
 * carry the mark and are waited for one by one.
 */
static bool kill_group(const struct stale_handler *l)
{
    int fd = l->pgid > 1 && l->start != 0 ? pidfd_open(l->pgid, 0) : -1;
    bool same = fd >= 0 && process_start_time(l->pgid) == l->start;

    if (same) {
        kill(-l->pgid, SIGKILL);
        wait_gone(fd, l->pgid);
    }
    if (fd >= 0)
        close(fd);
    return same;
}

/* A long-lived child is named by each message that it had */
static bool is_same(const struct stale_handler *list, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (list[k].pgid == list[i].pgid && list[k].start == list[i].start)
            return true;
    return false;
}

/* Groups first, then all that carries a mark */
int stale_handlers_kill(uint64_t nonce, const struct stale_handler *list,
                        size_t n)
{
    struct process_search_delivery *of = reallocarray(NULL, n + 1, sizeof *of);
    struct process_search_choice choice = {
        .nonce = nonce, .of = of, .count = n};
    struct process_search *m = NULL;
    int groups = 0, killed = 0, err = of ? process_search_open(&m) : -ENOMEM;

    for (size_t i = 0; i < n && !err; i++) {
        of[i] = (struct process_search_delivery){.seq = list[i].mark};
        if (!is_same(list, i))
            groups += kill_group(&list[i]);
    }
    if (!err && n > 0)
        killed = process_search_end(m, &choice);
    process_search_close(&m);
    free(of);
    return err ? err : killed < 0 ? killed : groups + killed;
}
