/* receive_next.c - the next message for a work item (see receive_inner.h)
 *
 * Three sources take turns: groups that may run, rows that are due, the queue.
 * What was held (recovered, or given back) goes before all of them.
 */
#include "worker/flow/receive_inner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/flow/backlog.h"
#include "worker/flow/run_limits.h"
#include "worker/source/mq/row_restore.h"
#include "worker/flow/group_dispatch.h"
#include "worker/flow/receive.h"
#include "worker/source/mq/mq_reopen.h"
#include "worker/source/mq/replay.h"
#include "worker/source/mq/due_rows.h"
#include "worker/source/mq/delivery_read.h"

#define SOON_NS NS_PER_MS /* until a row that was put off is tried again */

/* row_arrived - a row is in the item's slot: deliver it, or to its group
 * Crash after it was put off: the slot is FREE, the row waits in the store.
 */
static int row_arrived(struct receive *item, int64_t row)
{
    struct flow *f = item->flow;
    int err = item->d->group.at ? dispatch_due(f, item->d) : 0;

    if (err == PUT_BY)
        return -EAGAIN;
    if (err >= 0)
        return err;
    slot_retire(item->slot);
    due_rows_release(f->due_rows, row);
    due_rows_expect(f->due_rows, clock_steady_ns() + SOON_NS);
    return err == -EINPROGRESS ? -EAGAIN : err;
}

/* take_row - the next row that is due; -EAGAIN if none, HANDED_OVER if it went
 * to its group */
static int take_row(struct receive *item)
{
    struct flow *f = item->flow;
    int64_t row;
    int err;

    while (due_rows_ready(f->due_rows)) {
        err = due_rows_take(f->due_rows, &row);
        if (err)
            return err;
        err = row_restore(&f->row_restore, row, STORE_WAITING, item->slot,
                          item->d);
        if (!err)
            return row_arrived(item, row);
        due_rows_release(f->due_rows, row);
        if (err != -ENOENT && err != -EMSGSIZE) {
            due_rows_expect(f->due_rows, clock_steady_ns() + SOON_NS);
            return err;
        }
    }
    return -EAGAIN;
}

/* expired - its time was over before it was started for the first time */
static bool expired(const struct delivery *d, uint64_t now)
{
    return d->header.fields & HEADER_EXPIRES && d->header.expires_ns <= now &&
           d->slot->failures == 0 &&
           !(slot_word(d->slot).flags & SLOT_REDELIVERED);
}

/* ahead - how far its not-before lay ahead when it was received; 0: the time
 * has come, or it waited for it already */
static uint64_t ahead(const struct delivery *d, uint64_t now)
{
    uint64_t until = d->header.not_before_ns, from = d->slot->received_ns;

    if (!(d->header.fields & HEADER_NOT_BEFORE) || until <= now ||
        d->slot->failures > 0)
        return 0;
    if (from == 0) /* a kill came before that was noted */
        from = now;
    return until > from ? until - from : 0;
}

/* receive_delayed - it is to wait in the store
 * One that waits for nothing, as it has expired already or asks for more than
 * --max-delay, dies in its turn, and nothing of its group passes it meanwhile.
 */
bool receive_delayed(const struct flow *f, const struct delivery *d)
{
    uint64_t now;

    if (d->slot->row || !(d->header.fields & HEADER_NOT_BEFORE))
        return false;
    now = clock_wall_ns();
    return d->header.not_before_ns > now && !expired(d, now) &&
           ahead(d, now) <= f->set->max_delay_ns;
}

/* sort - a message of a group goes to its place: HANDED_OVER; 0 if it has none;
 * -errno: it is held, and sorted again when it is taken */
static int sort(struct receive *item, struct slot *slot)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    int err = 0;

    delivery_read(d, slot, f->set->group_separator);
    if (d->header.fields & HEADER_LETTER)
        err = replay_link(f->store, f->due_rows, d);
    if (!err && (d->repeat || !d->group.at || receive_delayed(f, d)))
        return 0;
    if (!err)
        err = dispatch_enter(f, d);
    if (err < 0)
        ready_put(&f->ready, slot, false);
    return err;
}

/* half_received - the call failed when the message had left the queue: a page
 * of the slot could not be had, although it was stored to just before. The slot
 * stays as a kill would leave it, and the next start runs what is there. So the
 * number is used up: whoever had it next, once settled, would be taken for this
 * one.
 */
