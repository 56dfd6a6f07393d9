/* handler_exec.c - a process for each message (see handler.h, docs/handlers.md)
 *
 * stdin is the body in a memory file, so there is no pipe to block on; stderr
 * is a pipe that is read here. The process is waited for, not the end of its
 * stderr: a grandchild may keep that open.
 *
 * The time limit is a timer, started with the process. Its thread asks for the
 * answer once, when the process has ended: cancelled, and the exit status is
 * the verdict; or too late, and the verdict is the timeout whatever the process
 * says. The timer's callbacks signal the group while the process lives; once it
 * has ended, its thread ends what is left of it (process_tree.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/sys/queue.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/panic.h"
#include "worker/process/body_file.h"
#include "worker/process/command.h"
#include "common/base/container.h"
#include "worker/process/denied.h"
#include "worker/process/environment.h"
#include "worker/handlers/handler.h"
#include "worker/process/subreaper.h"
#include "worker/process/process.h"
#include "worker/process/process_tree.h"
#include "worker/process/stderr_tail.h"
#include "worker/loop/timers.h"
#include "worker/rules/verdict.h"

/* One that runs; on the stack of its pool thread.
 * m = under mtx   c = constant after its start
 * t = written by the timer's callbacks, read after timers_cancel_sync */
struct running {
    LIST_ENTRY(running) link; /* m */
    pid_t pid; /* c  not reaped while it is on the list: the number is ours */
    struct handler *handler; /* c */
    uint64_t tick;           /* c  its start time */
    const char *id;          /* c  of the message */
    uint64_t limit_ns;       /* c  UINT64_MAX: none */
    struct timer limit;      /* until SIGTERM, then until SIGKILL */
    bool late;               /* t  the limit came before the end */
    uint64_t kill_at_ns;     /* t  if late: end of its grace */
};

/* m = under mtx   c = constant after open   a = atomic */
struct handler {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    struct command command;
    struct timers *timers;             /* c */
    struct subreaper *orphans;         /* c */
    struct process_tree *remains;      /* c */
    struct stderr_limit *stderr_limit; /* c */
    pthread_mutex_t mtx;
    LIST_HEAD(, running) running; /* m */
    int signal;                   /* m  sent by stop; 0: none yet */
    uint64_t signal_ns;           /* m  when the first was */
};

/* While we have the end that a process writes its stderr to as well, we are not
 * woken when it closes that, just before it ends: one thread switch less for
 * each process. It costs a descriptor; from this number on we save them. */
#define FEW_FDS 256

/* What a pool thread keeps for its runs. */
struct scratch {
    struct environment env;
    struct stderr_tail tail;
};
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_free(void *arg)
{
    struct scratch *s = arg;

    environment_close(&s->env);
    free(s);
}

static void scratch_key_make(void)
{
    int err = pthread_key_create(&scratch_key, scratch_free);

    if (err)
        panic("pthread_key_create: %s", strerror(err));
}

/* scratch_get - this thread's own, made at its first run; NULL: no memory */
static struct scratch *scratch_get(void)
{
    struct scratch *s = pthread_getspecific(scratch_key);

    if (!s) {
        s = calloc(1, sizeof *s);
        if (s && pthread_setspecific(scratch_key, s) != 0) {
            free(s);
            s = NULL;
        }
    }
    return s;
}

