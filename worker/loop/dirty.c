/* dirty.c - the state that others see is out of date (see dirty.h) */
#include "worker/loop/dirty.h"

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/loop/loop.h"

/* count_due - it is time */
static void count_due(struct timer *timer)
{
    struct dirty *d = CONTAINER_OF(timer, struct dirty, timer);

    d->count(d->arg);
}

void dirty_init(struct dirty *d, uint64_t pause_ns, void (*count)(void *arg),
                void *arg)
{
    d->count = count;
    d->arg = arg;
    timer_init(&d->timer, count_due);
    atomic_store(&d->state, true);
    atomic_store(&d->pause_ns, pause_ns);
}

void dirty_state(struct dirty *d)
{
    atomic_store(&d->state, true);
}

void dirty_state_now(struct dirty *d)
{
    dirty_state(d);
    loop_wake(d->loop);
}

bool dirty_state_take(struct dirty *d)
{
    return atomic_load_explicit(&d->state, memory_order_relaxed) &&
           atomic_exchange(&d->state, false);
}

void dirty_count(struct dirty *d)
{
    if (atomic_load_explicit(&d->counted_soon, memory_order_relaxed) ||
        atomic_exchange(&d->counted_soon, true))
        return;
    timers_start(d->timers, &d->timer,
                 clock_mono_ns() + atomic_load(&d->pause_ns));
}

void dirty_count_begins(struct dirty *d)
{
    atomic_store(&d->counted_soon, false);
}
