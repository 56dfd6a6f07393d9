/* limits.c - when to take no more: the limits of a run, a rate, what waits (see
 * limits.h) */
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

/* ---- --max-waiting ---- */

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

/* ---- runs that end by themselves ---- */

#define UNREAD_MOST 5 /* looks, a second apart */

/* mean - of the handlers that have ended; the estimate while there is none
 * A run that has an end asks before each message (ATTEND_LIMIT), so none of the
 * durations is missing. */
static uint64_t mean(struct flow *f)
{
    struct items_stats s;
    uint64_t one;

    items_stats(&f->items, &s);
    if (s.ended == 0)
        return f->set->estimated_duration_ns;
    one = s.took_ns / s.ended; /* read while they change */
    return one < s.longest_ns ? one : s.longest_ns;
}

/* margin - how long the next handler may take */
static uint64_t margin(struct flow *f)
{
    return settings_margin(f->set, mean(f));
}

/* at_end - whether a message taken now might run past the end */
static bool at_end(struct flow *f)
{
    return ns_add(clock_mono_ns(), margin(f)) >= f->run_limits.end_ns;
}

/* end_arm - an empty queue is waited on until the margin begins */
static void end_arm(struct flow *f)
{
    uint64_t m = margin(f), end = f->run_limits.end_ns;

    timers_start(f->timers, &f->run_limits.end_timer, end > m ? end - m : 0);
}

/* end_due - the mean may have fallen since the timer was started */
static void end_due(struct timer *timer)
{
    struct flow *f = CONTAINER_OF(timer, struct flow, run_limits.end_timer);

    if (at_end(f))
        gate_finish(&f->gate, "run-for", 0);
    else
        end_arm(f);
}

/* idle - YES: nothing runs, nothing is there that could run now; NO: something
 * does; -errno: the source does not tell
 * The source is asked last: a work item that could not start its child has left
 * without a look at it. `fresh` comes after is_due, as it may be what that saw.
 */
static int idle(struct flow *f)
{
    int due;

    if (atomic_load(&f->gate.running) > 0 || ready_waiting(&f->ready) > 0 ||
        unsettled_count(&f->unsettled) > 0 || dispatch_ready(f))
        return NO;
    due = f->source->ops->is_due(f->source);
    if (due < 0)
        return due;
    return due == YES || f->source->ops->fresh(f->source) > 0 ? NO : YES;
}

/* unreadable - end the run: a damaged store never becomes idle */
static int unreadable(struct flow *f, int err)
{
    if ((err != -EIO && err != -EUCLEAN) ||
        ++f->run_limits.unread != UNREAD_MOST)
        return err;
    log_error("store_unreadable", F_STR("queue", f->set->queue),
              F_STR("error", errno_text(-err)), F_STR("store", f->folder),
              F_STR("next", disk_advice(err)));
    gate_finish(&f->gate, "store-unreadable", EX_CANTCREAT);
    return 0;
}

/* idle_end - when it has been idle for long enough, if nothing comes */
static uint64_t idle_end(const struct flow *f)
{
    return ns_add(atomic_load(&f->run_limits.idle_since),
                  f->run_limits.idle_ns);
}

/* look - has it been idle for long enough? Work that came meanwhile starts the
 * timer again when it leaves. No work that leaves are verdicts that could not
 * be written yet, and messages that nobody has taken, which may be for another
 * consumer of the queue: look again. The end is read last: a message that ended
 * has moved it before it counted itself out.
 */
static int look(struct chore *chore)
{
    struct flow *f = CONTAINER_OF(chore, struct flow, run_limits.idle);
    int is = idle(f);
    uint64_t now, end;

    if (is == NO && atomic_load(&f->gate.running) == 0)
        chore_after(chore, NS_PER_S);
    if (is < 0)
        return unreadable(f, is);
    f->run_limits.unread = 0;
    if (is == NO)
        return 0;
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
    timer_init(&b->end_timer, end_due);
    rate_init(&f->rate, &f->gate, set->rate);
    b->idle = (struct chore){.run = look,
                             .first_ns = NS_PER_S,
                             .most_ns = NS_PER_S,
                             .pool = &f->pool};
    chore_init(&b->idle);
}

/* run_limits_start - everything is ready to take messages */
void run_limits_start(struct flow *f)
{
    f->run_limits.idle.timers = f->timers;
    run_limits_busy(f);
    run_limits_left(f);
}

/* busy - the latest of all that say so at once; not inline, as few runs end so
 */
__attribute__((noinline)) static void busy(struct run_limits *b)
{
    uint64_t now, since;

    now = clock_mono_ns();
    since = atomic_load(&b->idle_since);
    while (since < now &&
           !atomic_compare_exchange_weak(&b->idle_since, &since, now))
        ;
}

void run_limits_busy(struct flow *f)
{
    if (f->run_limits.idle_ends)
        busy(&f->run_limits);
}

/* run_limits_take - before each message */
bool run_limits_take(struct flow *f)
{
    struct run_limits *b = &f->run_limits;

    if (b->end_ns != UINT64_MAX && at_end(f)) {
        gate_finish(&f->gate, "run-for", 0);
        return false;
    }
    if (!rate_take(&f->rate))
        return false;
    if (b->max_deliveries == UINT64_MAX)
        return true;
    if (atomic_fetch_add(&b->tickets, 1) < b->max_deliveries)
        return true;
    /* The hold first: an item that gives its ticket back meanwhile lifts it. */
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
        atomic_load(&f->gate.holds) & HOLD_BOUND)
        gate_unhold(&f->gate, HOLD_BOUND);
}

/* run_limits_left - the run may be over */
void run_limits_left(struct flow *f)
{
    struct run_limits *b = &f->run_limits;

    if (atomic_load(&f->gate.running) > 0)
        return;
    if (b->end_ns != UINT64_MAX)
        end_arm(f);
    if (atomic_load(&b->tickets) >= b->max_deliveries) {
        gate_finish(&f->gate, "max-deliveries", 0);
    } else if (b->idle_ends) {
        timers_start(f->timers, &b->idle.timer, idle_end(f));
    }
}
