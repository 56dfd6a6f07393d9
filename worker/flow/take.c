/* take.c - the next message for a work item (see receive.h) */
#include "worker/flow/receive.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/quick_lock.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/limits.h"
#include "worker/flow/settle.h"

/* ---- messages that are ready ---- */

void ready_init(struct ready *r, struct attention *attention)
{
    r->attention = attention;
    pthread_mutex_init(&r->mtx, NULL);
    STAILQ_INIT(&r->list);
}

void ready_fini(struct ready *r)
{
    pthread_mutex_destroy(&r->mtx);
}

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

struct message *ready_take(struct ready *r)
{
    struct message *m;

    if (ready_empty(r))
        return NULL;
    pthread_mutex_lock(&r->mtx);
    m = STAILQ_FIRST(&r->list);
    if (m) {
        STAILQ_REMOVE_HEAD(&r->list, link);
        if (atomic_fetch_sub(&r->waiting, 1) == 1)
            attention_off(r->attention, ATTEND_READY);
    }
    pthread_mutex_unlock(&r->mtx);
    return m;
}

struct message *ready_pull(struct ready *r, uint64_t seq)
{
    struct message *m;

    pthread_mutex_lock(&r->mtx);
    STAILQ_FOREACH (m, &r->list, link)
        if (m->seq == seq)
            break;
    if (m) {
        STAILQ_REMOVE(&r->list, m, message, link);
        if (atomic_fetch_sub(&r->waiting, 1) == 1)
            attention_off(r->attention, ATTEND_READY);
    }
    pthread_mutex_unlock(&r->mtx);
    return m;
}

/* ---- whether an empty queue is tried again at once ---- */

#define PAUSES 16 /* between two tries: 0.2 to 0.5 us */

bool spin_begin(struct spin *s)
{
    return s->tries > 0 || s->left > 0 || ++s->skipped % SPIN_SKIP == 0;
}

void spin_pause(void)
{
    for (int i = 0; i < PAUSES; i++)
        cpu_pause();
}

/* spin_on - the other side gets on meanwhile, without a lock of the queue */
bool spin_on(struct spin *s, uint64_t now_ns)
{
    if (s->tries++ == 0)
        s->since_ns = now_ns;
    if (now_ns - s->since_ns > SPIN_NS) {
        if (s->left > 0)
            s->left--;
        return false;
    }
    spin_pause();
    return true;
}

/* ---- one work item takes at a time ---- */

#define TRIES     40 /* of a mutex that another one has: some 10 us */
#define VAIN_MOST 4  /* in a row; then it is slept for at once */
#define VAIN_SKIP 64 /* times, until it is tried again */

void solo_init(struct solo *s)
{
    *s = (struct solo){0};
    pthread_mutex_init(&s->mtx, NULL);
}

void solo_fini(struct solo *s)
{
    pthread_mutex_destroy(&s->mtx);
}

/* Try to take the lock for a while. */
static bool lock_try(struct solo *s)
{
    for (int i = 0; i < TRIES; i++) {
        spin_pause();
        if (pthread_mutex_trylock(&s->mtx) == 0)
            return true;
    }
    return false;
}

/* A thread that receives from a full queue wakes the sender, which runs at once
 * in its place. The thread still has the mutex, and runs again when the sender
 * has sent a message or two: in less time than a sleep and a wake-up take.
 * If two threads count a wait in vain, one count may be lost: it only decides
 * whether the next lock is tried for. */
void solo_wait(struct solo *s)
{
    unsigned vain = atomic_load_explicit(&s->vain, memory_order_relaxed);

    if (vain >= VAIN_MOST || !lock_try(s)) {
        pthread_mutex_lock(&s->mtx);
        atomic_store_explicit(&s->vain, (vain + 1) % VAIN_SKIP,
                              memory_order_relaxed);
    } else if (vain > 0) {
        atomic_store_explicit(&s->vain, 0, memory_order_relaxed);
    }
}

/* ---- whether a message was here before ---- */

#define KNOWN (HEADER_LETTER | HEADER_UNIQUE)

/* Ask the source whether a message whose header says so is a letter, or a
 * second copy of one. */
static int letter_look(struct flow *f, struct delivery *d, bool *letter)
{
    const struct source_local_ops *local = f->source->local;
    int is = local ? local->link(f->source, d->message, &d->header) : LINK_NONE;

    d->repeat = is == LINK_REPEAT;
    *letter = is == LINK_LETTER;
    return is < 0 ? is : 0;
}

/* Say once that messages run as if they had no key. */
static int keys_ignored(struct flow *f)
{
    if (!atomic_exchange(&f->unique_told, true))
        log_warn("unique_not_looked_at", F_STR("queue", f->set->queue),
                 F_STR("next", "messages with a unique line run as if they had "
                               "none: there are keys for a POSIX queue only, "
                               "none for a broker's"));
    return 0;
}

