/* group_park.c - messages leave the line of their group without a run: to wait
 * in the source, or as an operator cancelled them (see group_dispatch.h) */
#include "worker/flow/group_dispatch.h"

#include <errno.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch_inner.h"

#define AGAIN_NS NS_PER_S /* what could not be parked is due again */

/* crowded - half the lookahead is taken and some of it cannot run; or no more
 * can be lent, and what it waits for needs that, whatever the bounds say. Where
 * the source has no place for it, all of it stays lent. */
static bool crowded(const struct flow *f)
{
    const struct groups *g = f->dispatch->groups;

    if (!dispatch_parks(f))
        return false;
    return groups_parkable(g) > 0 &&
           (f->source->ops->room(f->source) == 0 ||
            (groups_waiting(g) * 2 >= f->set->lookahead &&
             groups_parked(g) < f->set->max_parked));
}

bool dispatch_must_park(const struct flow *f)
{
    return crowded(f) && !atomic_load(&f->dispatch->parking);
}

/* dispatch_room - --lookahead of what is lent, --max-parked */
bool dispatch_room(struct flow *f)
{
    struct dispatch *o = f->dispatch;

    if (groups_parked(o->groups) < f->set->max_parked) {
        atomic_store_explicit(&o->full_told, false, memory_order_relaxed);
        return groups_waiting(o->groups) < f->set->lookahead;
    }
    if (!atomic_exchange(&o->full_told, true))
        log_warn(
            "parked_full", F_STR("queue", f->set->queue),
            F_UINT("parked", groups_parked(o->groups)),
            F_STR(
                "next",
                "no message is received, not even a replay, until blocked "
                "groups continue. To let a replay in, raise --max-parked "
                "(mqctl set QUEUE max-parked=N); to let a held group continue, "
                "use mqdlq discard or mqctl group QUEUE KEY release"));
    return false;
}

/* park_settle - what the source is asked to do with it */
static struct settle park_settle(struct message *m, unsigned lane,
                                 struct header_text group, size_t header_size)
{
    return (struct settle){.m = m,
                           .kind = SETTLE_PARK,
                           .lane = lane,
                           .group = group,
                           .header_size = header_size};
}

/* dispatch_put_by - parked, or if that fails, back to where it was
 * Any number may be due at once. Were they all to stay lent, no room would be
 * left to run one of them; so one that cannot be parked goes back, too.
 * Crash before it is durable: it waits as before. After it: it is parked, and
 * was not run.
 */
int dispatch_put_by(struct flow *f, struct delivery *d, struct group_item *item)
{
    struct groups *g = f->dispatch->groups;
    struct message *m = d->message;
    struct settle st = park_settle(m, d->place, d->group, d->header.bytes);
    int err = groups_park_one(g, d->group.at, d->group.size, item);

    if (err)
        return err;
    err = f->source->ops->settle(f->source, &st, 1);
    if (err) { /* it waits there as before */
        groups_park_undo(g, item);
        source_return(f->source, m, d->place, AGAIN_NS);
        gate_trouble(&f->gate, "parking a message in the store", -err);
        return PUT_BY;
    }
    FAULT_POINT("park_due_after_put");
    groups_park_end(g, &item, 1, true);
    return PUT_BY;
}

/* park - what was taken out of its place, in one commit
 * Crash before it: each message is lent, and was not run. After it: it is
 * parked, as the source finds out.
 */
static int park(struct flow *f, size_t n)
{
    struct dispatch *o = f->dispatch;
    struct header header;
    char why[HEADER_WHY];

    for (size_t i = 0; i < n; i++) {
        struct member *one = CONTAINER_OF(o->items[i], struct member, item);
        struct header_text key; /* it was found by this one */

        if (header_parse(one->m->data, one->m->size, &header, why) < 0)
            header.bytes = 0;
        key.at = groups_key(one->item.group, &key.size);
        o->parks[i] = park_settle(one->m, LANE_NONE, key, header.bytes);
    }
    return f->source->ops->settle(f->source, o->parks, n);
}

/* parked - the member of each is used until they are given back */
static void parked(struct flow *f, size_t n)
{
    struct dispatch *o = f->dispatch;

    FAULT_POINT("park_after_put");
    groups_park_end(o->groups, o->items, n, true);
    for (size_t i = 0; i < n; i++)
        f->source->ops->release(f->source, o->parks[i].m);
    backlog_look(f);
}

/* park_some - one commit; whether there was something to park */
static bool park_some(struct flow *f)
{
    struct dispatch *o = f->dispatch;
    size_t n = groups_park_begin(o->groups, o->items, SETTLE_MOST);
    int err = n ? park(f, n) : 0;

    if (err) {
        groups_park_end(o->groups, o->items, n, false);
        gate_trouble(&f->gate, "parking messages in the store", -err);
    } else if (n) {
        parked(f, n);
    }
    return n && !err;
}

/* dispatch_relieve - park until there is room
 * A thread that finds another one parking goes away, and nobody else would see
 * that the lookahead was filled meanwhile: so the thread that parked looks
 * again after it has said that it does not park any more. While a delay after
 * trouble runs it does not try again: take_any calls this for each message.
 */
void dispatch_relieve(struct flow *f)
{
    struct dispatch *o = f->dispatch;
    bool more = true;

    while (more && crowded(f) && !(atomic_load(&f->gate.holds) & HOLD_QUEUE) &&
           !atomic_exchange(&o->parking, true)) {
        more = park_some(f);
        atomic_store(&o->parking, false);
    }
}

/* is_letter - its group waits for it; what was only given back, before it was
 * delivered, is none */
static bool is_letter(const struct group_item *item)
{
    const struct member *one = CONTAINER_OF(item, const struct member, item);

    return (one->m->flags & MESSAGE_FRONT) != 0;
}

struct message *dispatch_pull(struct flow *f, struct header_text key,
                              uint64_t seq)
{
    struct group_item *item =
        groups_pull(f->dispatch->groups, key.at, key.size, seq, is_letter);

    return item ? CONTAINER_OF(item, struct member, item)->m : NULL;
}

/* dispatch_pulled - its member is used until its group was told */
void dispatch_pulled(struct flow *f, struct header_text key, struct message *m,
                     bool gone)
{
    struct dispatch *o = f->dispatch;
    struct group_item *item = &o->members[m->index].item;

    if (!gone) {
        groups_park_end(o->groups, &item, 1, false);
        return;
    }
    groups_park_undo(o->groups, item);
    if (closings_any(&o->closings))
        close_look(f, key.at, key.size);
}
