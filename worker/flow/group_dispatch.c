/* group_dispatch.c - messages of groups: from slots and the store to a thread
 * (see group_dispatch.h) */
#include "worker/flow/group_dispatch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/flow/flow.h"
#include "worker/source/mq/row_restore.h"
#include "worker/source/mq/group_hold_watch.h"
#include "worker/source/mq/row.h"
#include "worker/source/mq/delivery_read.h"

#define PARK_MOST 64       /* messages in one commit */
#define AGAIN_NS  NS_PER_S /* a row that could not be parked is due again */

/* A slot whose message waits in its group; one for each slot. */
struct member {
    struct group_item item;
    struct slot *slot;
};

/* c = constant after open   p = whoever set parking   a = atomic */
struct dispatch {
    struct groups *groups;  /* c */
    struct member *members; /* c  by slot index */
    atomic_bool parking;    /* a  one thread parks at a time: in order */
    struct group_item *items[PARK_MOST]; /* p */
    struct store_row rows[PARK_MOST];    /* p */
    struct delivery read[PARK_MOST];     /* p */
    atomic_bool full_told; /* a  the bound of parked messages was logged */
};

int dispatch_open(struct dispatch **out, struct flow *f, unsigned slots)
{
    struct dispatch *o = calloc(1, sizeof *o);
    int err = -ENOMEM;

    *out = NULL;
    if (o)
        o->members = calloc(slots, sizeof *o->members);
    if (o && o->members)
        err = groups_open(&o->groups, (unsigned)f->set->group_quantum);
    if (err) {
        if (o)
            free(o->members);
        free(o);
        return err;
    }
    /* A letter on its way keeps its group waiting; a parked row is none. */
    if (f->set->on_group_dead == GROUP_DEAD_HOLD)
        groups_keep_front(o->groups);
    *out = o;
    return 0;
}

void dispatch_close(struct dispatch **dispatch)
{
    struct dispatch *o = *dispatch;

    if (!o)
        return;
    *dispatch = NULL;
    groups_close(&o->groups);
    free(o->members);
    free(o);
}

/* dispatch_restore - one pass over the groups that have rows */
int dispatch_restore(struct flow *f)
{
    char key[HEADER_VALUE_MAX];
    struct store_group g;
    size_t size = 0;
    int err;

    while ((err = store_next_group(f->store, key, &size, &g)) == 0) {
        bool held = f->set->on_group_dead == GROUP_DEAD_HOLD && g.letters > 0;

        err = groups_restore(f->dispatch->groups, key, size, g.parked, g.head,
                             held);
        if (err)
            return err;
    }
    return err == -ENOENT ? 0 : err;
}

/* crowded - half the lookahead is taken and some of it cannot run; or no slot
 * is left, and what it waits for needs one, whatever the bounds say */
static bool crowded(const struct flow *f)
{
    const struct groups *g = f->dispatch->groups;

    return groups_stuck(g) > 0 &&
           (custody_free_slots(f->custody) == 0 ||
            (groups_waiting(g) * 2 >= f->set->lookahead &&
             groups_parked(g) < f->set->max_parked));
}

bool dispatch_stuck(const struct flow *f)
{
    return crowded(f) && !atomic_load(&f->dispatch->parking);
}

bool dispatch_ready(const struct flow *f)
{
    return groups_ready(f->dispatch->groups) > 0 || dispatch_stuck(f);
}

bool dispatch_empty(const struct flow *f)
{
    const struct dispatch *o = f->dispatch;

    return groups_waiting(o->groups) == 0 && groups_parked(o->groups) == 0 &&
           groups_ready(o->groups) == 0;
}

