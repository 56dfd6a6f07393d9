/* dispatch.c - messages of groups: from where they wait to a thread (see
 * dispatch.h) */
#include "worker/flow/dispatch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"
#include "worker/source/source.h"

/* The close of a group by an operator: from the order until the messages that
 * were received before it are settled. */
struct closing {
    LIST_ENTRY(closing) link;
    uint64_t from;  /* first sequence that is refused */
    uint64_t until; /* first sequence accepted after it; 0: still closing */
    int64_t last;   /* number of the last message queued then; 0: none */
    struct closing_key key;
};

/* c = constant after open   p = the thread that set parking   a = atomic
 * x = under close_mtx, which is taken before groups.mtx */
struct dispatch {
    struct group_item *items; /* c  of each lent message, by its index */
    atomic_bool parking;      /* a  one thread parks at a time: in order */
    struct group_item *parked[SETTLE_MOST]; /* p */
    struct settle parks[SETTLE_MOST];       /* p */
    atomic_bool logged_full; /* a  the bound of parked messages was logged */
    pthread_mutex_t close_mtx;
    LIST_HEAD(, closing) closings; /* x  operators close few groups */
    atomic_size_t closing_count;   /* a  length of `closings` */
};

/* Return true if the source can store messages that wait behind the head of
 * their group. */
static bool can_park(const struct flow *f)
{
    return f->source->local != NULL;
}

/* ---- groups that are closing ---- */

/* A close compares receive sequences, not times, because a message of a spool
 * enters its group long after it was received; it is refused when its turn
 * comes.
 * close_mtx is held while a lease of a group ends, so that no other thread sees
 * the group removed before the close has recorded which messages it refuses. */

bool dispatch_closes(const struct flow *f)
{
    return atomic_load_explicit(&f->dispatch->closing_count,
                                memory_order_relaxed) > 0;
}

static bool closing_is_of(const struct closing *one, const char *key,
                          size_t size)
{
    return one->key.size == size && memcmp(one->key.at, key, size) == 0;
}

/* Find the close of a group that is still closing. A group that was closed
 * again has older closes as well, which have ended. */
static struct closing *closing_find(const struct dispatch *o, const char *key,
                                    size_t size)
{
    struct closing *one;

    LIST_FOREACH (one, &o->closings, link)
        if (!one->until && closing_is_of(one, key, size))
            break;
    return one;
}

static void closing_remove(struct dispatch *o, struct closing *one)
{
    LIST_REMOVE(one, link);
    atomic_fetch_sub(&o->closing_count, 1);
    free(one);
}

/* Return true if the message with this number waits for its turn at the source;
 * with number 0, if any message does. */
static bool is_queued(const struct flow *f, int64_t number)
{
    return f->source->local && f->source->local->queued(f->source, number);
}

static uint64_t next_seq(const struct flow *f)
{
    return (uint64_t)f->source->ops->count(f->source, COUNT_NEXT_SEQ);
}

/* End the close of a group if all messages received before it are settled.
 * Messages that the close refuses may still be queued, or on their way from the
 * spool: then the close is kept and refuses messages before `seq` only. On a
 * broker nothing is queued, so the close is removed. */
static void closing_check_locked(struct flow *f, const char *key, size_t size,
                                 uint64_t seq)
{
    struct dispatch *o = f->dispatch;
    struct closing *one = closing_find(o, key, size);

    if (!one || groups_known(f->groups, key, size) ||
        (one->last && is_queued(f, one->last)))
        return;
    if (seq > one->from && (atomic_load(&f->set->spool) > 0 || is_queued(f, 0)))
        one->until = seq;
    else
        closing_remove(o, one);
}

/* Return true, and mark `d` unfit, if a close of its group refuses it. A
 * replayed letter is never refused, because its group may be waiting for it.
 * Here the close may end as well, because a group whose last message was
 * cancelled is removed without the end of a lease. */
