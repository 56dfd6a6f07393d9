/* test_rate_limit.c - rate_limit: at most so many steps a second */
#include <criterion/criterion.h>

#include "common/base/clock.h"
#include "common/cli/complain.h"

#define START (1000 * NS_PER_S)

Test(pace, the_kth_step_is_due_at_k_over_rate_without_drift)
{
    static const uint64_t rates[] = {1, 3, 7, 1000, 999983, 1000000000};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        struct rate_limit p;
        rate_limit_start(&p, rates[r], START);
        uint64_t now = START;
        for (uint64_t k = 0; k < 10000; k++) {
            uint64_t due = rate_limit_next(&p, now);
            uint64_t want = START + k * NS_PER_S / rates[r];
            cr_assert(due >= want - 1 && due <= want + 1,
                      "rate %lu step %lu: %lu, not %lu", rates[r], k, due,
                      want);
            now = due + 50; /* each step is late: that must not add up */
        }
    }
}

Test(pace, no_rate_never_waits)
{
    struct rate_limit p;
    rate_limit_start(&p, 0, START);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(rate_limit_next(&p, START + 5), START + 5);
    cr_assert_eq(rate_limit_wait(&p), 0);
}

Test(pace, a_short_stall_is_caught_up_with)
{
    struct rate_limit p;
    rate_limit_start(&p, 10, START);
    rate_limit_next(&p, START);
    uint64_t now = START + NS_PER_S / 2;
    int at_once = 0;
    while (rate_limit_next(&p, now) <= now)
        at_once++;
    cr_assert_eq(at_once, 5); /* at 100 200 300 400 500 ms */
}

Test(pace, after_a_long_stall_one_seconds_worth_is_caught_up_with)
{
    struct rate_limit p;
    rate_limit_start(&p, 10, START);
    rate_limit_next(&p, START);
    uint64_t now = START + 3600 * NS_PER_S;
    int at_once = 0;
    while (rate_limit_next(&p, now) <= now)
        at_once++;
    cr_assert_eq(at_once, 11, "%d", at_once);
}

Test(pace, waiting_reaches_the_deadline)
{
    struct rate_limit p;
    uint64_t start = clock_mono_ns();
    rate_limit_start(&p, 100, start);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(rate_limit_wait(&p), 0);
    cr_assert_geq(clock_mono_ns() - start, 50 * NS_PER_MS);
}