/* dispatch_room - lookahead in slots, --max-parked in the store */
bool dispatch_room(struct flow *f)
{
    struct dispatch *o = f->dispatch;

    if (groups_parked(o->groups) < f->set->max_parked) {
        atomic_store_explicit(&o->full_told, false, memory_order_relaxed);
        return groups_waiting(o->groups) < f->set->lookahead;
    }
    if (!atomic_exchange(&o->full_told, true))
        log_warn("parked_full", F_STR("queue", f->set->queue),
                 F_UINT("parked", groups_parked(o->groups)),
                 F_STR("next",
                       "nothing more is received, not even a replay, until "
                       "blocked groups go on; mqdlq discard frees a group "
                       "that is held, or raise --max-parked"));
    return false;
}

/* member_of - the place of a slot */
static struct member *member_of(struct flow *f, struct slot *slot)
{
    return &f->dispatch->members[custody_index(f->custody, slot)];
}

/* member_make - what stands in a group for a message in a slot
 * A letter that an operator sent again goes first: it is what a held group
 * waits for.
 */
static struct member *member_make(struct flow *f, const struct delivery *d)
{
    struct member *m = member_of(f, d->slot);

    m->slot = d->slot;
    m->item.seq = d->slot->seq;
    m->item.priority = d->letter || d->front ? GROUP_FRONT : d->slot->priority;
    return m;
}

/* refused - its group does not take it */
static int refused(struct delivery *d, int err)
{
    if (err != -ESHUTDOWN)
        return err;
    d->broken = true;
    strcpy(d->why, "its group was closed");
    return 0;
}

/* dispatch_add - to its place in its group */
int dispatch_add(struct flow *f, struct delivery *d)
{
    struct member *m = member_make(f, d);
    int err =
        groups_add(f->dispatch->groups, d->group.at, d->group.size, &m->item);

    return err ? refused(d, err) : HANDED_OVER;
}

/* dispatch_enter - at once, if there is nothing to wait for */
int dispatch_enter(struct flow *f, struct delivery *d)
{
    int err = groups_pass(f->dispatch->groups, d->group.at, d->group.size,
                          d->slot->priority, &d->lease);

    return err == -EAGAIN ? dispatch_add(f, d) : err;
}

/* put_by - a due message to the store again, behind what its group has there
 * Any number may be due at once. Were they all to wait in slots, none would be
 * left to run one of them; so one that cannot be written goes back, too.
 * Crash before the commit: it waits as before. After it: it is parked, and
 * recovery frees the slot, which has not run.
 */
static int put_by(struct flow *f, struct delivery *d)
{
    struct groups *g = f->dispatch->groups;
    struct member *m = member_make(f, d);
    struct group_item *item = &m->item;
    struct store_row row;
    int err = groups_park_one(g, d->group.at, d->group.size, item);

    if (err)
        return refused(d, err);
    row_make(&row, d);
    row.state = STORE_PARKED;
    err = store_put_all(f->store, &row, 1);
    if (err) { /* it waits in the store as before */
        groups_park_undo(g, item);
        slot_retire(d->slot);
        due_rows_release(f->due_rows, row.row);
        due_rows_expect(f->due_rows, clock_steady_ns() + AGAIN_NS);
        gate_trouble(&f->gate, "parking a message in the store", -err);
        return PUT_BY;
    }
    FAULT_POINT("park_due_after_put");
    due_rows_release(f->due_rows, row.row);
    groups_park_end(g, &item, 1, true);
    return PUT_BY;
}

/* head_lease - the lease of a retry's group
 * The retry is in the store before its group is blocked by it
 * (dispatch_settled), so it can be due while the group is leased still. Once
 * the group is not leased it is blocked by this row, or it has nothing to do
 * with it: the lease is tried a second time for that.
 */
static int head_lease(struct flow *f, struct delivery *d)
{
    struct groups *g = f->dispatch->groups;
    const char *key = d->group.at;
    size_t size = d->group.size;

    d->lease = groups_resume(g, key, size, d->slot->row);
    if (d->lease)
        return 0;
    if (d->slot->failures > 0 && groups_leased(g, key, size))
        return -EINPROGRESS;
    d->lease = groups_resume(g, key, size, d->slot->row);
    return d->lease ? 0 : -ENOENT;
}

