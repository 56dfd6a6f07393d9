/* handler_exec.c - a process for each message (see handler.h, docs/handlers.md)
 *
 * stdin is the body in a memory file, so there is no pipe to block on; stderr
 * is a pipe that is read here. The process is waited for, not the end of its
 * stderr: a grandchild may keep that open.
 *
 * The thread that waits for the process keeps its time limit as well, so that
 * one thread decides which came first: the end, and the exit status is the
 * verdict; or the limit, and the verdict is the timeout whatever the process
 * says. Then the thread ends all that is left of it (leftovers.h).
 *
 * A run that an operator cancels is signalled by the peeker, as at the worker's
 * stop: the end of the process wakes the thread that waits for it. Which came
 * first, the end or the order, is decided under the lock, by the descriptor of
 * the process. Crash before the verdict is durable: the message runs again, and
 * nobody was told that it was cancelled.
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
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/config/settings.h"
#include "worker/handlers/handler.h"
#include "worker/loop/timers.h"
#include "worker/process/process.h"
#include "worker/process/environment.h"
#include "worker/process/leftovers.h"
#include "worker/process/stderr_tail.h"
#include "worker/rules/verdict.h"

/* While we have the end that a process writes its stderr to as well, we are not
 * woken when it closes that, just before it ends: one thread switch less for
 * each process. It costs a descriptor; from this number on we save them. */
#define FEW_FDS 256

/* What a pool thread keeps for its runs. */
struct scratch {
    struct environment env;
    struct stderr_tail tail;
};
/* One that runs; on the stack of its pool thread.
 * m = under mtx   c = constant after its start */
struct running {
    LIST_ENTRY(running) link; /* m */
    struct process process;   /* c  not reaped while it is on the list: the
                               * number is ours */
    struct handler *handler;  /* c */
    const char *id;           /* c  of the message */
    uint64_t limit_ns;        /* c  UINT64_MAX: none */
    int body, out, err;       /* c  stdin; stderr, the end that is read and the
                               * one that is written; -1: closed */
    uint64_t cancelled_ns;    /* m  an operator had it ended; 0: no */
};

/* m = under mtx   c = constant after open   a = atomic */
struct handler {
    const struct settings *set;   /* c */
    struct environment_base base; /* c */
    struct command command;
    struct leftovers *leftovers;       /* c */
    struct stderr_limit *stderr_limit; /* c */
    pthread_mutex_t mtx;
    LIST_HEAD(, running) running; /* m */
    int signal;                   /* m  sent by stop; 0: none yet */
    uint64_t signal_ns;           /* m  when the first was */
    struct timers *timers;        /* c */
    struct timer kill;            /* of runs that were cancelled */
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
        panic("pthread_key_create: %s", errno_text(err));
}

/* This thread's own, made at its first run; NULL: no memory */
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

/* And again for those whose time is not over yet */
static void exec_kill_due(struct timer *timer)
{
    struct handler *h = CONTAINER_OF(timer, struct handler, kill);
    uint64_t now = clock_mono_ns(), next = UINT64_MAX;
    struct running *r;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (r, &h->running, link) {
        uint64_t at = ns_add(r->cancelled_ns, h->set->kill_after_ns);

        if (!r->cancelled_ns)
            continue;
        if (at <= now)
            process_group_signal(r->process.pid, SIGKILL);
        else if (at < next)
            next = at;
    }
    pthread_mutex_unlock(&h->mtx);
    if (next != UINT64_MAX)
        timers_start_earlier(h->timers, &h->kill, next);
}

