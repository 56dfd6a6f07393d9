/* wheel.c - a hierarchical timing wheel (see wheel.h) */
#include "common/wheel/wheel.h"

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/wheel/wheel_bank.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert(sizeof(struct wheel_timer) == 32, "half a cache line a timer");

/* Deadlines after now_ns are in the bank AHEAD, counted from the time reached.
 * A timer started with a deadline in the past goes to the bank `late`, which
 * counts from 0 as such a deadline may be anything. An advance turns `late`
 * into `due` and fires from AHEAD and `due`: so what a callback starts late
 * waits for the next advance, and all goes in order of deadline. With equal
 * deadlines AHEAD is first: when its timer was started the deadline was still
 * to come, so that was earlier. */
enum { AHEAD, BANKS = 3 };

struct wheel {
    uint64_t now_ns;   /* latest time we were told */
    uint64_t until_ns; /* of the advance under way, or the last one */
    wheel_fire *fire;
    size_t count; /* pending timers */
    unsigned due; /* which bank is `due`: 1 or 2; `late` is the other */
    bool popping; /* wheel_pop has not come to its NULL yet */
    bool stopped;
    bool refusing;
    struct wheel_bank bank[BANKS];
    struct wheel_slot slot[BANKS * BANK_PLACES];
};

/* bank_due - the late timers that this advance fires */
static struct wheel_bank *bank_due(struct wheel *w)
{
    return &w->bank[w->due];
}

/* bank_late - the late timers that the next advance fires */
static struct wheel_bank *bank_late(struct wheel *w)
{
    return &w->bank[BANKS - w->due];
}

/* timer_add - file a timer that is not pending under t->when_ns */
static inline void timer_add(struct wheel *w, struct wheel_timer *t)
{
    bool ahead = t->when_ns > w->now_ns;

    wheel_bank_add(ahead ? &w->bank[AHEAD] : bank_late(w), t);
    w->count++;
}

/* timer_remove - take out a pending timer */
static inline void timer_remove(struct wheel *w, struct wheel_timer *t)
{
    wheel_bank_remove(w->slot, t);
    w->count--;
}

/* wheel_open - an empty wheel at `now_ns` */
int wheel_open(struct wheel **out, uint64_t now_ns, wheel_fire *fire)
{
    struct wheel *w = aligned_alloc(_Alignof(struct wheel), sizeof *w);

    *out = w;
    if (!w)
        return -ENOMEM;
    w->fire = fire;
    w->due = 1;
    w->stopped = w->refusing = false;
    for (unsigned i = 0; i < BANKS; i++)
        wheel_bank_init(&w->bank[i], w->slot, (uint16_t)(i * BANK_PLACES));
    wheel_reset(w, now_ns);
    return 0;
}

/* wheel_close - free the wheel; its timers are not pending any more */
void wheel_close(struct wheel **wheel)
{
    if (!*wheel)
        return;
    wheel_reset(*wheel, 0);
    free(*wheel);
    *wheel = NULL;
}

/* wheel_timer_init - prepare a timer */
void wheel_timer_init(struct wheel_timer *timer)
{
    *timer = (struct wheel_timer){0};
}

/* wheel_pending - is the timer on a wheel? */
bool wheel_pending(const struct wheel_timer *timer)
{
    return timer->next;
}

/* timer_start - file a timer anew; inline, as it is all that counts */
static inline bool timer_start(struct wheel *w, struct wheel_timer *t,
                               uint64_t when_ns, bool periodic)
{
    if (w->refusing)
        return false;
    if (t->next)
        timer_remove(w, t);
    t->when_ns = when_ns;
    t->periodic = periodic;
    timer_add(w, t);
    return true;
}

/* wheel_start - fire once at `when_ns` */
bool wheel_start(struct wheel *w, struct wheel_timer *t, uint64_t when_ns)
{
    return timer_start(w, t, when_ns, false);
}

/* wheel_start_periodic - fire at `when_ns`, then each `period_ns` */
bool wheel_start_periodic(struct wheel *w, struct wheel_periodic *p,
                          uint64_t when_ns, uint64_t period_ns)
{
    if (!timer_start(w, &p->timer, when_ns, true))
        return false;
    p->period_ns = period_ns;
    return true;
}

