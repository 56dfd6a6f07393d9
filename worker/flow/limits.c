/* limits.c - when no more messages are taken: at the end of a run, at a rate,
 * when too many wait (see limits.h) */
#include "worker/flow/limits.h"

#include <errno.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/config/rate_text.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/gate.h"

/* ---- --rate: a token bucket ---- */

/* Let work items try again. An item that finds no token holds the gate again.
 */
static void rate_refilled(struct timer *timer)
{
    gate_unhold(CONTAINER_OF(timer, struct rate, timer)->gate, HOLD_RATE);
}

/* Lift the hold now, because a token may be there before the timer fires. */
static void rate_refill_now(struct rate *r)
{
    if (gate_held(r->gate, HOLD_RATE))
        timers_start(r->gate->timers, &r->timer, clock_mono_ns());
}

/* Store the rate before its attention bit, so that a thread that sees the bit
 * reads the new rate. */
static void rate_store(struct rate *r, uint64_t rate)
{
    atomic_store(&r->is, rate);
    attention_set(&r->gate->attention, ATTEND_RATE,
                  rate == RATE_OFF ? 0 : ATTEND_RATE);
}

/* Return how far full_ns lies ahead when the bucket is empty. */
static uint64_t rate_fill_ns(uint64_t rate)
{
    return rate_burst(rate) * rate_interval_ns(rate);
}

void rate_set(struct rate *r, uint64_t rate)
{
    uint64_t most =
        ns_add(clock_mono_ns(), rate == RATE_OFF ? 0 : rate_fill_ns(rate));
    uint64_t full = atomic_load(&r->full_ns);

    while (full > most &&
           !atomic_compare_exchange_weak(&r->full_ns, &full, most))
        continue;
    rate_store(r, rate);
    rate_refill_now(r);
}

/* Hold the gate if there is no token, until half of the burst is there; for a
 * small burst, until one token is there. The hold is set before the timer is
 * started, so that the timer lifts each hold. */
bool rate_take(struct rate *r)
{
    uint64_t rate = atomic_load(&r->is), burst, some, now, full, from;
    char text[RATE_TEXT];

    if (rate == RATE_OFF)
        return true;
    now = clock_mono_ns();
    full = atomic_load(&r->full_ns);
    do {
        from = full > now ? full : now;
        if (from + rate_interval_ns(rate) > now + rate_fill_ns(rate)) {
            burst = rate_burst(rate);
            some = burst > 3 ? burst / 2 : 1;
            if (!atomic_exchange(&r->logged, true))
                log_info("rate_reached", F_STR("queue", r->gate->set->queue),
                         F_STR("rate", rate_print(rate, text)));
            gate_hold(r->gate, HOLD_RATE);
            timers_start(r->gate->timers, &r->timer,
                         full - (burst - some) * rate_interval_ns(rate));
            return false;
        }
    } while (!atomic_compare_exchange_weak(&r->full_ns, &full,
                                           from + rate_interval_ns(rate)));
    if (from == now && atomic_load_explicit(&r->logged, memory_order_relaxed))
        atomic_store(&r->logged, false);
    return true;
}

/* Stop at 0, which is a full bucket: no token was taken for the message if the
 * rate was off at that time. */
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
    rate_refill_now(r);
}

/* ---- --max-waiting ---- */

#define FREE_PART 16 /* log room when 1/16 of the limit is free */

static uint64_t backlog_size(const struct flow *f)
{
    return (uint64_t)f->source->ops->count(f->source, COUNT_BACKLOG);
}

bool backlog_fills(const struct flow *f, size_t more)
{
    return backlog_size(f) + more >= f->set->max_waiting;
}

/* Hold the gate while the backlog is full, and release it otherwise. The caller
 * holds no lock, because gate_unhold may start a work item. Each thread that
 * changes the number of rows or the bound calls this afterwards, and each
 * change of the hold is followed by another comparison. So the last change of
 * the hold was right when its thread returned, and the thread that changes the
 * number next sees that hold. (All accesses are sequentially consistent.) */
