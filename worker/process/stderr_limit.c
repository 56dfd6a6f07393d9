/* stderr_limit.c - see stderr_limit.h */
#include "worker/process/stderr_limit.h"

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define BURST_NS (10 * NS_PER_S) /* of the rate, at once */
#define TELL_NS  NS_PER_S

static void tell_due(struct timer *timer)
{
    stderr_limit_tell(CONTAINER_OF(timer, struct stderr_limit, timer));
}

void stderr_limit_init(struct stderr_limit *l, const struct settings *set,
                       struct timers *timers)
{
    *l = (struct stderr_limit){.set = set, .timers = timers};
    timer_init(&l->timer, tell_due);
}

/* drop - the first one since the last telling has it told in a second */
static void drop(struct stderr_limit *l)
{
    if (atomic_fetch_add(&l->dropped, 1) == 0)
        timers_start_after(l->timers, &l->timer, TELL_NS);
}

/* stderr_limit_take - the bucket as the time when it is full again (GCRA, ITU-T
 * I.371): a line moves that on by what the rate gives it, and may be logged if
 * it is no further ahead than the burst */
bool stderr_limit_take(struct stderr_limit *l)
{
    uint64_t rate = l->set->stderr_rate, now, was, next;

    if (rate == 0)
        return true;
    now = clock_mono_ns();
    was = atomic_load_explicit(&l->next_ns, memory_order_relaxed);
    do {
        next = (was > now ? was : now) + NS_PER_S / rate;
        if (next > now + BURST_NS) {
            drop(l);
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(
        &l->next_ns, &was, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}

void stderr_limit_tell(struct stderr_limit *l)
{
    uint64_t lines = atomic_exchange(&l->dropped, 0);

    if (lines)
        log_warn("handler_stderr_dropped", F_STR("queue", l->set->queue),
                 F_UINT("lines", lines), F_UINT("rate", l->set->stderr_rate),
                 F_STR("next", "a letter has the last 4 KiB all the same; "
                               "--stderr-rate N logs more lines a second, 0 "
                               "all"));
}

void stderr_limit_fini(struct stderr_limit *l)
{
    if (l->timers)
        timers_cancel_sync(l->timers, &l->timer);
    stderr_limit_tell(l);
}