static bool close_refuses(struct flow *f, struct delivery *d)
{
    struct dispatch *o = f->dispatch;
    uint64_t seq = d->message->seq;
    struct closing *one, *next;
    bool refuses = false, queued;

    pthread_mutex_lock(&o->close_mtx);
    one = closing_find(o, d->group.at, d->group.size);
    if (one && seq >= one->from)
        closing_check_locked(f, d->group.at, d->group.size, seq);
    queued = is_queued(f, 0);
    LIST_FOREACH_SAFE (one, &o->closings, link, next) {
        if (seq >= one->from && (!one->until || seq < one->until) &&
            closing_is_of(one, d->group.at, d->group.size))
            refuses = !(d->message->flags & MESSAGE_FRONT);
        if (one->until && !queued) /* there is nothing left to refuse */
            closing_remove(o, one);
    }
    pthread_mutex_unlock(&o->close_mtx);
    if (refuses) {
        d->lease = NULL;
        d->unfit = REASON_GROUP_CLOSED;
        strcpy(d->why, "its group was closed");
    }
    return refuses;
}

/* End the close of a group that may be gone. */
static void close_check(struct flow *f, const char *key, size_t size)
{
    pthread_mutex_lock(&f->dispatch->close_mtx);
    closing_check_locked(f, key, size, next_seq(f));
    pthread_mutex_unlock(&f->dispatch->close_mtx);
}

/* A second close extends the first to the messages that wait now. A close that
 * has ended, but was not removed yet, is started again. */
int dispatch_shut(struct flow *f, const char *key, size_t size, int64_t last)
{
    struct dispatch *o = f->dispatch;
    struct closing *one;
    int err = 0;

    pthread_mutex_lock(&o->close_mtx);
    closing_check_locked(f, key, size, next_seq(f));
    one = closing_find(o, key, size);
    if (one) {
        if (last > one->last)
            one->last = last;
    } else if (!groups_known(f->groups, key, size) &&
               !(last && is_queued(f, last))) {
        err = -ENOENT;
    } else if (!(one = calloc(1, sizeof *one))) {
        err = -ENOMEM;
    } else {
        one->from = next_seq(f);
        one->last = last;
        one->key.size = size;
        memcpy(one->key.at, key, size);
        LIST_INSERT_HEAD(&o->closings, one, link);
        atomic_fetch_add(&o->closing_count, 1);
    }
    pthread_mutex_unlock(&o->close_mtx);
    if (!err)
        log_info("group_closed", F_STR("queue", f->set->queue),
                 F_BYTES("group", key, size));
    return err;
}

int dispatch_reopen(struct flow *f, const char *key, size_t size)
{
    struct dispatch *o = f->dispatch;
    struct closing *one, *next;
    bool known;

    pthread_mutex_lock(&o->close_mtx);
    known = groups_known(f->groups, key, size);
    LIST_FOREACH_SAFE (one, &o->closings, link, next) {
        if (!closing_is_of(one, key, size))
            continue;
        closing_remove(o, one);
        known = true;
    }
    pthread_mutex_unlock(&o->close_mtx);
    if (known)
        log_info("group_opened", F_STR("queue", f->set->queue),
                 F_BYTES("group", key, size));
    return known ? 0 : -ENOENT;
}

struct closing_key *dispatch_closing(struct flow *f, size_t *count)
{
    struct dispatch *o = f->dispatch;
    struct closing_key *keys = NULL;
    const struct closing *one;
    size_t n = 0;

    pthread_mutex_lock(&o->close_mtx);
    if (dispatch_closes(f))
        keys = calloc(atomic_load(&o->closing_count), sizeof *keys);
    LIST_FOREACH (one, &o->closings, link)
        if (!one->until) {
            if (keys)
                keys[n] = one->key;
            n++;
        }
    pthread_mutex_unlock(&o->close_mtx);
    *count = n;
    return keys;
}

/* ---- the end of a lease; groups that wait for an operator ---- */

/* Release a held group if it has no letter. Returns YES, NO or -errno. The
 * source is asked without the lock. A message that dies during the call finds
 * the group held and marks it for a recheck; then the source is asked again. */
