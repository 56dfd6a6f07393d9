/* leftovers.c - processes that handlers leave behind (see leftovers.h)
 *
 * SIGCHLD is the only notice of an orphan's exit, and each handler's exit sends
 * this signal, too. All threads block it, so that the exit of a handler wakes
 * no thread; a signalfd wakes the peeker for it, at most once in PAUSE_NS. An
 * idle worker has no handlers and is woken for orphans only. To look for
 * zombies at the exit of each handler would instead cost a system call each
 * time, and leave zombies as long as no message comes.
 *
 * Many handlers may be terminated at the same time: if a thing that all of them
 * wait for hangs, all reach their time limit. A search reads all of /proc, so
 * one search serves all threads that wait for a search, as one sync serves many
 * commits. There is no search if nothing at all was left behind, which one
 * short read shows (leftovers_none_but).
 *
 * The kernel's lists of children would be shorter than /proc, but they are
 * exact only for processes that are stopped (proc_pid_task(5)), and some
 * kernels do not have them.
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
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bsd/stdlib.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/libc.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/loop/loop.h"
#include "worker/loop/timers.h"
#include "worker/process/environment.h"
#include "worker/process/process.h"
#include "worker/process/stderr_tail.h"

#define STEPS_MAX  256  /* parents to follow; a torn snapshot may be a circle */
#define WARN_MS    1000 /* between two warnings of a process that stays */
#define EVENTS     32
#define EXEC_LOOKS 1000 /* reads of a process in execve(2), 1 ms apart */

/* A process that a search has seen in /proc. */
struct seen {
    pid_t pid;
    struct process_stat stat;
    bool chosen;
};

struct process_search {
    int epoll; /* `end` of each found process */
    struct seen *seen;
    size_t seen_count, seen_room;
    struct process *found; /* end < 0: it has ended */
    size_t found_count, found_room, living;
    char *env; /* one environment, read whole */
    size_t env_room;
};

/* Look for this process in /proc, because it certainly exists. In a container
 * or chroot /proc may be an empty folder, which opendir(3) opens without an
 * error, as if there were no process. The procfs of another PID namespace shows
 * us and our handlers under other numbers or not at all. */
const char *process_search_blind(void)
{
    char self[32] = "", byte;
    struct statfs fs;
    struct process_stat stat;
    bool readable;
    int fd;

    if (statfs("/proc", &fs) < 0)
        return errno_text(errno);
    if (fs.f_type != PROC_SUPER_MAGIC)
        return "no procfs is mounted there";
    if (readlink("/proc/self", self, sizeof self - 1) < 0 ||
        strtol(self, NULL, 10) != getpid() || !process_stat(getpid(), &stat))
        return "it is of another PID namespace and does not show this process";
    /* The rule for reading our own environment also goes for other processes of
     * our user (proc(5), hidepid and ptrace access mode). */
    fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    readable = fd >= 0 && read(fd, &byte, 1) >= 0;
    fd_close(&fd);
    return readable ? NULL : "it does not let us read /proc/self/environ";
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

/* Stop waiting for a found process. Closing its descriptor alone would
 * not take it out of the epoll set: a child that another thread is just
 * starting has the descriptor, too, until its execve, and the set would report
 * its end again and again. */
static void found_drop(struct process_search *m, struct process *f)
{
    (void)epoll_ctl(m->epoll, EPOLL_CTL_DEL, f->end, NULL);
    fd_close(&f->end);
    m->living--;
}

/* Forget the results of the last search. */
static void search_forget(struct process_search *m)
{
    for (size_t i = 0; i < m->found_count; i++)
        if (m->found[i].end >= 0)
            found_drop(m, &m->found[i]);
    m->found_count = m->seen_count = 0;
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

/* Read the environment of a process into m->env. Returns its size; 0: the
 * process is gone, or we may not read it. */
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

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct seen *)a)->pid, y = ((const struct seen *)b)->pid;

    return (x > y) - (x < y);
}

/* Return true if a chosen process, or with `ours` this worker, is an ancestor
 * of the process. */