/* wheel_cancel - stop a timer; true if it was pending */
bool wheel_cancel(struct wheel *w, struct wheel_timer *t)
{
    if (!t->next)
        return false;
    timer_remove(w, t);
    return true;
}

/* wheel_move - shift a pending timer's deadline */
bool wheel_move(struct wheel *w, struct wheel_timer *t, int64_t offset_ns)
{
    if (!wheel_pending(t))
        return false;
    timer_remove(w, t);
    if (offset_ns >= 0) {
        t->when_ns = ns_add(t->when_ns, (uint64_t)offset_ns);
    } else {
        uint64_t back = -(uint64_t)offset_ns;

        t->when_ns = back < t->when_ns ? t->when_ns - back : 0;
    }
    timer_add(w, t);
    return true;
}

/* wheel_start_batch - start `n` timers, in this order */
void wheel_start_batch(struct wheel *w, struct wheel_timer *const *timers,
                       const uint64_t *when_ns, size_t n)
{
    for (size_t i = 0; i < n; i++)
        wheel_start(w, timers[i], when_ns[i]);
}

/* wheel_cancel_batch - cancel `n` timers; how many were pending */
size_t wheel_cancel_batch(struct wheel *w, struct wheel_timer *const *timers,
                          size_t n)
{
    size_t cancelled = 0;

    for (size_t i = 0; i < n; i++)
        cancelled += wheel_cancel(w, timers[i]);
    return cancelled;
}

/* wheel_next - exact time of the next expiry */
bool wheel_next(struct wheel *w, uint64_t *when_ns)
{
    uint64_t earliest = UINT64_MAX, when;

    if (w->stopped || !w->count)
        return false;
    for (unsigned i = 0; i < BANKS; i++)
        if (wheel_bank_next(&w->bank[i], &when) && when < earliest)
            earliest = when;
    *when_ns = earliest;
    return true;
}

/* round_begin - let time reach `now_ns`; the late timers become due
 * If a budget left some of the last round's late ones, they come first. */
static void round_begin(struct wheel *w, uint64_t now_ns)
{
    w->now_ns = now_ns;
    if (w->stopped)
        return;
    w->until_ns = now_ns;
    if (!bank_late(w)->summary || !wheel_bank_empty(bank_due(w)))
        return;
    wheel_bank_clear(bank_due(w), 0);
    w->due = BANKS - w->due;
}

/* round_first - the earliest timer of this round; NULL: none, or no budget */
static struct wheel_timer *round_first(struct wheel *w, size_t *budget)
{
    struct wheel_timer *ahead, *due = NULL;

    if (w->stopped || !*budget)
        return NULL;
    ahead = wheel_bank_due(&w->bank[AHEAD], w->until_ns, budget);
    if (bank_due(w)->summary)
        due = wheel_bank_due(bank_due(w), w->until_ns, budget);
    /* Out of budget, one of the two may hide an earlier timer. */
    if (!*budget)
        return NULL;
    --*budget;
    return !ahead || (due && due->when_ns < ahead->when_ns) ? due : ahead;
}

/* round_busy - is there more to fire or to move in this round? */
static bool round_busy(struct wheel *w)
{
    return !w->stopped && (wheel_bank_busy(&w->bank[AHEAD], w->until_ns) ||
                           wheel_bank_busy(bank_due(w), w->until_ns));
}

/* round_end - nothing more now; true if the budget was the reason */
static bool round_end(struct wheel *w, size_t budget)
{
    if (w->stopped)
        return false;
    if (!budget && round_busy(w))
        return true;
    wheel_bank_settle(&w->bank[AHEAD], w->until_ns);
    return false;
}

/* timer_repeat - start a periodic timer again; the periods that were missed
 * A deadline past the end of time never comes: the timer ends. */
static uint64_t timer_repeat(struct wheel *w, struct wheel_timer *t)
{
    uint64_t period_ns =
        CONTAINER_OF(t, struct wheel_periodic, timer)->period_ns;
    uint64_t missed = (w->now_ns - t->when_ns) / period_ns;
    uint64_t last = t->when_ns + missed * period_ns;

    if (last <= UINT64_MAX - period_ns) {
        t->when_ns = last + period_ns;
        timer_add(w, t);
    }
    return missed;
}

