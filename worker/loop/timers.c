/* timers.c - the timer service (see timers.h) */
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

/* m = under mtx   c = constant after open */
struct timers {
    pthread_mutex_t mtx;
    pthread_cond_t fired;               /* m  `firing` changed */
    TAILQ_HEAD(timer_list, timer) list; /* m  pending, by (deadline, start) */
    struct timer *firing;               /* m  its callback is running */
    uint64_t armed_ns; /* m  setting of the timerfd; NOT_ARMED: off */
    uint64_t run;      /* m  number of calls of timers_run so far */
    int fd;            /* c */
};

/* Set the timerfd; 0 ns switches it off. Try twice, because without it messages
 * would wait for ever. Returns 0 or -errno. */
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
    t->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    /* A filter of system calls refuses timerfd_settime(2) here, not later. */
    err = t->fd < 0 ? -errno : timerfd_set(t->fd, 0);
    if (err) {
        if (t->fd >= 0)
            close(t->fd);
        free(t);
        return err;
    }
    t->armed_ns = NOT_ARMED;
    TAILQ_INIT(&t->list);
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
    pthread_cond_destroy(&t->fired);
    pthread_mutex_destroy(&t->mtx);
    free(t);
}

void timer_init(struct timer *timer, void (*fire)(struct timer *timer))
{
    *timer = (struct timer){.fire = fire};
}

/* Set the timerfd to the deadline of the first timer, unless it is set to that.
 * A deadline of 0 is set as 1 ns, because 0 would switch the timerfd off. */
static void arm_locked(struct timers *t)
{
    const struct timer *first = TAILQ_FIRST(&t->list);
    uint64_t next = first ? first->when_ns : NOT_ARMED;
    int err;

    if (next == t->armed_ns)
        return;
    err = timerfd_set(t->fd, next == NOT_ARMED ? 0 : next ? next : 1);
    if (err) /* it was set when it was opened */
        panic("timers: timerfd_settime(%" PRIu64 "): %s", next,
              errno_text(-err));
    t->armed_ns = next;
}

/* Take a timer off the list; returns false if it was not pending. The timerfd
 * keeps its setting, so timers_run may find nothing to do. */
static bool cancel_locked(struct timers *t, struct timer *timer)
{
    bool was = timer->pending;

    if (was)
        TAILQ_REMOVE(&t->list, timer, next);
    timer->pending = false;
    return was;
}

/* Start a timer: insert it behind all whose deadline is not later. The search
 * begins at the end of the list, because most timers have the same delay and so
 * the latest deadline. */
static void start_locked(struct timers *t, struct timer *timer,
                         uint64_t when_ns)
{
    struct timer *before;

    (void)cancel_locked(t, timer);
    before = TAILQ_LAST(&t->list, timer_list);
    while (before && before->when_ns > when_ns)
        before = TAILQ_PREV(before, timer_list, next);
    if (before)
        TAILQ_INSERT_AFTER(&t->list, before, timer, next);
    else
        TAILQ_INSERT_HEAD(&t->list, timer, next);
    timer->when_ns = when_ns;
    timer->run = t->run;
    timer->pending = true;
    if (TAILQ_FIRST(&t->list)->when_ns < t->armed_ns)
        arm_locked(t);
}

void timers_start(struct timers *t, struct timer *timer, uint64_t when_ns)
{
    pthread_mutex_lock(&t->mtx);
    start_locked(t, timer, when_ns);
    pthread_mutex_unlock(&t->mtx);
}

/* The clock is read under the lock, so that of two timers with the same limit
 * the one that was started first has the earlier deadline. */
void timers_start_after(struct timers *t, struct timer *timer,
                        uint64_t limit_ns)
{
    pthread_mutex_lock(&t->mtx);
    start_locked(t, timer, ns_add(clock_mono_ns(), limit_ns));
    pthread_mutex_unlock(&t->mtx);
}

void timers_start_earlier(struct timers *t, struct timer *timer,
                          uint64_t when_ns)
{
    pthread_mutex_lock(&t->mtx);
    if (!timer->pending || when_ns < timer->when_ns)
        start_locked(t, timer, when_ns);
    pthread_mutex_unlock(&t->mtx);
}

bool timers_cancel(struct timers *t, struct timer *timer)
{
    bool was;

    pthread_mutex_lock(&t->mtx);
    was = cancel_locked(t, timer);
    pthread_mutex_unlock(&t->mtx);
    return was;
}

/* The callback may start the timer again, so cancel it once more after each
 * call. */
bool timers_cancel_sync(struct timers *t, struct timer *timer)
{
    bool was;

    pthread_mutex_lock(&t->mtx);
    was = cancel_locked(t, timer);
    while (t->firing == timer) {
        pthread_cond_wait(&t->fired, &t->mtx);
        was = cancel_locked(t, timer) || was;
    }
    pthread_mutex_unlock(&t->mtx);
    return was;
}

int timers_fd(const struct timers *t)
{
    return t->fd;
}

/* Take the first timer off the list that is due at `now` and was started before
 * this run; NULL if there is none. A timer that starts itself again, due at
 * once, waits for the next run, so that a run ends. */
static struct timer *due_take(struct timers *t, uint64_t now)
{
    struct timer *timer = TAILQ_FIRST(&t->list);

    while (timer && timer->run == t->run)
        timer = TAILQ_NEXT(timer, next);
    if (!timer || timer->when_ns > now)
        return NULL;
    (void)cancel_locked(t, timer);
    return timer;
}

/* The timerfd counts as not armed while callbacks run and is set again at the
 * end; a timer that another thread starts during that time arms it by itself.
 * The clock is read once, and under the lock, so that it is not earlier than
 * the start of any timer on the list. */
void timers_run(struct timers *t)
{
    uint64_t ignored, now;

    if (read(t->fd, &ignored, sizeof ignored) < 0 && errno != EAGAIN)
        panic("timers: read: %s", errno_text(errno)); /* not the same file */
    pthread_mutex_lock(&t->mtx);
    t->armed_ns = NOT_ARMED;
    t->run++;
    now = clock_mono_ns();
    while ((t->firing = due_take(t, now)) != NULL) {
        pthread_mutex_unlock(&t->mtx);
        t->firing->fire(t->firing);
        pthread_mutex_lock(&t->mtx);
        t->firing = NULL;
        pthread_cond_broadcast(&t->fired);
    }
    arm_locked(t);
    pthread_mutex_unlock(&t->mtx);
}
