/* handler_exec.c - a process for each message (see handler.h, docs/handlers.md)
 *
 * stdin is the body in a memory file, so there is no pipe that could block;
 * stderr is a pipe that is read here. The thread waits for the process to exit,
 * not for the end of its stderr, because a grandchild may keep that open.
 *
 * The same thread keeps the time limit, so that one thread decides which came
 * first. If it was the exit, the exit status is the verdict. If it was the
 * limit, the verdict is the timeout, whatever the exit status, and the thread
 * terminates everything that is left of the process (leftovers.h).
 *
 * When an operator cancels a run, the peeker thread signals its process, as it
 * does when the worker stops. The exit of the process wakes the thread that
 * waits for it. The lock and the descriptor of the process decide whether the
 * exit or the order came first. If the worker is killed before the verdict is
 * durable, the message runs again; its cancellation has not been reported to
 * anybody.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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

/* Descriptor number from which the worker closes its copy of the writing end of
 * the stderr pipe. While the worker keeps the copy, a process that closes its
 * stderr just before it exits does not wake the thread, which saves one thread
 * switch for each process and costs one descriptor. */
#define FEW_FDS 256

/* A run; on the stack of its pool thread.
 * m = under mtx   c = constant after its start */
struct running {
    LIST_ENTRY(running) link; /* m */
    struct process process;   /* c  not reaped while it is on the list, so that
                               * its number is not used again */
    struct handler *handler;  /* c */
    const char *id;           /* c  of the message */
    struct stderr_tail *tail; /* c */
    uint64_t limit_ns;        /* c  UINT64_MAX: none */
    int body, out, err;       /* c  stdin; the reading and the writing end of
                               * stderr; -1: closed */
    uint64_t cancelled_ns;    /* m  time of an operator's order; 0: none */
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
    uint64_t signal_ns;           /* m  time of the first signal */
    struct timers *timers;        /* c */
    struct timer kill;            /* fires when a cancelled run gets SIGKILL */
};

/* Kill cancelled runs for which --kill-after is over, and start the timer again
 * for the others. */
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
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int exec_open(struct handler **out, const struct handler_setup *setup,
                     struct problem *p)
{
    const struct settings *set = setup->settings;
    struct handler *h;
    int err;

    *out = NULL;
    h = calloc(1, sizeof *h);
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

/* ---- from the start to the end ---- */

/* Read what the process wrote to stderr before it ended. */
static void stderr_drain(const struct running *r, struct stderr_tail *t)
{
    fcntl(r->out, F_SETFL, O_NONBLOCK);
    stderr_tail_drain(t, r->out);
}

/* Read stderr until the process has ended. Returns false if `due_ns` comes
 * first. poll(2) checks the descriptors in their order (do_poll in
 * fs/select.c): when it reports the end, it has checked stderr after the end,
 * so a process that wrote nothing more costs no read. Bytes that a grandchild
 * writes later are not waited for. */
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

/* The reasons why a run was signalled. */
struct signalled {
    bool late;             /* its time limit has passed */
    int stop;              /* signal of the worker's stop; 0: none */
    uint64_t cancelled_ns; /* copied from the run */
};

/* Decide the outcome of a run that was sent a signal. If it ended because of
 * that, also terminate what is left of it. The run leaves the list before its
 * process number can be used again. Until then, an operator may still cancel a
 * run whose time limit has passed. */
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
        info = process_wait(pid, WNOWAIT, NULL);
        if (info.si_code == CLD_EXITED) /* its verdict came too late */
            log_info("handler_late", F_STR("msg", r->id),
                     F_INT("exit", info.si_status),
                     F_DURATION("limit", r->limit_ns));
        verdict_timeout(out, r->limit_ns);
    } else {
        info = process_wait(pid, WNOWAIT, NULL);
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
    process_wait(pid, 0, &out->usage);
}

/* Name the started process in the message's slot, watch it, and fill in the
 * outcome. */
static void run_supervise(struct running *r, struct delivery *d,
                          struct outcome *out)
{
    struct handler *h = r->handler;
    uint64_t due_ns = r->limit_ns == UINT64_MAX
                          ? UINT64_MAX
                          : ns_add(clock_mono_ns(), r->limit_ns);
    struct signalled for_what = {.late = false};
    char why[COMMAND_WHY];
    siginfo_t info;
    bool signalled;