static int half_received(struct receive *item, int err)
{
    item->slot = NULL;
    custody_seq_used(item->flow->custody);
    log_error("half_received", F_STR("queue", item->flow->set->queue),
              F_STR("error", strerror(-err)),
              F_STR("next", "its body may be cut; it runs when the worker is "
                            "started again. Look at the disk of --state-dir"));
    return err;
}

/* receive_one - the next message to the item's slot; under receive_mtx
 * Crash anywhere in here: slot_arm and slot_taken say what is left. It leans on
 * the kernel's copy never being given up half-way: the pages are in memory that
 * nothing writes back, allocated and populated (custody_map.c, which locks them
 * where it may). The syncer of `make torture` would notice.
 */
static int receive_one(struct receive *item)
{
    struct flow *f = item->flow;
    const struct slot_fill *fill = custody_fill(f->custody);
    struct slot *slot = item->slot;
    size_t dirty = slot->dirty;
    ssize_t n;
    int err;

    slot_arm(slot, fill, custody_seq_next(f->custody));
    if (f->on_disk)
        slot_warm(slot, fill, dirty, queue_message_size(f->queue));
    FAULT_POINT("receive_before");
    n = queue_receive(f->queue, slot->body, &slot->priority);
    FAULT_POINT("receive_after");
    if (n >= 0) {
        if (item->dwells)
            receive_look(item); /* it was waited for */
        slot_taken(slot, (uint32_t)n, receive_wall(item));
        custody_seq_used(f->custody);
        run_limits_busy(f);
        FAULT_POINT("receive_before_sort");
        err = sort(item, slot); /* here, as its place is that of the queue */
        if (err < 0)
            item->slot = NULL;
        return err;
    }
    if (slot->priority != SLOT_UNSET)
        return half_received(item, (int)n);
    slot_disarm(slot);
    if (n == -EAGAIN && mq_reopen_gone(f->mq_reopen)) {
        err = mq_reopen_now(f->mq_reopen);
        return err ? err : -EAGAIN;
    }
    return (int)n;
}

/* receive_next - the next message of the queue; -EAGAIN if none, HANDED_OVER if
 * it went to its group */
static int receive_next(struct receive *item)
{
    struct flow *f = item->flow;
    int err;

    pthread_mutex_lock(&f->receive_mtx);
    err = receive_one(item);
    pthread_mutex_unlock(&f->receive_mtx);
    return err;
}

/* take_fresh - as receive_next, if there is room for what may come */
static int take_fresh(struct receive *item)
{
    if (!gate_takes(&item->flow->gate) || !dispatch_room(item->flow))
        return -EAGAIN; /* who makes room pokes */
    return receive_next(item);
}

/* take_group - the next message of a group that may run */
static int take_group(struct receive *item)
{
    return dispatch_take(item->flow, item->slot, item->d);
}

/* rows_first - whether rows come before the queue: those that the last worker
 * had taken already, and kept when it stopped
 * They are the first that are due, in the order of their receiving. Their
 * number is not known, but that of its slots is; so what has been due for long
 * besides them cannot keep the queue waiting for good.
 */
static bool rows_first(struct flow *f)
{
    if (atomic_load_explicit(&f->rows_first, memory_order_relaxed) == 0)
        return false;
    if (due_rows_ready(f->due_rows))
        return true;
    atomic_store_explicit(&f->rows_first, 0, memory_order_relaxed);
    return false;
}

/* row_came - one less; of two threads that count down to 0 one counts */
static void row_came(struct flow *f)
{
    unsigned n = atomic_load(&f->rows_first);

    while (n > 0 && !atomic_compare_exchange_weak(&f->rows_first, &n, n - 1))
        continue;
}

/* take_source - one of the three, in turn: none starves another */
static int take_source(struct receive *item)
{
    static int (*const sources[])(struct receive *) = {take_group, take_row,
                                                       take_fresh};
    const unsigned n = sizeof sources / sizeof sources[0];
    /* Of how many it is the turn; the others come after them. */
    const unsigned some = rows_first(item->flow) ? n - 1 : n;
    int err = -EAGAIN;

    item->turn = (item->turn + 1) % n;
    for (unsigned i = 0; i < n && err == -EAGAIN; i++) {
        unsigned at = i < some ? (item->turn + i) % some : i;

        err = sources[at](item);
        if (sources[at] == take_row && err >= 0)
            row_came(item->flow);
        if (sources[at] != take_fresh && err != -EAGAIN)
            receive_look(item); /* the store may have been read */
    }
    return err;
}

