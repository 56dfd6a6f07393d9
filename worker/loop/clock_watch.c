/* clock_watch.c - see clock_watch.h */
#include "worker/loop/clock_watch.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"

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
