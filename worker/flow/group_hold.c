/* group_hold.c - how a lease ends; groups that wait for an operator, as their
 * head is a letter (see group_dispatch.h) */
#include "worker/flow/group_dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch_inner.h"

/* still_dead - whether a held group has a letter left; with trouble, it has:
 * who holds it then asks again (held) */
static bool still_dead(struct flow *f, struct group *lease)
{
    struct header_text key;

    key.at = groups_key(lease, &key.size);
    return f->source->local->letters(f->source, key) != NO;
}

/* let_go - a held group goes on if it has no letter: whether it does, or -errno
 * The source is asked without the lock. A message that dies meanwhile finds the
 * group held already and marks it for a recheck, so the source is asked again.
 */
static int let_go(struct flow *f, const char *key, size_t size)
{
    int has;

    do {
        has = f->source->local->letters(f->source,
                                        (struct header_text){key, size});
        if (has != NO)
            return has == YES ? NO : has;
    } while (!groups_unhold(f->dispatch->groups, key, size));
    close_look(f, key, size);
    log_info("group_released", F_STR("queue", f->set->queue),
             F_BYTES("group", key, size));
    return YES;
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
            n += went == YES;
    }
    free(keys);
    return err ? err : n;
}

size_t dispatch_held(const struct flow *f)
{
    return groups_held(f->dispatch->groups);
}

/* held - the group waits for an operator
 * The watch may have looked after the letter had gone and before this group was
 * held: so look once more. It notices each letter that goes later than that.
 */
static void held(struct flow *f, const char *key, size_t size)
{
    int went;

    log_warn("group_held", F_STR("queue", f->set->queue),
             F_BYTES("group", key, size),
             F_STR("next", "its letter keeps it waiting: mqdlq replay or "
                           "mqdlq discard"));
    /* For those who look after this worker was killed. */
    counters_gauge(f->counters, COUNTERS_GROUPS_HELD, dispatch_held(f));
    f->source->local->watch(f->source, false);
    went = let_go(f, key, size);
    if (went == YES)
        gate_changed(&f->gate);
    else if (went < 0)
        f->source->local->watch(f->source, true);
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

/* release - whether the lease is over */
static bool release(struct flow *f, struct group *lease)
{
    return closings_any(&f->dispatch->closings)
               ? close_release(f, lease)
               : groups_release(f->dispatch->groups, lease);
}

/* go_on - unless a letter of it is left; not inline, as the usual way of
 * dispatch_done is short */
__attribute__((noinline)) static void go_on(struct flow *f, struct group *lease,
                                            bool ask)
{
    while (!(ask && still_dead(f, lease))) {
        if (release(f, lease))
            return;
        ask = true; /* one came meanwhile */
    }
    hold(f, lease);
}

/* dispatch_done - a letter may have come meanwhile */
void dispatch_done(struct flow *f, struct group *lease)
{
    if (!release(f, lease))
        go_on(f, lease, true);
}

/* dispatch_settled - the lease ends as the verdict says */
void dispatch_settled(struct flow *f, struct group *lease, enum group_end end,
                      uint64_t seq, bool letter)
{
    bool holds = f->set->on_group_dead == GROUP_DEAD_HOLD;

    if (end == GROUP_WAITS)
        groups_block(f->dispatch->groups, lease, (int64_t)seq);
    else if (holds && end == GROUP_DIED)
        hold(f, lease);
    else
        go_on(f, lease, holds && letter);
}

void dispatch_died(struct flow *f, struct header_text group, uint64_t seq)
{
    struct groups *g = f->dispatch->groups;
    struct group *lease = groups_resume(g, group.at, group.size, (int64_t)seq);
    int err = NO;

    if (lease)
        dispatch_settled(f, lease, GROUP_DIED, seq, false);
    else if (f->set->on_group_dead == GROUP_DEAD_HOLD)
        err = groups_hold_late(g, group.at, group.size);
    if (err == YES)
        held(f, group.at, group.size);
    else if (err < 0)
        gate_trouble(&f->gate, "holding a group", -err);
}
