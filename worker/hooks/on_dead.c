/* on_dead.c - --on-dead (see on_dead.h)
 *
 * If the worker is killed before the command has ended, or before hook_end, the
 * death is still noted in the source. The next worker kills what is left of the
 * command, and runs it again. So the command runs at least once for each death
 * whose letter is still there, and may run twice.
 */
#include "worker/hooks/on_dead.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/message/error_text.h"
#include "worker/config/settings.h"
#include "worker/process/environment.h"
#include "worker/process/leftovers.h"
#include "worker/process/process.h"
#include "worker/process/stderr_tail.h"
#include "worker/rules/delivery.h"
#include "worker/source/source.h"

#define SHELL    "/bin/sh"
#define LIMIT_NS (60 * NS_PER_S) /* without --timeout */
#define MARK     UINT64_MAX      /* instead of the sequence of a delivery */

/* ---- when a command that failed runs again ---- */

/* Double a wait, from the first up to the longest. */
static uint64_t wait_double(uint64_t wait_ns)
{
    uint64_t next = wait_ns ? 2 * wait_ns : HOOK_RETRY_FIRST_NS;

    return next < HOOK_RETRY_LAST_NS ? next : HOOK_RETRY_LAST_NS;
}

/* Return the index of a death, or `count` if it is not in the list. */
static size_t hook_retries_find(const struct hook_retries *r, int64_t n)
{
    size_t i = 0;

    while (i < r->count && r->all[i].n != n)
        i++;
    return i;
}

bool hook_retries_has(const struct hook_retries *r, int64_t n)
{
    return hook_retries_find(r, n) < r->count;
}

uint64_t hook_retries_postpone(struct hook_retries *r, int64_t n,
                               uint64_t now_ns)
{
    size_t i = hook_retries_find(r, n);
    struct hook_retry *one = &r->all[i];

    if (i == HOOK_RETRIES_MOST)
        return 0;
    if (i == r->count) {
        r->count++;
        *one = (struct hook_retry){.n = n};
    } else {
        r->pause_ns = wait_double(r->pause_ns);
        r->paused_until_ns = ns_add(now_ns, r->pause_ns);
    }
    one->wait_ns = wait_double(one->wait_ns);
    one->due_ns = ns_add(now_ns, one->wait_ns);
    return one->wait_ns;
}

void hook_retries_renumber(struct hook_retries *r, int64_t n, int64_t next)
{
    size_t i = hook_retries_find(r, n);

    if (i == r->count)
        return;
    if (next)
        r->all[i].n = next;
    else
        r->all[i] = r->all[--r->count];
}

void hook_retries_end(struct hook_retries *r, int64_t n)
{
    hook_retries_renumber(r, n, 0);
    r->pause_ns = r->paused_until_ns = 0;
}

int64_t hook_retries_first(const struct hook_retries *r, uint64_t *due_ns)
{
    const struct hook_retry *first = NULL;

    for (size_t i = 0; i < r->count; i++)
        if (!first || r->all[i].due_ns < first->due_ns)
            first = &r->all[i];
    *due_ns = !first                               ? UINT64_MAX
              : first->due_ns > r->paused_until_ns ? first->due_ns
                                                   : r->paused_until_ns;
    return first ? first->n : 0;
}

/* c = constant after open   a = atomic   t = the thread's */
struct on_dead {
    struct on_dead_setup with; /* c */
    pthread_t thread;          /* c */
    int wake;                  /* c  eventfd: a new death, or on_dead_close */
    atomic_bool fresh;         /* a  there may be a new death */
    atomic_bool stopping;      /* a  on_dead_close was called */
    struct environment_base base; /* c */

    struct hook_retries retries; /* t */
    uint64_t wait_ns;    /* t  wait of all deaths, because `retries` is full; 0:
                           * it has room */
    int64_t fresh_after; /* t  for each death up to this number, the command
                           * has succeeded or is in `retries` */
    bool retried_last;   /* t  the last command that ran was a retry */
    struct environment env;  /* t */
    struct stderr_tail tail; /* t */
    struct outcome out;      /* t  why the command failed, and its stderr */
};

/* ---- the command ----
 *
 * The command is a shell line, run by /bin/sh with the letter's JSON on stdin
 * and the environment that the handler had. After --timeout, or 60 s without
 * that flag, its process group is terminated. */

/* One run of the command. */
struct run {
    struct process process;
    int err_out; /* reading end of its stderr; -1: closed */
};