static bool has_parent(const struct process_search *m, const struct seen *s,
                       bool ours)
{
    struct seen key;

    for (int i = 0; s && i < STEPS_MAX; i++) {
        if (ours && s->stat.parent == getpid())
            return true;
        key = (struct seen){.pid = s->stat.parent};
        s = bsearch(&key, m->seen, m->seen_count, sizeof key, by_pid);
        if (!ours && s && s->chosen)
            return true;
    }
    return false;
}

/* Read an environment as env_read does, but wait until the process is out of
 * execve(2), which sets up the new memory first, and arguments and environment
 * later. In between, the process no longer has the dead worker's lock, so a new
 * worker may already be searching. Give up after a while, because some
 * processes have no environment at all. */
static size_t env_settled(struct process_search *m, pid_t pid)
{
    size_t size = env_read(m, pid);
    char exe[32], arguments[32], byte;
    int looks = EXEC_LOOKS, fd;
    ssize_t n;

    snprintf(exe, sizeof exe, "/proc/%d/exe", (int)pid);
    snprintf(arguments, sizeof arguments, "/proc/%d/cmdline", (int)pid);
    while (size == 0 && looks > 0) {
        if (readlink(exe, &byte, 1) < 0) /* ended, or a thread of the kernel */
            break;
        fd = open(arguments, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, &byte, 1);
        fd_close(&fd);
        /* A process without arguments is probably still in execve(2). */
        looks -= n == 0 ? 1 : EXEC_LOOKS / 4;
        poll(NULL, 0, 1);
        size = env_read(m, pid);
    }
    return size;
}

/* Return true if a process is chosen by its group or its mark. */
static bool is_meant(struct process_search *m,
                     const struct process_search_choice *c,
                     const struct seen *s)
{
    uint64_t seq;
    size_t size;

    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].group && c->of[i].group == s->stat.group)
            return true;
    if (c->groups_only || (c->ours && !has_parent(m, s, true)))
        return false;
    size = env_settled(m, s->pid);
    if (size == 0 || !environment_marked(m->env, size, c->nonce, &seq))
        return false;
    for (size_t i = 0; i < c->count; i++)
        if (c->of[i].seq == seq)
            return true;
    return false;
}

/* Handle the end of a found process, and reap it if it is our child. */
static void found_ended(struct process_search *m, struct process *f)
{
    process_reap(f);
    found_drop(m, f);
}

/* Watch for the end of a process, if it is still the one that was seen. */
static int found_hold(struct process_search *m, const struct seen *s)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct pollfd ended = {.events = POLLIN};
    struct process *f =
        array_grow(m->found, m->found_count, &m->found_room, sizeof *f);
    struct process one = {.pid = s->pid, .start = s->stat.start};
    int err = process_watch(&one);

    if (f)
        m->found = f;
    if (err) /* gone, or its number is now that of a thread (ENOENT; EINVAL
              * before 6.9) */
        return err == -ESRCH || err == -EINVAL || err == -ENOENT ? 0 : err;
    if (!f) {
        close(one.end);
        return -ENOMEM;
    }
    if (process_start_time(one.pid) != one.start) {
        close(one.end);
        return 0;
    }
    f = &m->found[m->found_count];
    *f = one;
    ev.data.u64 = m->found_count++;
    m->living++;
    ended.fd = one.end;
    if (poll(&ended, 1, 0) > 0)
        found_ended(m, f);
    else if (epoll_ctl(m->epoll, EPOLL_CTL_ADD, one.end, &ev) < 0)
        return -errno;
    return 0;
}

/* Read all of /proc except this process, choose the processes of the wanted
 * deliveries, and watch them, without the leaders of their groups, and (unless
 * groups_only) their descendants. */
