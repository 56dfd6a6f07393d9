/* on_dead.c - --on-dead (see on_dead.h)
 *
 * Crash before the command ends: its death is noted in the source still, and
 * the next worker ends what is left of it, and runs it again. Crash between its
 * end and hook_end: likewise. After hook_end: it was told, once at least.
 */
#include "worker/hooks/on_dead.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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
#define MARK     UINT64_MAX      /* where a delivery has its sequence */

/* ---- when a command that failed runs again ---- */

/* Double a wait. */
static uint64_t wait_double(uint64_t wait_ns)
{
    uint64_t next = wait_ns ? 2 * wait_ns : UNTOLD_FIRST_NS;

    return next < UNTOLD_LAST_NS ? next : UNTOLD_LAST_NS;
}

/* Return the place of a death; count: it has none. */
static size_t untold_find(const struct untold *u, int64_t n)
{
    size_t i = 0;

    while (i < u->count && u->all[i].n != n)
        i++;
    return i;
}

bool untold_has(const struct untold *u, int64_t n)
{
    return untold_find(u, n) < u->count;
}

uint64_t untold_failed(struct untold *u, int64_t n, uint64_t now_ns)
{
    size_t i = untold_find(u, n);
    struct untold_one *one = &u->all[i];

    if (i == UNTOLD_MOST)
        return 0;
    if (i == u->count) {
        u->count++;
        *one = (struct untold_one){.n = n};
    } else {
        u->pause_ns = wait_double(u->pause_ns);
        u->paused_until_ns = ns_add(now_ns, u->pause_ns);
    }
    one->wait_ns = wait_double(one->wait_ns);
    one->due_ns = ns_add(now_ns, one->wait_ns);
    return one->wait_ns;
}

void untold_moved(struct untold *u, int64_t n, int64_t next)
{
    size_t i = untold_find(u, n);

    if (i == u->count)
        return;
    if (next)
        u->all[i].n = next;
    else
        u->all[i] = u->all[--u->count];
}

void untold_told(struct untold *u, int64_t n)
{
    untold_moved(u, n, 0);
    u->pause_ns = u->paused_until_ns = 0;
}

int64_t untold_first(const struct untold *u, uint64_t *due_ns)
{
    const struct untold_one *first = NULL;

    for (size_t i = 0; i < u->count; i++)
        if (!first || u->all[i].due_ns < first->due_ns)
            first = &u->all[i];
    *due_ns = !first                               ? UINT64_MAX
              : first->due_ns > u->paused_until_ns ? first->due_ns
                                                   : u->paused_until_ns;
    return first ? first->n : 0;
}

/* ---- the command ----
 *
 * /bin/sh with the letter's JSON on stdin and its handler's environment,
 * supervised until it has ended: --timeout (60 s without), and what is left of
 * its process group then ends with it. */

/* c = constant after open   r = the run's */
struct hook_command {
    const struct settings *set;        /* c */
    struct stderr_limit *stderr_limit; /* c */
    int stop;                          /* c  eventfd: readable once it stops */
    struct environment_base base;      /* c */
    struct environment env;            /* r */
    struct stderr_tail tail;           /* r */
    struct outcome out;                /* r  why it did not tell, its stderr */
};

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

/* Prepare to run the command; -errno. */
static int hook_command_open(struct hook_command *c, const struct settings *set,
                             struct stderr_limit *limit, uint64_t nonce)
{
    *c = (struct hook_command){.set = set, .stderr_limit = limit};
    c->stop = eventfd(0, EFD_CLOEXEC);
    return c->stop < 0 ? -errno
                       : environment_base_open(&c->base, set->queue,
                                               set->max_attempts, nonce);
}

/* Release what it has, also if hook_command_open failed. */
static void hook_command_close(struct hook_command *c)
{
    close_fd(&c->stop);
    environment_close(&c->env);
    environment_base_close(&c->base);
}

/* Stop, from any thread: a command that runs may finish within --kill-after,
 * gets SIGTERM, and, that much later, SIGKILL. */
