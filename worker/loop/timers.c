/* timers.c - the timer service: wheel + timerfd + one lock (see timers.h) */
#include "worker/loop/timers.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"

#define NOT_ARMED UINT64_MAX
#define BUDGET    4096 /* timers moved before the lock is released once */

/* m = under mtx   c = constant after open */
struct timers {
    pthread_mutex_t mtx;
    pthread_cond_t fired; /* m  `firing` changed */
    struct wheel *wheel;  /* m */
    struct timer *firing; /* m  the timer whose callback is running */
    uint64_t armed_ns;    /* m  time of the timerfd; NOT_ARMED: off */
    int fd;               /* c */
};

/* Set the timerfd; 0 ns: off. Try twice, because messages would wait for ever
 * if it failed. Returns 0 or -errno. */
static int timerfd_set(int fd, uint64_t when_ns)
{
    const struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(when_ns / NS_PER_S),
                     .tv_nsec = (long)(when_ns % NS_PER_S)}};

    int rc = timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);

    if (rc < 0)
        rc = timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);
    return rc < 0 ? -errno : 0;
}

int timers_open(struct timers **out)
{
    struct timers *t = calloc(1, sizeof *t);
    int err;

    *out = NULL;
    if (!t)
        return -ENOMEM;
    err = wheel_open(&t->wheel, clock_mono_ns());
    t->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (!err && t->fd < 0)
        err = -errno;
    if (!err)
        err = timerfd_set(t->fd, 0); /* fails if the call is not permitted */
    if (err) {
        wheel_close(&t->wheel);
        if (t->fd >= 0)
            close(t->fd);
        free(t);
        return err;
    }
    t->armed_ns = NOT_ARMED;
    pthread_mutex_init(&t->mtx, NULL);
    pthread_cond_init(&t->fired, NULL);
    *out = t;
    return 0;
}

void timers_close(struct timers **timers)
{
    struct timers *t = *timers;

    if (!t)
        return;
    *timers = NULL;
    close(t->fd);
    wheel_close(&t->wheel);
    pthread_cond_destroy(&t->fired);
    pthread_mutex_destroy(&t->mtx);
    free(t);
}

void timer_init(struct timer *timer, void (*fire)(struct timer *timer))
{
    wheel_timer_init(&timer->wheel);
    timer->fire = fire;
}

/* Set the timerfd to the next expiry, if that has changed. An expiry of 0 ns is
 * set as 1 ns, which is in the past as well, because 0 would switch it off. */
static void arm_locked(struct timers *t)
{
    uint64_t next;
    int err;

    if (!wheel_next(t->wheel, &next))
        next = NOT_ARMED;
    if (next == t->armed_ns)
        return;
    err = timerfd_set(t->fd, next == NOT_ARMED ? 0 : next ? next : 1);
    if (err) /* cannot happen: the same call has worked in timers_open */
        panic("timers: timerfd_settime(%" PRIu64 "): %s", next,
              errno_text(-err));
    t->armed_ns = next;
}

/* Set the timerfd to an earlier expiry; timers_run sets it to a later one. */
static void arm_earlier_locked(struct timers *t)
{
    uint64_t next;

    if (wheel_next(t->wheel, &next) && next < t->armed_ns)
        arm_locked(t);
}

void timers_start(struct timers *t, struct timer *timer, uint64_t when_ns)
{
    pthread_mutex_lock(&t->mtx);
    wheel_start(t->wheel, &timer->wheel, when_ns);
    arm_earlier_locked(t);
    pthread_mutex_unlock(&t->mtx);
}

/* The clock is read inside the lock, so that of two timers with the same limit,
 * the timer started first has the earlier deadline. */
void timers_start_after(struct timers *t, struct timer *timer,
                        uint64_t limit_ns)
{
    pthread_mutex_lock(&t->mtx);
    wheel_start(t->wheel, &timer->wheel, ns_add(clock_mono_ns(), limit_ns));
    arm_earlier_locked(t);
    pthread_mutex_unlock(&t->mtx);
}

void timers_start_earlier(struct timers *t, struct timer *timer,
                          uint64_t when_ns)
{
    pthread_mutex_lock(&t->mtx);
    if (!wheel_pending(&timer->wheel) || when_ns < timer->wheel.when_ns) {
        wheel_start(t->wheel, &timer->wheel, when_ns);
        arm_earlier_locked(t);
    }
    pthread_mutex_unlock(&t->mtx);
}

bool timers_cancel(struct timers *t, struct timer *timer)
{
    bool was;

    pthread_mutex_lock(&t->mtx);
    was = wheel_cancel(t->wheel, &timer->wheel);
    pthread_mutex_unlock(&t->mtx);
    return was;
}

/* The callback may have started the timer again, so cancel after the wait. */
bool timers_cancel_sync(struct timers *t, struct timer *timer)
{
    bool was;

    pthread_mutex_lock(&t->mtx);
    was = wheel_cancel(t->wheel, &timer->wheel);
    while (t->firing == timer) {
        pthread_cond_wait(&t->fired, &t->mtx);
        was = wheel_cancel(t->wheel, &timer->wheel) || was;
    }
    pthread_mutex_unlock(&t->mtx);
    return was;
}

int timers_fd(const struct timers *t)
{
    return t->fd;
}

/* armed_ns is reset before the timers run and set again after that, so that a
 * timer that another thread starts in between sets the timerfd itself. The
 * clock is read under the lock, so that no timer in the wheel was started after
 * `now`. It is read once, so that a timer that starts itself again and is due
 * immediately waits for the next round. */
void timers_run(struct timers *t)
{
    uint64_t ignored, now;
    bool more = true;

    if (read(t->fd, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
        panic("timers: read: %s", errno_text(errno)); /* fd was replaced */
    pthread_mutex_lock(&t->mtx);
    t->armed_ns = NOT_ARMED;
    now = clock_mono_ns();
    while (more) {
        struct wheel_timer *w = wheel_pop(t->wheel, now, BUDGET, &more);

        if (w) {
            t->firing = (struct timer *)(void *)w;
            pthread_mutex_unlock(&t->mtx);
            t->firing->fire(t->firing);
            pthread_mutex_lock(&t->mtx);
            t->firing = NULL;
            pthread_cond_broadcast(&t->fired);
            more = true;
        } else if (more) { /* let other threads take the lock */
            pthread_mutex_unlock(&t->mtx);
            pthread_mutex_lock(&t->mtx);
        }
    }
    arm_locked(t);
    pthread_mutex_unlock(&t->mtx);
}
