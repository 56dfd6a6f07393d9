/* rate.c - see rate.h */
#include "worker/gate/rate.h"

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/config/rate_text.h"
#include "worker/gate/gate.h"

/* tokens_over - it is worth a try: a thread that finds none holds the gate
 * again */
static void tokens_over(struct timer *timer)
{
    gate_unhold(CONTAINER_OF(timer, struct rate, timer)->gate, HOLD_RATE);
}

/* look_now - a token may be there earlier than the timer says */
static void look_now(struct rate *r)
{
    if (gate_held(r->gate, HOLD_RATE))
        timers_start(r->gate->timers, &r->timer, clock_mono_ns());
}

/* attend - the reason is set before its bit */
static void attend(struct rate *r, uint64_t rate)
{
    atomic_store(&r->is, rate);
    attention_set(&r->gate->attention, ATTEND_RATE,
                  rate == RATE_OFF ? 0 : ATTEND_RATE);
}

void rate_init(struct rate *r, struct gate *gate, uint64_t rate)
{
    r->gate = gate;
    timer_init(&r->timer, tokens_over);
    attend(r, rate);
}

/* room_ns - how far full_ns may lie ahead: an empty bucket */
static uint64_t room_ns(uint64_t rate)
{
    return rate_burst(rate) * rate_interval_ns(rate);
}

void rate_set(struct rate *r, uint64_t rate)
{
    uint64_t most =
        ns_add(clock_mono_ns(), rate == RATE_OFF ? 0 : room_ns(rate));
    uint64_t full = atomic_load(&r->full_ns);

    while (full > most &&
           !atomic_compare_exchange_weak(&r->full_ns, &full, most))
        continue;
    attend(r, rate);
    look_now(r);
}

/* hold - until enough tokens are there. The hold comes before the timer, so
 * that each hold is followed by a lift. */
static void hold(struct rate *r, uint64_t rate, uint64_t full)
{
    uint64_t burst = rate_burst(rate), some = burst > 3 ? burst / 2 : 1;
    uint64_t at = full - (burst - some) * rate_interval_ns(rate);
    char text[RATE_TEXT];

    if (!atomic_exchange(&r->told, true))
        log_info("rate_reached", F_STR("queue", r->gate->set->queue),
                 F_STR("rate", rate_print(rate, text)));
    gate_hold(r->gate, HOLD_RATE);
    timers_start(r->gate->timers, &r->timer, at);
}

bool rate_take(struct rate *r)
{
    uint64_t rate = atomic_load(&r->is), now, full, from;

    if (rate == RATE_OFF)
        return true;
    now = clock_mono_ns();
    full = atomic_load(&r->full_ns);
    do {
        from = full > now ? full : now;
        if (from + rate_interval_ns(rate) > now + room_ns(rate)) {
            hold(r, rate, full);
            return false;
        }
    } while (!atomic_compare_exchange_weak(&r->full_ns, &full,
                                           from + rate_interval_ns(rate)));
    if (from == now && atomic_load_explicit(&r->told, memory_order_relaxed))
        atomic_store(&r->told, false);
    return true;
}

/* rate_untake - one that was given without a token, as the rate was set
 * meanwhile, is none to give back beyond a full bucket */
void rate_untake(struct rate *r)
{
    uint64_t rate = atomic_load(&r->is), full = atomic_load(&r->full_ns);
    uint64_t one;

    if (rate == RATE_OFF)
        return;
    do {
        one = rate_interval_ns(rate);
        one = one < full ? one : full;
    } while (!atomic_compare_exchange_weak(&r->full_ns, &full, full - one));
    look_now(r);
}
