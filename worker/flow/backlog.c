/* backlog.c - how many messages may wait in the store (see backlog.h) */
#include "worker/flow/backlog.h"

#include "common/base/log.h"
#include "worker/flow/flow.h"

/* A sixteenth that is free ends what was told. */
#define FREE_PART 16

static uint64_t waits(const struct flow *f)
{
    return f->source->local ? f->source->local->waits(f->source) : 0;
}

bool backlog_fills(const struct flow *f, size_t more)
{
    return waits(f) + more >= f->set->max_waiting;
}

static bool full(const struct flow *f)
{
    return backlog_fills(f, 0);
}

static bool held(const struct flow *f)
{
    return (atomic_load(&f->gate.holds) & HOLD_WAITING) != 0;
}

/* over - it was full, and is so far from it that this is told */
static bool over(const struct flow *f)
{
    uint64_t most = f->set->max_waiting;

    return atomic_load(&f->backlog.told) && waits(f) < most - most / FREE_PART;
}

static void tell_full(struct flow *f)
{
    if (atomic_exchange(&f->backlog.told, true))
        return;
    log_warn("waiting_full", F_STR("queue", f->set->queue),
             F_UINT("waiting", waits(f)),
             F_UINT("max_waiting", f->set->max_waiting),
             F_STR("next", "nothing more is taken from the queue, not even a "
                           "replay, until some of these are done or dead; "
                           "find out why they fail, or raise max-waiting with "
                           "mqctl set"));
}

static void tell_room(struct flow *f)
{
    if (atomic_exchange(&f->backlog.told, false))
        log_info("waiting_room", F_STR("queue", f->set->queue),
                 F_UINT("waiting", waits(f)),
                 F_UINT("max_waiting", f->set->max_waiting));
}

/* backlog_look - hold or go on, as it is now
 * No lock, as this may start a work item. A thread that changes the number or
 * the bound looks after that, and a thread that changes the hold looks at the
 * number again after that. So the last change of the hold was right when its
 * author left, and a later change of the number finds it. (All of these are
 * sequentially consistent.)
 */
void backlog_look(struct flow *f)
{
    if (!f->started)
        return;
    while (held(f) != full(f)) {
        if (held(f)) {
            gate_unhold(&f->gate, HOLD_WAITING);
        } else {
            tell_full(f);
            gate_hold(&f->gate, HOLD_WAITING);
        }
    }
    if (over(f))
        tell_room(f);
}