static void exec_close(struct handler **handler)
{
    struct handler *h = *handler;

    if (!h)
        return;
    *handler = NULL;
    subreaper_close(&h->orphans);
    process_tree_close(&h->remains);
    environment_base_close(&h->base);
    command_fini(&h->command);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int exec_open(struct handler **out, const struct handler_setup *setup,
                     struct problem *p)
{
    const struct settings *set = setup->settings;
    struct handler *h;
    int err = denied_check(true, p);

    *out = NULL;
    if (err)
        return err;
    h = calloc(1, sizeof *h);
    pthread_once(&scratch_once, scratch_key_make);
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->set = set;
    h->timers = setup->timers;
    h->stderr_limit = setup->stderr_limit;
    pthread_mutex_init(&h->mtx, NULL);
    LIST_INIT(&h->running);
    command_init(&h->command, set->command);
    err = environment_base_open(&h->base, set->queue, set->max_attempts,
                                setup->nonce);
    if (!err)
        err = process_tree_open(&h->remains, setup->nonce);
    if (!err)
        err = subreaper_open(&h->orphans, setup->timers, setup->loop);
    if (err) {
        exec_close(&h);
        return problem_set(p, EX_OSERR, -err, "cannot run handlers: %s",
                           strerror(-err));
    }
    *out = h;
    return 0;
}

/* grace_over - it had its time after SIGTERM */
static void grace_over(struct timer *timer)
{
    struct running *r = CONTAINER_OF(timer, struct running, limit);

    process_group_signal(r->pid, SIGKILL);
}

/* limit_over - the time limit came before the end
 * The worker's own stop, if it came first, has its own ladder; what it ends is
 * no failure of the handler.
 */
static void limit_over(struct timer *timer)
{
    struct running *r = CONTAINER_OF(timer, struct running, limit);
    struct handler *h = r->handler;
    uint64_t kill_after = h->set->kill_after_ns;

    pthread_mutex_lock(&h->mtx);
    r->late = h->signal == 0;
    pthread_mutex_unlock(&h->mtx);
    if (!r->late)
        return;
    process_group_signal(r->pid, SIGTERM);
    r->kill_at_ns = ns_add(clock_mono_ns(), kill_after);
    timer->fire = grace_over;
    timers_start(h->timers, timer, r->kill_at_ns);
    log_info("handler_timeout", F_STR("msg", r->id), F_INT("pid", r->pid),
             F_DURATION("limit", r->limit_ns),
             F_DURATION("kill_after", kill_after));
}

/* limit_passed - decides it: the time limit, or the end of the process? */
static bool limit_passed(struct running *r)
{
    if (r->limit_ns != UINT64_MAX)
        timers_cancel_sync(r->handler->timers, &r->limit);
    return r->late;
}

/* start - spawn and enter it among those that stop() reaches
 * posix_spawn runs outside the lock; a stop that came meanwhile is made up for
 * when the pid is entered.
 */
static int start(struct running *r, char *const env[], const int fds[3])
{
    struct handler *h = r->handler;
    int err;

    r->tick = process_tick();
    err = command_start(&h->command, &r->pid, env, fds);
    if (err)
        return err;
    if (process_tick() != r->tick)
        r->tick = process_start_time(r->pid);
    pthread_mutex_lock(&h->mtx);
    LIST_INSERT_HEAD(&h->running, r, link);
    if (h->signal)
        process_group_signal(r->pid, h->signal);
    pthread_mutex_unlock(&h->mtx);
    if (r->limit_ns != UINT64_MAX)
        timers_start_after(h->timers, &r->limit, r->limit_ns);
    return 0;
}

/* end_close - our copy of the end that the process writes to */
static void end_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* watch - read stderr until the process has ended */
static void watch(int pidfd, int err_fd, struct stderr_tail *t)
{
    struct pollfd fds[2] = {{.fd = pidfd, .events = POLLIN},
                            {.fd = err_fd, .events = POLLIN}};

    while (fds[0].revents == 0) {
        if (poll(fds, 2, -1) < 0)
            fds[0].revents = fds[1].revents = 0; /* EINTR */
        if (fds[1].revents && !stderr_tail_read(t, err_fd))
            fds[1].fd = -1;
    }
    /* What it wrote before it ended is in the pipe; what a grandchild goes on
     * writing is not waited for. */
    if (fds[1].fd >= 0)
        stderr_tail_drain(t, err_fd);
}

/* wait_for - how the process ended; WNOWAIT: it stays a zombie. That cannot be
 * told if somebody else took its status: then si_code is 0, si_errno why. */
static siginfo_t wait_for(pid_t pid, int flags)
{
    siginfo_t info = {0};
    int rc;

    do
        rc = waitid(P_PID, (id_t)pid, &info, WEXITED | flags);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        info = (siginfo_t){.si_errno = errno};
    return info;
}

/* leave - off the list, unless it was signalled: then it must be reached yet */
static bool leave(struct running *r, bool signalled, int *stop_signal)
{
    struct handler *h = r->handler;

    pthread_mutex_lock(&h->mtx);
    *stop_signal = h->signal;
    signalled = signalled || h->signal;
    if (!signalled)
        LIST_REMOVE(r, link);
    pthread_mutex_unlock(&h->mtx);
    return !signalled;
}

/* late_word - what it says after its time limit is dropped */
static void late_word(const struct running *r, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        log_info("handler_late", F_STR("msg", r->id),
                 F_INT("exit", info->si_status),
                 F_DURATION("limit", r->limit_ns));
}

/* end - the process has ended and is a zombie still; judge it, and leave
 * nothing of it where we ended it. It leaves the list before its number is
 * free. */
static void end(struct running *r, const struct delivery *d, int err_fd,
                struct stderr_tail *t, struct outcome *out)
{
    struct handler *h = r->handler;
    bool late = limit_passed(r);
    struct process_tree_of left = {.group = r->pid,
                                   .seq = d->message.seq,
                                   .kill_at_ns = r->kill_at_ns,
                                   .stderr_fd = err_fd,
                                   .tail = t};
    siginfo_t info;
    int sig;

    if (leave(r, late, &sig)) {
        info = wait_for(r->pid, 0);
        verdict_exit(out, h->set, &info, false);
        return;
    }
    info = wait_for(r->pid, WNOWAIT);
    if (late) {
        late_word(r, &info);
        verdict_timeout(out, r->limit_ns);
    } else {
        verdict_exit(out, h->set, &info, true);
        left.kill_at_ns = ns_add(h->signal_ns, h->set->kill_after_ns);
    }
    if (late || out->kind == OUTCOME_STOPPED || sig == SIGKILL)
        process_tree_end(h->remains, &left);
    pthread_mutex_lock(&h->mtx);
    LIST_REMOVE(r, link);
    pthread_mutex_unlock(&h->mtx);
    wait_for(r->pid, 0);
}

/* supervise - from the start to the verdict */
static void supervise(struct running *r, struct delivery *d,
                      struct stderr_tail *t, int err_pipe[2],
                      struct outcome *out)
{
    int pidfd = pidfd_open(r->pid, 0), err = errno, err_fd = err_pipe[0];

    /* Start time first: a group without it is not killed by recovery, which
     * finds it by its mark all the same. */
    FAULT_POINT("exec_before_name");
    d->message.ops->handler(&d->message, 0, r->tick);
    FAULT_POINT("exec_before_group");
    d->message.ops->handler_group(&d->message, r->pid);
    FAULT_POINT("exec_after_name");
    stderr_tail_init(t, delivery_id(d), r->handler->stderr_limit);
    if (pidfd >= 0) {
        watch(pidfd, err_fd, t);
        close(pidfd);
        end_close(&err_pipe[1]);
    } else {
        log_warn("handler_unwatched", F_STR("msg", delivery_id(d)),
                 F_STR("error", strerror(err)),
                 F_STR("next", denied_advice(err)));
        end_close(&err_pipe[1]);
        close(err_fd);
        err_fd = -1;
        wait_for(r->pid, WNOWAIT);
    }
    out->ran = true;
    end(r, d, err_fd, t, out);
    if (err_fd >= 0)
        close(err_fd);
    stderr_tail_end(t, out);
}

/* exec_run - one message, one process */
static void exec_run(struct handler *h, struct delivery *d, struct outcome *out)
{
    struct scratch *s = scratch_get();
    struct running r = {.pid = -1,
                        .handler = h,
                        .id = delivery_id(d),
                        .limit_ns = delivery_limit_ns(d, h->set->timeout_ns,
                                                      h->set->max_timeout_ns)};
    int err_pipe[2] = {-1, -1}, body, err;

    out->tail_size = 0;
    out->error[0] = '\0';
    out->ran = false;
    if (!s ||
        environment_build(&s->env, &h->base, d, h->set->max_attempts) < 0) {
        verdict_not_started(out, "out of memory");
        return;
    }
    body = body_file_open(d);
    if (body < 0 || pipe2(err_pipe, O_CLOEXEC) < 0) {
        verdict_not_started(out, "no descriptor for the handler: %s: %s",
                            body < 0 ? "memfd_create" : "pipe2",
                            strerror(body < 0 ? -body : errno));
        if (body >= 0)
            close(body);
        return;
    }
    fcntl(err_pipe[0], F_SETFL, O_NONBLOCK);
    timer_init(&r.limit, limit_over);
    err = start(&r, s->env.vars, (int[3]){body, -1, err_pipe[1]});
    close(body);
    if (err || err_pipe[1] >= FEW_FDS)
        end_close(&err_pipe[1]);
    if (err) {
        close(err_pipe[0]);
        verdict_cannot_start(out, h->set->command[0], err);
        return;
    }
    supervise(&r, d, &s->tail, err_pipe, out);
}

/* exec_stop - signal every group that runs */
static void exec_stop(struct handler *h, int sig)
{
    struct running *r;

    pthread_mutex_lock(&h->mtx);
    if (!h->signal)
        h->signal_ns = clock_mono_ns();
    h->signal = sig;
    LIST_FOREACH (r, &h->running, link)
        process_group_signal(r->pid, sig);
    pthread_mutex_unlock(&h->mtx);
    if (sig == SIGKILL)
        process_tree_hurry(h->remains);
}

const struct handler_ops handler_exec = {
    .name = "exec",
    .guess_ns = NS_PER_MS,
    .open = exec_open,
    .run = exec_run,
    .stop = exec_stop,
    .close = exec_close,
};
