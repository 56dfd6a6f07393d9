/* handler_stream.c - long-lived children (see handler.h, docs/handlers.md)
 *
 * A coprocess (coprocess.h) is a child and the messages that it has open. This
 * file keeps the coprocesses: each is lent to a thread that delivers, or idle.
 * The peeker watches the descriptors of idle ones, so that their stderr is
 * logged and their end noticed at once.
 *
 * The coprocess that was put back last is lent first, so that a worker with
 * little to do uses few children: their memory is still in the processor's
 * caches.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sysexits.h>
#include <bsd/string.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"
#include "worker/handlers/coprocess.h"
#include "worker/handlers/handler.h"
#include "worker/loop/loop.h"
#include "worker/process/process.h"
#include "worker/process/leftovers.h"

/* A coprocess in the lists of its handler. It exists until close, because the
 * peeker may still be handling an event of a coprocess that was just lent.
 * m = under the handler's mtx   c = constant after it was made */
struct stream_slot {
    LIST_ENTRY(stream_slot) all;  /* m */
    LIST_ENTRY(stream_slot) idle; /* m */
    bool is_idle;                 /* m */
    struct loop_source source;    /* m  the coprocess's descriptors */
    struct handler *handler;      /* c */
    struct coprocess *coprocess;  /* c */
};

/* m = under mtx   c = constant after open */
struct handler {
    struct stream stream;
    struct loop *loop; /* c */
    pthread_mutex_t mtx;
    LIST_HEAD(, stream_slot) all;  /* m */
    LIST_HEAD(, stream_slot) idle; /* m  the last one put back first */
};

/* ---- idle coprocesses ---- */

/* Handle an event of an idle child, in the peeker. The lock makes a thread that
 * wants a coprocess wait for this one, instead of starting one child too
 * many. */
static void idle_ready(struct loop_source *source)
{
    struct stream_slot *p = CONTAINER_OF(source, struct stream_slot, source);
    struct handler *h = p->handler;

    pthread_mutex_lock(&h->mtx);
    if (p->is_idle && coprocess_look(p->coprocess))
        (void)loop_watch(h->loop, source, EPOLLIN);
    pthread_mutex_unlock(&h->mtx);
}

/* Lend an idle coprocess, or a new one. Returns NULL without memory. */
static struct coprocess *stream_get(struct handler *h)
{
    struct stream_cancels *c = &h->stream.cancels;
    struct stream_slot *p;

    pthread_mutex_lock(&h->mtx);
    p = LIST_FIRST(&h->idle);
    if (p) {
        LIST_REMOVE(p, idle);
        p->is_idle = false;
        /* The child's first answer must not wake the peeker. */
        (void)loop_watch(h->loop, &p->source, 0);
    } else {
        p = calloc(1, sizeof *p);
        if (p && coprocess_open(&p->coprocess, &h->stream) < 0) {
            free(p);
            p = NULL;
        }
        if (p) {
            p->handler = h;
            p->coprocess->stream_slot = p;
            p->source.fd = p->coprocess->epoll;
            p->source.ready = idle_ready;
            LIST_INSERT_HEAD(&h->all, p, all);
        }
    }
    pthread_mutex_unlock(&h->mtx);
    if (!p)
        return NULL;
    /* Skip the cancel orders given so far: they concern other coprocesses. */
    pthread_mutex_lock(&c->mtx);
    p->coprocess->cancel_seen = c->count;
    pthread_mutex_unlock(&c->mtx);
    return p->coprocess;
}

static void stream_put(struct handler *h, struct coprocess *coprocess)
{
    struct stream_slot *p = coprocess->stream_slot;

    pthread_mutex_lock(&h->mtx);
    LIST_INSERT_HEAD(&h->idle, p, idle);
    p->is_idle = true;
    /* Usually all that was read from the child is parsed by now. If not, parse
     * the rest here, because epoll does not report it again. */
    if (coprocess->input.begin == coprocess->input.end
            ? coprocess_lives(coprocess)
            : coprocess_look(coprocess))
        (void)loop_watch(h->loop, &p->source, EPOLLIN);
    pthread_mutex_unlock(&h->mtx);
}

/* ---- the handler ---- */

/* Signal every child, and wake every coprocess. The signal is stored first, so
 * that a thread which is starting a child sends it (child_start). */