static void hook_command_stop(struct hook_command *c)
{
    const uint64_t one = 1;

    (void)!write(c->stop, &one, sizeof one);
}

/* Return whether hook_command_stop was called. */
static bool hook_command_stops(const struct hook_command *c)
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
        .seq = MARK,
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
static int hook_command_start(struct hook_command *c, struct run *r)
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
static bool hook_command_watch(struct hook_command *c, struct run *r,
                               uint64_t due_ns, int wake)
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
static bool hook_command_supervise(struct hook_command *c, struct run *r)
{
    uint64_t due_ns = ns_add(r->started_ns, r->limit_ns);
    bool ended;

    stderr_tail_init(&c->tail, r->id, 0, c->stderr_limit);
    ended = hook_command_watch(c, r, due_ns, c->stop);
    if (!ended && hook_command_stops(c)) {
        uint64_t grace_ns = ns_add(clock_mono_ns(), c->set->kill_after_ns);

        ended =
            hook_command_watch(c, r, grace_ns < due_ns ? grace_ns : due_ns, -1);
    }
    if (!ended) {
        process_group_signal(r->process.pid, SIGTERM);
        (void)hook_command_watch(
            c, r, ns_add(clock_mono_ns(), c->set->kill_after_ns), -1);
        process_group_signal(r->process.pid, SIGKILL);
        (void)hook_command_watch(c, r, UINT64_MAX, -1);
    }
    fcntl(r->err_out, F_SETFL, O_NONBLOCK);
    stderr_tail_drain(&c->tail, r->err_out);
    stderr_tail_end(&c->tail, &c->out);
    return ended;
}

/* Return whether it told; else c->out.error says why not. */
static bool hook_command_judge(struct hook_command *c, const struct run *r,
                               bool ended)
{
    char limit[DURATION_TEXT];
    siginfo_t info = {0};

    while (waitid(P_PID, (id_t)r->process.pid, &info, WEXITED) < 0 &&
           errno == EINTR)
        ;
    if (!ended && hook_command_stops(c))
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

/* Run the command for one death. Return whether it told; else c->out.error says
 * why not. */
static bool hook_command_run(struct hook_command *c,
                             const struct source_hook *hook)
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
    err = hook_command_start(c, &r);
    if (err) {
        snprintf(c->out.error, sizeof c->out.error, "cannot start: %s",
                 errno_limit_text(-err, why));
    } else {
        FAULT_POINT("on_dead_running");
        told = hook_command_judge(c, &r, hook_command_supervise(c, &r));
        close_fd(&r.process.end);
    }
    FAULT_POINT("on_dead_after_run");
    close_fd(&r.in);
    close_fd(&r.err_out);
    return told;
}

/* ---- the thread ---- */

/* m = under mtx   c = constant after open   t = the thread's */
struct on_dead {
    struct on_dead_setup with; /* c */
    pthread_t thread;          /* c */
    pthread_mutex_t mtx;
    pthread_cond_t more;  /* m  asked, or stops; on the monotonic clock */
    bool asked;           /* m */
    bool stops;           /* m */
    uint64_t wait_ns;     /* t  before anything is tried; 0: untold has room */
    int64_t fresh_after;  /* t  up to this n each was told, or is in untold */
    bool again_last;      /* t  the last one that ran had run before */
    struct untold untold; /* t */
    struct hook_command command; /* t */
};

/* Return whether on_dead_close was called. */
static bool stops(struct on_dead *h)
{
    bool is;

    pthread_mutex_lock(&h->mtx);
    is = h->stops;
    pthread_mutex_unlock(&h->mtx);
    return is;
}

/* ---- one after the other ---- */

/* Wait until that monotonic time, or until somebody signals `more`. */
static void wait_locked(struct on_dead *h, uint64_t end_ns)
{
    const struct timespec end = {.tv_sec = (time_t)(end_ns / NS_PER_S),
                                 .tv_nsec = (long)(end_ns % NS_PER_S)};

    if (end_ns == UINT64_MAX)
        pthread_cond_wait(&h->more, &h->mtx);
    else
        pthread_cond_timedwait(&h->more, &h->mtx, &end);
}

