/* orphans.c - see orphans.h */
#include "scripts/mqctl/orphans.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/folder.h"
#include "common/mq/mqlimit.h"
#include "common/mq/queue.h"
#include "common/state/worker_lock.h"
#include "common/text/term.h"
#include "scripts/mqctl/proc.h"

/* Inspect one queue; false if the queue is gone, or we lack the permission. */
static bool queue_look(struct orphan *o, const char *name)
{
    struct queue *q;
    struct problem p;
    struct stat st;
    uint64_t now = clock_wall_ns(), used;
    bool seen;

    if (queue_open(&q, name, 0, NULL, NULL, &p) < 0)
        return false;
    seen = fstat(queue_fd(q), &st) == 0;
    if (seen) {
        used = (uint64_t)st.st_ctim.tv_sec * NS_PER_S +
               (uint64_t)st.st_ctim.tv_nsec;
        *o = (struct orphan){
            .queue = name,
            .owner = st.st_uid,
            .charged = mqlimit_cost(queue_depth(q), queue_message_size(q)),
            .depth = queue_length(q),
            .idle_ns = now > used ? now - used : 0,
            .dev = st.st_dev,
            .ino = st.st_ino};
    }
    queue_close(&q);
    return seen;
}

/* Visit a descriptor, whose queue is therefore open. Skip other mqctl
 * processes, which open each queue for a moment, as this one does. */
static void fd_look(const struct fd_seen *seen, void *arg)
{
    struct orphans *all = arg;

    for (size_t i = 0; i < all->count; i++)
        if (all->at[i].dev == seen->st.st_dev &&
            all->at[i].ino == seen->st.st_ino &&
            !proc_same_program(seen->pid, getpid()))
            all->at[i].open = true;
}

int orphans_find(struct orphans *out, const struct queue_list *queues,
                 const char *state_dir)
{
    char folder[PATH_MAX];
    size_t kept = 0;

    *out = (struct orphans){
        .at = calloc(queues->count + 1, sizeof(struct orphan))};
    if (!out->at)
        return -ENOMEM;
    for (size_t i = 0; i < queues->count; i++)
        out->count += queue_look(&out->at[out->count], queues->at[i]);
    fds_each(fd_look, out, &out->hidden);
    for (size_t i = 0; i < out->count; i++) {
        struct orphan *o = &out->at[i];
        enum worker_lock lock =
            worker_lock_find(state_dir, o->queue, NULL, folder);

        o->has_folder = folder[0] && access(folder, F_OK) == 0;
        if (!o->open && (lock == WORKER_NONE || lock == WORKER_GONE))
            out->at[kept++] = *o;
    }
    out->count = kept;
    return 0;
}

void orphans_free(struct orphans *o)
{
    free(o->at);
    o->at = NULL;
    o->count = 0;
}

const char *orphan_text(const struct orphan *o, char buf[ORPHAN_TEXT])
{
    char user[FOLDER_USER], time[DURATION_TEXT];

    snprintf(buf, ORPHAN_TEXT,
             "owner %s, %" PRIu64 " bytes charged, %ld message%s, unused for "
             "%s",
             folder_user(o->owner, user), o->charged, o->depth,
             term_plural((uint64_t)o->depth),
             duration_rough(o->idle_ns / NS_PER_S * NS_PER_S, time));
    return buf;
}
