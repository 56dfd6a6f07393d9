/* test_clock.c - durations, sizes and times: in, out, and back again */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

#define MINUTE    (60 * NS_PER_S)
#define HOUR      (60 * MINUTE)
#define DAY       (24 * HOUR)
#define ROUNDS    200000
#define UNTOUCHED UINT64_C(0xABCDEF)
#define COUNT(a)  (sizeof(a) / sizeof *(a))

static time_t wall_step_s; /* a step of the wall clock, s */

/* The system call with times of 64 bits. */
#ifdef SYS_clock_gettime64
#define CLOCK_CALL SYS_clock_gettime64
#else
#define CLOCK_CALL SYS_clock_gettime
#endif

/* Replace clock_gettime(3) in the whole program: ask the kernel, and move the
 * wall clock by wall_step_s. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    int rc = (int)syscall(CLOCK_CALL, id, now);
    if (id == CLOCK_REALTIME)
        now->tv_sec += wall_step_s;
    return rc;
}

struct text_case {
    const char *text;
    uint64_t value;
    int rc;
};

/* Return the seed of this run, and print it, to repeat a failure. */
static uint64_t seed_take(void)
{
    uint64_t seed = clock_wall_ns();
    const char *given = getenv("TEST_SEED");
    if (given)
        seed = strtoull(given, NULL, 10);
    fprintf(stderr, "TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

/* Return the next number of splitmix64. */
static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Return a number of any length in bits, often round in decimal. */
static uint64_t random_value(uint64_t *state)
{
    uint64_t value = random_next(state) >> (1 + random_next(state) % 63);
    uint64_t zeros = random_next(state) % 16;
    uint64_t round = 1;
    while (zeros--)
        round *= 10;
    return value - value % (random_next(state) % 2 ? round : 1);
}

static void cases_check(const struct text_case *cases, size_t n,
                        int (*parse)(const char *, uint64_t *))
{
    for (size_t i = 0; i < n; i++) {
        const struct text_case *c = &cases[i];
        uint64_t got = UNTOUCHED;
        cr_expect_eq(parse(c->text, &got), c->rc, "\"%s\"", c->text);
        uint64_t want = c->rc == 0 ? c->value : UNTOUCHED;
        cr_expect_eq(got, want, "\"%s\": %" PRIu64, c->text, got);
    }
}

Test(clock, durations_are_read_exactly)
{
    static const struct text_case cases[] = {
        {"0", 0, 0},
        {"0s", 0, 0},
        {"250ms", 250 * NS_PER_MS, 0},
        {"1.5s", 1500 * NS_PER_MS, 0},
        {"2h30m", 2 * HOUR + 30 * MINUTE, 0},
        {"1m1.5s", MINUTE + 1500 * NS_PER_MS, 0},
        {"1d2h3m4s5ms6us7ns",
         DAY + 2 * HOUR + 3 * MINUTE + 4 * NS_PER_S + 5 * NS_PER_MS + 6007, 0},
        {"90s", 90 * NS_PER_S, 0},
        {"007us", 7000, 0},
        {"0.5d", 12 * HOUR, 0},
        {"0.1d", 2 * HOUR + 24 * MINUTE, 0},
        {"1.9ns", 1, 0},
        {"0.30000000000000004s", 300 * NS_PER_MS, 0},
        {"0.99999999999999999999999999s", NS_PER_S - 1, 0},
        {"9223372036854775807ns", INT64_MAX, 0},
        {"106751d23h47m16.854775807s", INT64_MAX, 0},
    };
    cases_check(cases, COUNT(cases), duration_parse);
}

Test(clock, what_is_no_duration_is_refused_and_writes_nothing)
{
    static const struct text_case cases[] = {
        {"", 0, -EINVAL},
        {"5", 0, -EINVAL},
        {"00", 0, -EINVAL},
        {"s", 0, -EINVAL},
        {"5x", 0, -EINVAL},
        {"-5s", 0, -EINVAL},
        {"+5s", 0, -EINVAL},
        {" 5s", 0, -EINVAL},
        {"5s ", 0, -EINVAL},
        {"5 s", 0, -EINVAL},
        {"1.s", 0, -EINVAL},
        {".5s", 0, -EINVAL},
        {"1.2.3s", 0, -EINVAL},
        {"1s1s", 0, -EINVAL},
        {"1m1h", 0, -EINVAL},
        {"2h30", 0, -EINVAL},
        {"5S", 0, -EINVAL},
        {"1e3s", 0, -EINVAL},
        {"0x5s", 0, -EINVAL},
        {"none", 0, -EINVAL},
        {"5mss", 0, -EINVAL},
        {"5\xc2\xb5s", 0, -EINVAL},
        /* Junk behind a number that is too large is -EINVAL, not -ERANGE. */
        {"99999999999999999999d5x", 0, -EINVAL},
    };
    cases_check(cases, COUNT(cases), duration_parse);
}

Test(clock, durations_over_the_longest_are_refused_not_wrapped)
{
    static const struct text_case cases[] = {
        {"9223372036854775808ns", 0, -ERANGE},
        {"18446744073709551616ns", 0, -ERANGE},
        {"99999999999999999999999999ns", 0, -ERANGE},
        {"106751d23h47m16.854775808s", 0, -ERANGE},
        {"213503982334601d", 0, -ERANGE}, /* 2^64 ns and a bit: would wrap */
        {"106751d9999999999999999999h", 0, -ERANGE},
    };
    cases_check(cases, COUNT(cases), duration_parse);
}

Test(clock, durations_are_printed_short)
{
    static const struct text_case cases[] = {
        {"0s", 0, 0},
        {"1ns", 1, 0},
        {"999ns", 999, 0},
        {"1us", 1000, 0},
        {"1.001us", 1001, 0},
        {"250ms", 250 * NS_PER_MS, 0},
        {"1.5s", 1500 * NS_PER_MS, 0},
        {"5s", 5 * NS_PER_S, 0},
        {"1m", MINUTE, 0},
        {"1m30s", 90 * NS_PER_S, 0},
        {"1h1ns", HOUR + 1, 0},
        {"1m1.5s", MINUTE + 1500 * NS_PER_MS, 0},
        {"1d", DAY, 0},
        {"1d12h", 36 * HOUR, 0},
        {"106751d23h47m16.854775807s", INT64_MAX, 0},
        {"213503d23h34m33.709551615s", UINT64_MAX, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char buf[DURATION_TEXT];
        cr_expect_str_eq(duration_print(cases[i].value, buf), cases[i].text);
    }
}

Test(clock, people_read_a_duration_in_five_characters)
{
    static const struct text_case cases[] = {
        {"0s", 0, 0},
        {"999ns", 999, 0},
        {"1us", 1001, 0},
        {"1.1us", 1100, 0},
        {"9.9us", 9999, 0},
        {"2.8ms", 2809 * NS_PER_MS / 1000, 0},
        {"553ms", 553648 * NS_PER_MS / 1000, 0},
        {"999ms", NS_PER_S - 1, 0},
        {"1.4s", 1442840 * NS_PER_MS / 1000, 0},
        {"3s", 3000 * NS_PER_MS, 0},
        {"59s", 59999 * NS_PER_MS, 0},
        {"1m", MINUTE, 0},
        {"1m39s", 99999 * NS_PER_MS, 0},
        {"9m59s", 10 * MINUTE - 1, 0},
        {"59m", HOUR - 1, 0},
        {"1h1m", HOUR + MINUTE + 1, 0},
        {"23h", DAY - 1, 0},
        {"1d1h", DAY + HOUR + 55 * MINUTE + 46999 * NS_PER_MS, 0},
        {"9d23h", 10 * DAY - 1, 0},
        {"213503d", UINT64_MAX, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char buf[DURATION_TEXT];
        cr_expect_str_eq(duration_rough(cases[i].value, buf), cases[i].text);
    }
}

Test(clock, every_duration_printed_is_read_back)
{
    uint64_t state = seed_take();
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t value = random_value(&state), got = ~value;
        char buf[DURATION_TEXT];
        memset(buf, '#', sizeof buf);
        cr_assert_eq(duration_parse(duration_print(value, buf), &got), 0, "%s",
                     buf);
        cr_assert_eq(got, value, "%" PRIu64 " became %s", value, buf);
    }
}

Test(clock, sizes_are_read_exactly)
{
    static const struct text_case cases[] = {
        {"0", 0, 0},
        {"8192", 8192, 0},
        {"1000B", 1000, 0},
        {"8KiB", 8192, 0},
        {"8k", 8192, 0},
        {"8K", 8192, 0},
        {"8kB", 8000, 0},
        {"100KB", 100000, 0},
        {"2M", 2 << 20, 0},
        {"1MiB", 1 << 20, 0},
        {"1MB", 1000000, 0},
        {"3G", UINT64_C(3) << 30, 0},
        {"3GiB", UINT64_C(3) << 30, 0},
        {"3GB", UINT64_C(3000000000), 0},
        {"9223372036854775807", INT64_MAX, 0},
        {"9223372036854775808", 0, -ERANGE},
        {"18446744073709551616", 0, -ERANGE},
        {"17179869184G", 0, -ERANGE},
        {"99999999999999999999k", 0, -ERANGE},
        {"", 0, -EINVAL},
        {"B", 0, -EINVAL},
        {"-1", 0, -EINVAL},
        {"+1", 0, -EINVAL},
        {" 1", 0, -EINVAL},
        {"1 KiB", 0, -EINVAL},
        {"1.5MiB", 0, -EINVAL},
        {"1Kb", 0, -EINVAL},
        {"1kib", 0, -EINVAL},
        {"1KiBx", 0, -EINVAL},
        {"0x10", 0, -EINVAL},
        {"99999999999999999999x", 0, -EINVAL},
    };
    cases_check(cases, COUNT(cases), size_parse);
}

Test(clock, sizes_are_printed_exactly_and_read_back)
{
    char buf[SIZE_TEXT];
    cr_expect_str_eq(size_print(0, buf), "0B");
    cr_expect_str_eq(size_print(1000, buf), "1000B");
    cr_expect_str_eq(size_print(1024, buf), "1KiB");
    cr_expect_str_eq(size_print(1025, buf), "1025B");
    cr_expect_str_eq(size_print(1 << 20, buf), "1MiB");
    cr_expect_str_eq(size_print(UINT64_C(1) << 40, buf), "1024GiB");
    uint64_t state = seed_take();
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t value = random_value(&state) << random_next(&state) % 40;
        uint64_t got = ~value;
        value &= INT64_MAX;
        cr_assert_eq(size_parse(size_print(value, buf), &got), 0, "%s", buf);
        cr_assert_eq(got, value, "%" PRIu64 " became %s", value, buf);
    }
}

Test(clock, times_are_printed_in_utc_with_milliseconds)
{
    char buf[TIME_TEXT];
    setenv("TZ", "Asia/Kolkata", 1);
    tzset();
    cr_expect_str_eq(time_print(0, buf), "1970-01-01T00:00:00.000Z");
    cr_expect_str_eq(time_print(UINT64_C(1732126091123999999), buf),
                     "2024-11-20T18:08:11.123Z");
    cr_expect_str_eq(time_print(UINT64_MAX, buf), "2554-07-21T23:34:33.709Z");
}

static int time_parse_now(const char *text, uint64_t *ns)
{
    return time_parse(text, UINT64_C(1732126091000000000), ns);
}

Test(clock, times_are_read)
{
    setenv("TZ", "America/New_York", 1);
    tzset();
    static const struct text_case cases[] = {
        {"2024-11-20", UINT64_C(1732060800000000000), 0},
        {"2024-11-20T18:08:11Z", UINT64_C(1732126091000000000), 0},
        {"2024-11-20t18:08:11z", UINT64_C(1732126091000000000), 0},
        {"2024-11-20 18:08:11", UINT64_C(1732126091000000000), 0},
        {"2024-11-20T18:08", UINT64_C(1732126080000000000), 0},
        {"2024-11-20T18:08:11.123Z", UINT64_C(1732126091123000000), 0},
        {"2024-11-20T19:08:11+01:00", UINT64_C(1732126091000000000), 0},
        {"2024-11-20T12:38:11.5-05:30", UINT64_C(1732126091500000000), 0},
        {"2024-02-29", UINT64_C(1709164800000000000), 0},
        {"2016-12-31T23:59:60Z", UINT64_C(1483228800000000000), 0},
        {"1970-01-01", 0, 0},
        {"@0", 0, 0},
        {"@1732126091", UINT64_C(1732126091000000000), 0},
        {"@1732126091.25", UINT64_C(1732126091250000000), 0},
        {"0", UINT64_C(1732126091000000000), 0},
        {"1h", UINT64_C(1732122491000000000), 0},
        {"100000d", 0, 0}, /* before the epoch: 0 */
        {"1969-12-31", 0, -ERANGE},
        {"1970-01-01T00:00:00+00:01", 0, -ERANGE},
        {"9999-01-01", 0, -ERANGE},
        {"@18446744074", 0, -ERANGE},
        {"@99999999999999999999", 0, -ERANGE},
        {"99999999d", 0, -ERANGE},
        {"", 0, -EINVAL},
        {"@", 0, -EINVAL},
        {"@-1", 0, -EINVAL},
        {"@1x", 0, -EINVAL},
        {"yesterday", 0, -EINVAL},
        {"2024", 0, -EINVAL},
        {"2024-1-2", 0, -EINVAL},
        {"2024-00-10", 0, -EINVAL},
        {"2024-13-10", 0, -EINVAL},
        {"2024-11-00", 0, -EINVAL},
        {"2024-11-31", 0, -EINVAL},
        {"2023-02-29", 0, -EINVAL},
        {"2024-11-20T", 0, -EINVAL},
        {"2024-11-20T24:00:00", 0, -EINVAL},
        {"2024-11-20T18:60:00", 0, -EINVAL},
        {"2024-11-20T18:08:61", 0, -EINVAL},
        {"2024-11-20T18:08:11.", 0, -EINVAL},
        {"2024-11-20T18:08:11+1:00", 0, -EINVAL},
        {"2024-11-20T18:08:11+24:00", 0, -EINVAL},
        {"2024-11-20T18:08:11Zx", 0, -EINVAL},
        {"2024-11-20Z", 0, -EINVAL},
        {" 2024-11-20", 0, -EINVAL},
    };
    cases_check(cases, COUNT(cases), time_parse_now);
}

Test(clock, every_time_printed_is_read_back_to_the_millisecond)
{
    uint64_t state = seed_take();
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t value = random_next(&state) % (UINT64_MAX - 2 * NS_PER_S);
        uint64_t got = 0;
        char buf[TIME_TEXT];
        cr_assert_eq(time_parse(time_print(value, buf), 0, &got), 0, "%s", buf);
        cr_assert_eq(got, value - value % NS_PER_MS, "%s", buf);
    }
}

Test(clock, sums_saturate)
{
    cr_expect_eq(ns_add(1, 2), 3);
    cr_expect_eq(ns_add(UINT64_MAX, 0), UINT64_MAX);
    cr_expect_eq(ns_add(UINT64_MAX, 1), UINT64_MAX);
    cr_expect_eq(ns_add(UINT64_C(1) << 63, UINT64_C(1) << 63), UINT64_MAX);
}

Test(clock, clocks_are_those_of_the_kernel)
{
    struct timespec wall, mono;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &mono);
    uint64_t wall_ns =
        (uint64_t)wall.tv_sec * NS_PER_S + (uint64_t)wall.tv_nsec;
    uint64_t mono_ns =
        (uint64_t)mono.tv_sec * NS_PER_S + (uint64_t)mono.tv_nsec;
    cr_expect_geq(clock_wall_ns(), wall_ns);
    cr_expect_lt(clock_wall_ns(), wall_ns + MINUTE);
    cr_expect_geq(clock_mono_ns(), mono_ns);
    cr_expect_lt(clock_mono_ns(), mono_ns + MINUTE);
}