/* Start the command. */
static int hook_command_start(struct on_dead *h, struct run *r,
                              const struct source_hook *hook)
{
    static char shell[] = "sh", option[] = "-c";
    const struct settings *set = h->with.set;
    char *argv[] = {shell, option, (char *)set->on_dead, NULL};
    struct ulid id = hook->id;
    struct message m = {
        .data = hook->data,
        .size = hook->size,
        .id = &id,
        .seq = MARK,
        .received_ns = hook->received_ns,
        .priority = hook->priority,
        .failures = hook->failures > 0 ? hook->failures - 1 : 0,
        .crashes = hook->crashes,
        .flags = MESSAGE_STORED | (hook->redelivered ? MESSAGE_REDELIVERED : 0),
        .group = hook->group,
    };
    struct delivery d = {.place = 0};
    int fds[2], in, err;

    delivery_parse(&d, &m, '\0');
    err = environment_build(&h->env, &h->base, &d,
                            delivery_max_attempts(&d, set->max_attempts),
                            hook->letter);
    if (err)
        return err;
    in = memfd_create("mqworker-letter", MFD_CLOEXEC);
    err = in < 0 ? -errno : file_write(in, hook->json, hook->json_size, 0);
    if (!err && pipe2(fds, O_CLOEXEC) < 0)
        err = -errno;
    if (!err) {
        r->err_out = fds[0];
        err = process_start(&r->process, SHELL, argv, h->env.vars,
                            (int[]){in, -1, fds[1]}, 0);
        close(fds[1]);
    }
    fd_close(&in);
    return err;
}

/* Read the command's stderr until it has ended. Returns false if it has not
 * ended by `due_ns`, or, with `may_stop`, by the stop of the worker. */
static bool hook_command_watch(struct on_dead *h, struct run *r,
                               uint64_t due_ns, bool may_stop)
{
    struct pollfd fds[3] = {{.fd = r->process.end, .events = POLLIN},
                            {.fd = r->err_out, .events = POLLIN},
                            {.fd = may_stop ? h->wake : -1, .events = POLLIN}};

    for (;;) {
        int ms = clock_ms_until(due_ns);
        eventfd_t ignored;

        if (poll(fds, 3, ms) < 0)
            continue; /* EINTR, ENOMEM */
        if (fds[1].revents && !stderr_tail_read(&h->tail, r->err_out))
            fds[1].fd = -1;
        if (fds[0].revents)
            return true;
        /* Read the wake-up of a new death, which `fresh` notes, or of the stop.
         * The read comes before the look at `stopping`: otherwise it could take
         * the wake-up of a stop that began after the look. */
        if (fds[2].revents)
            (void)eventfd_read(h->wake, &ignored);
        if (ms == 0 || (may_stop && atomic_load(&h->stopping)))
            return false;
    }
}

/* Run the command for one death, and supervise it until it has ended. Returns
 * true if it succeeded; otherwise h->out.error has the reason. The command is
 * terminated when its time is over, and when it has not ended within
 * --kill-after of the worker's stop. */
static bool hook_command_run(struct on_dead *h, const struct source_hook *hook)
{
    const struct settings *set = h->with.set;
    uint64_t limit_ns =
        set->timeout_ns == UINT64_MAX ? LIMIT_NS : set->timeout_ns;
    uint64_t kill_after_ns = set->kill_after_ns, due_ns, grace_ns;
    struct run r = {.err_out = -1};
    char *error = h->out.error, text[ERRNO_LIMIT_TEXT], id[ULID_TEXT];
    size_t room = sizeof h->out.error;
    bool ended, succeeded = false;
    siginfo_t info;
    int err;

    h->out.tail_size = 0;
    FAULT_POINT("on_dead_before_run");
    due_ns = ns_add(clock_mono_ns(), limit_ns);
    err = hook_command_start(h, &r, hook);
    if (err) {
        snprintf(error, room, "cannot start: %s", errno_limit_text(-err, text));
    } else {
        FAULT_POINT("on_dead_running");
        stderr_tail_init(&h->tail, ulid_print(hook->id, id), 0,
                         h->with.stderr_limit);
        ended = hook_command_watch(h, &r, due_ns, true);
        if (!ended && atomic_load(&h->stopping)) {
            grace_ns = ns_add(clock_mono_ns(), kill_after_ns);
            ended = hook_command_watch(
                h, &r, grace_ns < due_ns ? grace_ns : due_ns, false);
        }
        if (!ended) {
            process_group_signal(r.process.pid, SIGTERM);
            (void)hook_command_watch(
                h, &r, ns_add(clock_mono_ns(), kill_after_ns), false);
            process_group_signal(r.process.pid, SIGKILL);
            (void)hook_command_watch(h, &r, UINT64_MAX, false);
        }
        fcntl(r.err_out, F_SETFL, O_NONBLOCK);
        stderr_tail_drain(&h->tail, r.err_out);
        stderr_tail_end(&h->tail, &h->out);
        info = process_wait(r.process.pid, 0, NULL);
        fd_close(&r.process.end);
        succeeded = ended && info.si_code == CLD_EXITED && info.si_status == 0;
        if (!ended && atomic_load(&h->stopping))
            snprintf(error, room, "the worker stopped");
        else if (!ended)
            snprintf(error, room, "timeout %s", duration_print(limit_ns, text));
        else if (!succeeded)
            snprintf(error, room, "%s %d",
                     info.si_code == CLD_EXITED ? "exit" : "signal",
                     info.si_status);
    }
    FAULT_POINT("on_dead_after_run");
    fd_close(&r.err_out);
    return succeeded;
}

