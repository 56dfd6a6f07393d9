/* group_dispatch.c - messages of groups: from where they wait to a thread (see
 * group_dispatch.h) */
#include "worker/flow/group_dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/basics.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch_inner.h"

int dispatch_open(struct dispatch **out, struct flow *f, unsigned most)
{
    struct dispatch *o = calloc(1, sizeof *o);
    int err = -ENOMEM;

    *out = NULL;
    if (o)
        o->members = calloc(most, sizeof *o->members);
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
    groups_attend(o->groups, &f->gate.attention);
    pthread_mutex_init(&o->close_mtx, NULL);
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
    closings_fini(&o->closings);
    pthread_mutex_destroy(&o->close_mtx);
    free(o->members);
    free(o);
}

/* restore - one group that the source knows */
static int restore(void *arg, const struct source_group *group)
{
    struct flow *f = arg;
    bool held = f->set->on_group_dead == GROUP_DEAD_HOLD && group->letters > 0;

    return groups_restore(f->dispatch->groups, group->key.at, group->key.size,
                          group->parked, (int64_t)group->head, held);
}

int dispatch_restore(struct flow *f)
{
    return f->source->local ? f->source->local->groups(f->source, restore, f)
                            : 0;
}

bool dispatch_ready(const struct flow *f)
{
    return groups_ready(f->dispatch->groups) > 0 || dispatch_must_park(f);
}

bool dispatch_empty(const struct flow *f)
{
    const struct dispatch *o = f->dispatch;

    return groups_waiting(o->groups) == 0 && groups_parked(o->groups) == 0 &&
           groups_ready(o->groups) == 0;
}

/* priority_in - in the line of its group. Where the source keeps the order, a
 * priority is a number only: a producer that gives one does not jump its group.
 */
static uint32_t priority_in(const struct flow *f, const struct message *m)
{
    return dispatch_parks(f) ? m->priority : 0;
}

/* member_make - a message's place in its group
 * A letter that an operator sent again goes first: it is what a held group
 * waits for.
 */
static struct member *member_make(struct flow *f, struct message *m)
{
    struct member *one = &f->dispatch->members[m->index];

    one->m = m;
    one->item.seq = m->seq;
    one->item.priority =
        m->flags & MESSAGE_FRONT ? GROUP_FRONT : priority_in(f, m);
    return one;
}

/* dispatch_add - to its place in its group; not inline, as dispatch_enter is
 * short */
__attribute__((noinline)) int dispatch_add(struct flow *f, struct delivery *d)
{
    struct member *m = member_make(f, d->message);
    int err =
        groups_add(f->dispatch->groups, d->group.at, d->group.size, &m->item);

    return err ? err : HANDED_OVER;
}

/* dispatch_enter - at once, if there is nothing to wait for */
int dispatch_enter(struct flow *f, struct delivery *d)
{
    int err;

    if (closings_any(&f->dispatch->closings) && close_refuses(f, d))
        return TAKEN;
    err = groups_pass(f->dispatch->groups, d->group.at, d->group.size,
                      priority_in(f, d->message), &d->lease);
    return err == -EAGAIN ? dispatch_add(f, d) : err;
}

/* head_lease - the lease of a retry's group
 * The retry is in the source before its group is blocked by it
 * (dispatch_settled), so it can be due while the group is leased still. Once
 * the group is not leased it is blocked by this message, or it has nothing to
 * do with it: the lease is tried a second time for that.
 */
static int head_lease(struct flow *f, struct delivery *d)
{
    struct groups *g = f->dispatch->groups;
    const char *key = d->group.at;
    size_t size = d->group.size;

    d->lease = groups_resume(g, key, size, (int64_t)d->message->seq);
    if (d->lease)
        return 0;
    if (d->message->failures > 0 && groups_leased(g, key, size))
        return -EINPROGRESS;
    d->lease = groups_resume(g, key, size, (int64_t)d->message->seq);
    return d->lease ? 0 : -ENOENT;
}

/* dispatch_due - a retry goes on where its group stopped; a delayed message
 * gets in line
 * A letter that a stop kept goes before all that is parked, so it is not parked
 * itself; it stays lent and waits for what runs before it, unless that needs
 * the last of the room. Where nothing can be parked, all of it gets in line.
 */