/* Claim the message's unique key for its time. A message from the store
 * claimed its key before it was stored, and the key may have expired since. A
 * replayed letter gave its key back when it died: the letter claims the key
 * again if it is free, and runs in any case.
 */
static int key_claim(struct flow *f, struct delivery *d, bool letter)
{
    uint64_t ms = d->header.fields & HEADER_UNIQUE_FOR ? d->header.unique_for_ms
                                                       : HEADER_UNIQUE_MS;
    uint64_t most = UINT64_MAX / NS_PER_MS;
    int err;

    if (!letter && d->message->flags & (MESSAGE_STORED | MESSAGE_KEYED))
        return 0;
    if (!f->source->local)
        return keys_ignored(f);
    (void)message_name(d->message); /* a duplicate of it names it */
    err =
        f->source->local->claim(f->source, d->message, d->header.unique,
                                (ms < most ? ms : most) * NS_PER_MS, &d->first);
    if (err == -EOPNOTSUPP)
        return keys_ignored(f);
    d->duplicate = err == -EEXIST && !letter;
    return err == -EEXIST ? 0 : err;
}

int known_look(struct flow *f, struct delivery *d)
{
    bool letter = false;
    int err = 0;

    if (!(d->header.fields & KNOWN))
        return 0;
    if (d->header.fields & HEADER_LETTER)
        err = letter_look(f, d, &letter);
    if (!err && !d->repeat && d->header.fields & HEADER_UNIQUE)
        err = key_claim(f, d, letter);
    return err;
}

/* ---- which message is next ---- */

/* Three take turns: groups that may run, what is due in the source, what is
 * fresh there. What was held (recovered, or given back) goes before all of
 * them.
 */

#define SOON_NS NS_PER_MS /* until a due one that was put off is tried again */

/* end_due - a cancelled one comes to its end, and its group goes on */
static int end_due(struct receive *item)
{
    int err = item->d->group.at ? dispatch_end(item->flow, item->d) : 0;

    if (err)
        return err;
    settle_cancelled(item->flow, item->d);
    return TAKEN_NONE;
}

/* take_due - the next that is due: to be delivered, or to its group */
static int take_due(struct receive *item)
{
    struct flow *f = item->flow;
    struct source *s = f->source;
    struct message *m;
    int err;

    if (!source_due(s))
        return -EAGAIN;
    err = s->ops->take_due(s, item->own.place, &m);
    if (err)
        return err;
    delivery_read(item->d, m, f->set->group_separator);
    if (m->flags & MESSAGE_CANCELLED)
        err = end_due(item);
    else if (item->d->group.at)
        err = dispatch_due(f, item->d);
    if (err < 0)
        source_return(s, m, item->own.place, SOON_NS);
    return err == PUT_BY || err == -EINPROGRESS ? -EAGAIN : err;
}

/* is_plain - it has the lease of its group, no time of its own, and is no
 * letter */
static bool is_plain(const struct delivery *d)
{
    return d->lease && !d->unfit && !d->message->crashes &&
           !(d->message->flags & MESSAGE_STORED) &&
           !(d->header.fields & (HEADER_EXPIRES | HEADER_NOT_BEFORE));
}

/* unsorted - it is sorted again when it is taken: `err` */
__attribute__((noinline)) static int unsorted(struct receive *item,
                                              struct message *m, int err)
{
    ready_put(&item->flow->ready, m, false);
    return err;
}

/* timeout_look - a message that stays in hand asks for more time than counts
 * there, and gets the worker's own limit: said once */
static void timeout_look(struct flow *f, struct delivery *d)
{
    uint64_t asks = delivery_limit_asked(d);
    uint64_t most = atomic_load(&f->source->timeout_most_ns);

    if (asks <= most || most == atomic_load(&f->set->max_timeout_ns) ||
        atomic_exchange(&f->timeout_told, true))
        return;
    log_warn("timeout_cut", F_STR("queue", f->set->queue),
             F_STR("msg", delivery_id(d)), F_DURATION("asks", asks),
             F_DURATION("gets", most),
             F_STR("next", "with --partitions no message has a longer time "
                           "limit than --timeout, as all attempts have to end "
                           "in 20m; --max-timeout allows more, and counts"));
}