static void stream_stop(struct handler *h, int sig)
{
    struct stream_slot *p;

    if (!atomic_load(&h->stream.signal))
        atomic_store(&h->stream.signal_ns, clock_mono_ns());
    atomic_store(&h->stream.signal, sig);
    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (p, &h->all, all) {
        child_signal(&p->coprocess->child, sig);
        coprocess_wake(p->coprocess);
    }
    pthread_mutex_unlock(&h->mtx);
    if (sig == SIGKILL)
        leftovers_hurry(h->stream.leftovers);
}

/* Queue a cancel order for all coprocesses. Always returns true: the verdict
 * shows whether one of them had the message. */
static bool stream_cancel(struct handler *h, const char *id)
{
    struct stream_cancels *c = &h->stream.cancels;
    struct stream_slot *p;

    pthread_mutex_lock(&h->mtx);
    pthread_mutex_lock(&c->mtx);
    strlcpy(c->ids[c->count++ % STREAM_CANCELS], id, ULID_TEXT);
    pthread_mutex_unlock(&c->mtx);
    LIST_FOREACH (p, &h->all, all)
        coprocess_wake(p->coprocess);
    pthread_mutex_unlock(&h->mtx);
    return true;
}

static bool stream_last_stderr(struct handler *h, const char *id,
                               char text[ERROR_TEXT])
{
    struct stream_slot *p;
    bool has = false;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (p, &h->all, all)
        has = has ||
              (!p->is_idle && stderr_tail_last(&p->coprocess->tail, id, text));
    pthread_mutex_unlock(&h->mtx);
    return has;
}

static void stream_handler_close(struct handler **handler)
{
    struct handler *h = *handler;
    size_t count = 0, n = 0;
    struct stream_slot *p;
    pid_t *known;

    if (!h)
        return;
    *handler = NULL;
    /* Tell all children to end, then wait for each. The threads that started
     * them have ended, so they are children of the main thread, like orphans.
     * The list of their pids tells them from orphans without a search. */
    LIST_FOREACH (p, &h->all, all) {
        coprocess_leave(p->coprocess);
        count++;
    }
    known = calloc(count + 1, sizeof *known);
    LIST_FOREACH (p, &h->all, all)
        if (known && p->coprocess->child.pid)
            known[n++] = p->coprocess->child.pid;
    h->stream.known = known;
    h->stream.known_count = n;
    while ((p = LIST_FIRST(&h->all)) != NULL) {
        coprocess_close(&p->coprocess);
        LIST_REMOVE(p, all);
        free(p);
    }
    free(known);
    leftovers_close(&h->stream.leftovers);
    environment_base_close(&h->stream.base);
    pthread_mutex_destroy(&h->stream.cancels.mtx);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int stream_handler_open(struct handler **out,
                               const struct handler_setup *setup,
                               struct problem *p)
{
    const struct settings *set = setup->settings;
    struct handler *h;
    struct stream *s;
    int err;

    *out = NULL;
    h = calloc(1, sizeof *h);
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    s = &h->stream;
    s->set = set;
    s->stderr_limit = setup->stderr_limit;
    atomic_init(&s->marks, STREAM_MARKS + clock_wall_ns() / NS_PER_US);
    h->loop = setup->loop;
    pthread_mutex_init(&h->mtx, NULL);
    pthread_mutex_init(&s->cancels.mtx, NULL);
    LIST_INIT(&h->all);
    LIST_INIT(&h->idle);
    command_init(&s->command, set->command, setup->nonce);
    err = environment_base_open(&s->base, set->queue, set->max_attempts,
                                setup->nonce);
    if (!err)
        err = leftovers_open(&s->leftovers, setup->nonce, setup->timers,
                             setup->loop);
    if (err) {
        stream_handler_close(&h);
        return problem_set(p, EX_OSERR, -err, "cannot run handlers: %s",
                           errno_text(-err));
    }
    *out = h;
    return 0;
}

static const struct coprocess_ops coprocesses = {
    .get = stream_get,
    .put = stream_put,
    .ready = coprocess_ready,
    .room = coprocess_room,
    .send = coprocess_send,
    .next = coprocess_next,
    .wake = coprocess_wake,
};

const struct handler_ops handler_stream = {
    .name = "stream",
    .guess_ns = NS_PER_MS,
    .check = denied_check,
    .open = stream_handler_open,
    .coprocesses = &coprocesses,
    .stop = stream_stop,
    .cancel = stream_cancel,
    .last_stderr = stream_last_stderr,
    .close = stream_handler_close,
};