static int group_unhold(struct flow *f, const char *key, size_t size)
{
    int has;

    do {
        has = f->source->local->letters(f->source,
                                        (struct header_text){key, size});
        if (has != NO)
            return has == YES ? NO : has;
    } while (!groups_unhold(f->groups, key, size));
    close_check(f, key, size);
    log_info("group_released", F_STR("queue", f->set->queue),
             F_BYTES("group", key, size));
    return YES;
}

int dispatch_release(struct flow *f)
{
    size_t count;
    struct group_key *keys = groups_held_keys(f->groups, &count);
    int err = keys || count == 0 ? 0 : -ENOMEM;
    bool changed = err != 0;

    for (size_t i = 0; keys && i < count; i++) {
        int released = group_unhold(f, keys[i].at, keys[i].size);

        if (released < 0)
            err = released;
        changed |= released != NO;
    }
    free(keys);
    if (changed)
        gate_changed(&f->gate);
    return err;
}

/* Log that a group waits for an operator, and have the source watch its letter.
 * The letter may have been removed before the watch began, so the source is
 * asked once more. The watch notices each letter that is removed after that. */
static void held_watch(struct flow *f, const char *key, size_t size)
{
    int released;

    log_warn("group_held", F_STR("queue", f->set->queue),
             F_BYTES("group", key, size),
             F_STR("next", "its letter keeps it waiting: mqdlq replay, mqdlq "
                           "discard, or mqctl group QUEUE KEY release"));
    /* For the tools that read the numbers of a killed worker. */
    counters_gauge(f->counters, COUNTERS_GROUPS_HELD, groups_held(f->groups));
    f->source->local->watch(f->source, false);
    released = group_unhold(f, key, size);
    if (released == YES)
        gate_changed(&f->gate);
    else if (released < 0)
        f->source->local->watch(f->source, true);
}

/* End a lease and hold its group, which waits for an operator now. */
static void lease_hold(struct flow *f, struct group *lease)
{
    char copy[GROUP_KEY_MAX];
    size_t size;
    const char *key = groups_key(lease, &size);

    memcpy(copy, key, size); /* the group may be freed with its lease */
    groups_hold(f->groups, lease);
    held_watch(f, copy, size);
}

/* Release a lease, and finish the close of its group if this was the group's
 * last message. Returns false if the group got a letter in between: then the
 * lease continues. */
static bool lease_release(struct flow *f, struct group *lease)
{
    struct dispatch *o = f->dispatch;
    char copy[GROUP_KEY_MAX];
    const char *key;
    size_t size;
    bool over;

    if (!dispatch_closes(f))
        return groups_release(f->groups, lease);
    key = groups_key(lease, &size);
    memcpy(copy, key, size); /* the group may be freed with its lease */
    pthread_mutex_lock(&o->close_mtx);
    over = groups_release(f->groups, lease);
    if (over)
        closing_check_locked(f, copy, size, next_seq(f));
    pthread_mutex_unlock(&o->close_mtx);
    return over;
}

/* End a lease. With `ask`, or if the group got a letter in between, ask the
 * source first: if it has a letter of the group, or returns an error, hold the
 * group. Otherwise release it. Not inline, so that dispatch_done stays short.
 */
__attribute__((noinline)) static void lease_end(struct flow *f,
                                                struct group *lease, bool ask)
{
    struct header_text key;

    key.at = groups_key(lease, &key.size);
    while (!ask || f->source->local->letters(f->source, key) == NO) {
        if (lease_release(f, lease))
            return;
        ask = true;
    }
    lease_hold(f, lease);
}

void dispatch_done(struct flow *f, struct group *lease)
{
    if (!lease_release(f, lease))
        lease_end(f, lease, true);
}

void dispatch_settled(struct flow *f, struct group *lease, enum group_end end,
                      uint64_t seq, bool letter)
{
    bool holds = f->set->on_group_dead == GROUP_DEAD_HOLD;

    if (end == GROUP_WAITS)
        groups_block(f->groups, lease, (int64_t)seq);
    else if (holds && end == GROUP_DIED)
        lease_hold(f, lease);
    else
        lease_end(f, lease, holds && letter);
}

