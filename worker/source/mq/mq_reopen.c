/* mq_reopen.c - a queue whose name is removed, and opened again (see
 * mq_reopen.h) */
#include "worker/source/mq/mq_reopen.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/mq/queue.h"
#include "common/state/worker_lock.h"
#include "worker/loop/loop.h"
#include "worker/source/mq/source_mq.h"

/* ---- the name ---- */

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

/* Check the link count after an event. */
static void name_changed(struct loop_source *source)
{
    struct mq_name_watch *l =
        CONTAINER_OF(source, struct mq_name_watch, source);
    char events[4096];

    while (read(source->fd, events, sizeof events) > 0)
        ;
    if (queue_gone(l->queue))
        l->gone(l->arg);
    loop_watch(l->loop, source, EPOLLIN);
}

static void timer_start(struct mq_name_watch *l)
{
    timers_start(l->timers, &l->timer, clock_mono_ns() + LOOK_NS);
}

/* Check the link count without inotify. */
static void name_due(struct timer *timer)
{
    struct mq_name_watch *l = CONTAINER_OF(timer, struct mq_name_watch, timer);

    if (queue_gone(l->queue))
        l->gone(l->arg);
    timer_start(l);
}

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
    timer_init(&l->timer, name_due);
    l->source.ready = name_changed;
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

/* ---- the worker's queue ---- */

/* c = constant after open   a = atomic */
struct mq_reopen {
    struct source_mq *q;              /* c */
    struct mq_name_watch *name_watch; /* c */
    atomic_bool gone;                 /* a */
    bool logged_large; /* event=queue_messages_larger; inside of flow.solo */
};

/* Report the removal once, and have the old queue drained. */
static void gone_report(void *arg)
{
    struct mq_reopen *r = arg;

    if (atomic_exchange(&r->gone, true))
        return;
    log_warn("queue_deleted", F_STR("queue", r->q->set->queue),
             F_STR("next", "what is left in it is taken, then the name is "
                           "opened again"));
    r->q->events.changed(r->q->events.arg);
}

/* Warn if another worker takes messages from the queue. That worker has another
 * state directory, because this worker holds the lock on its own. */
static void other_worker_warn(const struct mq_reopen *r)
{
    char folder[PATH_MAX], text[16];
    pid_t pid;

    if (queue_claim(r->q->queue, &pid))
        return;
    snprintf(text, sizeof text, "%d", (int)pid);
    log_warn(
        "queue_shared", F_STR("queue", r->q->set->queue),
        F_STR("pid", pid ? text : NULL),
        F_STR("state_dir",
              pid && worker_lock_folder(pid, folder) ? folder : NULL),
        F_STR("next",
              pid ? "another worker also takes messages from this queue, so "
                    "the order in groups is lost, and --unique does not see "
                    "the other worker's messages. Stop one of the two"
                  : "another worker, not visible from here (another "
                    "container), also takes messages from this queue, so the "
                    "order in groups is lost, and --unique does not see the "
                    "other worker's messages. Stop one of the two"));
}

int mq_reopen_open(struct source_mq *q, struct problem *p)
{
    struct mq_reopen *r = calloc(1, sizeof *r);

    if (r)
        r->q = q;
    if (!r || mq_name_watch_open(&r->name_watch, q->loop, q->timers, q->queue,
                                 gone_report, r) < 0) {
        free(r);
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    other_worker_warn(r);
    if (queue_gone(q->queue)) /* since it was opened, before it was watched */
        atomic_store(&r->gone, true);
    q->mq_reopen = r;
    return 0;
}

void mq_reopen_close(struct source_mq *q)
{
    if (!q->mq_reopen)
        return;
    mq_name_watch_close(&q->mq_reopen->name_watch);
    free(q->mq_reopen);
    q->mq_reopen = NULL;
}

bool mq_reopen_gone(const struct mq_reopen *r)
{
    return atomic_load_explicit(&r->gone, memory_order_relaxed);
}

/* Stop the worker: its slots have no room for such messages, so the queue is
 * left to the next start. */
static int large_refuse(struct mq_reopen *r, size_t size)
{
    if (!r->logged_large)
        log_error("queue_messages_larger", F_STR("queue", r->q->set->queue),
                  F_UINT("message_size", size),
                  F_UINT("room", custody_body_bytes(r->q->custody)),
                  F_STR("next", "start the worker again: its slots are made "
                                "for smaller messages"));
    r->logged_large = true;
    r->q->events.ended(r->q->events.arg, "queue-messages-larger", EX_OSERR);
    return -EAGAIN;
}

/* Open the queue that has the name now, or make one as the settings say, else
 * like the old one. -EAGAIN: its messages do not fit, or would not. */
static int name_open(struct mq_reopen *r, struct queue **out, struct problem *p)
{
    const struct queue *old = r->q->queue;
    size_t room = custody_body_bytes(r->q->custody);
    int flags = settings_queue_flags(r->q->set), err;
    struct queue_attr attr;
    struct stat st;

    settings_attr(r->q->set, &attr);
    if (attr.depth == 0)
        attr.depth = queue_depth(old);
    if (attr.message_size == 0)
        attr.message_size = queue_message_size(old);
    if (attr.mode == 0 && fstat(queue_fd(old), &st) == 0)
        attr.mode = st.st_mode & 0777;
    err = queue_open(out, r->q->set->queue, flags & ~QUEUE_CREATE, &attr, NULL,
                     p);
    if (err == -ENOENT && flags & QUEUE_CREATE) {
        if (attr.message_size > room)
            return large_refuse(r, attr.message_size);
        err = queue_open(out, r->q->set->queue, flags, &attr, NULL, p);
    }
    if (err || queue_message_size(*out) <= room)
        return err;
    err = large_refuse(r, queue_message_size(*out));
    queue_close(out);
    return err;
}

/* A queue whose messages do not fit is never put behind the descriptor: the
 * next thread that has solo would receive past the end of its slot. */
int mq_reopen_now(struct mq_reopen *r)
{
    struct queue *fresh;
    struct problem p;
    int err = name_open(r, &fresh, &p);

    if (err == -EAGAIN)
        return err;
    if (!err)
        err = queue_replace(r->q->queue, &fresh, &p);
    if (err) {
        log_error("queue_not_opened", F_STR("queue", r->q->set->queue),
                  F_STR("error", p.text));
        return err;
    }
    mq_name_watch_again(r->name_watch);
    /* In this order: gone_report does nothing while `gone` is set. */
    atomic_store(&r->gone, false);
    if (queue_gone(r->q->queue))
        atomic_store(&r->gone, true);
    other_worker_warn(r);
    r->q->events.moved(r->q->events.arg);
    log_info("queue_opened_again", F_STR("queue", r->q->set->queue),
             F_UINT("depth", queue_depth(r->q->queue)),
             F_UINT("message_size", queue_message_size(r->q->queue)));
    return 0;
}