/* dispatch_due - a retry goes on where its group stopped; a delayed message
 * gets
 * in line
 * A letter that a stop kept goes before all that is parked, so it is not parked
 * itself; it waits in a slot for what runs before it, unless that needs the
 * last one.
 */
int dispatch_due(struct flow *f, struct delivery *d)
{
    int err = head_lease(f, d);

    if (err != -ENOENT)
        return err;
    if (d->front)
        return custody_free_slots(f->custody) > 0 ? dispatch_enter(f, d)
                                                  : -EINPROGRESS;
    return groups_waiting(f->dispatch->groups) < f->set->lookahead
               ? dispatch_enter(f, d)
               : put_by(f, d);
}

/* before - whether a parked message comes before an item */
static bool before(const struct store_parked *p, const struct group_item *item,
                   bool low)
{
    if (!item)
        return true;
    if (item->priority == GROUP_FRONT)
        return false;
    if (p->priority != item->priority)
        return low ? p->priority < item->priority
                   : p->priority > item->priority;
    return p->receive_seq < item->seq;
}

/* take_item - a message that waits in a slot */
static int take_item(struct flow *f, struct group *lease,
                     struct group_item *item, struct delivery *d)
{
    struct member *m = CONTAINER_OF(item, struct member, item);
    size_t size;
    const char *key = groups_key(lease, &size);

    groups_take(f->dispatch->groups, lease, item, m->slot->priority);
    delivery_read(d, m->slot, 0);
    delivery_regroup(d, key, size);
    d->lease = lease;
    return 0;
}

/* take_parked - a message that waits in the store
 * Whoever wrote it there may not be back from the commit yet: then it flies
 * still, -EINPROGRESS. It lands before its group is told that it has arrived
 * (put_by, parked). So a group that is given back waits for that (PARKING), or
 * the row has landed.
 */
static int take_parked(struct flow *f, struct group *lease,
                       const struct store_parked *p, struct slot *slot,
                       struct delivery *d)
{
    int err = row_restore(&f->row_restore, p->row, STORE_PARKED, slot, d);

    if (!err && !due_rows_try_claim(f->due_rows, p->row)) {
        slot_retire(slot); /* it is in the store as before */
        err = -EINPROGRESS;
    }
    if (!err || err == -EMSGSIZE)
        groups_take(f->dispatch->groups, lease, NULL, p->priority);
    d->lease = lease;
    return err;
}

/* take_next - the next message of a leased group; -ENOENT: it has none;
 * -EINPROGRESS: not yet */
static int take_next(struct flow *f, struct group *lease, struct slot *slot,
                     struct delivery *d)
{
    struct groups *g = f->dispatch->groups;
    struct group_item *item = groups_peek(g, lease);
    bool low = groups_low_turn(lease);
    struct store_parked p;
    size_t size;
    const char *key = groups_key(lease, &size);
    int err = -ENOENT;

    if (groups_parked_of(g, lease) > 0) {
        err = store_next_parked(f->store, key, size, low, &p);
        if (err == -ENOENT)
            groups_unpark(g, lease);
        else if (err)
            return err;
    }
    if (!err && before(&p, item, low))
        return take_parked(f, lease, &p, slot, d);
    return item ? take_item(f, lease, item, d) : -ENOENT;
}

/* dispatch_take - lease a group, take its next message
 * One whose next message has not landed is left to the next try: it is on the
 * run queue, or gets there when the message has, and whoever has nothing else
 * to do looks there before it goes to sleep.
 */
int dispatch_take(struct flow *f, struct slot *slot, struct delivery *d)
{
    static const struct store_row dead = {.state = STORE_DEAD};
    struct group *lease;
    int err = -EAGAIN;

    while ((lease = groups_lease(f->dispatch->groups)) != NULL) {
        err = take_next(f, lease, slot, d);
        if (!err)
            return 0;
        dispatch_settled(f, lease, err == -EMSGSIZE ? &dead : NULL, false);
        if (err == -EINPROGRESS)
            return -EAGAIN;
        if (err != -ENOENT && err != -EMSGSIZE)
            return err;
        err = -EAGAIN;
    }
    return err;
}