/* only_fresh - there is nothing but the queue to take from: the usual case, and
 * so the short way */
static bool only_fresh(const struct receive *item)
{
    struct flow *f = item->flow;

    return item->slot && gate_takes(&f->gate) && ready_empty(&f->ready) &&
           !due_rows_ready(f->due_rows) && dispatch_empty(f);
}

/* take_any - the next message, HELD, read, in item->d */
static int take_any(struct receive *item)
{
    struct flow *f = item->flow;
    struct slot *held;
    int err;

    if (only_fresh(item)) {
        err = receive_next(item);
        if (err != HANDED_OVER)
            return err;
        item->slot = NULL;
    }
    while ((held = ready_take(&f->ready)) != NULL) {
        receive_look(item);
        err = sort(item, held);
        if (err != HANDED_OVER)
            return err;
    }
    do {
        dispatch_relieve(f);
        if (!item->slot)
            item->slot = custody_acquire(f->custody);
        if (!item->slot)
            return -EAGAIN; /* who frees one pokes */
        err = take_source(item);
        if (err == HANDED_OVER)
            item->slot = NULL;
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

/* put_later - it is not due; in a batch to the store */
static enum settled put_later(struct receive *item)
{
    struct delivery *d = item->d;

    if (d->lease) /* held at a start, or the clock was set back */
        dispatch_settled(item->flow, d->lease, NULL, false);
    item->later[item->later_count++] = d->slot;
    if (item->later_count == SETTLE_LATER_MOST ||
        backlog_fills(item->flow, item->later_count))
        take_flush(item);
    return SETTLED_KEPT;
}

/* not_in_line - of a group, and sort saw that it was not due; the time may have
 * come since, but it has no lease, so it does not run from here */
static bool not_in_line(const struct delivery *d)
{
    return d->group.at && !d->lease && d->slot->row == 0;
}

/* outlived - its time was over before it was started: a dead letter */
static enum settled outlived(struct flow *f, struct delivery *d, uint64_t now)
{
    uint64_t ago = (now - d->header.expires_ns) / NS_PER_MS * NS_PER_MS;
    char error[64], text[DURATION_TEXT];

    snprintf(error, sizeof error, "expired %s before it was started",
             duration_print(ago, text));
    return settle_dead(f, d, REASON_EXPIRED, error);
}

/* too_far - it asks to wait for longer than it may: a dead letter */
static enum settled too_far(struct flow *f, struct delivery *d, uint64_t wait)
{
    char error[HEADER_WHY], asks[DURATION_TEXT], most[DURATION_TEXT];

    snprintf(
        error, sizeof error, "not-before lies %s ahead, --max-delay allows %s",
        duration_print(wait, asks), duration_print(f->set->max_delay_ns, most));
    return settle_dead(f, d, REASON_BAD_HEADER, error);
}

/* timed - a message with a time of its own: it comes to its end, or waits */
static bool timed(struct receive *item, enum settled *settled)
{
    struct flow *f = item->flow;
    struct delivery *d = item->d;
    uint64_t now = clock_wall_ns(), wait = ahead(d, now);

    if (expired(d, now))
        *settled = outlived(f, d, now);
    else if (wait > f->set->max_delay_ns)
        *settled = too_far(f, d, wait);
    else if (receive_delayed(f, d))
        *settled = put_later(item);
    else
        return false;
    return true;
}

/* needs_none - the message comes to its end, or waits, without a handler */
static bool needs_none(struct receive *item, enum settled *settled)
{
    struct delivery *d = item->d;

    if (d->repeat)
        *settled = settle_repeat(item->flow, d);
    else if (d->broken)
        *settled = settle_dead(item->flow, d, REASON_BAD_HEADER, d->why);
    else if (d->header.fields & (HEADER_EXPIRES | HEADER_NOT_BEFORE) &&
             timed(item, settled))
        return true;
    else if (not_in_line(d))
        *settled = put_later(item);
    else
        return false;
    return true;
}

/* take - what is settled without a handler is no delivery, and may have been
 * many: the item's time limit counts it, so it looks at the clock */
int take(struct receive *item)
{
    struct flow *f = item->flow;
    enum settled settled;
    int err;

    if (!run_limits_take(f))
        return -EAGAIN;
    err = take_any(item);
    if (err) {
        run_limits_untake(f);
        return err;
    }
    if (!needs_none(item, &settled))
        return 0;
    receive_slot_back(item, item->d, settled);
    run_limits_untake(f);
    receive_look(item);
    return TAKEN_NONE;
}
