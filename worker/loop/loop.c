/* loop.c - the event loop, clock_watch and dirty (see loop.h) */
#include "worker/loop/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"

#define EVENTS 16

/* c = constant after open */
struct loop {
    int epoll;                 /* c */
    struct loop_source wake;   /* c  an eventfd */
    struct loop_source expiry; /* c  the timers' descriptor */
    struct timers *timers;     /* c */
};

/* Empty the eventfd. Nothing else is to be done, because the caller of
 * loop_wait checks its state after each wait. */
static void wake_ready(struct loop_source *source)
{
    uint64_t ignored;

    (void)!read(source->fd, &ignored, sizeof ignored);
}

static void expiry_ready(struct loop_source *source)
{
    timers_run(CONTAINER_OF(source, struct loop, expiry)->timers);
}

int loop_open(struct loop **out, struct timers *timers)
{
    struct loop *l = calloc(1, sizeof *l);
    int err = 0;

    *out = NULL;
    if (!l)
        return -ENOMEM;
    l->timers = timers;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = (struct loop_source){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                   .ready = wake_ready};
    l->expiry =
        (struct loop_source){.fd = timers_fd(timers), .ready = expiry_ready};
    if (l->epoll < 0 || l->wake.fd < 0)
        err = -errno;
    if (!err)
        err = loop_add(l, &l->wake, EPOLLIN);
    if (!err)
        err = loop_add(l, &l->expiry, EPOLLIN);
    if (err) {
        loop_close(&l);
        return err;
    }
    *out = l;
    return 0;
}

void loop_close(struct loop **loop)
{
    struct loop *l = *loop;

    if (!l)
        return;
    *loop = NULL;
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->wake.fd >= 0)
        close(l->wake.fd);
    free(l);
}

/* Call epoll_ctl(2) for a source. Its address is the data of its events. */
static int source_control(struct loop *l, int op, struct loop_source *source,
                          uint32_t events)
{
    struct epoll_event ev = {.events = events, .data.ptr = source};

    return epoll_ctl(l->epoll, op, source->fd, &ev) < 0 ? -errno : 0;
}

int loop_add(struct loop *l, struct loop_source *source, uint32_t events)
{
    return source_control(l, EPOLL_CTL_ADD, source, events);
}

/* Usually the descriptor is in the set. It is not there before the first call,
 * and closing a descriptor removes it. */
int loop_watch(struct loop *l, struct loop_source *source, uint32_t events)
{
    int err;

    events |= EPOLLONESHOT;
    err = source_control(l, EPOLL_CTL_MOD, source, events);
    return err == -ENOENT ? source_control(l, EPOLL_CTL_ADD, source, events)
                          : err;
}

void loop_wake(struct loop *l)
{
    /* The write fails only on a full counter, which wakes the loop as well. */
    (void)eventfd_write(l->wake.fd, 1);
}

bool loop_wait(struct loop *l, int ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(l->epoll, events, EVENTS, ms);

    for (int i = 0; i < n; i++) {
        struct loop_source *source = events[i].data.ptr;

        source->ready(source);
    }
    return n != 0;
}

/* ---- the clock was set, or the machine resumed ---- */

/* Handle a cancelled timer. The read fails with ECANCELED and the timer stays
 * armed, so the next clock step cancels it again. */
static void timer_cancelled(struct loop_source *source)
{
    const struct clock_watch *w =
        CONTAINER_OF(source, struct clock_watch, source);
    uint64_t ignored;

    (void)!read(source->fd, &ignored, sizeof ignored);
    w->set(w->arg);
}

int clock_watch_open(struct clock_watch *w, struct loop *l,
                     void (*set)(void *arg), void *arg)
{
    const struct itimerspec never = {.it_value.tv_sec =
                                         (time_t)(INT64_MAX / NS_PER_S)};
    int err = 0;

    *w = (struct clock_watch){
        .source.ready = timer_cancelled, .set = set, .arg = arg};
    w->source.fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (w->source.fd < 0)
        return -errno;
    /* ECANCELED here means that the clock was set during the call; the timer is
     * armed nevertheless. */
    if (timerfd_settime(w->source.fd,
                        TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never,
                        NULL) < 0 &&
        errno != ECANCELED)
        err = -errno;
    if (!err)
        err = loop_add(l, &w->source, EPOLLIN);
    if (err)
        clock_watch_close(w);
    return err;
}

void clock_watch_close(struct clock_watch *w)
{
    if (w->source.fd >= 0)
        close(w->source.fd);
    w->source.fd = -1;
}

/* ---- dirty ---- */

static void dirty_due(struct timer *timer)
{
    struct dirty *d = CONTAINER_OF(timer, struct dirty, timer);

    atomic_store(&d->counted_soon, false); /* a later change counts again */
    d->count(d->arg);
}

void dirty_init(struct dirty *d, uint64_t pause_ns, void (*count)(void *arg),
                void *arg)
{
    d->count = count;
    d->arg = arg;
    timer_init(&d->timer, dirty_due);
    atomic_store(&d->state, true);
    atomic_store(&d->pause_ns, pause_ns);
}

void dirty_state(struct dirty *d)
{
    atomic_store(&d->state, true);
}

void dirty_state_now(struct dirty *d)
{
    dirty_state(d);
    loop_wake(d->loop);
}

void dirty_count(struct dirty *d)
{
    if (atomic_load_explicit(&d->counted_soon, memory_order_relaxed) ||
        atomic_exchange(&d->counted_soon, true))
        return;
    timers_start(d->timers, &d->timer,
                 clock_mono_ns() + atomic_load(&d->pause_ns));
}