void dispatch_died(struct flow *f, struct header_text group, uint64_t seq)
{
    struct groups *g = f->groups;
    struct group *lease =
        groups_resume(g, group.at, group.size, (int64_t)seq, NULL);
    int err = NO;

    if (lease)
        dispatch_settled(f, lease, GROUP_DIED, seq, false);
    else if (f->set->on_group_dead == GROUP_DEAD_HOLD)
        err = groups_hold_late(g, group.at, group.size);
    if (err == YES)
        held_watch(f, group.at, group.size);
    else if (err < 0)
        gate_trouble(&f->gate, "holding a group", -err);
}

/* ---- messages that leave their group without a run ---- */

#define AGAIN_NS NS_PER_S /* until a message that was not parked is due again */

/* Return true if messages have to be parked: half of the lookahead is used and
 * some of its messages cannot run; or no slot is free. In the second case
 * messages are parked even above --max-parked, because a message that would
 * unblock the group needs a slot. */
static bool is_crowded(const struct flow *f)
{
    const struct groups *g = f->groups;

    return can_park(f) && groups_parkable(g) > 0 &&
           (f->source->ops->count(f->source, COUNT_FREE) == 0 ||
            (groups_waiting(g) * 2 >= f->set->lookahead &&
             groups_parked(g) < f->set->max_parked));
}

bool dispatch_must_park(const struct flow *f)
{
    return is_crowded(f) && !atomic_load(&f->dispatch->parking);
}

bool dispatch_room(struct flow *f)
{
    struct dispatch *o = f->dispatch;

    if (groups_parked(f->groups) < f->set->max_parked) {
        atomic_store_explicit(&o->logged_full, false, memory_order_relaxed);
        return groups_waiting(f->groups) < f->set->lookahead;
    }
    if (!atomic_exchange(&o->logged_full, true))
        log_warn(
            "parked_full", F_STR("queue", f->set->queue),
            F_UINT("parked", groups_parked(f->groups)),
            F_STR(
                "next",
                "no message is received, not even a replay, until blocked "
                "groups continue. To let a replay in, raise --max-parked "
                "(mqctl set QUEUE max-parked=N); to let a held group continue, "
                "use mqdlq discard or mqctl group QUEUE KEY release"));
    return false;
}

/* Return the request to the source to park a message. */
static struct settle park_settle(struct message *m, unsigned lane,
                                 struct header_text group, size_t header_size)
{
    return (struct settle){.m = m,
                           .kind = SETTLE_PARK,
                           .lane = lane,
                           .group = group,
                           .header_size = header_size};
}

/* Park messages in one commit. Returns false if there was none to park, or if
 * the source failed.
 * Crash before the commit: each message is lent, and was not run. After it:
 * recovery finds each message parked. */
static bool park_some(struct flow *f)
{
    struct dispatch *o = f->dispatch;
    size_t n = groups_park_begin(f->groups, o->parked, SETTLE_MOST);
    struct header header;
    char why[HEADER_WHY];
    int err;

    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct message *m = o->parked[i]->message;
        struct header_text key;

        if (header_parse(m->data, m->size, &header, why) < 0)
            header.bytes = 0;
        key.at = groups_key(o->parked[i]->group, &key.size);
        o->parks[i] = park_settle(m, LANE_NONE, key, header.bytes);
    }
    err = f->source->ops->settle(f->source, o->parks, n);
    if (err) {
        groups_park_end(f->groups, o->parked, n, false);
        gate_trouble(&f->gate, "parking messages in the store", -err);
        return false;
    }
    FAULT_POINT("park_after_put");
    /* Call this before release: a released message's item may be used again. */
    groups_park_end(f->groups, o->parked, n, true);
    for (size_t i = 0; i < n; i++) {
        crashes_ended(f, o->parks[i].m->seq);
        f->source->ops->release(f->source, o->parks[i].m);
    }
    backlog_look(f);
    return true;
}

/* Only one thread parks; a thread that finds `parking` set returns. So the
 * thread that parked checks again after it has cleared `parking`, because the
 * lookahead may have been filled since. It does not try again during a delay
 * after a failure, because take_any calls this for each message. */
