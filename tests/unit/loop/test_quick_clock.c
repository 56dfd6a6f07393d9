/* test_quick_clock.c - the counter tells the time between two looks at the
 * kernel's clock, never goes back, and is dropped where the two disagree
 *
 * Both clocks are the test's: `counter` ticks at 3 GHz, `kernel` is steered.
 */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "worker/loop/quick_clock.h"

#define TICKS  3                 /* a ns */
#define START  (1000 * NS_PER_S) /* of the kernel's clock */
#define SPENT  100               /* ticks, on a reading */
#define STEER  500               /* ppm: the most that the kernel allows */
#define OFF    (110 * NS_PER_US) /* two windows steered to either side */
#define ROUNDS 200000

static uint64_t counter, kernel, told;
static struct quick_clock clock_;

static void pass(uint64_t ns)
{
    counter += TICKS * ns;
    kernel += ns;
}

static struct quick_reading reading(void)
{
    return (struct quick_reading){
        .ticks = counter, .ns = kernel, .spent = SPENT};
}

/* begin - as quick_clock_open, with a counter */
static void begin(void)
{
    counter = UINT64_MAX - NS_PER_S; /* it wraps in the test */
    kernel = START;
    told = 0;
    clock_ = (struct quick_clock){.counter = true, .from = reading()};
}

static void look(void)
{
    struct quick_reading r = reading();
    uint64_t now = quick_clock_told(&clock_, &r, told);

    cr_assert_geq(now, told);
    told = now;
}

/* now - as a thread reads it; false: by way of the kernel's clock */
static bool now(void)
{
    uint64_t before = told;
    bool quick = quick_clock_at(&clock_, counter, &told);

    cr_assert_geq(told, before, "back by %" PRIu64 " ns", before - told);
    if (!quick)
        look();
    return quick;
}

/* measured - it tells by the counter */
static void measured(void)
{
    begin();
    pass(10 * NS_PER_MS);
    look();
    cr_assert(now());
}

Test(quick_clock, is_the_kernels_until_the_counter_is_measured)
{
    begin();
    cr_expect_not(now());
    pass(NS_PER_MS / 2);
    cr_expect_not(now(), "too soon to know how fast it is");
    pass(10 * NS_PER_MS);
    cr_expect_not(now());
    cr_expect_eq(told, kernel);
    cr_expect(now());
}

Test(quick_clock, tells_what_has_passed_until_the_next_look_is_due)
{
    measured();
    pass(QUICK_CLOCK_NS / 2);
    cr_expect(now());
    cr_expect_leq(llabs((long long)(told - kernel)), 1000);
    pass(QUICK_CLOCK_NS);
    cr_expect_not(now());
    cr_expect_eq(told, kernel);
    cr_expect(now());
}

Test(quick_clock, never_goes_back_while_the_kernels_clock_is_steered)
{
    unsigned seed = (unsigned)time(NULL);

    printf("quick_clock: seed %u\n", seed);
    srand(seed);
    measured();
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t ns = 1 + (uint64_t)rand() % (i % 100 ? 50000 : 2 * NS_PER_MS);
        int ppm = i / 500 % 2 ? STEER : -STEER;

        counter += TICKS * ns;
        kernel += ns;
        kernel = ppm > 0 ? kernel + ns * STEER / 1000000
                         : kernel - ns * STEER / 1000000;
        now();
        cr_assert_leq(llabs((long long)(told - kernel)), (long long)OFF);
    }
}

Test(quick_clock, waits_for_the_kernels_after_the_counter_has_jumped)
{
    uint64_t jumped;

    measured();
    counter += TICKS * QUICK_CLOCK_NS / 2;
    cr_assert(now());
    jumped = told;
    counter += TICKS * QUICK_CLOCK_NS;
    pass(QUICK_CLOCK_NS / 4);
    cr_expect_not(now());
    cr_expect_eq(told, jumped, "it stands still");
    cr_expect_not(now(), "and is the kernel's now");
    pass(QUICK_CLOCK_NS);
    cr_expect_not(now());
    cr_expect_eq(told, kernel);
}

Test(quick_clock, one_that_goes_back_is_not_asked)
{
    measured();
    pass(NS_PER_MS);
    cr_assert(now());
    counter -= TICKS * 20 * NS_PER_MS;
    cr_expect_not(now());
    cr_expect_eq(told, kernel);
}

Test(quick_clock, stands_still_where_another_processors_counter_is_behind)
{
    uint64_t before;

    measured();
    pass(NS_PER_MS);
    cr_assert(now());
    before = told;
    counter -= TICKS * NS_PER_US;
    cr_expect(now(), "it is after the last look at the kernel's");
    cr_expect_eq(told, before);
    pass(2 * NS_PER_US);
    cr_expect(now());
    cr_expect_gt(told, before);
}

Test(quick_clock, is_not_measured_while_it_may_have_slept)
{
    begin();
    /* In a suspend the kernel's clock stands still. */
    counter += TICKS * 60 * NS_PER_S;
    kernel += 5 * NS_PER_S;
    look();
    cr_expect_not(now());
}

Test(quick_clock, a_reading_that_was_interrupted_measures_nothing)
{
    struct quick_reading r;

    begin();
    pass(10 * NS_PER_MS);
    r = reading();
    r.spent = TICKS * NS_PER_MS;
    told = quick_clock_told(&clock_, &r, told);
    cr_expect_not(quick_clock_at(&clock_, counter, &told));
    look();
    cr_expect(now(), "the next one does");
}

/* The real ones. Where the kernel has another clock each look is at that. */
Test(quick_clock, agrees_with_the_kernels_clock)
{
    uint64_t end, ns = 0;
    struct quick_clock q;

    quick_clock_open(&q);
    end = clock_mono_ns() + 2 * QUICK_CLOCK_NS;
    while (ns < end) {
        uint64_t before = clock_mono_ns(), was = ns, after;

        if (!quick_clock_read(&q, &ns))
            ns = quick_clock_look(&q, ns);
        after = clock_mono_ns();
        cr_assert_geq(ns, was);
        cr_assert_geq(ns + OFF, before);
        cr_assert_leq(ns, after + OFF);
    }
}