/* ---- one death after the other ---- */

/* Wait until that monotonic time, or until the thread is woken. */
static void wake_wait(struct on_dead *h, uint64_t end_ns)
{
    struct pollfd fd = {.fd = h->wake, .events = POLLIN};
    eventfd_t ignored;

    if (poll(&fd, 1, clock_ms_until(end_ns)) > 0)
        (void)eventfd_read(h->wake, &ignored);
}

/* Wait for `wait_ns`, or until on_dead_close. */
static void stop_wait(struct on_dead *h, uint64_t wait_ns)
{
    uint64_t end_ns = ns_add(clock_mono_ns(), wait_ns);

    while (!atomic_load(&h->stopping) && clock_mono_ns() < end_ns)
        wake_wait(h, end_ns);
}

/* Wait before the next try to read or write the source, longer after each
 * failure. Logs the first failure. */
static void source_retry_wait(struct on_dead *h, int err, uint64_t *wait_ns)
{
    bool first = *wait_ns == 0;

    *wait_ns = wait_double(*wait_ns);
    if (first)
        log_error("on_dead_store", F_STR("queue", h->with.set->queue),
                  F_STR("error", errno_text(-err)), F_DURATION("in", *wait_ns),
                  F_STR("next", "check the disk of the store; the worker tries "
                                "again, and skips no letter"));
    stop_wait(h, *wait_ns);
}

/* Settle a run. Its result is durable before the next command is run. A run
 * that the stop of the worker interrupted is not settled. After a failure this
 * death waits; if `retries` has no room for it, all deaths wait. */
static void run_settle(struct on_dead *h, const struct source_hook *hook,
                       bool succeeded)
{
    struct source *source = h->with.source;
    char id[ULID_TEXT], text[ERROR_TEXT];
    uint64_t wait_ns = 0, in;
    int64_t next = 0;
    int err;

    if (succeeded) {
        h->wait_ns = 0;
    } else if (atomic_load(&h->stopping)) {
        return;
    } else {
        in = hook_retries_postpone(&h->retries, hook->n, clock_mono_ns());
        if (in == 0)
            in = h->wait_ns = wait_double(h->wait_ns);
        error_text(text, NULL, false, h->out.tail, h->out.tail_size);
        log_warn("on_dead_failed", F_STR("msg", ulid_print(hook->id, id)),
                 F_INT("letter", hook->letter), F_STR("error", h->out.error),
                 F_STR("error_text", text[0] ? text : NULL),
                 F_DURATION("in", in),
                 F_STR("next", "the command will run again for this letter, "
                               "and meanwhile for others; to end that, discard "
                               "the letter with mqdlq discard"));
    }
    while ((err = source->local->hook_end(source, hook->n, succeeded, &next)) !=
           0) {
        if (atomic_load(&h->stopping))
            return;
        source_retry_wait(h, err, &wait_ns);
    }
    if (succeeded)
        hook_retries_end(&h->retries, hook->n);
    else
        hook_retries_renumber(&h->retries, hook->n, next);
    h->with.failing(h->with.arg, h->retries.count, !succeeded);
}

static void hook_free(struct source_hook *hook)
{
    free(hook->json);
    free(hook->data);
}

/* Get the first death for which the command has not run yet. Returns -ENOENT if
 * there is none. */
static int fresh_next(struct on_dead *h, struct source_hook *hook)
{
    const struct source_local_ops *ops = h->with.source->local;
    int err;

    while ((err = ops->hook(h->with.source, h->fresh_after, hook)) == 0 &&
           hook_retries_has(&h->retries, hook->n)) {
        h->fresh_after = hook->n;
        hook_free(hook);
    }
    if (!err)
        h->retried_last = false;
    return err;
}

/* Get the first death whose wait for a retry is over. Returns -ENOENT if there
 * is none. A death whose letter was removed is forgotten. */