void backlog_look(struct flow *f)
{
    uint64_t most = f->set->max_waiting;
    bool held;

    if (!f->started)
        return;
    while ((held = gate_held(&f->gate, HOLD_WAITING)) != backlog_fills(f, 0)) {
        if (held) {
            gate_unhold(&f->gate, HOLD_WAITING);
            continue;
        }
        if (!atomic_exchange(&f->backlog_full, true))
            log_warn("waiting_full", F_STR("queue", f->set->queue),
                     F_UINT("waiting", backlog_size(f)),
                     F_UINT("max_waiting", most),
                     F_STR("next",
                           "nothing more is taken from the queue, not even a "
                           "replay, until some waiting messages are done or "
                           "dead; find out why they fail, or raise "
                           "max-waiting with mqctl set"));
        gate_hold(&f->gate, HOLD_WAITING);
    }
    if (atomic_load(&f->backlog_full) &&
        backlog_size(f) < most - most / FREE_PART &&
        atomic_exchange(&f->backlog_full, false))
        log_info("waiting_room", F_STR("queue", f->set->queue),
                 F_UINT("waiting", backlog_size(f)),
                 F_UINT("max_waiting", most));
}

/* ---- runs that end by themselves ---- */

#define UNREAD_MOST 5 /* failed reads of the store, a second apart */

/* Return how long the next handler may take: by the mean of the handlers that
 * ended, or by the estimate before the first has ended. A run with an end takes
 * no message by the fast path (ATTEND_LIMIT), so no duration is missing. */
static uint64_t run_margin(struct flow *f)
{
    uint64_t mean = f->set->estimated_duration_ns;
    struct items_stats s;

    items_stats(&f->items, &s);
    if (s.ended > 0) {
        mean = s.took_ns / s.ended; /* took_ns may have one handler more */
        mean = mean < s.longest_ns ? mean : s.longest_ns;
    }
    return settings_margin(f->set, mean);
}

/* Return true if a message taken now could run past the end of --run-for. */
static bool run_is_over(struct flow *f)
{
    return ns_add(clock_mono_ns(), run_margin(f)) >= f->run_limits.end_ns;
}

/* Start the timer that ends the run while the queue is empty: it fires when a
 * message taken now could run past the end. */
static void run_end_arm(struct flow *f)
{
    uint64_t m = run_margin(f), end = f->run_limits.end_ns;

    timers_start(f->timers, &f->run_limits.end_timer, end > m ? end - m : 0);
}

/* End the run, unless the mean has fallen since the timer was started. */
static void run_end_due(struct timer *timer)
{
    struct flow *f = CONTAINER_OF(timer, struct flow, run_limits.end_timer);

    if (run_is_over(f))
        gate_finish(&f->gate, "run-for", 0);
    else
        run_end_arm(f);
}

/* Return when the run has been idle for long enough, if nothing comes. */
static uint64_t idle_end(const struct flow *f)
{
    return ns_add(atomic_load(&f->run_limits.idle_since),
                  f->run_limits.idle_ns);
}

/* Chore: end the run if it has been idle for long enough, that is, if no
 * message is running or could run. A work item that leaves starts the timer of
 * this chore. If no item is running and the run is still not idle, because
 * verdicts wait to be written or messages stay in the queue (for example for
 * another consumer), the chore checks again in a second.
 * The source is asked although work items ask it, because an item that could
 * not start its child left without asking. COUNT_FRESH is read after is_due,
 * which may update it. A store that stays unreadable ends the run, which would
 * otherwise never be idle. idle_end is read last, because a delivery that ended
 * moves it (run_limits_busy) before its item leaves the gate. */