int process_search_find(struct process_search *m,
                        const struct process_search_choice *c)
{
    struct dirent *entry;
    struct seen *seen, one;
    DIR *proc;
    int err = 0;

    search_forget(m);
    proc = opendir("/proc");
    if (!proc)
        return problem_code(errno);
    while (!err && (entry = readdir(proc)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        one = (struct seen){.pid = (pid_t)strtol(entry->d_name, NULL, 10)};
        if (one.pid == getpid() || !process_stat(one.pid, &one.stat))
            continue;
        seen = array_grow(m->seen, m->seen_count, &m->seen_room, sizeof one);
        if (seen) {
            m->seen = seen;
            m->seen[m->seen_count++] = one;
        } else {
            err = -ENOMEM;
        }
    }
    closedir(proc);
    if (err || m->seen_count == 0) /* /proc may show no process at all */
        return err;
    qsort(m->seen, m->seen_count, sizeof *m->seen, by_pid);
    for (size_t i = 0; i < m->seen_count; i++)
        m->seen[i].chosen = is_meant(m, c, &m->seen[i]);
    for (size_t i = 0; i < m->seen_count && !err; i++) {
        struct seen *s = &m->seen[i];
        bool leader = false; /* its own thread waits for it */

        for (size_t k = 0; k < c->count; k++)
            leader |= c->of[k].group == s->pid;
        if (!leader &&
            (s->chosen || (!c->groups_only && has_parent(m, s, false))))
            err = found_hold(m, s);
    }
    return err ? err : (int)m->living;
}

size_t process_search_living(struct process_search *m)
{
    struct epoll_event events[EVENTS];
    int n = m->found_count > 0 ? EVENTS : 0;

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

/* A killed process cannot fork, but a process that was not killed yet can, so
 * the search is repeated until it finds none. A process that we may not kill,
 * because it changed its user, is not waited for. */
int process_search_end(struct process_search *m,
                       const struct process_search_choice *choice)
{
    struct pollfd p = {.fd = m->epoll, .events = POLLIN};
    int sum = 0, killed, err;

    do {
        int living = process_search_find(m, choice);

        if (living < 0)
            return living;
        killed = 0;
        for (size_t i = 0; i < m->found_count; i++) {
            struct process *f = &m->found[i];

            if (f->end < 0)
                continue;
            err = process_signal(f, SIGKILL);
            if (!err) {
                killed++;
            } else if (err == -ESRCH) {
                found_ended(m, f);
            } else {
                log_warn("process_not_killed", F_INT("pid", f->pid),
                         F_STR("error", errno_text(-err)));
                found_drop(m, f);
            }
        }
        while (process_search_living(m) > 0) {
            if (poll(&p, 1, WARN_MS) != 0)
                continue;
            /* A killed process that does not exit is stuck in the kernel. */
            for (size_t i = 0; i < m->found_count; i++)
                if (m->found[i].end >= 0)
                    log_warn("process_stays", F_INT("pid", m->found[i].pid),
                             F_STR("next",
                                   "the process was killed and has not exited, "
                                   "so its message has to wait; "
                                   "/proc/PID/stack shows where it is stuck"));
        }
        sum += killed;
    } while (killed > 0);
    return sum;
}

#define PAUSE_NS (100 * NS_PER_MS)
#define BATCH    64 /* handlers that one search is for */

/* A thread's wait for a search; on its stack. */
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
    struct timer pause;        /* fires when `source` is watched again */
    int hurry; /* c  eventfd; readable from leftovers_hurry on */
    pthread_mutex_t mtx;
    pthread_cond_t ready;       /* m  a search has ended */
    STAILQ_HEAD(, wish) wishes; /* m  not taken by a search */
    bool searching;             /* m */
};

/* ---- orphans ---- */

/* Watch for SIGCHLD again; the signalfd has kept one that came meanwhile. */
static void pause_ended(struct timer *timer)
{
    struct leftovers *s = CONTAINER_OF(timer, struct leftovers, pause);

    if (loop_watch(s->loop, &s->source, EPOLLIN) < 0)
        timers_start_after(s->timers, timer, PAUSE_NS);
}

/* Handle orphans that exited and handlers that were stopped; in the loop. The
 * signal is read before the children are checked, so that a child that exits
 * after the check sends a new signal. */
static void child_ended(struct loop_source *source)
{
    struct leftovers *s = CONTAINER_OF(source, struct leftovers, source);
    struct signalfd_siginfo ignored;
    siginfo_t info = {0};

    while (read(source->fd, &ignored, sizeof ignored) == sizeof ignored)
        ;
    /* Reap the orphans; __WNOTHREAD leaves out handlers (see leftovers.h). */
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | __WNOTHREAD) == 0 &&
           info.si_pid != 0) {
        log_debug("orphan_reaped", F_INT("pid", info.si_pid));
        info.si_pid = 0;
    }
    /* Report stopped children of all threads, but leave exit statuses to the
     * threads that started the handlers. The kernel reports each stop once. */
    info.si_pid = 0;
    while (waitid(P_ALL, 0, &info, WSTOPPED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        log_warn("handler_stopped", F_INT("pid", info.si_pid),
                 F_STR("signal", sigabbrev_np(info.si_status)),
                 F_STR("next", "to continue the handler, use kill -CONT PID; "
                               "otherwise its message waits for the time "
                               "limit. mqctl list shows the message"));
        info.si_pid = 0;
    }
    timers_start_after(s->timers, &s->pause, PAUSE_NS);
}

