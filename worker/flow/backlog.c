/* backlog.c - how many messages may wait in the store (see backlog.h) */
#include "worker/flow/backlog.h"

#include "common/base/log.h"
#include "worker/engine.h"

/* A sixteenth that is free ends what was told. */
#define FREE_PART 16

static uint64_t waits(const struct engine *e)
{
    int64_t n = store_waits(e->store);

    return n > 0 ? (uint64_t)n : 0;
}

bool backlog_fills(const struct engine *e, size_t more)
{
    return waits(e) + more >= e->set->max_waiting;
}

static bool full(const struct engine *e)
{
    return backlog_fills(e, 0);
}

static bool held(const struct engine *e)
{
    return (atomic_load(&e->gate.holds) & HOLD_WAITING) != 0;
}

/* over - it was full, and is so far from it that this is told */
static bool over(const struct engine *e)
{
    uint64_t most = e->set->max_waiting;

    return atomic_load(&e->backlog.told) && waits(e) < most - most / FREE_PART;
}

static void tell_full(struct engine *e)
{
    if (atomic_exchange(&e->backlog.told, true))
        return;
    log_warn("waiting_full", F_STR("queue", e->set->queue),
             F_UINT("waiting", waits(e)),
             F_UINT("max_waiting", e->set->max_waiting),
             F_STR("next", "nothing more is taken from the queue, not even a "
                           "replay, until some of these are done or dead; "
                           "find out why they fail, or raise max-waiting with "
                           "mqctl set"));
}

static void tell_room(struct engine *e)
{
    if (atomic_exchange(&e->backlog.told, false))
        log_info("waiting_room", F_STR("queue", e->set->queue),
                 F_UINT("waiting", waits(e)),
                 F_UINT("max_waiting", e->set->max_waiting));
}

/* backlog_look - hold or go on, as it is now
 * No lock, as this may start a work item. Whoever changes the number or the
 * bound looks after that, and whoever changes the hold looks at the number
 * again after that. So the last change of the hold was right when its author
 * left, and a later change of the number finds it. (All of these are
 * sequentially consistent.)
 */
void backlog_look(struct engine *e)
{
    if (!e->started)
        return;
    while (held(e) != full(e)) {
        if (held(e)) {
            gate_unhold(&e->gate, HOLD_WAITING);
        } else {
            tell_full(e);
            gate_hold(&e->gate, HOLD_WAITING);
        }
    }
    if (over(e))
        tell_room(e);
}
