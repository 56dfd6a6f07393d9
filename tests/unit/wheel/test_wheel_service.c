/* test_wheel_service.c - what else a wheel is asked for: exact wake-ups,
 * bounded advances, reset
 */
#include <criterion/criterion.h>

#include "common/base/clock.h"
#include "tests/unit/wheel/wheel_check.h"

#define HOUR (3600 * NS_PER_S)
#define MANY 20000

static struct wheel *wheel;
static struct wheel_timer timer[MANY];
static struct wheel_timer *last;
static unsigned fired, disorder;

/* Count a timer that fires, and whether it comes out of order. */
static void on_fire(struct wheel_timer *t)
{
    if (last && (t->when_ns < last->when_ns ||
                 (t->when_ns == last->when_ns && t < last)))
        disorder++;
    last = t;
    fired++;
}

static void setup(void)
{
    cr_assert_eq(wheel_open(&wheel, 0), 0);
    for (unsigned i = 0; i < MANY; i++)
        wheel_timer_init(&timer[i]);
}

static void teardown(void)
{
    const char *wrong = wheel_check(wheel);

    cr_assert_null(wrong, "%s", wrong);
    wheel_close(&wheel);
}

TestSuite(wheel_service, .init = setup, .fini = teardown);

/* Return the next expiry, or 0 if there is none. */
static uint64_t next_is(void)
{
    uint64_t when;

    return wheel_next(wheel, &when) ? when : 0;
}

/* Advance from expiry to expiry until `count` timers are left; count steps. */
static unsigned wakes(size_t count)
{
    unsigned n = 0;

    while (wheel_count(wheel) > count) {
        wheel_advance(wheel, next_is(), 0, on_fire);
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

/* Cancel in steps of `step`; each time the next expiry must be right. */
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

    /* A timer left from the round before keeps the list from ascending. Walking
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
        more = wheel_advance(wheel, 2 * HOUR, 100, on_fire);
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
    cr_assert(wheel_advance(wheel, HOUR - 1, 300, on_fire));
    for (unsigned i = 1000; i < 2000; i++)
        wheel_start(wheel, &timer[i], HOUR + i % 2);
    cr_assert_eq(next_is(), HOUR);
    while (wheel_advance(wheel, 2 * HOUR, 7, on_fire))
        continue;
    cr_assert_eq(fired, 2000);
    cr_assert_eq(disorder, 0);
}

Test(wheel_service, a_cancel_of_all_during_a_cut_advance_ends_it)
{
    for (unsigned i = 0; i < 1000; i++)
        wheel_start(wheel, &timer[i], HOUR + i % 2);
    cr_assert(wheel_advance(wheel, HOUR - 1, 300, on_fire));
    for (unsigned i = 0; i < 1000; i++)
        cr_assert(wheel_cancel(wheel, &timer[i]));
    cr_assert_not(wheel_advance(wheel, HOUR - 1, 1, on_fire));
    wheel_start(wheel, &timer[0], HOUR);
    cr_assert_eq(wakes(0), 1);
}

Test(wheel_service, popping_gives_the_same_order_as_advancing)
{
    struct wheel_timer *t;
    bool more = true;

    for (unsigned i = 0; i < 3000; i++)
        wheel_start(wheel, &timer[i], i * UINT64_C(7919) % 1500);
    for (unsigned calls = 0; more; calls++) {
        t = wheel_pop(wheel, 1499, 3, &more);
        cr_assert_lt(calls, 10 * 3000);
        if (t) {
            cr_assert_not(wheel_pending(t));
            on_fire(t);
        }
    }
    cr_assert_eq(fired, 3000);
    cr_assert_eq(disorder, 0);
}

Test(wheel_service, timers_of_one_delay_fire_without_being_moved)
{
    unsigned n = 1000;

    for (unsigned i = 0; i < n; i++)
        wheel_start(wheel, &timer[i], HOUR + i);
    cr_assert_not(wheel_advance(wheel, 2 * HOUR, n, on_fire));
    cr_assert_eq(fired, n);
    cr_assert_eq(disorder, 0);
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
    cr_assert_eq(wheel_open(&wheel, 0), 0);
}
