/* on_dead.c - --on-dead (see on_dead.h)
 *
 * Crash before the command ends: its death is noted in the source still, and
 * the next worker ends what is left of it, and runs it again. Crash between its
 * end and hook_end: likewise. After hook_end: it was told, once at least.
 */
#include "worker/hooks/on_dead.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/message/error_text.h"
#include "worker/config/settings.h"
#include "worker/hooks/hook_command.h"
#include "worker/process/leftovers.h"
#include "worker/source/source.h"

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
    const struct stale_handler stale = {.mark = HOOK_MARK};
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