int dispatch_due(struct flow *f, struct delivery *d)
{
    int err = head_lease(f, d);

    if (err != -ENOENT)
        return err;
    if (d->message->flags & MESSAGE_FRONT)
        return f->source->ops->room(f->source) > 0 ? dispatch_enter(f, d)
                                                   : -EINPROGRESS;
    if (!dispatch_parks(f) ||
        groups_waiting(f->dispatch->groups) < f->set->lookahead)
        return dispatch_enter(f, d);
    if (closings_any(&f->dispatch->closings) && close_refuses(f, d))
        return TAKEN;
    return dispatch_put_by(f, d, &member_make(f, d->message)->item);
}

int dispatch_end(struct flow *f, struct delivery *d)
{
    int err = head_lease(f, d);

    return err == -ENOENT ? 0 : err;
}

/* take_item - a message that waits in its place */
static void take_item(struct flow *f, struct group *lease,
                      struct group_item *item, struct delivery *d)
{
    struct message *m = CONTAINER_OF(item, struct member, item)->m;
    size_t size;
    const char *key = groups_key(lease, &size);

    groups_take(f->dispatch->groups, lease, item, priority_in(f, m));
    delivery_read(d, m, 0);
    delivery_regroup(d, key, size);
    d->lease = lease;
}

/* take_parked - a message that waits in the source, if it comes before `item`;
 * -EAGAIN: that comes first; -ENOENT: nothing is parked */
static int take_parked(struct flow *f, struct group *lease,
                       const struct group_item *item, unsigned lane,
                       struct delivery *d)
{
    const struct message *before =
        item ? CONTAINER_OF(item, const struct member, item)->m : NULL;
    struct groups *g = f->dispatch->groups;
    struct header_text key;
    struct message *m;
    int err;

    if (item && item->priority == GROUP_FRONT)
        return -EAGAIN;
    key.at = groups_key(lease, &key.size);
    err = f->source->local->unpark(f->source, lane, key, groups_low_turn(lease),
                                   before, &m);
    if (err == -ENOENT)
        groups_unpark(g, lease);
    if (!err || err == -EMSGSIZE)
        groups_take(g, lease, NULL, err ? 0 : m->priority);
    if (!err) {
        delivery_read(d, m, 0);
        d->lease = lease;
    }
    return err;
}

/* take_next - the next message of a leased group; -ENOENT: it has none;
 * -EINPROGRESS: not yet */
static int take_next(struct flow *f, struct group *lease, unsigned lane,
                     struct delivery *d)
{
    struct groups *g = f->dispatch->groups;
    struct group_item *item = groups_peek(g, lease);
    int err = -ENOENT;

    if (groups_parked_of(g, lease) > 0)
        err = take_parked(f, lease, item, lane, d);
    if (err != -ENOENT && err != -EAGAIN)
        return err;
    if (!item)
        return -ENOENT;
    take_item(f, lease, item, d);
    return 0;
}

/* dispatch_take - lease a group, take its next message
 * One whose next message cannot be had yet is left to the next try: it is on
 * the run queue, or gets there when the message can be had, and a thread that
 * has nothing else to do looks there before it goes to sleep.
 */
int dispatch_take(struct flow *f, unsigned lane, struct delivery *d)
{
    struct group *lease;
    int err = -EAGAIN;

    while ((lease = groups_lease(f->dispatch->groups)) != NULL) {
        err = take_next(f, lease, lane, d);
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
    bool (*visit)(const struct message *m, void *arg);
    void *arg;
};

static bool walk_item(const struct group_item *item, void *arg)
{
    const struct walk *w = arg;

    return w->visit(CONTAINER_OF(item, const struct member, item)->m, w->arg);
}

int dispatch_list(struct flow *f, const char *key, size_t size,
                  bool (*visit)(const struct message *m, void *arg), void *arg)
{
    struct walk w = {.visit = visit, .arg = arg};

    return groups_list(f->dispatch->groups, key, size, walk_item, &w);
}

void dispatch_return(struct flow *f, struct group *lease, struct message *m)
{
    struct member *one = &f->dispatch->members[m->index];

    one->m = m;
    one->item.seq = m->seq;
    groups_return(f->dispatch->groups, lease, &one->item);
}
