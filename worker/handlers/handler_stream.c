/* handler_stream.c - long-lived children (see handler.h, docs/handlers.md)
 *
 * A lane (lane.h) is a child and what it has open. Here is who has which lane:
 * a thread that delivers, or nobody. What an idle child does is seen by the
 * peeker, which watches the lane's descriptors in one: its stderr is logged,
 * and its end noticed, at once.
 *
 * The lane that was put back last is handed out first, so that a worker with
 * little to do keeps few children busy, whose memory is in the caches.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sysexits.h>
#include <bsd/sys/queue.h>

#include "common/base/clock.h"
#include "common/base/container.h"
#include "worker/process/denied.h"
#include "worker/handlers/handler.h"
#include "worker/handlers/lane_inner.h"
#include "worker/process/orphans.h"
#include "worker/loop/loop.h"
#include "worker/process/remains.h"

/* Of a lane; it lives until close, so that an event of a lane that was just
 * handed out finds it.
 * m = under the handler's mtx   c = constant after it was made */
struct place {
    LIST_ENTRY(place) all;     /* m */
    LIST_ENTRY(place) idle;    /* m */
    bool is_idle;              /* m */
    struct loop_source source; /* m  the lane's descriptors */
    struct handler *handler;   /* c */
    struct lane *lane;         /* c */
};

/* m = under mtx   c = constant after open */
struct handler {
    struct stream stream;
    struct loop *loop;       /* c */
    struct orphans *orphans; /* c */
    pthread_mutex_t mtx;
    LIST_HEAD(, place) all;  /* m */
    LIST_HEAD(, place) idle; /* m  the last one put back first */
};

/* ---- idle lanes ---- */

/* idle_ready - a child that has nothing to do did something; in the peeker
 * Under the lock: whoever wants the lane meanwhile waits for it, rather than
 * start one child too many.
 */
static void idle_ready(struct loop_source *source)
{
    struct place *p = CONTAINER_OF(source, struct place, source);
    struct handler *h = p->handler;

    pthread_mutex_lock(&h->mtx);
    if (p->is_idle && lane_look(p->lane))
        (void)loop_watch(h->loop, source, EPOLLIN);
    pthread_mutex_unlock(&h->mtx);
}

/* place_open - a lane more */
static struct place *place_open(struct handler *h)
{
    struct place *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    if (lane_open(&p->lane, &h->stream) < 0) {
        free(p);
        return NULL;
    }
    p->handler = h;
    p->lane->place = p;
    p->source.fd = lane_fd(p->lane);
    p->source.ready = idle_ready;
    LIST_INSERT_HEAD(&h->all, p, all);
    return p;
}

static struct lane *stream_get(struct handler *h)
{
    struct place *p;

    pthread_mutex_lock(&h->mtx);
    p = LIST_FIRST(&h->idle);
    if (p) {
        LIST_REMOVE(p, idle);
        p->is_idle = false;
        /* Else the peeker would be woken by the child's first answer. */
        (void)loop_watch(h->loop, &p->source, 0);
    } else {
        p = place_open(h);
    }
    pthread_mutex_unlock(&h->mtx);
    return p ? p->lane : NULL;
}

static void stream_put(struct handler *h, struct lane *lane)
{
    struct place *p = lane->place;

    pthread_mutex_lock(&h->mtx);
    LIST_INSERT_HEAD(&h->idle, p, idle);
    p->is_idle = true;
    if (lane_rest(lane))
        (void)loop_watch(h->loop, &p->source, EPOLLIN);
    pthread_mutex_unlock(&h->mtx);
}

/* ---- the handler ---- */

/* stream_stop - signal every child, and have every lane see it
 * The signal is noted first: a child that is being started meanwhile is sent it
 * by its own thread (child.c).
 */
static void stream_stop(struct handler *h, int sig)
{
    struct place *p;

    if (!atomic_load(&h->stream.signal))
        atomic_store(&h->stream.signal_ns, clock_mono_ns());
    atomic_store(&h->stream.signal, sig);
    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (p, &h->all, all) {
        lane_signal(p->lane, sig);
        lane_wake(p->lane);
    }
    pthread_mutex_unlock(&h->mtx);
    if (sig == SIGKILL)
        remains_hurry(h->stream.remains);
}

/* children_end - all are told at once, then each is waited for
 * The threads that started them have ended, so that they are the main thread's,
 * like orphans. Who is told apart needs no search.
 */
static void children_end(struct handler *h)
{
    size_t count = 0, n = 0;
    struct place *p;
    pid_t *ended;

    LIST_FOREACH (p, &h->all, all) {
        lane_leave(p->lane);
        count++;
    }
    ended = calloc(count + 1, sizeof *ended);
    LIST_FOREACH (p, &h->all, all) {
        pid_t pid = lane_await(p->lane);

        if (ended && pid)
            ended[n++] = pid;
    }
    h->stream.ended = ended;
    h->stream.ended_count = n;
    LIST_FOREACH (p, &h->all, all)
        lane_finish(p->lane);
    free(ended);
}

static void stream_close(struct handler **handler)
{
    struct handler *h = *handler;
    struct place *p;

    if (!h)
        return;
    *handler = NULL;
    children_end(h);
    while ((p = LIST_FIRST(&h->all)) != NULL) {
        lane_close(&p->lane);
        LIST_REMOVE(p, all);
        free(p);
    }
    orphans_close(&h->orphans);
    remains_close(&h->stream.remains);
    environment_base_close(&h->stream.base);
    command_fini(&h->stream.command);
    pthread_mutex_destroy(&h->mtx);
    free(h);
}

static int stream_open(struct handler **out, const struct handler_setup *setup,
                       struct problem *p)
{
    const struct settings *set = setup->settings;
    struct handler *h;
    struct stream *s;
    int err = denied_check(false, p);

    *out = NULL;
    if (err)
        return err;
    h = calloc(1, sizeof *h);
    if (!h)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    s = &h->stream;
    s->set = set;
    s->stderr_limit = setup->stderr_limit;
    atomic_init(&s->marks, STREAM_MARKS + clock_wall_ns() / NS_PER_US);
    h->loop = setup->loop;
    pthread_mutex_init(&h->mtx, NULL);
    LIST_INIT(&h->all);
    LIST_INIT(&h->idle);
    command_init(&s->command, set->command);
    err = environment_base_open(&s->base, set->queue, set->max_attempts,
                                setup->nonce);
    if (!err)
        err = remains_open(&s->remains, setup->nonce);
    if (!err)
        err = orphans_open(&h->orphans, setup->timers, setup->loop);
    if (err) {
        stream_close(&h);
        return problem_set(p, EX_OSERR, -err, "cannot run handlers: %s",
                           strerror(-err));
    }
    *out = h;
    return 0;
}

static const struct lane_ops lanes = {
    .get = stream_get,
    .put = stream_put,
    .ready = lane_ready,
    .room = lane_room,
    .send = lane_send,
    .next = lane_next,
    .wake = lane_wake,
};

const struct handler_ops handler_stream = {
    .name = "stream",
    .guess_ns = NS_PER_MS,
    .open = stream_open,
    .lanes = &lanes,
    .stop = stream_stop,
    .close = stream_close,
};