/* park - write what was taken out of its place, in one commit
 * Crash before the commit: each message is HELD in its slot. After it, before
 * the slot is FREE: recovery finds the row by the receive sequence (or the row
 * in the slot) and frees the slot.
 */
static int park(struct flow *f, size_t n)
{
    struct dispatch *o = f->dispatch;
    const char *key;
    size_t size;

    if (atomic_load(&f->gate.holds) & HOLD_STORE_GONE)
        return -ESTALE; /* what is written now is in a file without a name */
    for (size_t i = 0; i < n; i++) {
        struct member *m = CONTAINER_OF(o->items[i], struct member, item);
        struct delivery *d = &o->read[i];

        delivery_read(d, m->slot, 0);
        key = groups_key(m->item.group, &size); /* it was found by this one */
        delivery_regroup(d, key, size);
        row_make(&o->rows[i], d);
        o->rows[i].state = STORE_PARKED;
    }
    return store_put_all(f->store, o->rows, n);
}

/* parked - the slots are FREE; the place of each is used until they are given
 * back */
static void parked(struct flow *f, size_t n)
{
    struct dispatch *o = f->dispatch;
    struct slot *slots[PARK_MOST];

    FAULT_POINT("park_after_put");
    for (size_t i = 0; i < n; i++) {
        slots[i] = CONTAINER_OF(o->items[i], struct member, item)->slot;
        if (slots[i]->row)
            due_rows_release(f->due_rows, slots[i]->row);
    }
    groups_park_end(o->groups, o->items, n, true);
    for (size_t i = 0; i < n; i++)
        custody_release(f->custody, slots[i]);
    backlog_look(f);
}