/* round_take - take off the earliest timer of this round; NULL: see *more */
static struct wheel_timer *round_take(struct wheel *w, size_t *budget,
                                      uint64_t *missed, bool *more)
{
    struct wheel_timer *t = round_first(w, budget);

    *missed = 0;
    if (!t) {
        *more = round_end(w, *budget);
        return NULL;
    }
    wheel_bank_take(&w->bank[t->place / BANK_PLACES], t);
    w->count--;
    if (t->periodic)
        *missed = timer_repeat(w, t);
    return t;
}

/* wheel_advance - let time reach `now_ns` and fire what is due */
bool wheel_advance(struct wheel *w, uint64_t now_ns, size_t budget)
{
    size_t left = budget ? budget : SIZE_MAX;
    struct wheel_timer *t;
    uint64_t missed;
    bool more = false;

    if (now_ns < w->now_ns)
        return false;
    w->popping = false;
    round_begin(w, now_ns);
    while ((t = round_take(w, &left, &missed, &more)))
        w->fire(t, missed);
    return more;
}

/* wheel_pop - let time reach `now_ns` and take off the first due timer */
struct wheel_timer *wheel_pop(struct wheel *w, uint64_t now_ns, size_t budget,
                              uint64_t *missed, bool *more)
{
    size_t left = budget ? budget : SIZE_MAX;
    struct wheel_timer *t;

    *missed = 0;
    *more = false;
    if (now_ns < w->now_ns)
        return NULL;
    if (!w->popping || now_ns > w->until_ns)
        round_begin(w, now_ns);
    t = round_take(w, &left, missed, more);
    /* With a timer in hand: the budget is for this one call. */
    if (t)
        *more = round_busy(w);
    w->popping = t || *more;
    return t;
}

/* wheel_stop - fire nothing until wheel_resume */
void wheel_stop(struct wheel *w)
{
    w->stopped = true;
}

/* wheel_resume - fire again, from the next advance on */
void wheel_resume(struct wheel *w)
{
    w->stopped = false;
}

/* wheel_stopped - does the wheel hold its timers back? */
bool wheel_stopped(const struct wheel *w)
{
    return w->stopped;
}

/* wheel_refuse - take no new timers from here on */
void wheel_refuse(struct wheel *w)
{
    w->refusing = true;
}

/* wheel_reset - forget all timers; the time goes to `now_ns` */
void wheel_reset(struct wheel *w, uint64_t now_ns)
{
    wheel_bank_clear(&w->bank[AHEAD], now_ns);
    wheel_bank_clear(bank_due(w), 0);
    wheel_bank_clear(bank_late(w), 0);
    w->now_ns = w->until_ns = now_ns;
    w->count = 0;
    w->popping = false;
}

/* wheel_now - the time reached so far */
uint64_t wheel_now(const struct wheel *w)
{
    return w->now_ns;
}

/* wheel_count - pending timers */
size_t wheel_count(const struct wheel *w)
{
    return w->count;
}

/* wheel_each - visit the pending timers until `visit` is false */
void wheel_each(const struct wheel *w,
                bool (*visit)(const struct wheel_timer *t, void *arg),
                void *arg)
{
    for (unsigned i = 0; i < BANKS; i++)
        if (!wheel_bank_each(&w->bank[i], visit, arg))
            return;
}

/* late_check - has this timer's deadline passed? */
static bool late_check(const struct wheel_timer *t, void *arg)
{
    return t->when_ns <= *(const uint64_t *)arg;
}

/* wheel_check - every invariant of the wheel */
const char *wheel_check(const struct wheel *w)
{
    uint64_t now = w->now_ns;
    size_t count, total = 0;
    const char *wrong;

    for (unsigned i = 0; i < BANKS; i++) {
        wrong = wheel_bank_check(&w->bank[i], &count);
        if (wrong)
            return wrong;
        if (i != AHEAD && !wheel_bank_each(&w->bank[i], late_check, &now))
            return "a late timer is not late";
        total += count;
    }
    if (total != w->count)
        return "wrong count";
    if (w->bank[BANKS - w->due].elapsed_ns)
        return "late timers do not count from 0";
    if (w->bank[AHEAD].elapsed_ns > now || w->until_ns > now)
        return "a time before the wheel's own";
    return NULL;
}