static int idle_look(struct chore *chore)
{
    struct flow *f = CONTAINER_OF(chore, struct flow, run_limits.idle);
    bool busy = gate_running(&f->gate) > 0 || ready_waiting(&f->ready) > 0 ||
                unsettled_count(&f->unsettled) > 0 || dispatch_ready(f);
    int due = busy ? NO : f->source->ops->is_due(f->source);
    uint64_t now, end;

    if (due == -EIO || due == -EUCLEAN) {
        if (++f->run_limits.unread != UNREAD_MOST)
            return due;
        log_error("store_unreadable", F_STR("queue", f->set->queue),
                  F_STR("error", errno_text(-due)), F_STR("store", f->folder),
                  F_STR("next", disk_advice(due)));
        gate_finish(&f->gate, "store-unreadable", EX_CANTCREAT);
        return 0;
    }
    if (due < 0)
        return due;
    f->run_limits.unread = 0;
    if (busy || due == YES ||
        f->source->ops->count(f->source, COUNT_FRESH) > 0) {
        if (gate_running(&f->gate) == 0)
            chore_after(chore, NS_PER_S);
        return 0;
    }
    end = idle_end(f);
    now = clock_mono_ns();
    if (now >= end)
        gate_finish(&f->gate, "idle", 0);
    else
        chore_after(chore, end - now);
    return 0;
}

void run_limits_init(struct flow *f)
{
    struct run_limits *b = &f->run_limits;
    const struct settings *set = f->set;

    b->started_ns = clock_mono_ns();
    b->end_ns =
        set->run_for_ns ? ns_add(b->started_ns, set->run_for_ns) : UINT64_MAX;
    b->max_deliveries = set->max_deliveries ? set->max_deliveries : UINT64_MAX;
    b->idle_ends = set->exit_when_idle;
    if (set->run_for_ns || set->max_deliveries || b->idle_ends)
        attention_on(&f->gate.attention, ATTEND_LIMIT);
    b->idle_ns = set->exit_when_idle_ns;
    timer_init(&b->end_timer, run_end_due);
    f->rate.gate = &f->gate;
    timer_init(&f->rate.timer, rate_refilled);
    rate_store(&f->rate, set->rate);
    b->idle = (struct chore){.run = idle_look,
                             .first_ns = NS_PER_S,
                             .most_ns = NS_PER_S,
                             .pool = &f->pool};
    chore_init(&b->idle);
}

/* Store the latest time, even if several threads call this simultaneously. */
void run_limits_busy(struct flow *f)
{
    struct run_limits *b = &f->run_limits;
    uint64_t now, since;

    if (!b->idle_ends)
        return;
    now = clock_mono_ns();
    since = atomic_load(&b->idle_since);
    while (since < now &&
           !atomic_compare_exchange_weak(&b->idle_since, &since, now))
        continue;
}

bool run_limits_take(struct flow *f)
{
    struct run_limits *b = &f->run_limits;

    if (b->end_ns != UINT64_MAX && run_is_over(f)) {
        gate_finish(&f->gate, "run-for", 0);
        return false;
    }
    if (!rate_take(&f->rate))
        return false;
    if (b->max_deliveries == UINT64_MAX)
        return true;
    if (atomic_fetch_add(&b->tickets, 1) < b->max_deliveries)
        return true;
    /* Hold before untake: an item that returns its ticket lifts the hold. */
    gate_hold(&f->gate, HOLD_BOUND);
    run_limits_untake(f);
    return false;
}

void run_limits_untake(struct flow *f)
{
    struct run_limits *b = &f->run_limits;

    rate_untake(&f->rate);
    if (b->max_deliveries != UINT64_MAX &&
        atomic_fetch_sub(&b->tickets, 1) <= b->max_deliveries &&
        gate_held(&f->gate, HOLD_BOUND))
        gate_unhold(&f->gate, HOLD_BOUND);
}

void run_limits_left(struct flow *f)
{
    struct run_limits *b = &f->run_limits;

    if (gate_running(&f->gate) > 0)
        return;
    if (b->end_ns != UINT64_MAX)
        run_end_arm(f);
    if (atomic_load(&b->tickets) >= b->max_deliveries) {
        gate_finish(&f->gate, "max-deliveries", 0);
    } else if (b->idle_ends) {
        timers_start(f->timers, &b->idle.timer, idle_end(f));
    }
}
