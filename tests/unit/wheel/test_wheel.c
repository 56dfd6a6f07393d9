/* test_wheel.c - bugs that users reported of other timer wheels and heaps
 *
 * Each has a test here; test_wheel_model.c compares with a dumb list at random
 * times, stress_wheel.c has threads and the thread sanitizer.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "tests/unit/wheel/wheel_check.h"

#define HOUR (3600 * NS_PER_S)
#define MANY 5000

struct probe {
    struct wheel_timer timer;
    unsigned fired;
    uint64_t fired_ns;
    unsigned order; /* among all that fired */
    void (*then)(struct probe *p);
};

static struct wheel *wheel;
static struct probe probe[MANY];
static unsigned fired;

/* Note that a probe fired. */
static void on_fire(struct wheel_timer *t)
{
    struct probe *p = (struct probe *)t;

    p->fired++;
    p->fired_ns = wheel_now(wheel);
    p->order = ++fired;
    if (p->then)
        p->then(p);
}

static void setup(void)
{
    cr_assert_eq(wheel_open(&wheel, 0), 0);
    for (struct probe *p = probe; p < probe + MANY; p++)
        wheel_timer_init(&p->timer);
}

static void teardown(void)
{
    const char *wrong = wheel_check(wheel);

    cr_assert_null(wrong, "%s", wrong);
    wheel_close(&wheel);
    cr_assert_null(wheel);
}

TestSuite(wheel, .init = setup, .fini = teardown);

/* Start probe `i`. */
static struct probe *start(unsigned i, uint64_t when)
{
    wheel_start(wheel, &probe[i].timer, when);
    return &probe[i];
}

/* Return the next expiry, or 0 if there is none. */
static uint64_t next_is(void)
{
    uint64_t when;

    return wheel_next(wheel, &when) ? when : 0;
}

/* Start a probe now: it must fire at `when`, and not a nanosecond before. */
static void check_exact(unsigned i, uint64_t when)
{
    struct probe *p = start(i, when);
    unsigned before = p->fired;

    cr_assert_eq(next_is(), when);
    wheel_advance(wheel, when - 1, 0, on_fire);
    cr_assert_eq(p->fired, before, "early for %lu", (unsigned long)when);
    wheel_advance(wheel, when, 0, on_fire);
    cr_assert_eq(p->fired, before + 1, "late for %lu", (unsigned long)when);
}

/* 1: after 12.4 days of uptime short sleeps landed in a wrapped top level */
Test(wheel, is_exact_at_each_side_of_every_power_of_two)
{
    static const uint64_t delays[] = {1, NS_PER_MS, NS_PER_S, HOUR};

    for (unsigned k = 0; k < 64; k++)
        for (int side = -1; side <= 1; side++)
            for (unsigned d = 0; d < 4; d++) {
                uint64_t now = (UINT64_C(1) << k) + (uint64_t)side;

                wheel_reset(wheel, now);
                check_exact(d, now + delays[d]);
            }
}