/* Read the kernel's list of the main thread's children. The topmost processes
 * that an exiting process leaves behind are in the list before a wait for that
 * process returns. The list is inexact while it changes, but its first entry is
 * exact; and while there are known children, no other thread reaps a child, so
 * the list only grows. */
bool leftovers_none_but(const pid_t *known, size_t n)
{
    char path[64], text[16];
    bool none, is_known;
    FILE *f;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    if (!f)
        return false;
    do {
        none = fscanf(f, "%15s", text) != 1;
        is_known = false;
        for (size_t i = 0; i < n && !none; i++)
            is_known |= known[i] == (pid_t)strtol(text, NULL, 10);
    } while (is_known);
    none = none && !ferror(f);
    fclose(f);
    return none;
}

/* ---- open, close ---- */

/* End no child: when the worker exits, the next subreaper gets those that
 * remain. */
void leftovers_close(struct leftovers **leftovers)
{
    struct leftovers *s = *leftovers;

    if (!s)
        return;
    *leftovers = NULL;
    timers_cancel(s->timers, &s->pause);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    fd_close(&s->source.fd);
    fd_close(&s->hurry);
    pthread_cond_destroy(&s->ready);
    pthread_mutex_destroy(&s->mtx);
    free(s);
}

int leftovers_open(struct leftovers **out, uint64_t nonce,
                   struct timers *timers, struct loop *loop)
{
    struct leftovers *s;
    sigset_t set;
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
    err = s->hurry < 0 ? -errno : 0;
    /* SIGCHLD goes only to the signalfd; the pool's threads block all signals.
     * Our parent may have set it to be ignored: then the kernel would reap the
     * handlers, and their exit status would be lost. */
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->source.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!err && s->source.fd < 0)
        err = -errno;
    if (!err && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        err = -errno;
    if (!err)
        err = loop_watch(loop, &s->source, EPOLLIN);
    if (err)
        leftovers_close(&s);
    *out = s;
    return err;
}

/* ---- a handler that was sent SIGTERM ---- */

void leftovers_hurry(struct leftovers *s)
{
    (void)eventfd_write(s->hurry, 1);
}

/* Log that processes could not be searched for, so they keep running. */
static void search_failed(const char *id, int err)
{
    log_warn("remains_not_searched", F_STR("msg", id),
             F_STR("error", errno_text(-err)),
             F_STR("next", "what the handler left outside of its process "
                           "group may still run; mount /proc, raise "
                           "ulimit -n"));
}

/* Wait until `fd` is readable. Returns false when the grace is over. Read
 * stderr meanwhile, or the handler would block once the pipe is full. */
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

/* Wait until the process group is gone, or the grace is over. */
static void group_grace(struct leftovers *s, const struct leftovers_of *of,
                        int *stderr_fd)
{
    struct process_search_delivery one = {.group = of->group};
    struct process_search_choice choice = {
        .of = &one, .count = 1, .groups_only = true};
    struct process_search *m;
    int found = process_search_open(&m);
    bool in_time = true;

    if (!m) {
        search_failed(of->tail->id, found);
        return;
    }
    do {
        found = process_search_find(m, &choice);
        if (found < 0)
            search_failed(of->tail->id, found);
        while (found > 0 && in_time && process_search_living(m) > 0)
            in_time = grace_wait(s, of, process_search_fd(m), stderr_fd);
    } while (found > 0 && in_time);
    process_search_close(&m);
}

/* Make one search for up to BATCH threads that wait for a search. The lock is
 * released during the search. */
