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
 */
#include "worker/process/leftovers.h"

#include <errno.h>
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
#include "worker/process/process.h"
#include "worker/process/process_search.h"
#include "worker/process/stderr_tail.h"

#define PAUSE_NS (100 * NS_PER_MS)
#define WARN_MS  1000 /* a process that does not go is named each second */
#define BATCH    64   /* that one search is for */

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

/* reap - all that have ended; never a handler, see the header */
static void reap(void)
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

/* pause_over - wait for the next SIGCHLD; one that came meanwhile is seen */
static void pause_over(struct timer *timer)
{
    struct leftovers *s = CONTAINER_OF(timer, struct leftovers, pause);

    if (loop_watch(s->loop, &s->source, EPOLLIN) < 0)
        timers_start_after(s->timers, timer, PAUSE_NS);
}

/* child_ended - handle a handler or an orphan that exited or was stopped. Read
 * the signal before checking the children, so that a child that exits after the
 * check sends a new one.
 */
static void child_ended(struct loop_source *source)
{
    struct leftovers *s = CONTAINER_OF(source, struct leftovers, source);
    struct signalfd_siginfo info;

    while (read(source->fd, &info, sizeof info) == sizeof info)
        ;
    reap();
    stopped_report();
    timers_start_after(s->timers, &s->pause, PAUSE_NS);
}

/* signals_ready - SIGCHLD to the signalfd and nowhere else; the pool's threads
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

/* is_known - one of the list */
static bool is_known(pid_t pid, const pid_t *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (known[i] == pid)
            return true;
    return false;
}

/* leftovers_none_but - the main thread has no other child
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
    while (!none && is_known((pid_t)strtol(pid, NULL, 10), known, n));
    none = none && !ferror(f);
    fclose(f);
    return none;
}

/* ---- open, close ---- */

/* leftovers_close - what is left goes to the next subreaper when we end */
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
    timer_init(&s->pause, pause_over);
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

/* failed - what could not be looked for stays */
static void failed(const char *id, int err)
{
    log_warn("remains_not_searched", F_STR("msg", id),
             F_STR("error", errno_text(-err)),
             F_STR("next", "what the handler left outside of its process "
                           "group may still run; mount /proc, raise "
                           "ulimit -n"));
}

/* wait_for - until `fd` is readable; false: the grace is over
 * Its stderr is read meanwhile, or a handler that cleans up would wait for us.
 */
static bool wait_for(struct leftovers *s, const struct leftovers_of *of, int fd,
                     int *stderr_fd)
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

/* group_gone - wait while any that was found lives; false: the grace is over */
static bool group_gone(struct leftovers *s, struct process_search *m,
                       const struct leftovers_of *of, int *stderr_fd)
{
    while (process_search_living(m) > 0)
        if (!wait_for(s, of, process_search_fd(m), stderr_fd))
            return false;
    return true;
}

/* grace - until the group is gone or its time is over */
static void grace(struct leftovers *s, const struct leftovers_of *of,
                  int *stderr_fd)
{
    struct process_search_delivery one = {.group = of->group};
    struct process_search_choice choice = {
        .of = &one, .count = 1, .groups_only = true};
    struct process_search *m;
    int found, err = process_search_open(&m);

    if (err) {
        failed(of->tail->id, err);
        return;
    }
    do {
        found = process_search_find(m, &choice);
        if (found < 0)
            failed(of->tail->id, found);
    } while (found > 0 && group_gone(s, m, of, stderr_fd));
    process_search_close(&m);
}

/* search - one for all of a batch */
static void search(struct leftovers *s, struct wish *const *batch, size_t n)
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
        failed(batch[i]->of->tail->id, killed);
    if (killed > 0)
        log_info("remains_killed",
                 F_STR("msg", n == 1 ? batch[0]->of->tail->id : NULL),
                 F_UINT("handlers", n), F_INT("processes", killed));
}

/* grant_locked - search for those that wait; the lock is not held meanwhile */
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
    search(s, batch, n);
    pthread_mutex_lock(&s->mtx);
    s->searching = false;
    for (size_t i = 0; i < n; i++)
        batch[i]->granted = true;
    pthread_cond_broadcast(&s->ready);
}

/* sweep - a search that began after this call has found nothing more */
static void sweep(struct leftovers *s, const struct leftovers_of *of)
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

/* nothing_left - outside of its group at least */
static bool nothing_left(const struct leftovers_of *of)
{
    return leftovers_none_but(of->known, of->known_count);
}

/* leftovers_end - grace, SIGKILL, sweep
 * The leader may have moved to another group, so it is killed by its number as
 * well, which is not free before it is reaped.
 */
void leftovers_end(struct leftovers *s, const struct leftovers_of *of)
{
    struct pollfd leader = {.fd = of->end, .events = POLLIN};
    int fd = of->stderr_fd;

    if ((of->end < 0 || wait_for(s, of, of->end, &fd)) &&
        clock_ms_until(of->kill_at_ns) != 0 && !nothing_left(of))
        grace(s, of, &fd);
    kill(-of->group, SIGKILL);
    kill(of->group, SIGKILL);
    while (of->end >= 0 && !leader.revents)
        (void)poll(&leader, 1, -1);
    if (!nothing_left(of))
        sweep(s, of);
}

/* ---- of a dead worker ---- */

/* wait_gone - until the process has ended; says so when that takes long */
static void wait_gone(int pidfd, pid_t pid)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    while (poll(&p, 1, WARN_MS) <= 0)
        log_warn("leftover_stays", F_INT("pid", pid),
                 F_STR("next", "its message waits until it has ended; see "
                               "what it waits for in /proc/PID/stack"));
}

/* kill_group - a process group whose leader is the one we knew: it keeps its
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

/* is_same - a long-lived child is named by each message that it had */
static bool is_same(const struct stale_handler *list, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (list[k].pgid == list[i].pgid && list[k].start == list[i].start)
            return true;
    return false;
}

/* stale_handlers_kill - groups first, then all that carries a mark */
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
