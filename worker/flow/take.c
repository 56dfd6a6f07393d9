/* take.c - the next message for a work item (see take.h and receive.h) */
#include "worker/flow/take.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/quick_lock.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/limits.h"
#include "worker/flow/receive.h"
#include "worker/flow/settle.h"

/* ---- messages that are ready ---- */

void ready_put(struct ready *r, struct message *m, bool front)
{
    pthread_mutex_lock(&r->mtx);
    if (front)
        STAILQ_INSERT_HEAD(&r->list, m, link);
    else
        STAILQ_INSERT_TAIL(&r->list, m, link);
    atomic_fetch_add(&r->waiting, 1);
    attention_on(r->attention, ATTEND_READY);
    pthread_mutex_unlock(&r->mtx);
}

struct message *ready_take(struct ready *r, uint64_t seq)
{
    struct message *m;

    if (ready_empty(r))
        return NULL;
    pthread_mutex_lock(&r->mtx);
    STAILQ_FOREACH (m, &r->list, link)
        if (seq == 0 || m->seq == seq)
            break;
    if (m) {
        STAILQ_REMOVE(&r->list, m, message, link);
        if (atomic_fetch_sub(&r->waiting, 1) == 1)
            attention_off(r->attention, ATTEND_READY);
    }
    pthread_mutex_unlock(&r->mtx);
    return m;
}

/* ---- how long a thread tries before it sleeps ---- */

#define PAUSES 16 /* between two tries: 0.2 to 0.5 us, no system call */

bool spin_on(struct spin *s, uint64_t now_ns)
{
    if (s->tries++ == 0)
        s->since_ns = now_ns;
    if (now_ns - s->since_ns > SPIN_NS) {
        if (s->left > 0)
            s->left--;
        return false;
    }
    /* Let the sender send without contention for the queue. */
    for (int i = 0; i < PAUSES; i++)
        cpu_pause();
    return true;
}

/* ---- second copies of letters, and unique keys ---- */

/* Find a second copy of a letter, or claim the message's unique key for as long
 * as its header says. A message from the store claimed its key before it was
 * stored, and the key may have expired since. A replayed letter lost its key
 * when it died: it claims the key again if the key is free, and runs in any
 * case. */
int known_look(struct flow *f, struct delivery *d)
{
    const struct source_local_ops *local = f->source->local;
    uint64_t ms = d->header.fields & HEADER_UNIQUE_FOR ? d->header.unique_for_ms
                                                       : HEADER_UNIQUE_MS;
    uint64_t most = UINT64_MAX / NS_PER_MS;
    int link = LINK_NONE, err = -EOPNOTSUPP;

    if (d->header.fields & HEADER_LETTER && local)
        link = local->link(f->source, d->message, &d->header);
    if (link < 0)
        return link;
    d->repeat = link == LINK_REPEAT;
    if (d->repeat || !(d->header.fields & HEADER_UNIQUE) ||
        (link != LINK_LETTER &&
         d->message->flags & (MESSAGE_STORED | MESSAGE_KEYED)))
        return 0;
    if (local) {
        (void)message_name(d->message); /* a duplicate is logged with its id */
        err = local->claim(f->source, d->message, d->header.unique,
                           (ms < most ? ms : most) * NS_PER_MS, &d->first);
    }
    if (err == -EOPNOTSUPP && !atomic_exchange(&f->warned_unique, true))
        log_warn("unique_not_looked_at", F_STR("queue", f->set->queue),
                 F_STR("next", "messages with a unique line run as if they had "
                               "none: only POSIX queues have unique keys"));
    d->duplicate = err == -EEXIST && link != LINK_LETTER;
    return err == -EEXIST || err == -EOPNOTSUPP ? 0 : err;
}

/* ---- a message that was just taken: to its group, or to be delivered ---- */

/* Put a message on the ready list, to be sorted again later. Returns `err`. */
__attribute__((noinline)) static int sort_failed(struct work_item *item,
                                                 struct message *m, int err)
{
    ready_put(&item->flow->ready, m, false);
    return err;
}

/* Sort a message with any header, for receive_sort. Not inline, so that
 * receive_sort has a small frame. */
