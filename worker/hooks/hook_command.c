/* hook_command.c - see hook_command.h */
#include "worker/hooks/hook_command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/problem.h"
#include "worker/config/settings.h"
#include "worker/process/process.h"
#include "worker/source/source.h"

#define SHELL    "/bin/sh"
#define LIMIT_NS (60 * NS_PER_S) /* without --timeout */

/* One run of the command. */
struct run {
    const struct source_hook *hook;
    struct process process;
    char id[ULID_TEXT];
    int in, err_out, err; /* -1: closed */
    uint64_t started_ns, limit_ns;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int hook_command_open(struct hook_command *c, const struct settings *set,
                      struct stderr_limit *limit, uint64_t nonce)
{
    *c = (struct hook_command){.set = set, .stderr_limit = limit};
    c->stop = eventfd(0, EFD_CLOEXEC);
    return c->stop < 0 ? -errno
                       : environment_base_open(&c->base, set->queue,
                                               set->max_attempts, nonce);
}

void hook_command_close(struct hook_command *c)
{
    close_fd(&c->stop);
    environment_close(&c->env);
    environment_base_close(&c->base);
}

void hook_command_stop(struct hook_command *c)
{
    const uint64_t one = 1;

    (void)!write(c->stop, &one, sizeof one);
}

/* Return whether hook_command_stop was called. */
static bool stops(const struct hook_command *c)
{
    struct pollfd fd = {.fd = c->stop, .events = POLLIN};

    return poll(&fd, 1, 0) > 0;
}

/* Make the environment of the letter, as its handler had it. */
static int environment_make(struct hook_command *c,
                            const struct source_hook *hook)
{
    struct ulid id = hook->id;
    struct message m = {
        .data = hook->data,
        .size = hook->size,
        .id = &id,
        .seq = HOOK_MARK,
        .received_ns = hook->received_ns,
        .priority = hook->priority,
        .failures = hook->failures > 0 ? hook->failures - 1 : 0,
        .crashes = hook->crashes,
        .flags = MESSAGE_STORED | (hook->redelivered ? MESSAGE_REDELIVERED : 0),
        .group = hook->group,
    };
    struct delivery d = {.place = 0};
    int err;

    delivery_parse(&d, &m, '\0');
    err = environment_build(&c->env, &c->base, &d,
                            delivery_max_attempts(&d, c->set->max_attempts));
    if (!err)
        environment_letter(&c->env, hook->letter);
    return err;
}

/* Start the command with the letter as a file on stdin. */
static int start(struct hook_command *c, struct run *r)
{
    static char shell[] = "sh", command[] = "-c";
    char *argv[] = {shell, command, (char *)c->set->on_dead, NULL};
    int fds[2], err = environment_make(c, r->hook);

    if (err)
        return err;
    r->in = memfd_create("mqworker-letter", MFD_CLOEXEC);
    if (r->in < 0)
        return -errno;
    err = file_write(r->in, r->hook->json, r->hook->json_size, 0);
    if (!err && pipe2(fds, O_CLOEXEC) < 0)
        err = -errno;
    if (err)
        return err;
    r->err_out = fds[0];
    r->err = fds[1];
    r->started_ns = clock_mono_ns();
    err = process_start(&r->process, SHELL, argv, c->env.vars,
                        (int[]){r->in, -1, r->err}, 0);
    close_fd(&r->in);
    close_fd(&r->err);
    return err;
}

/* Read its stderr until it has ended. False: `due_ns` came first, or, with
 * `wake`, the stop of the worker. */
static bool watch(struct hook_command *c, struct run *r, uint64_t due_ns,
                  int wake)
{
    struct pollfd fds[3] = {{.fd = r->process.end, .events = POLLIN},
                            {.fd = r->err_out, .events = POLLIN},
                            {.fd = wake, .events = POLLIN}};

    for (;;) {
        int ms = clock_ms_until(due_ns);

        if (poll(fds, 3, ms) < 0)
            continue; /* EINTR, ENOMEM */
        if (fds[1].revents && !stderr_tail_read(&c->tail, r->err_out))
            fds[1].fd = -1;
        if (fds[0].revents)
            return true;
        if (fds[2].revents || ms == 0)
            return false;
    }
}

/* Supervise the command until it has ended; false: it was ended, being over its
 * limit, or because the worker stops. What is left of its process group after
 * that is killed. */
static bool supervise(struct hook_command *c, struct run *r)
{
    uint64_t due_ns = ns_add(r->started_ns, r->limit_ns);
    bool ended;

    stderr_tail_init(&c->tail, r->id, c->stderr_limit);
    ended = watch(c, r, due_ns, c->stop);
    if (!ended && stops(c)) {
        uint64_t grace_ns = ns_add(clock_mono_ns(), c->set->kill_after_ns);

        ended = watch(c, r, grace_ns < due_ns ? grace_ns : due_ns, -1);
    }
    if (!ended) {
        process_group_signal(r->process.pid, SIGTERM);
        (void)watch(c, r, ns_add(clock_mono_ns(), c->set->kill_after_ns), -1);
        process_group_signal(r->process.pid, SIGKILL);
        (void)watch(c, r, UINT64_MAX, -1);
    }
    fcntl(r->err_out, F_SETFL, O_NONBLOCK);
    stderr_tail_drain(&c->tail, r->err_out);
    stderr_tail_end(&c->tail, &c->out);
    return ended;
}

/* Return whether it told; else c->out.error says why not. */
static bool judge(struct hook_command *c, const struct run *r, bool ended)
{
    char limit[DURATION_TEXT];
    siginfo_t info = {0};

    while (waitid(P_PID, (id_t)r->process.pid, &info, WEXITED) < 0 &&
           errno == EINTR)
        ;
    if (!ended && stops(c))
        snprintf(c->out.error, sizeof c->out.error, "the worker stopped");
    else if (!ended)
        snprintf(c->out.error, sizeof c->out.error, "timeout %s",
                 duration_print(r->limit_ns, limit));
    else if (info.si_code != CLD_EXITED || info.si_status != 0)
        snprintf(c->out.error, sizeof c->out.error, "%s %d",
                 info.si_code == CLD_EXITED ? "exit" : "signal",
                 info.si_status);
    else
        return true;
    return false;
}

bool hook_command_run(struct hook_command *c, const struct source_hook *hook)
{
    uint64_t limit = c->set->timeout_ns;
    struct run r = {.hook = hook,
                    .in = -1,
                    .err_out = -1,
                    .err = -1,
                    .process.end = -1,
                    .limit_ns = limit == UINT64_MAX ? LIMIT_NS : limit};
    char why[ERRNO_LIMIT_TEXT];
    bool told = false;
    int err;

    ulid_print(hook->id, r.id);
    c->out.tail_size = 0;
    FAULT_POINT("on_dead_before_run");
    err = start(c, &r);
    if (err) {
        snprintf(c->out.error, sizeof c->out.error, "cannot start: %s",
                 errno_limit_text(-err, why));
    } else {
        FAULT_POINT("on_dead_running");
        told = judge(c, &r, supervise(c, &r));
        close_fd(&r.process.end);
    }
    FAULT_POINT("on_dead_after_run");
    close_fd(&r.in);
    close_fd(&r.err_out);
    return told;
}