static void exec_close(struct handler **handler)
{
    struct handler *h = *handler;

    if (!h)
        return;
    *handler = NULL;
    timers_cancel_sync(h->timers, &h->kill);
    leftovers_close(&h->leftovers);
    environment_base_close(&h->base);
    command_fini(&h->command);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int exec_check(const struct settings *set, struct problem *p)
{
    (void)set;
    return denied_check(true, p);
}

static int exec_open(struct handler **out, const struct handler_setup *setup,
                     struct problem *p)
{
    const struct settings *set = setup->settings;
    struct handler *h;
    int err;

    *out = NULL;
    h = calloc(1, sizeof *h);
    pthread_once(&scratch_once, scratch_key_make);
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->set = set;
    h->stderr_limit = setup->stderr_limit;
    pthread_mutex_init(&h->mtx, NULL);
    LIST_INIT(&h->running);
    h->timers = setup->timers;
    timer_init(&h->kill, exec_kill_due);
    command_init(&h->command, set->command, setup->nonce);
    err = environment_base_open(&h->base, set->queue, set->max_attempts,
                                setup->nonce);
    if (!err)
        err = leftovers_open(&h->leftovers, setup->nonce, setup->timers,
                             setup->loop);
    if (err) {
        exec_close(&h);
        return problem_set(p, EX_OSERR, -err, "cannot run handlers: %s",
                           errno_text(-err));
    }
    *out = h;
    return 0;
}

/* ---- descriptors ---- */

/* All of them by one call; false: it cannot be had
 * The thread sanitizer does not see that call: it would take the next file with
 * such a number for the same.
 */
static bool range_close(int first, int last)
{
#ifdef __SANITIZE_THREAD__
    (void)first, (void)last;
    return false;
#else
    return close_range((unsigned)first, (unsigned)last, 0) == 0;
#endif
}

/* Those that have consecutive numbers by one call
 * Such a range holds nothing else, as all of its numbers are ours.
 */
static void fds_close(const int *fds, size_t n)
{
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && fds[i] >= 0 && fds[k] == fds[k - 1] + 1; k++)
            ;
        if (k - i > 1 && range_close(fds[i], fds[k - 1]))
            continue;
        for (size_t each = i; each < k; each++)
            if (fds[each] >= 0)
                close(fds[each]);
    }
}

/* The body as a file in memory: a descriptor that is read from its
 * start, which may be mapped or read again; or -errno */
static int body_open(const struct delivery *d)
{
    int fd = memfd_create("mqworker-body", MFD_CLOEXEC), err;

    if (fd < 0)
        return -errno;
    /* The offset, which the child shares, stays at the start. */
    err = file_write(fd, d->body, d->body_size, 0);
    if (err)
        close(fd);
    return err ? err : fd;
}

/* For its stdin and stderr; `out` says why not */
static bool descriptors_open(struct running *r, const struct delivery *d,
                             struct outcome *out)
{
    char why[ERRNO_LIMIT_TEXT];
    int fds[2];

    r->body = body_open(d);
    if (r->body >= 0 && pipe2(fds, O_CLOEXEC) == 0) {
        r->out = fds[0];
        r->err = fds[1];
        return true;
    }
    verdict_not_started(out, "no descriptor for the handler: %s: %s",
                        r->body < 0 ? "memfd_create" : "pipe2",
                        errno_limit_text(r->body < 0 ? -r->body : errno, why));
    fds_close(&r->body, 1);
    return false;
}

/* ---- from the start to the end ---- */

/* And enter it among those that stop() reaches
 * The start is outside of the lock; a stop that came meanwhile is made up for
 * when the process is entered.
 */
static int run_start(struct running *r, char *const env[])
{
    struct handler *h = r->handler;
    int err = command_start(&h->command, &r->process, env,
                            (int[]){r->body, -1, r->err});

    if (err)
        return err;
    pthread_mutex_lock(&h->mtx);
    LIST_INSERT_HEAD(&h->running, r, link);
    if (h->signal)
        process_group_signal(r->process.pid, h->signal);
    pthread_mutex_unlock(&h->mtx);
    return 0;
}

/* What it wrote before it ended is in the pipe */
static void stderr_drain(const struct running *r, struct stderr_tail *t)
{
    fcntl(r->out, F_SETFL, O_NONBLOCK);
    stderr_tail_drain(t, r->out);
}

/* Read stderr until the process has ended; false: until `due_ns`
 * poll(2) looks at the descriptors in their order (do_poll in fs/select.c). So
 * what it tells of stderr is as it was after the end, and a process that wrote
 * nothing more costs no read. What a grandchild goes on writing is not waited
 * for.
 */
static bool run_watch(const struct running *r, struct stderr_tail *t,
                      uint64_t due_ns)
{
    struct pollfd fds[2] = {{.fd = r->process.end, .events = POLLIN},
                            {.fd = r->out, .events = POLLIN}};

    while (fds[0].revents == 0) {
        int ms = clock_ms_until(due_ns);

        if (poll(fds, 2, ms) < 0)
            fds[0].revents = fds[1].revents = 0; /* EINTR, ENOMEM */
        if (fds[1].revents && !stderr_tail_read(t, r->out))
            fds[1].fd = -1;
        if (ms == 0 && fds[0].revents == 0)
            return false;
    }
    if (fds[1].revents && fds[1].fd >= 0)
        stderr_drain(r, t);
    return true;
}