/* 2: huge delays overflowed and fired at once */
Test(wheel, huge_delays_neither_overflow_nor_fire_early)
{
    static const uint64_t delays[] = {
        UINT64_C(1) << 31,       (UINT64_C(1) << 32) - 1,
        UINT64_C(1) << 32,       (UINT64_C(1) << 32) + 1,
        (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63,
        UINT64_MAX - 1,          UINT64_MAX,
    };
    static const uint64_t nows[] = {0, 1, 12345678901, UINT64_C(1) << 62};

    for (size_t n = 0; n < sizeof nows / sizeof *nows; n++)
        for (unsigned d = 0; d < sizeof delays / sizeof *delays; d++) {
            wheel_reset(wheel, nows[n]);
            check_exact(d, ns_add(nows[n], delays[d]));
        }
}

/* 3: an already-expired timer moved the wheel's clock back */
Test(wheel, a_deadline_in_the_past_leaves_time_and_others_alone)
{
    uint64_t now = 77 * HOUR;

    wheel_reset(wheel, now);
    for (unsigned i = 0; i < 64; i++)
        start(i, now + 1 + (HOUR >> i % 40) * i);
    start(100, now - 5 * NS_PER_S);
    start(101, 0);
    start(102, now);
    cr_assert_eq(fired, 0);
    cr_assert_eq(next_is(), 0);
    cr_assert_eq(wheel_now(wheel), now);
    wheel_advance(wheel, now, 0, on_fire);
    cr_assert_eq(fired, 3);
    cr_assert_eq(probe[101].order, 1);
    cr_assert_eq(probe[100].order, 2);
    for (uint64_t next; (next = next_is());)
        wheel_advance(wheel, next, 0, on_fire);
    for (unsigned i = 0; i < 64; i++)
        cr_assert_eq(probe[i].fired_ns, now + 1 + (HOUR >> i % 40) * i);
}

Test(wheel, deadlines_in_the_past_fire_in_order_of_deadline_then_start)
{
    wheel_reset(wheel, HOUR);
    for (unsigned i = 0; i < 1000; i++)
        start(i, (i * 7919 % 1000) / 2);
    wheel_advance(wheel, HOUR, 0, on_fire);
    for (unsigned i = 0; i < 1000; i++)
        for (unsigned j = 0; j < i; j++)
            cr_assert_eq(probe[j].order < probe[i].order,
                         probe[j].timer.when_ns <= probe[i].timer.when_ns);
}

/* 5: "already armed" survived a fire, cancel or postpone: a lost wake-up */
Test(wheel, the_next_expiry_follows_each_fire_cancel_and_postpone)
{
    start(0, 100);
    wheel_advance(wheel, 100, 0, on_fire);
    cr_assert_eq(next_is(), 0);
    start(1, 300);
    start(0, 200);
    cr_assert_eq(next_is(), 200);
    cr_assert(wheel_cancel(wheel, &probe[0].timer));
    cr_assert_eq(next_is(), 300);
    start(2, 250);
    cr_assert_eq(next_is(), 250);
    start(2, 1250);
    cr_assert_eq(next_is(), 300);
    start(3, 290);
    start(1, 5000);
    cr_assert_eq(next_is(), 290);
}

/* 7: delays of slots - 1, slots, slots + 1 fired at once while lagging */
static uint64_t lagging_delay;

/* Start the next probe, from inside a late callback. */
static void start_next(struct probe *p)
{
    start((unsigned)(p - probe) + 1, wheel_now(wheel) + lagging_delay);
}

Test(wheel, a_delay_around_a_level_is_exact_while_lagging)
{
    for (unsigned level = 0; level < 7; level++)
        for (uint64_t n = 255; n <= 257; n++)
            for (unsigned lag = 1; lag < 52; lag += 2) {
                uint64_t due;

                wheel_reset(wheel, 1000 + lag);
                lagging_delay = n << 8 * level;
                probe[0].then = start_next;
                probe[1].fired = 0;
                start(0, wheel_now(wheel) + 1);
                wheel_advance(wheel, UINT64_C(1) << lag << 11, 0, on_fire);
                cr_assert_eq(probe[1].fired, 0, "at once");
                due = wheel_now(wheel) + lagging_delay;
                wheel_advance(wheel, due - 1, 0, on_fire);
                cr_assert_eq(probe[1].fired, 0, "early");
                wheel_advance(wheel, due, 0, on_fire);
                cr_assert_eq(probe[1].fired, 1, "late");
            }
}

/* Start the probe again at once, from its own callback. */
static void again(struct probe *p)
{
    start((unsigned)(p - probe), wheel_now(wheel));
}

Test(wheel, a_0_delay_started_in_its_own_callback_fires_once_an_advance)
{
    probe[0].then = again;
    start(0, 0);
    for (unsigned n = 1; n <= 100; n++) {
        cr_assert_not(wheel_advance(wheel, n / 10, 0, on_fire));
        cr_assert_eq(probe[0].fired, n);
    }
}

Test(wheel, popping_ends_although_each_timer_starts_again_at_0_delay)
{
    struct wheel_timer *t;
    unsigned popped = 0;
    bool more;

    for (unsigned i = 0; i < 10; i++)
        start(i, i / 2);
    for (unsigned drains = 0; drains < 3; drains++)
        while ((t = wheel_pop(wheel, HOUR, 0, &more))) {
            wheel_start(wheel, t, 5);
            popped++;
        }
    cr_assert_eq(popped, 30);
}

/* 8: cancel of B, or of all, inside A's callback of the same batch */
static size_t cancelled;

/* Cancel every probe but the one that fired. */
static void cancel_others(struct probe *p)
{
    for (struct probe *q = probe; q < probe + 100; q++)
        if (q != p)
            cancelled += wheel_cancel(wheel, &q->timer);
}

Test(wheel, a_callback_cancels_others_that_are_due_in_the_same_advance)
{
    static const uint64_t spreads[] = {0, 1, 200, 100000, NS_PER_S};

    for (unsigned s = 0; s < 5; s++) {
        wheel_reset(wheel, HOUR);
        fired = 0;
        cancelled = 0;
        for (unsigned i = 0; i < 100; i++) {
            probe[i].then = i == 10 ? cancel_others : NULL;
            start(i, HOUR + 5 + i * spreads[s]);
        }
        wheel_advance(wheel, 2 * HOUR, 0, on_fire);
        cr_assert_eq(fired, 11);
        cr_assert_eq(cancelled, 89);
        cr_assert_eq(wheel_count(wheel), 0);
    }
}

/* 9: cancel said true and the callback ran as well */
Test(wheel, each_start_ends_in_exactly_one_of_fired_and_cancelled)
{
    uint64_t x = 1, starts = 0, stopped = 0;

    for (uint64_t now = 0; now < 300000; now += x >> 33 & 127) {
        unsigned i = (x = x * 6364136223846793005 + 1) >> 40 & 63;
        bool was = wheel_pending(&probe[i].timer);

        if (x >> 62) {
            stopped += was; /* replaced: this start will not fire either */
            starts++;
            start(i, now + (x >> 20 & 4095));
        } else {
            bool said = wheel_cancel(wheel, &probe[i].timer);

            cr_assert_eq(said, was);
            stopped += said;
        }
        wheel_advance(wheel, now, 0, on_fire);
        cr_assert_eq(starts, stopped + fired + wheel_count(wheel));
    }
    cr_assert_gt(fired, 500);
    cr_assert_gt(stopped, 500);
}

/* 10: starting again leaked; cancelled timers stayed until their slot came */
Test(wheel, starting_again_moves_and_cancelling_takes_out_at_once)
{
    for (unsigned i = 0; i < 1000; i++)
        start(0, HOUR * (i + 1));
    cr_assert_eq(wheel_count(wheel), 1);
    cr_assert_eq(next_is(), 1000 * HOUR);
    start(1, HOUR);
    cr_assert_eq(wheel_count(wheel), 2);
    cr_assert(wheel_cancel(wheel, &probe[1].timer));
    cr_assert_eq(wheel_count(wheel), 1);
    cr_assert_not(wheel_pending(&probe[1].timer));
    cr_assert_not(wheel_cancel(wheel, &probe[1].timer));
    wheel_advance(wheel, 999 * HOUR, 0, on_fire);
    cr_assert_eq(fired, 0);
}

/* 11: a clock that steps back */
Test(wheel, an_earlier_time_does_nothing)
{
    wheel_reset(wheel, HOUR);
    start(0, HOUR + 5);
    start(1, 10);
    cr_assert_not(wheel_advance(wheel, HOUR - 1, 0, on_fire));
    cr_assert_eq(fired, 0);
    cr_assert_eq(wheel_now(wheel), HOUR);
    wheel_advance(wheel, HOUR + 4, 0, on_fire);
    cr_assert_eq(probe[1].fired, 1);
    cr_assert_eq(probe[0].fired, 0);
    wheel_advance(wheel, HOUR + 5, 0, on_fire);
    cr_assert_eq(probe[0].fired, 1);
}

/* 13: one timer that is started again all the time starved the others */
Test(wheel, ten_million_starts_of_one_timer_delay_no_other)
{
    for (unsigned i = 1; i <= 100; i++)
        start(i, i * UINT64_C(99991));
    for (uint64_t now = 1; now <= 10000000; now++) {
        start(0, now + 1 + now % 3);
        wheel_advance(wheel, now, 0, on_fire);
    }
    for (unsigned i = 1; i <= 100; i++)
        cr_assert_eq(probe[i].fired_ns, i * UINT64_C(99991));
    cr_assert_eq(wheel_count(wheel), 1);
}

/* 14: a stall of an hour */
Test(wheel, after_an_hours_stall_all_fire_in_order_and_go_on_in_time)
{
    unsigned due = 0;

    for (unsigned i = 1; i < MANY; i++)
        start(i, (i * UINT64_C(2654435761) % 5000) * NS_PER_S + 1);
    while (wheel_advance(wheel, HOUR, 64, on_fire))
        continue;
    for (unsigned i = 1; i < MANY; i++) {
        cr_assert_eq(probe[i].fired, probe[i].timer.when_ns <= HOUR);
        due += probe[i].fired;
        for (unsigned j = i > 40 ? i - 40 : 1; j < i; j++)
            if (probe[i].fired && probe[j].fired)
                cr_assert_eq(probe[j].order < probe[i].order,
                             probe[j].timer.when_ns <= probe[i].timer.when_ns);
    }
    cr_assert_eq(fired, due);
    check_exact(4999, HOUR + 1);
}
