/* test_backoff.c - how long a failed message waits */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/message/backoff.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

static struct backoff parsed(const char *spec)
{
    struct backoff b;
    struct problem p = {0};

    cr_assert(backoff_parse(spec, &b, &p) == 0, "%s", p.text);
    return b;
}

/* Return the delay without jitter. */
static uint64_t delay(const struct backoff *b, uint32_t failures)
{
    return backoff_delay(b, failures, 0);
}

Test(backoff, exponential_doubles_up_to_the_maximum)
{
    struct backoff b = parsed("exp:1s,5m");
    static const uint64_t seconds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 300};

    for (uint32_t i = 0; i < COUNT(seconds); i++)
        cr_assert_eq(delay(&b, i + 1), seconds[i] * NS_PER_S);
    cr_assert_eq(delay(&b, 100), 300 * NS_PER_S);
    cr_assert_eq(delay(&b, UINT32_MAX), 300 * NS_PER_S);
}

Test(backoff, exponential_never_overflows)
{
    struct backoff b = parsed("exp:1ns,106751d");

    for (uint32_t i = 2; i < 200; i++)
        cr_assert_geq(delay(&b, i), delay(&b, i - 1));
    cr_assert_eq(delay(&b, 200), b.step_ns[1]);
}

Test(backoff, exponential_from_nothing_stays_nothing)
{
    struct backoff b = parsed("exp:0,5m");

    cr_assert_eq(delay(&b, 1), 0);
    cr_assert_eq(delay(&b, UINT32_MAX), 0, "a wait of 0 has grown");
}

Test(backoff, last_entry_of_a_list_repeats)
{
    struct backoff b = parsed("1s,5s,30s");

    cr_assert_eq(delay(&b, 1), 1 * NS_PER_S);
    cr_assert_eq(delay(&b, 2), 5 * NS_PER_S);
    cr_assert_eq(delay(&b, 3), 30 * NS_PER_S);
    cr_assert_eq(delay(&b, 4), 30 * NS_PER_S);
    cr_assert_eq(delay(&b, UINT32_MAX), 30 * NS_PER_S);
    cr_assert_eq(delay(&b, 0), 1 * NS_PER_S,
                 "0 failures are not taken for the first one");
}

Test(backoff, single_entry_and_longest_list_are_taken)
{
    char spec[BACKOFF_STEPS * 8] = "1s";
    struct backoff b = parsed(spec);

    cr_assert_eq(delay(&b, 9), NS_PER_S);
    for (int i = 2; i <= BACKOFF_STEPS; i++)
        snprintf(spec + strlen(spec), sizeof spec - strlen(spec), ",%ds", i);
    b = parsed(spec);
    cr_assert_eq(delay(&b, BACKOFF_STEPS), BACKOFF_STEPS * NS_PER_S);
    cr_assert_eq(delay(&b, BACKOFF_STEPS + 1), BACKOFF_STEPS * NS_PER_S);
}

Test(backoff, jitter_only_adds_and_spreads_over_its_share)
{
    struct backoff b = parsed("10s");
    uint64_t least = UINT64_MAX, most = 0;

    for (int i = 0; i < 5000; i++) {
        uint64_t got = backoff_delay(&b, 1, 20);

        least = got < least ? got : least;
        most = got > most ? got : most;
    }
    cr_assert_geq(least, 10 * NS_PER_S, "a retry comes early");
    cr_assert_leq(most, 12 * NS_PER_S);
    cr_assert_lt(least, 10 * NS_PER_S + 100 * NS_PER_MS);
    cr_assert_gt(most, 12 * NS_PER_S - 100 * NS_PER_MS);
}

Test(backoff, jitter_on_the_longest_delay_does_not_wrap)
{
    struct backoff b = parsed("106751d");

    for (int i = 0; i < 1000; i++)
        cr_assert_geq(backoff_delay(&b, 1, 1000), b.step_ns[0]);
}

Test(backoff, bad_specs_are_refused_with_what_is_allowed)
{
    static const char *const bad[] = {
        "",
        ",",
        "1s,",
        ",1s",
        "1s,,2s",
        "soon",
        "1",
        "-1s",
        "exp:",
        "exp:1s",
        "exp:1s,",
        "exp:5m,1s",
        "exp:1s,2s,3s",
        "EXP:1s,2s",
        "1s 2s",
        "1s;2s",
        "1s,exp:1s,2s",
    };

    for (size_t i = 0; i < COUNT(bad); i++) {
        struct backoff b = {.count = 77};
        struct problem p = {0};

        cr_assert_lt(backoff_parse(bad[i], &b, &p), 0, "\"%s\"", bad[i]);
        cr_assert_eq(p.status, EX_USAGE);
        cr_assert(strstr(p.text, bad[i]), "%s", p.text);
        cr_assert(strstr(p.text, "exp:1s,5m"), "%s", p.text);
        cr_assert_eq(b.count, 77, "a refused text was stored");
    }
}

Test(backoff, too_many_entries_and_too_long_specs_are_refused)
{
    char spec[4096] = "1s";
    struct backoff b;

    for (int i = 0; i < BACKOFF_STEPS; i++)
        strcat(spec, ",1s");
    cr_assert_lt(backoff_parse(spec, &b, NULL), 0);
    memset(spec, '0', sizeof spec - 1);
    spec[sizeof spec - 1] = '\0';
    cr_assert_lt(backoff_parse(spec, &b, NULL), 0);
}