/* The time limit came before the end; false: it does not count
 * The worker's own stop and an operator, if they came first, have their own
 * ladder; what they end is no failure of the handler.
 */
static bool run_expire(const struct running *r)
{
    struct handler *h = r->handler;
    bool ends;

    pthread_mutex_lock(&h->mtx);
    ends = h->signal != 0 || r->cancelled_ns;
    pthread_mutex_unlock(&h->mtx);
    if (ends)
        return false;
    process_group_signal(r->process.pid, SIGTERM);
    log_info("handler_timeout", F_STR("msg", r->id),
             F_INT("pid", r->process.pid), F_DURATION("limit", r->limit_ns),
             F_DURATION("kill_after", h->set->kill_after_ns));
    return true;
}

/* How the process ended; WNOWAIT: it stays a zombie. That cannot be
 * told if somebody else took its status: then si_code is 0, si_errno why. */
static siginfo_t process_wait(pid_t pid, int flags)
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

/* What a run was signalled for. */
struct signalled {
    bool late;             /* its time limit */
    int stop;              /* the worker's stop, with this; 0: no */
    uint64_t cancelled_ns; /* as of the run */
};

/* Off the list, unless it was signalled: then it must be reached yet */
static bool run_leave(struct running *r, struct signalled *for_what)
{
    struct handler *h = r->handler;
    bool left;

    pthread_mutex_lock(&h->mtx);
    for_what->stop = h->signal;
    for_what->cancelled_ns = r->cancelled_ns;
    left = !for_what->late && !h->signal && !r->cancelled_ns;
    if (left)
        LIST_REMOVE(r, link);
    pthread_mutex_unlock(&h->mtx);
    return left;
}

/* What it says after its time limit is dropped */
static void late_word(const struct running *r, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED)
        log_info("handler_late", F_STR("msg", r->id),
                 F_INT("exit", info->si_status),
                 F_DURATION("limit", r->limit_ns));
}

/* It was sent a signal: judge it, and leave nothing of it where
 * we ended it. It leaves the list before its number is free. Until then one
 * that is late may be cancelled. */
static void end_signalled(struct running *r, uint64_t seq,
                          const struct signalled *for_what,
                          struct stderr_tail *t, struct outcome *out)
{
    struct handler *h = r->handler;
    pid_t pid = r->process.pid;
    uint64_t from = for_what->late           ? clock_mono_ns()
                    : for_what->cancelled_ns ? for_what->cancelled_ns
                                             : h->signal_ns;
    struct leftovers_of left = {.group = pid,
                                .end = for_what->late ? r->process.end : -1,
                                .seq = seq,
                                .kill_at_ns =
                                    ns_add(from, h->set->kill_after_ns),
                                .stderr_fd = r->out,
                                .tail = t};
    siginfo_t info;

    if (for_what->late) {
        leftovers_end(h->leftovers, &left);
        stderr_drain(r, t);
        info = process_wait(pid, WNOWAIT);
        late_word(r, &info);
        verdict_timeout(out, r->limit_ns);
    } else {
        info = process_wait(pid, WNOWAIT);
        verdict_exit(out, h->set->on_exit, &info, true);
        if (for_what->cancelled_ns || out->kind == OUTCOME_STOPPED ||
            for_what->stop == SIGKILL)
            leftovers_end(h->leftovers, &left);
    }
    pthread_mutex_lock(&h->mtx);
    LIST_REMOVE(r, link);
    if (r->cancelled_ns)
        verdict_cancelled(out);
    pthread_mutex_unlock(&h->mtx);
    process_wait(pid, 0);
}

/* From the start to the verdict */
static void run_supervise(struct running *r, struct delivery *d,
                          struct stderr_tail *t, struct outcome *out)
{
    uint64_t due_ns = r->limit_ns == UINT64_MAX
                          ? UINT64_MAX
                          : ns_add(clock_mono_ns(), r->limit_ns);
    struct signalled for_what = {.late = false};
    char why[COMMAND_WHY];
    siginfo_t info;

