/* group_close.c - groups that are closing (see group_dispatch.h)
 *
 * A close is about sequences, not about moments: a message of a spool comes to
 * its group long after it was received. Messages received before the close are
 * the group's. Those received from then on, until all of these have come to
 * their end, are refused when their turn comes.
 * The lock is held while a lease of a group ends: so nobody finds the group
 * gone before it is known up to where it refuses.
 */
#include "worker/flow/group_dispatch.h"

#include <errno.h>
#include <string.h>

#include "common/base/log.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch_inner.h"

/* queued - whether that message waits for its turn at the source; 0: any */
static bool queued(const struct flow *f, int64_t number)
{
    return f->source->local && f->source->local->queued(f->source, number);
}

/* next_seq - of the next message; 0: the source does not tell */
static uint64_t next_seq(const struct flow *f)
{
    return f->source->local ? f->source->local->next_seq(f->source) : 0;
}

/* later - whether one that a close refuses may come when that is over: with a
 * spool it may just have been taken out of that, too */
static bool later(const struct flow *f)
{
    return atomic_load(&f->set->spool) > 0 || queued(f, 0);
}

/* look_locked - if nothing is left of what was there before the close, it is
 * over for what comes from `seq` on; 0: for all */
static void look_locked(struct flow *f, const char *key, size_t size,
                        uint64_t seq)
{
    struct dispatch *o = f->dispatch;
    struct closing *one = closings_find(&o->closings, key, size);

    if (!one || groups_known(o->groups, key, size) ||
        (one->last && queued(f, one->last)))
        return;
    if (seq > one->from && later(f))
        closings_end(&o->closings, one, seq);
    else
        closings_remove(&o->closings, one);
}

/* close_refuses - `d` is unfit then
 * A letter is what its group has, and waits for, whenever it is sent again. The
 * group of one that comes later may have gone without a lease: its last message
 * was cancelled. */
bool close_refuses(struct flow *f, struct delivery *d)
{
    struct dispatch *o = f->dispatch;
    uint64_t seq = d->message->seq;
    struct closing *one;
    bool refuses;

    pthread_mutex_lock(&o->close_mtx);
    one = closings_find(&o->closings, d->group.at, d->group.size);
    if (one && seq >= one->from)
        look_locked(f, d->group.at, d->group.size, seq);
    refuses = !(d->message->flags & MESSAGE_FRONT) &&
              closings_refuse(&o->closings, d->group.at, d->group.size, seq);
    if (!queued(f, 0))
        closings_prune(&o->closings);
    pthread_mutex_unlock(&o->close_mtx);
    if (refuses) {
        d->lease = NULL;
        d->unfit = REASON_GROUP_CLOSED;
        strcpy(d->why, "its group was closed");
    }
    return refuses;
}

bool close_release(struct flow *f, struct group *lease)
{
    struct dispatch *o = f->dispatch;
    char copy[GROUP_KEY_MAX];
    size_t size;
    const char *key = groups_key(lease, &size);
    bool over;

    memcpy(copy, key, size); /* it is not ours any more then */
    pthread_mutex_lock(&o->close_mtx);
    over = groups_release(o->groups, lease);
    if (over)
        look_locked(f, copy, size, next_seq(f));
    pthread_mutex_unlock(&o->close_mtx);
    return over;
}

void close_look(struct flow *f, const char *key, size_t size)
{
    pthread_mutex_lock(&f->dispatch->close_mtx);
    look_locked(f, key, size, next_seq(f));
    pthread_mutex_unlock(&f->dispatch->close_mtx);
}

/* shut_locked - a group that is closing goes on so, with what waits now; one
 * whose close has come to its end, which nobody has seen yet, is closed anew */
static int shut_locked(struct flow *f, const char *key, size_t size,
                       int64_t last)
{
    struct dispatch *o = f->dispatch;
    struct closing *one;

    look_locked(f, key, size, next_seq(f));
    one = closings_find(&o->closings, key, size);
    if (!one && !groups_known(o->groups, key, size) &&
        !(last && queued(f, last)))
        return -ENOENT;
    if (!one)
        return closings_add(&o->closings, key, size, next_seq(f), last);
    if (last > one->last) /* its turn comes later */
        one->last = last;
    return 0;
}

int dispatch_shut(struct flow *f, const char *key, size_t size, int64_t last)
{
    int err;

    pthread_mutex_lock(&f->dispatch->close_mtx);
    err = shut_locked(f, key, size, last);
    pthread_mutex_unlock(&f->dispatch->close_mtx);
    if (!err)
        log_info("group_closed", F_STR("queue", f->set->queue),
                 F_BYTES("group", key, size));
    return err;
}

int dispatch_reopen(struct flow *f, const char *key, size_t size)
{
    struct dispatch *o = f->dispatch;
    bool known;

    pthread_mutex_lock(&o->close_mtx);
    known = closings_open(&o->closings, key, size) ||
            groups_known(o->groups, key, size);
    pthread_mutex_unlock(&o->close_mtx);
    if (known)
        log_info("group_opened", F_STR("queue", f->set->queue),
                 F_BYTES("group", key, size));
    return known ? 0 : -ENOENT;
}

char *dispatch_closing(struct flow *f, size_t *bytes)
{
    struct dispatch *o = f->dispatch;
    char *keys;

    pthread_mutex_lock(&o->close_mtx);
    keys = closings_keys(&o->closings, bytes);
    pthread_mutex_unlock(&o->close_mtx);
    return keys;
}