static void batch_search_locked(struct leftovers *s)
{
    struct process_search_delivery list[BATCH];
    struct process_search_choice choice = {
        .nonce = s->nonce, .of = list, .ours = true};
    struct wish *batch[BATCH] = {0}, *w;
    struct process_search *m;
    size_t n = 0;
    int killed;

    while (n < BATCH && (w = STAILQ_FIRST(&s->wishes)) != NULL) {
        STAILQ_REMOVE_HEAD(&s->wishes, link);
        list[n] = (struct process_search_delivery){.seq = w->of->seq,
                                                   .group = w->of->group};
        batch[n++] = w;
    }
    choice.count = n;
    s->searching = true;
    pthread_mutex_unlock(&s->mtx);
    killed = process_search_open(&m);
    if (m)
        killed = process_search_end(m, &choice);
    process_search_close(&m);
    for (size_t i = 0; i < n && killed < 0; i++)
        search_failed(batch[i]->of->tail->id, killed);
    if (killed > 0)
        log_info("remains_killed",
                 F_STR("msg", n == 1 ? batch[0]->of->tail->id : NULL),
                 F_UINT("handlers", n), F_INT("processes", killed));
    pthread_mutex_lock(&s->mtx);
    s->searching = false;
    for (size_t i = 0; i < n; i++)
        batch[i]->granted = true;
    pthread_cond_broadcast(&s->ready);
}

/* Give the handler's process group its grace, kill the group, then kill what
 * escaped from it. The leader may have moved to another group, so it is also
 * killed by its pid, which the kernel does not reuse before it is reaped. */
void leftovers_end(struct leftovers *s, const struct leftovers_of *of)
{
    struct pollfd leader = {.fd = of->end, .events = POLLIN};
    struct wish me = {.of = of};
    int fd = of->stderr_fd;

    if ((of->end < 0 || grace_wait(s, of, of->end, &fd)) &&
        clock_ms_until(of->kill_at_ns) != 0 &&
        !leftovers_none_but(of->known, of->known_count))
        group_grace(s, of, &fd);
    kill(-of->group, SIGKILL);
    kill(of->group, SIGKILL);
    while (of->end >= 0 && !leader.revents)
        (void)poll(&leader, 1, -1);
    if (leftovers_none_but(of->known, of->known_count))
        return;
    /* A search that began before this may have missed a process. */
    pthread_mutex_lock(&s->mtx);
    STAILQ_INSERT_TAIL(&s->wishes, &me, link);
    while (!me.granted) {
        if (s->searching)
            pthread_cond_wait(&s->ready, &s->mtx);
        else
            batch_search_locked(s);
    }
    pthread_mutex_unlock(&s->mtx);
}

/* ---- handlers of a dead worker ---- */

/* Kill process groups first, then all processes with a mark of the list. A
 * group is killed only if its leader has the noted start time: while that
 * leader exists, no other group has its number. */
int stale_handlers_kill(uint64_t nonce, const struct stale_handler *list,
                        size_t n)
{
    struct process_search_delivery *of = reallocarray(NULL, n + 1, sizeof *of);
    struct process_search_choice choice = {
        .nonce = nonce, .of = of, .count = n};
    struct process_search *m = NULL;
    int groups = 0, killed = 0, err = of ? process_search_open(&m) : -ENOMEM;

    for (size_t i = 0; i < n && !err; i++) {
        const struct stale_handler *l = &list[i];
        struct process leader = {.pid = l->pgid, .end = -1, .start = l->start};
        struct pollfd end = {.events = POLLIN};
        size_t k = 0;

        of[i] = (struct process_search_delivery){.seq = l->mark};
        /* All messages of a long-lived child name it: kill it only once. */
        while (list[k].pgid != l->pgid || list[k].start != l->start)
            k++;
        if (k == i && l->pgid > 1 && l->start != 0)
            (void)process_watch(&leader);
        end.fd = leader.end;
        if (end.fd >= 0 && process_start_time(l->pgid) == l->start) {
            kill(-l->pgid, SIGKILL);
            while (poll(&end, 1, WARN_MS) <= 0)
                log_warn("leftover_stays", F_INT("pid", l->pgid),
                         F_STR("next",
                               "its message waits until it has exited; "
                               "/proc/PID/stack shows where it is stuck"));
            groups++;
        }
        fd_close(&leader.end);
    }
    if (m && !err && n > 0)
        killed = process_search_end(m, &choice);
    process_search_close(&m);
    free(of);
    return err ? err : killed < 0 ? killed : groups + killed;
}