void dispatch_relieve(struct flow *f)
{
    struct dispatch *o = f->dispatch;
    bool more = true;

    while (more && is_crowded(f) &&
           !(atomic_load(&f->gate.holds) & HOLD_QUEUE) &&
           !atomic_exchange(&o->parking, true)) {
        more = park_some(f);
        atomic_store(&o->parking, false);
    }
}

void dispatch_pulled(struct flow *f, struct header_text key,
                     struct group_item *item, bool gone)
{
    if (!gone) {
        groups_park_end(f->groups, &item, 1, false);
        return;
    }
    groups_park_undo(f->groups, item);
    if (dispatch_closes(f))
        close_check(f, key.at, key.size);
}

/* ---- entering a group, and the next message of one ---- */

int dispatch_open(struct flow *f, unsigned most)
{
    struct dispatch *o = calloc(1, sizeof *o);
    int err = -ENOMEM;

    if (o)
        o->items = calloc(most, sizeof *o->items);
    /* With hold, a replayed letter is not parked, because a parked row does not
     * keep its group waiting. */
    if (o && o->items)
        err = groups_open(&f->groups, (unsigned)f->set->group_quantum,
                          f->set->on_group_dead == GROUP_DEAD_HOLD,
                          &f->gate.attention);
    if (err) {
        if (o)
            free(o->items);
        free(o);
        return err;
    }
    pthread_mutex_init(&o->close_mtx, NULL);
    f->dispatch = o;
    return 0;
}

void dispatch_close(struct flow *f)
{
    struct dispatch *o = f->dispatch;

    if (!o)
        return;
    f->dispatch = NULL;
    groups_close(&f->groups);
    while (!LIST_EMPTY(&o->closings))
        closing_remove(o, LIST_FIRST(&o->closings));
    pthread_mutex_destroy(&o->close_mtx);
    free(o->items);
    free(o);
}

int dispatch_restore(void *flow, const struct source_group *group)
{
    struct flow *f = flow;
    bool held = f->set->on_group_dead == GROUP_DEAD_HOLD && group->letters > 0;

    return groups_restore(f->groups, group->key.at, group->key.size,
                          group->parked, (int64_t)group->head, held);
}

bool dispatch_ready(const struct flow *f)
{
    return groups_ready(f->groups) > 0 || dispatch_must_park(f);
}

bool dispatch_empty(const struct flow *f)
{
    return groups_waiting(f->groups) == 0 && groups_parked(f->groups) == 0 &&
           groups_ready(f->groups) == 0;
}

/* Return a message's priority in its group. If the source keeps the order of
 * groups, a priority changes nothing: the result is 0. */
static uint32_t priority_in(const struct flow *f, const struct message *m)
{
    return can_park(f) ? m->priority : 0;
}

/* Fill the message's item. A replayed letter goes first, because a held group
 * waits for it. */
static struct group_item *item_make(struct flow *f, struct message *m)
{
    struct group_item *item = &f->dispatch->items[m->index];

    item->message = m;
    item->seq = m->seq;
    item->letter = (m->flags & MESSAGE_FRONT) != 0;
    item->priority = item->letter ? GROUP_FRONT : priority_in(f, m);
    return item;
}

/* Add a message to its group, as the last of its priority. Not inline, because
 * dispatch_enter must stay short. */
__attribute__((noinline)) int dispatch_add(struct flow *f, struct delivery *d)
{
    int err = groups_add(f->groups, d->group.at, d->group.size,
                         item_make(f, d->message));

    return err ? err : HANDED_OVER;
}

int dispatch_enter(struct flow *f, struct delivery *d)
{
    int err;

    if (dispatch_closes(f) && close_refuses(f, d))
        return TAKEN;
    err = groups_pass(f->groups, d->group.at, d->group.size,
                      priority_in(f, d->message), &d->lease);
    return err == -EAGAIN ? dispatch_add(f, d) : err;
}

/* A retry is stored before its group is blocked by it (dispatch_settled), so it
 * can be due while the group is still leased. When the lease has ended, the
 * group is blocked by this message or does not depend on it. A letter that an
 * orderly stop stored goes before all parked messages, so it is not parked: it
 * stays lent behind the running message, unless it would use the last slot. If
 * the source cannot park, all messages enter their groups. */