    FAULT_POINT("exec_before_name");
    d->message->ops->handler(d->message, 0, r->process.start, r->process.pid);
    FAULT_POINT("exec_after_name");
    if (!run_watch(r, r->tail, due_ns)) {
        /* The time limit does not count once the worker stops or an operator
         * has cancelled the run. Both have time limits of their own, and
         * neither is a failure of the handler. */
        pthread_mutex_lock(&h->mtx);
        for_what.late = !h->signal && !r->cancelled_ns;
        pthread_mutex_unlock(&h->mtx);
        if (for_what.late) {
            process_group_signal(r->process.pid, SIGTERM);
            log_info("handler_timeout", F_STR("msg", r->id),
                     F_INT("pid", r->process.pid),
                     F_DURATION("limit", r->limit_ns),
                     F_DURATION("kill_after", h->set->kill_after_ns));
        } else {
            run_watch(r, r->tail, UINT64_MAX);
        }
    }
    out->ran = true;
    /* A run that was signalled stays on the list, so that further signals reach
     * it, until its last process has exited. */
    pthread_mutex_lock(&h->mtx);
    for_what.stop = h->signal;
    for_what.cancelled_ns = r->cancelled_ns;
    signalled = for_what.late || h->signal || r->cancelled_ns;
    if (!signalled)
        LIST_REMOVE(r, link);
    pthread_mutex_unlock(&h->mtx);
    if (signalled) {
        end_signalled(r, d->message->seq, &for_what, r->tail, out);
    } else {
        info = process_wait(r->process.pid, 0, &out->usage);
        verdict_exit(out, h->set->on_exit, &info, false);
        if (out->kind == OUTCOME_NOT_STARTED && command_fault(&h->command, why))
            verdict_not_started(out, "exit %d: %s", info.si_status, why);
    }
    if (out->verdict != MQW_DONE) /* its usage goes into the history */
        process_peak_check(&out->usage);
    stderr_tail_end(r->tail, out);
}

static void exec_run(struct handler *h, struct delivery *d, struct outcome *out)
{
    struct environment env = {.vars = NULL};
    struct stderr_tail tail;
    struct running r = {.tail = &tail,
                        .handler = h,
                        .id = delivery_id(d),
                        .limit_ns = delivery_limit_ns(d, h->set->timeout_ns)};
    const char *call = "memfd_create";
    char why[COMMAND_WHY];
    int fds[2], err;

    outcome_begin(out);
    out->ran = false;
    out->usage = (struct usage){0};
    if (environment_build(&env, &h->base, d,
                          delivery_max_attempts(d, h->set->max_attempts),
                          0) < 0) {
        verdict_not_started(out, "out of memory");
        return;
    }
    /* stdin is the body as a file in memory, which may be mapped or read again.
     * The child shares its offset, which stays at the start. */
    r.body = memfd_create("mqworker-body", MFD_CLOEXEC);
    err = r.body < 0 ? -errno : file_write(r.body, d->body, d->body_size, 0);
    if (!err) {
        call = "pipe2";
        err = pipe2(fds, O_CLOEXEC) < 0 ? -errno : 0;
    }
    if (err) {
        verdict_not_started(out, "no descriptor for the handler: %s: %s", call,
                            errno_limit_text(-err, why));
        fd_close(&r.body);
        environment_close(&env);
        return;
    }
    r.out = fds[0];
    r.err = fds[1];
    err = command_start(&h->command, &r.process, env.vars,
                        (int[]){r.body, -1, r.err});
    environment_close(&env);
    if (err) {
        fd_close(&r.body);
        fd_close(&r.out);
        fd_close(&r.err);
        verdict_not_started(out, "cannot start %s: %s", h->set->command[0],
                            command_why(&h->command, err, why));
        return;
    }
    stderr_tail_init(&tail, r.id, 0, h->stderr_limit);
    /* No lock is held during the start, so a stop may have come meanwhile,
     * whose signal this process has missed. */
    pthread_mutex_lock(&h->mtx);
    LIST_INSERT_HEAD(&h->running, &r, link);
    if (h->signal)
        process_group_signal(r.process.pid, h->signal);
    pthread_mutex_unlock(&h->mtx);
    if (r.err >= FEW_FDS) {
        fd_close(&r.body);
        fd_close(&r.err);
    }
    run_supervise(&r, d, out);
    fd_close(&r.body);
    fd_close(&r.out);
    fd_close(&r.err);
    fd_close(&r.process.end);
}

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

/* Send SIGTERM to a run, once, unless its process has already ended. */
static bool exec_cancel(struct handler *h, const char *id)
{
    struct pollfd end = {.events = POLLIN};
    uint64_t now = clock_mono_ns();
    struct running *r;
    pid_t pid = 0;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (r, &h->running, link)
        if (strcmp(r->id, id) == 0)
            break;
    if (r && !r->cancelled_ns) {
        end.fd = r->process.end; /* on the list, so not reaped yet */
        if (poll(&end, 1, 0) > 0) {
            r = NULL;
        } else {
            r->cancelled_ns = now;
            pid = r->process.pid;
            process_group_signal(pid, SIGTERM);
        }
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

static bool exec_last_stderr(struct handler *h, const char *id,
                             char text[ERROR_TEXT])
{
    struct running *r;
    bool has = false;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (r, &h->running, link)
        has = has || stderr_tail_last(r->tail, id, text);
    pthread_mutex_unlock(&h->mtx);
    return has;
}

const struct handler_ops handler_exec = {
    .name = "exec",
    .guess_ns = NS_PER_MS,
    .check = denied_check,
    .open = exec_open,
    .run = exec_run,
    .stop = exec_stop,
    .cancel = exec_cancel,
    .last_stderr = exec_last_stderr,
    .close = exec_close,
};
