/* test_wheel_service.c - what else a wheel is asked for: exact wake-ups,
 * bounded advances, batches, stop and resume, reset, refusing, listing
 */
#include <criterion/criterion.h>

#include "common/base/clock.h"
#include "common/wheel/wheel.h"

#define HOUR (3600 * NS_PER_S)
#define MANY 20000

static struct wheel *wheel;
static struct wheel_timer timer[MANY];
static struct wheel_periodic periodic;
static unsigned stop_after; /* so many have fired; 0: do not stop */
static struct wheel_timer *last;
static unsigned fired, disorder;

/* on_fire - count it, and what comes before an earlier deadline */
static void on_fire(struct wheel_timer *t, uint64_t missed)
{
    (void)missed;
    if (last && (t->when_ns < last->when_ns ||
                 (t->when_ns == last->when_ns && t < last)))
        disorder++;
    last = t;
    fired++;
    if (fired == stop_after)
        wheel_stop(wheel);
}

static void setup(void)
{
    cr_assert_eq(wheel_open(&wheel, 0, on_fire), 0);
    for (unsigned i = 0; i < MANY; i++)
        wheel_timer_init(&timer[i]);
    wheel_timer_init(&periodic.timer);
}

static void teardown(void)
{
    const char *wrong = wheel_check(wheel);

    cr_assert_null(wrong, "%s", wrong);
    wheel_close(&wheel);
}

TestSuite(wheel_service, .init = setup, .fini = teardown);

/* next_is - the next expiry, or 0 if there is none */
static uint64_t next_is(void)
{
    uint64_t when;

    return wheel_next(wheel, &when) ? when : 0;
}

/* wakes - advances from expiry to expiry until `count` timers are left */
static unsigned wakes(size_t count)
{
    unsigned n = 0;

    while (wheel_count(wheel) > count) {
        wheel_advance(wheel, next_is(), 0);
        n++;
    }
    return n;
}

Test(wheel_service, an_idle_one_hour_timer_costs_one_wake_up)
{
    for (unsigned k = 0; k < 60; k++) {
        wheel_reset(wheel, (UINT64_C(1) << k) - 1);
        wheel_start(wheel, &timer[0], wheel_now(wheel) + HOUR);
        wheel_start(wheel, &timer[1], wheel_now(wheel) + 2 * HOUR);
        cr_assert_eq(wakes(1), 1);
        cr_assert_eq(wakes(0), 1);
    }
}

/* cancel_all_in - cancel in steps of `step`; the next expiry is always right */
static void cancel_all_in(unsigned n, unsigned step)
{
    for (unsigned k = 0, i = 0; k < n; k++, i = (i + step) % n) {
        uint64_t min = UINT64_MAX;

        cr_assert(wheel_cancel(wheel, &timer[i]));
        if (k + 1 == n)
            break;
        for (unsigned j = 0; j < n; j++)
            if (wheel_pending(&timer[j]) && timer[j].when_ns < min)
                min = timer[j].when_ns;
        cr_assert_eq(next_is(), min);
    }
    cr_assert_eq(next_is(), 0);
}

Test(wheel_service, the_next_expiry_is_exact_after_cancels_of_the_earliest)
{
    static const unsigned scatter[] = {1, 499, 77, 250};

    for (unsigned s = 0; s < 4; s++)
        for (unsigned step = 1; step < 500; step += 166) {
            wheel_reset(wheel, 3);
            for (unsigned i = 0; i < 500; i++)
                wheel_start(wheel, &timer[i], HOUR + i * scatter[s] % 500);
            cancel_all_in(500, step == 167 ? 3 : step | 1);
        }
}

Test(wheel_service, asking_after_each_cancel_in_order_of_start_is_cheap)
{
    unsigned wrong = 0;

    /* One left of the round before makes the list not ascending. Walking
     * 20,000 timers for each of 20,000 cancels would take minutes. */
    for (unsigned round = 0; round < 100; round++) {
        for (unsigned i = 0; i < MANY; i++)
            wheel_start(wheel, &timer[i], HOUR + i);
        for (unsigned i = 0; i + 1 < MANY; i++) {
            wheel_cancel(wheel, &timer[i]);
            wrong += next_is() != HOUR + i + 1;
        }
    }
    cr_assert_eq(wrong, 0);
}

Test(wheel_service, an_advance_keeps_to_its_budget_and_the_order)
{
    unsigned calls = 0, before, most = 0;
    bool more = true;

    for (unsigned i = 0; i < MANY; i++)
        wheel_start(wheel, &timer[i], HOUR + i * UINT64_C(7919) % 5000);
    while (more) {
        const char *wrong;

        before = fired;
        more = wheel_advance(wheel, 2 * HOUR, 100);
        if (fired - before > most)
            most = fired - before;
        calls++;
        wrong = wheel_check(wheel);
        cr_assert_null(wrong, "%s", wrong);
        cr_assert(!more || next_is() == 0 || next_is() >= HOUR);
    }
    cr_assert_eq(fired, MANY);
    cr_assert_eq(disorder, 0);
    cr_assert_leq(most, 100);
    /* a timer moves at most 8 times and fires once */
    cr_assert_leq(calls, 9 * MANY / 100 + 1);
    cr_assert_gt(calls, MANY / 100 - 1);
}