/* Wait that long, or until the worker stops. */
static void nap(struct on_dead *h, uint64_t wait_ns)
{
    uint64_t end_ns = ns_add(clock_mono_ns(), wait_ns);

    pthread_mutex_lock(&h->mtx);
    while (!h->stops && clock_mono_ns() < end_ns)
        wait_locked(h, end_ns);
    pthread_mutex_unlock(&h->mtx);
}

/* Wait, longer each time, before the source is tried again, which could not be
 * read or written. */
static void store_trouble(struct on_dead *h, int err, uint64_t *wait_ns)
{
    bool first = *wait_ns == 0;

    *wait_ns = wait_double(*wait_ns);
    if (first)
        log_error("on_dead_store", F_STR("queue", h->with.set->queue),
                  F_STR("error", errno_text(-err)), F_DURATION("in", *wait_ns),
                  F_STR("next", "look at the disk of the store; it is tried "
                                "again, and no letter is left out"));
    nap(h, *wait_ns);
}

/* Note that the command failed for a death, which waits by itself. A death that
 * cannot be noted, as so many others failed, makes all wait. */
static void failed(struct on_dead *h, const struct source_hook *hook)
{
    uint64_t in = untold_failed(&h->untold, hook->n, clock_mono_ns());
    char id[ULID_TEXT], text[ERROR_TEXT];

    if (in == 0)
        in = h->wait_ns = wait_double(h->wait_ns);
    error_text(text, NULL, false, h->command.out.tail,
               h->command.out.tail_size);
    log_warn("on_dead_failed", F_STR("msg", ulid_print(hook->id, id)),
             F_INT("letter", hook->letter),
             F_STR("error", h->command.out.error),
             F_STR("error_text", text[0] ? text : NULL), F_DURATION("in", in),
             F_STR("next", "it is run again, and for other letters meanwhile; "
                           "mqdlq discard ends that"));
}

/* Settle a run: its end is durable before anything else is run. A run that the
 * stop of the worker cut off stays as it is. */
static void settle(struct on_dead *h, const struct source_hook *hook, bool told)
{
    uint64_t wait_ns = 0;
    int64_t next = 0;
    int err;

    if (told)
        h->wait_ns = 0;
    else if (stops(h))
        return;
    else
        failed(h, hook);
    while ((err = h->with.source->local->hook_end(h->with.source, hook->n, told,
                                                  &next)) != 0) {
        if (stops(h))
            return;
        store_trouble(h, err, &wait_ns);
    }
    if (told)
        untold_told(&h->untold, hook->n);
    else
        untold_moved(&h->untold, hook->n, next);
    h->with.failing(h->with.arg, h->untold.count, !told);
}

static void hook_free(struct source_hook *hook)
{
    free(hook->json);
    free(hook->data);
}

/* Find the first death that has not been tried: -ENOENT, or trouble. */
static int fresh_next(struct on_dead *h, struct source_hook *hook)
{
    const struct source_local_ops *ops = h->with.source->local;
    int err;

    while ((err = ops->hook(h->with.source, h->fresh_after, hook)) == 0 &&
           untold_has(&h->untold, hook->n)) {
        h->fresh_after = hook->n;
        hook_free(hook);
    }
    if (!err)
        h->again_last = false;
    return err;
}

/* Find the first death whose wait is over. A death whose letter is gone
 * meanwhile is forgotten. */
static int again_next(struct on_dead *h, struct source_hook *hook)
{
    const struct source_local_ops *ops = h->with.source->local;
    uint64_t due_ns;
    int64_t n;

    while ((n = untold_first(&h->untold, &due_ns)) != 0 &&
           due_ns <= clock_mono_ns()) {
        int err = ops->hook(h->with.source, n - 1, hook);

        h->again_last = true;
        if (!err && hook->n == n)
            return 0;
        if (!err)
            hook_free(hook);
        else if (err != -ENOENT)
            return err;
        untold_moved(&h->untold, n, 0);
        h->with.failing(h->with.arg, h->untold.count, false);
    }
    return -ENOENT;
}