    /* Start time first: a group without it is not killed by recovery, which
     * finds it by its mark all the same. */
    FAULT_POINT("exec_before_name");
    d->message->ops->handler(d->message, 0, r->process.start);
    FAULT_POINT("exec_before_group");
    d->message->ops->handler_group(d->message, r->process.pid);
    FAULT_POINT("exec_after_name");
    stderr_tail_init(t, r->id, r->handler->stderr_limit);
    if (!run_watch(r, t, due_ns)) {
        for_what.late = run_expire(r);
        if (!for_what.late)
            run_watch(r, t, UINT64_MAX);
    }
    out->ran = true;
    if (run_leave(r, &for_what)) {
        info = process_wait(r->process.pid, 0);
        verdict_exit(out, r->handler->set->on_exit, &info, false);
        if (out->kind == OUTCOME_NOT_STARTED &&
            command_fault(&r->handler->command, why))
            verdict_not_started(out, "exit %d: %s", info.si_status, why);
    } else {
        end_signalled(r, d->message->seq, &for_what, t, out);
    }
    stderr_tail_end(t, out);
}

/* One message, one process */
static void exec_run(struct handler *h, struct delivery *d, struct outcome *out)
{
    struct scratch *s = scratch_get();
    struct running r = {.handler = h,
                        .id = delivery_id(d),
                        .limit_ns = delivery_limit_ns(d, h->set->timeout_ns)};
    char why[COMMAND_WHY];
    int err;

    out->tail_size = 0;
    out->said = false;
    out->error[0] = '\0';
    out->ran = false;
    if (!s ||
        environment_build(&s->env, &h->base, d,
                          delivery_max_attempts(d, h->set->max_attempts)) < 0) {
        verdict_not_started(out, "out of memory");
        return;
    }
    if (!descriptors_open(&r, d, out))
        return;
    err = run_start(&r, s->env.vars);
    if (err) {
        fds_close((int[]){r.body, r.out, r.err}, 3);
        verdict_not_started(out, "cannot start %s: %s", h->set->command[0],
                            command_why(&h->command, err, why));
        return;
    }
    if (r.err >= FEW_FDS) {
        fds_close((int[]){r.body, r.err}, 2);
        r.body = r.err = -1;
    }
    run_supervise(&r, d, &s->tail, out);
    fds_close((int[]){r.body, r.out, r.err, r.process.end}, 4);
}

/* Signal every group that runs */
static void exec_stop(struct handler *h, int sig)
{
    struct running *r;

    pthread_mutex_lock(&h->mtx);
    if (!h->signal)
        h->signal_ns = clock_mono_ns();
    h->signal = sig;
    LIST_FOREACH (r, &h->running, link)
        process_group_signal(r->process.pid, sig);
    pthread_mutex_unlock(&h->mtx);
    if (sig == SIGKILL)
        leftovers_hurry(h->leftovers);
}

/* ---- a run that an operator has ended ---- */

/* Before it is asked for; nobody has reaped it */
static bool has_ended(const struct running *r)
{
    struct pollfd end = {.fd = r->process.end, .events = POLLIN};

    return poll(&end, 1, 0) > 0;
}

/* Once for each run */
static bool exec_cancel(struct handler *h, const char *id)
{
    uint64_t now = clock_mono_ns();
    struct running *r;
    pid_t pid = 0;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (r, &h->running, link)
        if (strcmp(r->id, id) == 0)
            break;
    if (r && !r->cancelled_ns && has_ended(r))
        r = NULL;
    if (r && !r->cancelled_ns) {
        r->cancelled_ns = now;
        pid = r->process.pid;
        process_group_signal(pid, SIGTERM);
    }
    pthread_mutex_unlock(&h->mtx);
    if (pid) {
        log_info("handler_cancelled", F_STR("msg", id), F_INT("pid", pid),
                 F_DURATION("kill_after", h->set->kill_after_ns));
        timers_start_earlier(h->timers, &h->kill,
                             ns_add(now, h->set->kill_after_ns));
    }
    return r != NULL;
}

const struct handler_ops handler_exec = {
    .name = "exec",
    .guess_ns = NS_PER_MS,
    .check = exec_check,
    .open = exec_open,
    .run = exec_run,
    .stop = exec_stop,
    .cancel = exec_cancel,
    .close = exec_close,
};
