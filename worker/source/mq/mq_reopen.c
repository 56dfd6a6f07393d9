/* mq_reopen.c - drain a deleted queue, open the name again (see mq_reopen.h) */
#include "worker/source/mq/mq_reopen.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "common/base/log.h"
#include "common/mq/queue.h"
#include "common/state/worker_lock.h"
#include "worker/source/mq/mq_name_watch.h"
#include "worker/config/settings.h"

/* c = constant after open   a = atomic */
struct mq_reopen {
    struct mq_reopen_setup with;      /* c */
    struct mq_name_watch *name_watch; /* c */
    atomic_bool gone;                 /* a */
    bool told; /* that the messages of the new one are too large;
                               * inside of flow.solo */
};

/* gone_now - somebody has to drain it */
static void gone_now(void *arg)
{
    struct mq_reopen *r = arg;

    if (atomic_exchange(&r->gone, true))
        return;
    log_warn("queue_deleted", F_STR("queue", r->with.set->queue),
             F_STR("next", "what is left in it is taken, then the name is "
                           "opened again"));
    r->with.gone(r->with.arg);
}

/* Warn if another worker takes messages from the queue. That worker has another
 * state directory, because this worker holds the lock on its own. */
static void other_worker_warn(const struct mq_reopen *r)
{
    char folder[PATH_MAX], text[16];
    pid_t pid;

    if (queue_claim(r->with.queue, &pid))
        return;
    snprintf(text, sizeof text, "%d", (int)pid);
    log_warn(
        "queue_shared", F_STR("queue", r->with.set->queue),
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

int mq_reopen_open(struct mq_reopen **out, const struct mq_reopen_setup *setup,
                   struct problem *p)
{
    struct mq_reopen *r = calloc(1, sizeof *r);

    *out = NULL;
    if (r)
        r->with = *setup;
    if (!r || mq_name_watch_open(&r->name_watch, setup->loop, setup->timers,
                                 setup->queue, gone_now, r) < 0) {
        free(r);
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    }
    other_worker_warn(r);
    if (queue_gone(
            setup->queue)) /* since it was opened, before it was watched */
        atomic_store(&r->gone, true);
    *out = r;
    return 0;
}

void mq_reopen_close(struct mq_reopen **reopen)
{
    struct mq_reopen *r = *reopen;

    if (!r)
        return;
    *reopen = NULL;
    mq_name_watch_close(&r->name_watch);
    free(r);
}

bool mq_reopen_gone(const struct mq_reopen *r)
{
    return atomic_load_explicit(&r->gone, memory_order_relaxed);
}

/* as_it_was - how to make it again: as asked for, else like the old one */
static void as_it_was(const struct mq_reopen *r, struct queue_attr *attr)
{
    struct stat st;

    settings_attr(r->with.set, attr);
    if (attr->depth == 0)
        attr->depth = queue_depth(r->with.queue);
    if (attr->message_size == 0)
        attr->message_size = queue_message_size(r->with.queue);
    if (attr->mode == 0 && fstat(queue_fd(r->with.queue), &st) == 0)
        attr->mode = st.st_mode & 0777;
}

/* too_large - the slots have no room for such messages: the queue is left to
 * the next start */
static int too_large(struct mq_reopen *r, size_t size)
{
    if (!r->told)
        log_error("queue_messages_larger", F_STR("queue", r->with.set->queue),
                  F_UINT("message_size", size), F_UINT("room", r->with.room),
                  F_STR("next", "start the worker again: its slots are made "
                                "for smaller messages"));
    r->told = true;
    r->with.ended(r->with.arg, "queue-messages-larger", EX_OSERR);
    return -EAGAIN;
}

/* open_name - the queue that has the name now, or one that is made; -EAGAIN: it
 * has, or would have, messages that do not fit */
static int open_name(struct mq_reopen *r, struct queue **out, struct problem *p)
{
    size_t room = r->with.room;
    int flags = settings_queue_flags(r->with.set), err;
    struct queue_attr attr;

    as_it_was(r, &attr);
    err = queue_open(out, r->with.set->queue, flags & ~QUEUE_CREATE, &attr,
                     NULL, p);
    if (err == -ENOENT && flags & QUEUE_CREATE) {
        if (attr.message_size > room)
            return too_large(r, attr.message_size);
        err = queue_open(out, r->with.set->queue, flags, &attr, NULL, p);
    }
    if (err || queue_message_size(*out) <= room)
        return err;
    err = too_large(r, queue_message_size(*out));
    queue_close(out);
    return err;
}

/* mq_reopen_now - the name again, or one more delay
 * A queue whose messages do not fit is never behind the descriptor: the next
 * thread that has solo would receive past the end of its slot.
 */
int mq_reopen_now(struct mq_reopen *r)
{
    struct queue *fresh;
    struct problem p;
    int err = open_name(r, &fresh, &p);

    if (err == -EAGAIN)
        return err;
    if (!err)
        err = queue_replace(r->with.queue, &fresh, &p);
    if (err) {
        log_error("queue_not_opened", F_STR("queue", r->with.set->queue),
                  F_STR("error", p.text));
        return err;
    }
    mq_name_watch_again(r->name_watch);
    /* In this order: gone_now says nothing while it is said already. */
    atomic_store(&r->gone, false);
    if (queue_gone(r->with.queue))
        atomic_store(&r->gone, true);
    other_worker_warn(r);
    r->with.moved(r->with.arg);
    log_info("queue_opened_again", F_STR("queue", r->with.set->queue),
             F_UINT("depth", queue_depth(r->with.queue)),
             F_UINT("message_size", queue_message_size(r->with.queue)));
    return 0;
}