Test(wheel_service, a_start_during_a_cut_advance_waits_behind_its_equals)
{
    for (unsigned i = 0; i < 1000; i++)
        wheel_start(wheel, &timer[i], HOUR + i % 2);
    /* cut while their slot is spread; not at their deadline yet */
    cr_assert(wheel_advance(wheel, HOUR - 1, 300));
    for (unsigned i = 1000; i < 2000; i++)
        wheel_start(wheel, &timer[i], HOUR + i % 2);
    cr_assert_eq(next_is(), HOUR);
    while (wheel_advance(wheel, 2 * HOUR, 7))
        continue;
    cr_assert_eq(fired, 2000);
    cr_assert_eq(disorder, 0);
}

Test(wheel_service, a_cancel_of_all_during_a_cut_advance_ends_it)
{
    for (unsigned i = 0; i < 1000; i++)
        wheel_start(wheel, &timer[i], HOUR + i % 2);
    cr_assert(wheel_advance(wheel, HOUR - 1, 300));
    for (unsigned i = 0; i < 1000; i++)
        cr_assert(wheel_cancel(wheel, &timer[i]));
    cr_assert_not(wheel_advance(wheel, HOUR - 1, 1));
    wheel_start(wheel, &timer[0], HOUR);
    cr_assert_eq(wakes(0), 1);
}

Test(wheel_service, popping_gives_the_same_order_as_advancing)
{
    struct wheel_timer *t;
    uint64_t missed;
    bool more = true;

    for (unsigned i = 0; i < 3000; i++)
        wheel_start(wheel, &timer[i], i * UINT64_C(7919) % 1500);
    for (unsigned calls = 0; more; calls++) {
        t = wheel_pop(wheel, 1499, 3, &missed, &more);
        cr_assert_lt(calls, 10 * 3000);
        cr_assert_eq(missed, 0);
        if (t) {
            cr_assert_not(wheel_pending(t));
            on_fire(t, 0);
        }
    }
    cr_assert_eq(fired, 3000);
    cr_assert_eq(disorder, 0);
}

Test(wheel_service, a_popped_periodic_timer_is_pending_again)
{
    uint64_t missed;
    bool more;

    wheel_start_periodic(wheel, &periodic, 10, 10);
    cr_assert_eq(wheel_pop(wheel, 45, 0, &missed, &more), &periodic.timer);
    cr_assert_eq(missed, 3);
    cr_assert_not(more);
    cr_assert_eq(next_is(), 50);
    cr_assert_null(wheel_pop(wheel, 45, 0, &missed, &more));
    cr_assert(wheel_cancel(wheel, &periodic.timer));
}

Test(wheel_service, timers_of_one_delay_fire_without_being_moved)
{
    unsigned n = 1000;

    for (unsigned i = 0; i < n; i++)
        wheel_start(wheel, &timer[i], HOUR + i);
    cr_assert_not(wheel_advance(wheel, 2 * HOUR, n));
    cr_assert_eq(fired, n);
    cr_assert_eq(disorder, 0);
}

Test(wheel_service, moving_saturates_at_both_ends_of_time)
{
    wheel_reset(wheel, HOUR);
    wheel_start(wheel, &timer[0], UINT64_MAX - 5);
    cr_assert(wheel_move(wheel, &timer[0], INT64_MAX));
    cr_assert_eq(next_is(), UINT64_MAX);
    wheel_start(wheel, &timer[1], 2 * HOUR);
    cr_assert(wheel_move(wheel, &timer[1], INT64_MIN));
    cr_assert_eq(timer[1].when_ns, 0);
    cr_assert(wheel_move(wheel, &timer[1], (int64_t)HOUR + 1));
    cr_assert_eq(next_is(), HOUR + 1);
    cr_assert_not(wheel_move(wheel, &timer[2], 1));
}

Test(wheel_service, a_period_that_would_pass_the_end_of_time_ends)
{
    uint64_t deadline = UINT64_MAX - 10;

    wheel_start_periodic(wheel, &periodic, deadline, 11);
    wheel_advance(wheel, UINT64_MAX, 0);
    cr_assert_eq(fired, 1);
    cr_assert_not(wheel_pending(&periodic.timer));
}