int dispatch_due(struct flow *f, struct delivery *d)
{
    struct groups *g = f->groups;
    const struct message *m = d->message;
    const char *key = d->group.at;
    size_t size = d->group.size;
    struct group_item *item;
    struct settle st;
    bool leased;
    int err;

    d->lease = groups_resume(g, key, size, (int64_t)m->seq, &leased);
    if (leased && m->failures > 0)
        return -EINPROGRESS;
    if (d->lease || m->flags & MESSAGE_CANCELLED)
        return TAKEN;
    if (m->flags & MESSAGE_FRONT)
        return f->source->ops->count(f->source, COUNT_FREE) > 0
                   ? dispatch_enter(f, d)
                   : -EINPROGRESS;
    if (!can_park(f) || groups_waiting(g) < f->set->lookahead)
        return dispatch_enter(f, d);
    if (dispatch_closes(f) && close_refuses(f, d))
        return TAKEN;
    /* Park the message, or return it to the source if that fails: if many due
     * messages stayed lent, no slot would be left to run one of them.
     * Crash before the commit: the message waits as before. After it: the
     * message is parked, and was not run. */
    item = item_make(f, d->message);
    err = groups_park_one(g, key, size, item);
    if (err)
        return err;
    st = park_settle(d->message, d->place, d->group, d->header.bytes);
    err = f->source->ops->settle(f->source, &st, 1);
    if (err) {
        groups_park_undo(g, item);
        source_return(f->source, d->message, d->place, AGAIN_NS);
        gate_trouble(&f->gate, "parking a message in the store", -err);
        return PUT_BACK;
    }
    FAULT_POINT("park_due_after_put");
    groups_park_end(g, &item, 1, true);
    return PUT_BACK;
}

/* Take the next message of a leased group: a parked one, unless a lent one
 * comes first. Returns -ENOENT if the group has none; -EINPROGRESS if it cannot
 * be loaded yet; -EMSGSIZE if it was too large and is a dead letter now. */
static int group_take(struct flow *f, struct group *lease, unsigned lane,
                      struct delivery *d)
{
    struct groups *g = f->groups;
    struct group_item *item = groups_peek(g, lease);
    struct header_text key;
    struct message *m;
    int err;

    key.at = groups_key(lease, &key.size);
    if (groups_parked_of(lease) > 0 &&
        !(item && item->priority == GROUP_FRONT)) {
        err = f->source->local->unpark(f->source, lane, key,
                                       groups_low_turn(lease),
                                       item ? item->message : NULL, &m);
        if (err == -ENOENT)
            groups_unpark(g, lease);
        if (!err || err == -EMSGSIZE)
            groups_take(g, lease, NULL, err ? 0 : m->priority);
        if (!err) {
            delivery_read(d, m, 0);
            d->lease = lease;
        }
        if (err != -ENOENT && err != -EAGAIN)
            return err;
    }
    if (!item)
        return -ENOENT;
    m = item->message;
    groups_take(g, lease, item, priority_in(f, m));
    delivery_read(d, m, 0);
    delivery_regroup(d, key.at, key.size);
    d->lease = lease;
    return 0;
}

/* A group whose next message cannot be loaded yet is released. It is on the run
 * queue, or enters it when the message can be loaded, and each thread checks
 * the run queue before it sleeps. */
int dispatch_take(struct flow *f, unsigned lane, struct delivery *d)
{
    struct group *lease;
    int err = -EAGAIN;

    while ((lease = groups_lease(f->groups)) != NULL) {
        err = group_take(f, lease, lane, d);
        if (!err)
            return 0;
        dispatch_settled(
            f, lease, err == -EMSGSIZE ? GROUP_DIED : GROUP_GOES_ON, 0, false);
        if (err == -EINPROGRESS)
            return -EAGAIN;
        if (err != -ENOENT && err != -EMSGSIZE)
            return err;
        err = -EAGAIN;
    }
    return err;
}

void dispatch_return(struct flow *f, struct message *m, struct group *lease)
{
    if (lease)
        groups_return(f->groups, lease, item_make(f, m));
    else
        ready_put(&f->ready, m, true);
}
