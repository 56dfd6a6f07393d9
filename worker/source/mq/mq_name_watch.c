/* mq_name_watch.c - the name of an open queue is removed (see mq_name_watch.h)
 *  */
#include "worker/source/mq/mq_name_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/mq/queue.h"
#include "worker/loop/loop.h"

#define LOOK_NS (30 * NS_PER_S)

/* c = constant after open   q = the thread that may replace the queue */
struct mq_name_watch {
    struct loop *loop;         /* c */
    struct timers *timers;     /* c */
    struct queue *queue;       /* c */
    void (*gone)(void *arg);   /* c */
    void *arg;                 /* c */
    struct loop_source source; /* c  inotify; fd -1: none, `timer` instead */
    struct timer timer;
    int watch; /* q */
};

/* look - the link count, after an event or when it is time */
static void look(struct mq_name_watch *l)
{
    if (queue_gone(l->queue))
        l->gone(l->arg);
}

static void event_ready(struct loop_source *source)
{
    struct mq_name_watch *l =
        CONTAINER_OF(source, struct mq_name_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    look(l);
    loop_watch(l->loop, source, EPOLLIN);
}

static void timer_start(struct mq_name_watch *l)
{
    timers_start(l->timers, &l->timer, clock_mono_ns() + LOOK_NS);
}

static void look_due(struct timer *timer)
{
    struct mq_name_watch *l = CONTAINER_OF(timer, struct mq_name_watch, timer);

    look(l);
    timer_start(l);
}

/* mq_name_watch_again - at first, too */
void mq_name_watch_again(struct mq_name_watch *l)
{
    char path[64];

    if (l->source.fd < 0)
        return;
    if (l->watch >= 0)
        inotify_rm_watch(l->source.fd, l->watch);
    snprintf(path, sizeof path, "/proc/self/fd/%d", queue_fd(l->queue));
    l->watch = inotify_add_watch(l->source.fd, path, IN_ATTRIB);
    if (l->watch < 0)
        timer_start(l);
}

int mq_name_watch_open(struct mq_name_watch **out, struct loop *loop,
                       struct timers *timers, struct queue *queue,
                       void (*gone)(void *arg), void *arg)
{
    struct mq_name_watch *l = calloc(1, sizeof *l);

    *out = NULL;
    if (!l)
        return -ENOMEM;
    l->loop = loop;
    l->timers = timers;
    l->queue = queue;
    l->gone = gone;
    l->arg = arg;
    l->watch = -1;
    timer_init(&l->timer, look_due);
    l->source.ready = event_ready;
    l->source.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    mq_name_watch_again(l);
    if (l->source.fd < 0 || loop_watch(loop, &l->source, EPOLLIN) < 0)
        timer_start(l);
    *out = l;
    return 0;
}

void mq_name_watch_close(struct mq_name_watch **watch)
{
    struct mq_name_watch *l = *watch;

    if (!l)
        return;
    *watch = NULL;
    timers_cancel_sync(l->timers, &l->timer);
    if (l->source.fd >= 0)
        close(l->source.fd);
    free(l);
}
