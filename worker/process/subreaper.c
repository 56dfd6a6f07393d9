/* subreaper.c - processes that handlers left behind (see subreaper.h)
 *
 * How to learn that one has ended: SIGCHLD is the only notice there is, and the
 * end of every handler sends one too. All threads block it, so that it costs a
 * handler's end no wake-up; a signalfd wakes the peeker for it, but once in
 * PAUSE_NS at most. An idle worker has no handlers and is woken for orphans
 * only. A look for zombies at the end of each handler instead would cost each
 * of them a system call, and leave zombies as long as no message comes.
 */
#include "worker/process/subreaper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/loop/loop.h"
#include "worker/loop/timers.h"

#define PAUSE_NS (100 * NS_PER_MS)

/* c = constant after open   p = peeker only */
struct subreaper {
    struct timers *timers;     /* c */
    struct loop *loop;         /* c */
    struct loop_source source; /* p  the signalfd */
    struct timer pause;        /* until the source is watched again */
};

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

/* pause_over - wait for the next SIGCHLD; one that came meanwhile is seen */
static void pause_over(struct timer *timer)
{
    struct subreaper *o = CONTAINER_OF(timer, struct subreaper, pause);

    if (loop_watch(o->loop, &o->source, EPOLLIN) < 0)
        timers_start_after(o->timers, timer, PAUSE_NS);
}

/* child_ended - a handler or an orphan
 * The signal is taken before the look: one that ends after the look sends a new
 * one.
 */
static void child_ended(struct loop_source *source)
{
    struct subreaper *o = CONTAINER_OF(source, struct subreaper, source);
    struct signalfd_siginfo info;

    while (read(source->fd, &info, sizeof info) == sizeof info)
        ;
    reap();
    timers_start_after(o->timers, &o->pause, PAUSE_NS);
}

/* signals_ready - SIGCHLD to the signalfd and nowhere else; the pool's threads
 * block all signals. Whoever started us may have set it to be ignored, which
 * would take the status of every handler from us. */
static int signals_ready(struct subreaper *o)
{
    sigset_t set;

    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    o->source.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return o->source.fd < 0 ? -errno : 0;
}

int subreaper_open(struct subreaper **out, struct timers *timers,
                   struct loop *loop)
{
    struct subreaper *o;
    int err;

    *out = NULL;
    if (gettid() != getpid())
        return -ENOTSUP;
    o = calloc(1, sizeof *o);
    if (!o)
        return -ENOMEM;
    o->timers = timers;
    o->loop = loop;
    o->source.ready = child_ended;
    timer_init(&o->pause, pause_over);
    err = signals_ready(o);
    if (!err && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        err = -errno;
    if (!err)
        err = loop_watch(loop, &o->source, EPOLLIN);
    if (err) {
        subreaper_close(&o);
        return err;
    }
    *out = o;
    return 0;
}

/* subreaper_close - what is left goes to the next subreaper when we end */
void subreaper_close(struct subreaper **orphans)
{
    struct subreaper *o = *orphans;

    if (!o)
        return;
    *orphans = NULL;
    timers_cancel(o->timers, &o->pause);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    if (o->source.fd >= 0)
        close(o->source.fd);
    free(o);
}

/* is_known - one of the list */
static bool is_known(pid_t pid, const pid_t *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (known[i] == pid)
            return true;
    return false;
}

/* subreaper_none_but - the main thread has no other child
 * Whatever a process leaves behind when it ends, the topmost of it becomes the
 * main thread's child before the end can be seen. The kernel's list is inexact
 * while it changes, but its first entry is not; and while there are known ones,
 * nobody else takes the status of a child, so that it only grows.
 */
bool subreaper_none_but(const pid_t *known, size_t n)
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
