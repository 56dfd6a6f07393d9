/* mq_reopen.c - a queue whose name is removed under the worker (see
 * source_mq.h)
 *
 * logind deletes an ordinary user's queues at logout, and administrators
 * re-create queues, while the worker has the old one open. The worker drains
 * the old queue, then opens the name again. It notices the removal by inotify
 * (IN_ATTRIB, because the link count changes), or without inotify by a check
 * every 30 s.
 */
#include "worker/source/mq/source_mq.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/state/worker_lock.h"
#include "worker/loop/loop.h"
#include "worker/loop/peeker.h"

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

/* Report the removal once, and have the old queue drained. */
static void gone_report(void *arg)
{
    struct source_mq *q = arg;

    if (atomic_exchange(&q->name_gone, true))
        return;
    log_warn("queue_deleted", F_STR("queue", q->set->queue),
             F_STR("next", "the worker takes the messages that are left in "
                           "it, then opens the name again"));
    q->events.changed(q->events.flow);
}

/* Warn if another worker takes messages from the queue. That worker has another
 * state directory, because this worker holds the lock on its own. */
static void other_worker_warn(const struct source_mq *q)
{
    char folder[PATH_MAX], text[16];
    pid_t pid;

    if (queue_claim(q->queue, &pid))
        return;
    snprintf(text, sizeof text, "%d", (int)pid);
    log_warn(
        "queue_shared", F_STR("queue", q->set->queue),
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

int mq_reopen_watch(struct source_mq *q, struct problem *p)
{
    atomic_store(&q->name_gone, false);
    if (mq_name_watch_open(&q->name_watch, q->loop, q->timers, q->queue,
                           gone_report, q) < 0)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    other_worker_warn(q);
    if (queue_gone(q->queue)) /* removed after the open, before the watch */
        atomic_store(&q->name_gone, true);
    return 0;
}

/* large_refuse cannot call `ended` itself, because it holds the lock of take or
 * that of the spool, and a source holds no lock during an event. */
int mq_large_end(struct chore *chore)
{
    const struct source_mq *q = CONTAINER_OF(chore, struct source_mq, large);

    q->events.ended(q->events.gate, "queue-messages-larger", EX_OSERR);
    return 0;
}

/* Refuse the new queue, because its messages may be larger than a slot, and end
 * the worker. The next start makes larger slots, and opens the queue. */
static int large_refuse(struct source_mq *q, size_t size)
{
    if (q->logged_large)
        return -EAGAIN;
    log_error("queue_messages_larger", F_STR("queue", q->set->queue),
              F_UINT("message_size", size),
              F_UINT("room", custody_body_bytes(q->custody)),
              F_STR("next", "start the worker again, which makes room in "
                            "custody for messages of this size"));
    q->logged_large = true;
    chore_after(&q->large, 0);
    return -EAGAIN;
}

/* Open the queue that has the name now. If there is none, create one, with the
 * attributes of the old queue where the settings name none. A queue whose
 * messages do not fit is never put behind the descriptor, because the next
 * receive could write past the end of its slot. */
int mq_reopen_now(struct source_mq *q)
{
    const struct queue *old = q->queue;
    size_t room = custody_body_bytes(q->custody);
    int flags = settings_queue_flags(q->set), err;
    struct queue *fresh = NULL;
    struct queue_attr attr;
    struct problem p;
    struct stat st;

    settings_attr(q->set, &attr);
    if (attr.depth == 0)
        attr.depth = queue_depth(old);
    if (attr.message_size == 0)
        attr.message_size = queue_message_size(old);
    if (attr.mode == 0 && fstat(queue_fd(old), &st) == 0)
        attr.mode = st.st_mode & 0777;
    err = queue_open(&fresh, q->set->queue, flags & ~QUEUE_CREATE, &attr, NULL,
                     &p);
    if (err == -ENOENT && flags & QUEUE_CREATE) {
        if (attr.message_size > room)
            return large_refuse(q, (size_t)attr.message_size);
        err = queue_open(&fresh, q->set->queue, flags, &attr, NULL, &p);
    }
    if (!err && queue_message_size(fresh) > room) {
        err = large_refuse(q, queue_message_size(fresh));
        queue_close(&fresh);
        return err;
    }
    if (!err)
        err = queue_replace(q->queue, &fresh, &p);
    if (err) {
        log_error("queue_not_opened", F_STR("queue", q->set->queue),
                  F_STR("error", p.text));
        return err;
    }
    mq_name_watch_again(q->name_watch);
    /* In this order: gone_report does nothing while `name_gone` is set. */
    atomic_store(&q->name_gone, false);
    if (queue_gone(q->queue))
        atomic_store(&q->name_gone, true);
    other_worker_warn(q);
    peeker_queue_changed(q->peeker);
    log_info("queue_opened_again", F_STR("queue", q->set->queue),
             F_UINT("depth", queue_depth(q->queue)),
             F_UINT("message_size", queue_message_size(q->queue)));
    return 0;
}