__attribute__((noinline)) static int sort_any(struct work_item *item,
                                              struct message *m)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    uint64_t asks, most;
    int err;

    delivery_sort(d, m, f->set->group_separator);
    /* Log once that a message gets a shorter time limit than its header asks
     * for, because its source limits the time of all attempts together. */
    if (d->header.fields & HEADER_TIMEOUT) {
        asks = delivery_limit_asked(d);
        most = atomic_load(&f->source->timeout_most_ns);
        if (asks > most && most != atomic_load(&f->set->max_timeout_ns) &&
            !atomic_exchange(&f->warned_timeout, true))
            log_warn("timeout_cut", F_STR("queue", f->set->queue),
                     F_STR("msg", delivery_id(d)), F_DURATION("asks", asks),
                     F_DURATION("gets", most),
                     F_STR("next", "with --partitions all attempts have to end "
                                   "in 20m, so no message gets more than "
                                   "--timeout; to allow more, set "
                                   "--max-timeout, which is then the limit"));
    }
    err = known_look(f, d);
    if (!err && (d->repeat || d->duplicate || !d->group.at ||
                 m->flags & MESSAGE_CANCELLED ||
                 (d->header.fields & HEADER_NOT_BEFORE &&
                  delivery_delayed(d, f->set->max_delay_ns))))
        return TAKEN;
    if (!err)
        err = dispatch_enter(f, d);
    if (err < 0)
        return sort_failed(item, m, err);
    item->plain = err == TAKEN && d->lease && !d->unfit && !m->crashes &&
                  !(m->flags & MESSAGE_STORED) &&
                  !(d->header.fields & (HEADER_EXPIRES | HEADER_NOT_BEFORE));
    return err;
}

/* A message whose header has only a group needs no check of keys or times.
 * `flatten` inlines all that it needs into one frame. */
__attribute__((flatten)) int receive_sort(struct work_item *item,
                                          struct message *m)
{
    struct delivery *d = item->d;
    int err;

    if (m->flags & MESSAGE_CANCELLED || m->crashes || !delivery_grouped(d, m))
        return sort_any(item, m);
    err = dispatch_enter(item->flow, d);
    if (err < 0)
        return sort_failed(item, m, err);
    item->plain = d->lease && !(m->flags & MESSAGE_STORED);
    return err;
}

__attribute__((noinline)) int receive_fresh(struct work_item *item)
{
    int err = receive_next(item);

    if (err >= 0)
        run_limits_busy(item->flow);
    return err;
}

/* ---- which message is next ---- */

/* Three kinds of messages take turns: messages of groups, messages that are due
 * in the source, and fresh messages. Messages on the ready list come first.
 * Each turn_ function returns like take_next. */

#define SOON_NS NS_PER_MS /* wait of a due message that failed to sort */

static int turn_due(struct work_item *item)
{
    struct flow *f = item->flow;
    struct source *s = f->source;
    struct message *m;
    unsigned n;
    int err;

    if (!source_due(s))
        return -EAGAIN;
    err = s->ops->take_due(s, item->own.place, &m);
    if (err)
        return err;
    delivery_read(item->d, m, f->set->group_separator);
    if (item->d->group.at)
        err = dispatch_due(f, item->d);
    if (err < 0)
        source_return(s, m, item->own.place, SOON_NS);
    if (err == PUT_BACK || err == -EINPROGRESS)
        return -EAGAIN;
    if (err < 0)
        return err;
    if (err == TAKEN && m->flags & MESSAGE_CANCELLED) {
        settle_cancelled(f, item->d);
        err = TAKEN_NONE;
    }
    /* Count down, but never below 0, even if several threads do this. */
    n = atomic_load(&f->due_first);
    while (n > 0 && !atomic_compare_exchange_weak(&f->due_first, &n, n - 1))
        continue;
    return err;
}

static int turn_fresh(struct work_item *item)
{
    if (!gate_takes(&item->flow->gate) || !dispatch_room(item->flow))
        return -EAGAIN; /* the thread that makes room wakes a work item */
    return receive_fresh(item);
}

static int turn_group(struct work_item *item)
{
    int err = dispatch_take(item->flow, item->own.place, item->d);

    if (err || !(item->d->message->flags & MESSAGE_CANCELLED))
        return err;
    settle_cancelled(item->flow, item->d);
    return TAKEN_NONE;
}

/* Take from one of the three kinds, in turn, so that none starves another.
 * Messages that the last worker had in flight when it stopped come before fresh
 * ones. They are the first due messages, in the order of receipt. Their number
 * is unknown, but it is at most the number of messages that can be lent
 * (due_first). After that many, other messages that are long due cannot keep
 * fresh ones waiting any more. */
static int take_turn(struct work_item *item)
{
    static int (*const turns[])(struct work_item *) = {turn_group, turn_due,
                                                       turn_fresh};
    const unsigned n = sizeof turns / sizeof turns[0];
    struct flow *f = item->flow;
    unsigned some = n; /* the first `some` take turns; the others come last */
    int err = -EAGAIN;

    if (atomic_load_explicit(&f->due_first, memory_order_relaxed) > 0) {
        if (source_due(f->source))
            some = n - 1;
        else
            atomic_store_explicit(&f->due_first, 0, memory_order_relaxed);
    }
    item->turn = (item->turn + 1) % n;
    for (unsigned i = 0; i < n && err == -EAGAIN; i++) {
        unsigned at = i < some ? (item->turn + i) % some : i;

        err = turns[at](item);
        if (turns[at] != turn_fresh && err != -EAGAIN)
            item_read_clock(item); /* the call may have read from disk */
    }
    return err;
}