/* sort_any - as receive_sort; not inline, as that has a small frame */
__attribute__((noinline)) static int sort_any(struct receive *item,
                                              struct message *m)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    int err;

    delivery_sort(d, m, f->set->group_separator);
    if (d->header.fields & HEADER_TIMEOUT)
        timeout_look(f, d);
    err = known_look(f, d);
    if (!err && (d->repeat || d->duplicate || !d->group.at ||
                 m->flags & MESSAGE_CANCELLED ||
                 (d->header.fields & HEADER_NOT_BEFORE &&
                  delivery_delayed(d, f->set->max_delay_ns))))
        return 0;
    if (!err)
        err = dispatch_enter(f, d);
    if (err < 0)
        return unsorted(item, m, err);
    item->plain = err == TAKEN && is_plain(d);
    return err;
}

/* receive_sort - a message of a group goes to its place: HANDED_OVER; 0 if it
 * has none; -errno: it is ready, and sorted again when it is taken
 * One whose header names its group and no more has neither a key nor a time of
 * its own. All that its usual way needs has one frame.
 */
__attribute__((flatten)) int receive_sort(struct receive *item,
                                          struct message *m)
{
    struct delivery *d = item->d;
    int err;

    if (m->flags & MESSAGE_CANCELLED || m->crashes || !delivery_grouped(d, m))
        return sort_any(item, m);
    err = dispatch_enter(item->flow, d);
    if (err < 0)
        return unsorted(item, m, err);
    item->plain = d->lease && !(m->flags & MESSAGE_STORED);
    return err;
}

int receive_marked(struct receive *item, struct message *m)
{
    item->plain = false;
    return receive_sort(item, m);
}

/* receive_any - as receive_next, in a run that may end by itself */
__attribute__((noinline)) static int receive_any(struct receive *item)
{
    int err = receive_next(item);

    if (err >= 0)
        run_limits_busy(item->flow);
    return err;
}

/* take_fresh - as receive_next, if there is room for what may come */
static int take_fresh(struct receive *item)
{
    if (!gate_takes(&item->flow->gate) || !dispatch_room(item->flow))
        return -EAGAIN; /* who makes room wakes us */
    return receive_any(item);
}

/* take_group - the next message of a group that may run */
static int take_group(struct receive *item)
{
    int err = dispatch_take(item->flow, item->own.place, item->d);

    if (err || !(item->d->message->flags & MESSAGE_CANCELLED))
        return err;
    settle_cancelled(item->flow, item->d);
    return TAKEN_NONE;
}

/* due_first - whether due ones come before fresh ones: those that the last
 * worker had taken already, and kept when it stopped
 * They are the first that are due, in the order of their receiving. Their
 * number is not known, but how many can be lent is; so what has been due for
 * long besides them cannot keep fresh ones waiting for good.
 */
static bool due_first(struct flow *f)
{
    if (atomic_load_explicit(&f->due_first, memory_order_relaxed) == 0)
        return false;
    if (source_due(f->source))
        return true;
    atomic_store_explicit(&f->due_first, 0, memory_order_relaxed);
    return false;
}

/* due_came - one less; of two threads that count down to 0 one counts */
static void due_came(struct flow *f)
{
    unsigned n = atomic_load(&f->due_first);

    while (n > 0 && !atomic_compare_exchange_weak(&f->due_first, &n, n - 1))
        continue;
}

/* take_turn - one of the three, in turn: none starves another */
static int take_turn(struct receive *item)
{
    static int (*const turns[])(struct receive *) = {take_group, take_due,
                                                     take_fresh};
    const unsigned n = sizeof turns / sizeof turns[0];
    /* Of how many it is the turn; the others come after them. */
    const unsigned some = due_first(item->flow) ? n - 1 : n;
    int err = -EAGAIN;

    item->turn = (item->turn + 1) % n;
    for (unsigned i = 0; i < n && err == -EAGAIN; i++) {
        unsigned at = i < some ? (item->turn + i) % some : i;

        err = turns[at](item);
        if (turns[at] == take_due && err >= 0)
            due_came(item->flow);
        if (turns[at] != take_fresh && err != -EAGAIN)
            receive_look(item); /* a disk may have been read */
    }
    return err;
}

/* only_fresh - there is nothing but fresh ones to take: the usual case, and so
 * the short way */
static bool only_fresh(const struct receive *item)
{
    struct flow *f = item->flow;

    return gate_takes(&f->gate) && ready_empty(&f->ready) &&
           !source_due(f->source) && dispatch_empty(f);
}

/* take_any - the next message, read, in item->d */
static int take_any(struct receive *item)
{
    struct flow *f = item->flow;
    struct message *held;
    int err;

    if (only_fresh(item)) {
        err = receive_any(item);
        if (err != HANDED_OVER)
            return err;
    }
    while ((held = ready_take(&f->ready)) != NULL) {
        receive_look(item);
        err = receive_sort(item, held);
        if (err != HANDED_OVER)
            return err;
    }
    do {
        dispatch_relieve(f);
        err = take_turn(item);
    } while (err == HANDED_OVER);
    return err;
}