Test(clock, the_distance_of_two_clocks_changes_by_a_step_and_by_nothing_else)
{
    int64_t before = clock_ahead_ns(), after;

    wall_step_s = -3600;
    after = clock_ahead_ns() + 3600 * (int64_t)NS_PER_S;
    cr_assert_lt(llabs(after - before), (int64_t)NS_PER_S);
    wall_step_s = 0;
    cr_assert_lt(llabs(clock_ahead_ns() - before), (int64_t)NS_PER_S);
}

Test(clock, a_time_of_the_wall_clock_is_a_time_since_the_start)
{
    uint64_t before = clock_boot_ns(), wall = clock_wall_ns(), at;

    at = clock_boot_at(wall + MINUTE);
    cr_assert_geq(at, before);
    cr_assert_leq(at, clock_boot_ns() + MINUTE);
    at = clock_boot_at(wall - MINUTE);
    cr_assert(at >= before && at <= clock_boot_ns(), "a past time is not now");
}

Test(clock, ms_for_poll_never_end_too_early)
{
    uint64_t now = clock_mono_ns();
    int ms = clock_ms_until(now + 3600 * NS_PER_S + 1);

    cr_assert_eq(clock_ms_until(0), 0);
    cr_assert_eq(clock_ms_until(now), 0);
    cr_assert_eq(clock_ms_until(UINT64_MAX), -1);
    cr_assert_eq(clock_ms_until(UINT64_MAX - 1), INT32_MAX);
    cr_assert(ms > 3500000 && ms <= 3600001, "%d", ms);
    now = clock_mono_ns();
    while (clock_ms_until(now + NS_PER_MS) > 0)
        ;
    cr_assert_geq(clock_mono_ns(), now + NS_PER_MS);
}