Test(wheel_service, batches_start_and_cancel_and_count)
{
    struct wheel_timer *some[100];
    uint64_t when[100];

    for (unsigned i = 0; i < 100; i++) {
        some[i] = &timer[i];
        when[i] = 1000 - i;
    }
    wheel_start_batch(wheel, some, when, 100);
    cr_assert_eq(wheel_count(wheel), 100);
    cr_assert_eq(next_is(), 901);
    wheel_advance(wheel, 950, 0);
    cr_assert_eq(fired, 50);
    cr_assert_eq(wheel_cancel_batch(wheel, some, 100), 50);
    cr_assert_eq(wheel_cancel_batch(wheel, some, 100), 0);
    cr_assert_eq(wheel_count(wheel), 0);
}

Test(wheel_service, a_stopped_wheel_keeps_its_timers_and_fires_nothing)
{
    wheel_start(wheel, &timer[0], 10);
    wheel_start_periodic(wheel, &periodic, 20, 20);
    wheel_stop(wheel);
    cr_assert(wheel_stopped(wheel));
    cr_assert_not(wheel_advance(wheel, 70, 0));
    wheel_start(wheel, &timer[2], 5);
    cr_assert_eq(fired, 0);
    cr_assert_eq(next_is(), 0);
    cr_assert_eq(wheel_count(wheel), 3);
    wheel_resume(wheel);
    cr_assert_eq(next_is(), 5);
    cr_assert_eq(fired, 0);
    wheel_advance(wheel, 70, 0);
    cr_assert_eq(fired, 3);
    cr_assert_eq(next_is(), 80);
}

Test(wheel_service, a_callback_can_stop_the_wheel)
{
    for (unsigned i = 0; i < 10; i++)
        wheel_start(wheel, &timer[i], i + 1);
    stop_after = 4;
    cr_assert_not(wheel_advance(wheel, HOUR, 0));
    cr_assert_eq(fired, 4);
    wheel_resume(wheel);
    wheel_advance(wheel, HOUR, 0);
    cr_assert_eq(fired, 10);
    cr_assert_eq(disorder, 0);
}

Test(wheel_service, a_refusing_wheel_takes_no_timer_and_fires_the_rest)
{
    struct wheel_timer *one = &timer[1];
    uint64_t when = 20;

    wheel_start(wheel, &timer[0], 10);
    wheel_refuse(wheel);
    cr_assert_not(wheel_start(wheel, &timer[1], 20));
    cr_assert_not(wheel_start_periodic(wheel, &periodic, 20, 20));
    cr_assert_not(wheel_pending(&periodic.timer));
    wheel_start_batch(wheel, &one, &when, 1);
    cr_assert_not(wheel_pending(&timer[1]));
    cr_assert_not(wheel_start(wheel, &timer[0], 30));
    cr_assert_eq(next_is(), 10, "a refused start changed the timer");
    wheel_advance(wheel, 100, 0);
    cr_assert_eq(fired, 1);
}

Test(wheel_service, reset_and_close_forget_all_timers)
{
    for (unsigned i = 0; i < MANY; i++)
        wheel_start(wheel, &timer[i], i % 7 ? i * NS_PER_S : 0);
    wheel_reset(wheel, HOUR);
    cr_assert_eq(wheel_count(wheel), 0);
    cr_assert_eq(wheel_now(wheel), HOUR);
    wheel_reset(wheel, 5);
    cr_assert_eq(wheel_now(wheel), 5);
    for (unsigned i = 0; i < MANY; i++)
        cr_assert_not(wheel_pending(&timer[i]));
    wheel_start(wheel, &timer[0], 9);
    cr_assert_eq(wakes(0), 1);
    wheel_start(wheel, &timer[0], HOUR);
    wheel_close(&wheel);
    cr_assert_null(wheel);
    cr_assert_not(wheel_pending(&timer[0]));
    wheel_close(&wheel);
    cr_assert_eq(wheel_open(&wheel, 0, on_fire), 0);
}

/* mark - count a visit; stop at the number `arg` points to */
static unsigned seen[MANY], visits;
static bool mark(const struct wheel_timer *t, void *arg)
{
    seen[t - timer]++;
    return ++visits < *(unsigned *)arg;
}

Test(wheel_service, listing_visits_each_pending_timer_once)
{
    unsigned limit = MANY, pending = 0;

    wheel_reset(wheel, HOUR);
    for (unsigned i = 0; i < 1000; i++)
        wheel_start(wheel, &timer[i], i * 10 * NS_PER_S);
    for (unsigned i = 0; i < 1000; i += 3)
        wheel_cancel(wheel, &timer[i]);
    wheel_each(wheel, mark, &limit);
    for (unsigned i = 0; i < 1000; i++) {
        cr_assert_eq(seen[i], wheel_pending(&timer[i]));
        pending += seen[i];
    }
    cr_assert_eq(pending, wheel_count(wheel));
    visits = 0;
    limit = 7;
    wheel_each(wheel, mark, &limit);
    cr_assert_eq(visits, 7);
}