static int retry_next(struct on_dead *h, struct source_hook *hook)
{
    const struct source_local_ops *ops = h->with.source->local;
    uint64_t due_ns;
    int64_t n;

    while ((n = hook_retries_first(&h->retries, &due_ns)) != 0 &&
           due_ns <= clock_mono_ns()) {
        int err = ops->hook(h->with.source, n - 1, hook);

        h->retried_last = true;
        if (!err && hook->n == n)
            return 0;
        if (!err)
            hook_free(hook);
        else if (err != -ENOENT)
            return err;
        hook_retries_renumber(&h->retries, n, 0);
        h->with.failing(h->with.arg, h->retries.count, false);
    }
    return -ENOENT;
}

/* ---- the thread ---- */

/* Main function of the thread: run the command for each death, until the stop.
 */
static void *on_dead_main(void *arg)
{
    const struct stale_handler stale = {.mark = MARK};
    struct on_dead *h = arg;
    struct source *source = h->with.source;
    struct source_hook hook;
    uint64_t due_ns, wait_ns = 0;
    bool running = false; /* a death may be due now */
    int err = source->local->hook(source, 0, &hook), killed = 0;

    if (!err)
        hook_free(&hook);
    /* Kill what is left of a killed worker's command before running another.
     * Without a death in the source, no command was cut off. */
    if (err != -ENOENT)
        killed = stale_handlers_kill(source->nonce, &stale, 1);
    if (killed != 0)
        log_warn("on_dead_left", F_STR("queue", h->with.set->queue),
                 F_INT("processes", killed > 0 ? killed : 0),
                 F_STR("error", killed < 0 ? errno_text(-killed) : NULL),
                 F_STR("next", "a killed worker left its --on-dead command; it "
                               "is run again"));
    while (!atomic_load(&h->stopping)) {
        bool retry = !h->retried_last;

        (void)hook_retries_first(&h->retries, &due_ns);
        if (!running && !atomic_exchange(&h->fresh, false) &&
            clock_mono_ns() < due_ns) {
            wake_wait(h, due_ns);
            continue;
        }
        /* New deaths and retries take turns, so that neither keeps the other
         * waiting. */
        err = retry ? retry_next(h, &hook) : fresh_next(h, &hook);
        if (err == -ENOENT)
            err = retry ? fresh_next(h, &hook) : retry_next(h, &hook);
        running = err != -ENOENT;
        if (running && err) {
            source_retry_wait(h, err, &wait_ns);
            continue;
        }
        wait_ns = 0;
        if (!running)
            continue;
        run_settle(h, &hook, hook_command_run(h, &hook));
        if (!h->retried_last)
            h->fresh_after = hook.n;
        hook_free(&hook);
        if (h->wait_ns)
            stop_wait(h, h->wait_ns);
    }
    return NULL;
}

void on_dead_wake(struct on_dead *h)
{
    if (h && !atomic_exchange(&h->fresh, true))
        (void)eventfd_write(h->wake, 1);
}

/* Release everything, even after an open that failed halfway. */
static void on_dead_free(struct on_dead *h)
{
    fd_close(&h->wake);
    environment_close(&h->env);
    environment_base_close(&h->base);
    free(h);
}

int on_dead_open(struct on_dead **out, const struct on_dead_setup *setup,
                 struct problem *p)
{
    const struct settings *set = setup->set;
    struct on_dead *h = calloc(1, sizeof *h);
    sigset_t all, was;
    int err;

    *out = NULL;
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->with = *setup;
    h->wake = eventfd(0, EFD_CLOEXEC);
    err = h->wake < 0
              ? -errno
              : environment_base_open(&h->base, set->queue, set->max_attempts,
                                      setup->source->nonce);
    if (!err) {
        /* Block all signals: the loop handles them, and no signal handler may
         * run in a child before its execve (process.h). */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &was);
        err = -pthread_create(&h->thread, NULL, on_dead_main, h);
        pthread_sigmask(SIG_SETMASK, &was, NULL);
    }
    if (err) {
        on_dead_free(h);
        return problem_set(p, EX_OSERR, -err, "cannot run --on-dead: %s",
                           errno_text(-err));
    }
    *out = h;
    return 0;
}

void on_dead_close(struct on_dead **on_dead)
{
    struct on_dead *h = *on_dead;

    if (!h)
        return;
    atomic_store(&h->stopping, true);
    (void)eventfd_write(h->wake, 1);
    pthread_join(h->thread, NULL);
    *on_dead = NULL; /* not earlier: the thread may call on_dead_wake with it */
    on_dead_free(h);
}