/* take_flush - in one commit */
void take_flush(struct receive *item)
{
    size_t n = item->later_count;

    item->later_count = 0;
    if (n)
        settle_later(item->flow, item->later, n);
}

/* put_later - it is not due; in a batch back to the source */
static void put_later(struct receive *item)
{
    struct delivery *d = item->d;

    if (d->lease) /* held at a start, or the clock was set back */
        dispatch_settled(item->flow, d->lease, GROUP_GOES_ON, 0, false);
    item->later[item->later_count++] = d->message;
    if (item->later_count == SETTLE_LATER_MOST ||
        backlog_fills(item->flow, item->later_count))
        take_flush(item);
}

/* not_in_line - of a group, and sort saw that it was not due; the time may have
 * come since, but it has no lease, so it does not run from here */
static bool not_in_line(const struct delivery *d)
{
    return d->group.at && !d->lease && !(d->message->flags & MESSAGE_STORED);
}

/* outlived - bury a message that expired before this start */
static void outlived(struct flow *f, struct delivery *d, uint64_t now)
{
    uint64_t ago = (now - d->header.expires_ns) / NS_PER_MS * NS_PER_MS;
    char error[64], text[DURATION_TEXT];

    snprintf(error, sizeof error, "expired %s before it was started",
             duration_print(ago, text));
    settle_dead(f, d, REASON_EXPIRED, error);
}

/* too_far - it asks to wait for longer than it may: a dead letter */
static void too_far(struct flow *f, struct delivery *d, uint64_t wait)
{
    char error[HEADER_WHY], asks[DURATION_TEXT], most[DURATION_TEXT];

    snprintf(
        error, sizeof error, "not-before lies %s ahead, --max-delay allows %s",
        duration_print(wait, asks), duration_print(f->set->max_delay_ns, most));
    settle_dead(f, d, REASON_BAD_HEADER, error);
}

/* timed - a message with a time of its own: it comes to its end, or waits */
static bool timed(struct receive *item)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    uint64_t now = clock_wall_ns(), wait = delivery_ahead(d, now);

    if (delivery_expired(d, now))
        outlived(f, d, now);
    else if (wait > f->set->max_delay_ns && !f->set->forward)
        too_far(f, d, wait);
    else if (delivery_delayed(d, f->set->max_delay_ns))
        put_later(item);
    else
        return false;
    return true;
}

/* Settle a message under which the worker crashed too often, or put it back if
 * it is to run alone and others run. Returns false if it may run now. */
static bool item_crashed(struct receive *item)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;

    if (crashes_too_many(f, d->message))
        settle_dead(f, d, REASON_CRASHED, CRASHES_ERROR);
    else if (crashes_is_suspect(f, d->message) &&
             !crashes_run_alone(f, d->message, item->open > 0))
        decision_give_back(f, d->message, d->lease);
    else
        return false;
    return true;
}

/* needs_none - the message comes to its end, or waits, without a handler */
static bool needs_none(struct receive *item)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;

    if (atomic_load_explicit(&d->message->stale, memory_order_relaxed))
        settle_stale(f, d);
    else if (d->repeat || d->duplicate)
        settle_repeat(f, d);
    else if (d->message->flags & MESSAGE_CANCELLED)
        settle_cancelled(f, d);
    else if (d->unfit)
        settle_dead(f, d, (enum dead_reason)d->unfit, d->why);
    else if (d->header.fields & (HEADER_EXPIRES | HEADER_NOT_BEFORE) &&
             timed(item))
        return true;
    else if (not_in_line(d))
        put_later(item);
    else
        return d->message->crashes && item_crashed(item);
    return true;
}

/* receive_needs_none - as for take */
int receive_needs_none(struct receive *item, int err)
{
    if (err || item->plain || !needs_none(item))
        return err;
    receive_look(item);
    return TAKEN_NONE;
}

/* take_straight - there is nothing but fresh ones to take, and no end of the
 * run: the usual case */
int take_straight(struct receive *item)
{
    int err = receive_any(item);

    if (err == HANDED_OVER) /* what its group has may run now */
        return take(item);
    return receive_needs_none(item, err);
}

/* take - what is settled without a handler is no delivery, and may have been
 * many: the item's time limit counts it, so it looks at the clock */
int take(struct receive *item)
{
    struct flow *f = item->flow;
    int err;

    if (!run_limits_take(f))
        return -EAGAIN;
    err = take_any(item);
    if (err) {
        run_limits_untake(f);
        return err;
    }
    if (!needs_none(item))
        return 0;
    run_limits_untake(f);
    receive_look(item);
    return TAKEN_NONE;
}