/* Find what to run: a fresh death, and one that runs again, in turn, so that
 * neither keeps the other waiting. */
static int hook_next(struct on_dead *h, struct source_hook *hook)
{
    bool again = !h->again_last;
    int err = again ? again_next(h, hook) : fresh_next(h, hook);

    if (err == -ENOENT)
        err = again ? fresh_next(h, hook) : again_next(h, hook);
    return err;
}

/* Run the command for all that can be told now. */
static void work(struct on_dead *h)
{
    struct source_hook hook;
    uint64_t wait_ns = 0;

    while (!stops(h)) {
        int err = hook_next(h, &hook);

        if (err == -ENOENT)
            return;
        if (err) {
            store_trouble(h, err, &wait_ns);
            continue;
        }
        wait_ns = 0;
        settle(h, &hook, hook_command_run(&h->command, &hook));
        if (!h->again_last)
            h->fresh_after = hook.n;
        hook_free(&hook);
        if (h->wait_ns)
            nap(h, h->wait_ns);
    }
}

/* End what is left of a killed worker's command before another is run. */
static void leftovers_kill(struct on_dead *h)
{
    const struct stale_handler stale = {.mark = MARK};
    struct source_hook hook;
    int err = h->with.source->local->hook(h->with.source, 0, &hook), killed;

    if (err == -ENOENT)
        return; /* nothing was cut off */
    if (!err)
        hook_free(&hook);
    killed = stale_handlers_kill(h->with.source->nonce, &stale, 1);
    if (killed != 0)
        log_warn("on_dead_left", F_STR("queue", h->with.set->queue),
                 F_INT("processes", killed > 0 ? killed : 0),
                 F_STR("error", killed < 0 ? errno_text(-killed) : NULL),
                 F_STR("next", "a killed worker left its --on-dead command; it "
                               "is run again"));
}

static void *thread(void *arg)
{
    struct on_dead *h = arg;
    uint64_t due_ns;

    leftovers_kill(h);
    pthread_mutex_lock(&h->mtx);
    while (!h->stops) {
        (void)untold_first(&h->untold, &due_ns);
        if (!h->asked && clock_mono_ns() < due_ns) {
            wait_locked(h, due_ns);
            continue;
        }
        h->asked = false;
        pthread_mutex_unlock(&h->mtx);
        work(h);
        pthread_mutex_lock(&h->mtx);
    }
    pthread_mutex_unlock(&h->mtx);
    return NULL;
}

void on_dead_wake(struct on_dead *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->mtx);
    h->asked = true;
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->mtx);
}

/* Start the thread with all signals blocked: they are the loop's, and none may
 * run in a child before it execs (process.h). */
static int thread_start(struct on_dead *h)
{
    sigset_t all, was;
    int err;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    err = pthread_create(&h->thread, NULL, thread, h);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return -err;
}

static void release(struct on_dead *h)
{
    hook_command_close(&h->command);
    pthread_cond_destroy(&h->more);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

int on_dead_open(struct on_dead **out, const struct on_dead_setup *setup,
                 struct problem *p)
{
    struct on_dead *h = calloc(1, sizeof *h);
    pthread_condattr_t attr;
    int err;

    *out = NULL;
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    h->with = *setup;
    pthread_mutex_init(&h->mtx, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->more, &attr);
    pthread_condattr_destroy(&attr);
    err = hook_command_open(&h->command, setup->set, setup->stderr_limit,
                            setup->source->nonce);
    if (!err)
        err = thread_start(h);
    if (err) {
        release(h);
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
    pthread_mutex_lock(&h->mtx);
    h->stops = true;
    pthread_cond_signal(&h->more);
    pthread_mutex_unlock(&h->mtx);
    hook_command_stop(&h->command);
    pthread_join(h->thread, NULL);
    *on_dead = NULL; /* the thread wakes itself by it */
    release(h);
}