/* Read the next message into item->d: straight from the source if no other
 * message can be next (the usual case), else in the order above. */
static int take_any(struct work_item *item)
{
    struct flow *f = item->flow;
    struct message *m;
    int err;

    if (gate_takes(&f->gate) && ready_empty(&f->ready) &&
        !source_due(f->source) && dispatch_empty(f)) {
        err = receive_fresh(item);
        if (err != HANDED_OVER)
            return err;
    }
    while ((m = ready_take(&f->ready, 0)) != NULL) {
        item_read_clock(item);
        err = receive_sort(item, m);
        if (err != HANDED_OVER)
            return err;
    }
    do {
        dispatch_relieve(f);
        err = take_turn(item);
    } while (err == HANDED_OVER);
    return err;
}

/* ---- messages that need no handler ---- */

/* Add a message that is not due to the batch that settle_later gives back to
 * the source. */
static void put_later(struct work_item *item)
{
    struct delivery *d = item->d;

    if (d->lease) /* recovery has put it into its group, or the clock was set
                   * back */
        dispatch_settled(item->flow, d->lease, GROUP_GOES_ON, 0, false);
    item->later[item->later_count++] = d->message;
    if (item->later_count == SETTLE_LATER_MOST ||
        backlog_fills(item->flow, item->later_count))
        settle_later(item);
}

/* Handle a message whose header has a time: make it a dead letter if it has
 * expired or its not-before is too far ahead, or let it wait for its
 * not-before. Returns false if it may run now. */
static bool settle_timed(struct work_item *item)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    uint64_t now = clock_wall_ns(), wait = delivery_ahead(d, now);
    char error[HEADER_WHY], text[DURATION_TEXT], most[DURATION_TEXT];

    if (delivery_expired(d, now)) {
        uint64_t ago = (now - d->header.expires_ns) / NS_PER_MS * NS_PER_MS;

        snprintf(error, sizeof error, "expired %s before it was started",
                 duration_print(ago, text));
        settle_dead(f, d, REASON_EXPIRED, error);
    } else if (wait > f->set->max_delay_ns && !f->set->forward) {
        snprintf(error, sizeof error,
                 "not-before lies %s ahead, --max-delay allows %s",
                 duration_print(wait, text),
                 duration_print(f->set->max_delay_ns, most));
        settle_dead(f, d, REASON_BAD_HEADER, error);
    } else if (delivery_delayed(d, f->set->max_delay_ns)) {
        put_later(item);
    } else {
        return false;
    }
    return true;
}

/* Settle a message that ends without a handler, or put it back to wait. Returns
 * false if it has to be delivered. */
static bool settle_unrun(struct work_item *item)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    struct message *m = d->message;

    if (atomic_load_explicit(&m->stale, memory_order_relaxed))
        settle_stale(f, d);
    else if (d->repeat || d->duplicate)
        settle_repeat(f, d);
    else if (m->flags & MESSAGE_CANCELLED)
        settle_cancelled(f, d);
    else if (d->unfit)
        settle_dead(f, d, (enum dead_reason)d->unfit, d->why);
    else if (d->header.fields & (HEADER_EXPIRES | HEADER_NOT_BEFORE) &&
             settle_timed(item))
        return true;
    else if (d->group.at && !d->lease && !(m->flags & MESSAGE_STORED))
        /* The message was not due when it was sorted, and so it is not in its
         * group. Its time may have come since, but it must not run without a
         * lease. */
        put_later(item);
    else if (!m->crashes)
        /* NOLINTNEXTLINE(bugprone-branch-clone): in order of the reasons */
        return false;
    else if (crashes_too_many(f, m))
        settle_dead(f, d, REASON_CRASHED, CRASHES_ERROR);
    else if (crashes_is_suspect(f, m) &&
             !crashes_run_alone(f, m, item->open > 0))
        dispatch_return(f, m, d->lease);
    else
        return false;
    return true;
}

int take_rest(struct work_item *item, int err)
{
    if (err == HANDED_OVER) /* its group may have a message to run */
        return take_next(item);
    if (err || item->plain || !settle_unrun(item))
        return err;
    item_read_clock(item);
    return TAKEN_NONE;
}

/* A message that is settled without a handler is no delivery for the limits of
 * the run. The clock is read after each, because many in a row take time. */
int take_next(struct work_item *item)
{
    struct flow *f = item->flow;
    int err;

    if (!run_limits_take(f))
        return -EAGAIN;
    err = take_any(item);
    if (!err && !settle_unrun(item))
        return TAKEN;
    run_limits_untake(f);
    if (!err)
        item_read_clock(item);
    return err ? err : TAKEN_NONE;
}