/* park_some - one commit; whether there was something to park */
static bool park_some(struct flow *f)
{
    struct dispatch *o = f->dispatch;
    size_t n = groups_park_begin(o->groups, o->items, PARK_MOST);
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
 * Who finds another thread parking goes away, and nobody else would see that
 * the lookahead was filled meanwhile: so whoever parked looks again after it
 * has said that it does not park any more. While a delay after trouble runs it
 * is not tried again: take_any comes by with each message.
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

/* still_dead - whether a held group has a letter left; with trouble, it has:
 * who holds it then asks again (held) */
static bool still_dead(struct flow *f, struct group *lease)
{
    int64_t row;
    size_t size;
    const char *key = groups_key(lease, &size);

    return store_group_letter(f->store, key, size, &row) != -ENOENT;
}

/* let_go - a held group goes on if it has no letter: 1 it does, 0 it has one,
 * or -errno
 * The store is asked without the lock. What dies meanwhile finds the group held
 * already and makes it doubted, so the store is asked again.
 */
static int let_go(struct flow *f, const char *key, size_t size)
{
    int64_t row;
    int err;

    do {
        err = store_group_letter(f->store, key, size, &row);
        if (err != -ENOENT)
            return err;
    } while (!groups_unhold(f->dispatch->groups, key, size));
    log_info("group_released", F_STR("queue", f->set->queue),
             F_BYTES("group", key, size));
    return 1;
}

/* dispatch_release - each held group, by a copy of its key */
int dispatch_release(struct flow *f)
{
    struct groups *g = f->dispatch->groups;
    size_t bytes, size;
    char *keys = groups_held_keys(g, &bytes);
    int err = keys || groups_held(g) == 0 ? 0 : -ENOMEM, n = 0, went;

    for (size_t at = 0; keys && at < bytes; at += sizeof size + size) {
        const char *key = keys + at + sizeof size;

        memcpy(&size, keys + at, sizeof size);
        went = let_go(f, key, size);
        if (went < 0)
            err = went;
        else
            n += went;
    }
    free(keys);
    return err ? err : n;
}

size_t dispatch_held(const struct flow *f)
{
    return groups_held(f->dispatch->groups);
}

void dispatch_set_quantum(struct flow *f, unsigned quantum)
{
    groups_set_quantum(f->dispatch->groups, quantum);
}

size_t dispatch_groups(const struct flow *f)
{
    return groups_count(f->dispatch->groups);
}

/* One walk of dispatch_list. */
struct walk {
    bool (*visit)(const struct slot *slot, void *arg);
    void *arg;
};

static bool walk_item(const struct group_item *item, void *arg)
{
    const struct walk *w = arg;

    return w->visit(CONTAINER_OF(item, const struct member, item)->slot,
                    w->arg);
}

int dispatch_list(struct flow *f, const char *key, size_t size,
                  bool (*visit)(const struct slot *slot, void *arg), void *arg)
{
    struct walk w = {.visit = visit, .arg = arg};

    return groups_list(f->dispatch->groups, key, size, walk_item, &w);
}

int dispatch_shut(struct flow *f, const char *key, size_t size)
{
    int err = groups_shut(f->dispatch->groups, key, size);

    if (!err)
        log_info("group_closed", F_STR("queue", f->set->queue),
                 F_BYTES("group", key, size));
    return err;
}

/* held - it waits for an operator
 * Who is watching already may have looked when the letter was gone and the
 * group not held yet: so look once more. What goes later than that is noticed.
 */
static void held(struct flow *f, const char *key, size_t size)
{
    int went;

    log_warn("group_held", F_STR("queue", f->set->queue),
             F_BYTES("group", key, size),
             F_STR("next", "its letter keeps it waiting: mqdlq replay or "
                           "mqdlq discard"));
    if (!f->group_hold_watch)
        return;
    group_hold_watch_watch(f->group_hold_watch);
    went = let_go(f, key, size);
    if (went > 0)
        gate_changed(&f->gate);
    else if (went < 0)
        group_hold_watch_again(f->group_hold_watch);
}

/* hold - the lease ends; its key is not ours any more then */
static void hold(struct flow *f, struct group *lease)
{
    char copy[GROUP_KEY_MAX];
    size_t size;
    const char *key = groups_key(lease, &size);

    memcpy(copy, key, size);
    groups_hold(f->dispatch->groups, lease);
    held(f, copy, size);
}

/* go_on - unless a letter of it is left */
static void go_on(struct flow *f, struct group *lease, bool ask)
{
    while (!(ask && still_dead(f, lease))) {
        if (groups_release(f->dispatch->groups, lease))
            return;
        ask = true; /* one came meanwhile */
    }
    hold(f, lease);
}

/* dispatch_settled - the lease ends as the verdict says */
void dispatch_settled(struct flow *f, struct group *lease,
                      const struct store_row *row, bool letter)
{
    bool holds = f->set->on_group_dead == GROUP_DEAD_HOLD;

    if (row && row->state == STORE_WAITING && row->attempts > 0)
        groups_block(f->dispatch->groups, lease, row->row);
    else if (holds && row && row->state == STORE_DEAD)
        hold(f, lease);
    else
        go_on(f, lease, holds && letter);
}

void dispatch_died(struct flow *f, const struct store_row *row)
{
    struct groups *g = f->dispatch->groups;
    const char *key = row->group;
    size_t size = row->group_size;
    struct group *lease = groups_resume(g, key, size, row->row);
    int err = 0;

    if (lease)
        dispatch_settled(f, lease, row, false);
    else if (f->set->on_group_dead == GROUP_DEAD_HOLD)
        err = groups_hold_late(g, key, size);
    if (err > 0)
        held(f, key, size);
    else if (err < 0)
        gate_trouble(&f->gate, "holding a group", -err);
}

void dispatch_return(struct flow *f, struct group *lease, struct slot *slot)
{
    struct member *m = member_of(f, slot);

    m->slot = slot;
    m->item.seq = slot->seq;
    groups_return(f->dispatch->groups, lease, &m->item);
}
