/* test_moment.c - times on a command line, in time zones of all kinds */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/cli/moment.h"

#define BERLIN    "Europe/Berlin"
#define UNTOUCHED UINT64_C(77)
#define COUNT(a)  (sizeof(a) / sizeof *(a))

/* Return the time that an RFC 3339 text names. */
static uint64_t utc(const char *text)
{
    uint64_t ns;

    cr_assert_eq(time_parse(text, 0, &ns), 0, "%s", text);
    return ns;
}

/* Set the local time zone; skip the test if tzdata is missing. */
static void zone(const char *name)
{
    char file[128];

    snprintf(file, sizeof file, "/usr/share/zoneinfo/%s", name);
    if (access(file, R_OK) < 0)
        cr_skip_test("no %s here: tzdata is not installed", file);
    setenv("TZ", name, 1);
}

struct row {
    const char *text;
    const char *is; /* RFC 3339 */
    enum moment_clock clock;
};
#define ONCE(text, is)        \
    {                         \
        text, is, MOMENT_ONCE \
    }
#define TWICE(text, is)        \
    {                          \
        text, is, MOMENT_TWICE \
    }
#define SKIPPED(text, is)        \
    {                            \
        text, is, MOMENT_SKIPPED \
    }

/* Check that each text, read at `now`, names its time. */
static void all_are(const char *now, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        char got[TIME_TEXT];
        struct moment m = {0};

        cr_assert_eq(moment_parse(r->text, utc(now), &m), 0, "%s", r->text);
        cr_expect_eq(m.wall_ns, utc(r->is), "%s at %s: %s, not %s", r->text,
                     now, time_print(m.wall_ns, got), r->is);
        cr_expect_eq(m.clock, r->clock, "%s", r->text);
    }
}
#define ARE(now, ...)                               \
    all_are(now, (const struct row[]){__VA_ARGS__}, \
            COUNT(((const struct row[]){__VA_ARGS__})))

Test(moment, a_time_alone_is_the_next_one_and_a_day_names_its_own)
{
    zone(BERLIN);
    ARE("2026-11-22T13:00:00Z", /* 14:00 in Berlin */
        ONCE("14:30", "2026-11-22T13:30:00Z"),
        ONCE("14:00", "2026-11-23T13:00:00Z"),
        ONCE("08:00:30", "2026-11-23T07:00:30Z"),
        ONCE("14:00:00.5", "2026-11-22T13:00:00.5Z"),
        ONCE("today 14:30", "2026-11-22T13:30:00Z"),
        ONCE("today 08:00", "2026-11-22T07:00:00Z"),
        ONCE("tomorrow 08:00", "2026-11-23T07:00:00Z"));
    ARE("2026-11-22T23:30:00Z", /* the 23rd in Berlin */
        ONCE("today 14:30", "2026-11-23T13:30:00Z"),
        ONCE("tomorrow 00:00", "2026-11-23T23:00:00Z"),
        ONCE("00:15", "2026-11-23T23:15:00Z"));
    ARE("2026-12-31T12:00:00Z", ONCE("tomorrow 08:00", "2027-01-01T07:00:00Z"));
}

Test(moment, a_date_without_a_zone_is_local_and_with_one_it_is_not)
{
    zone(BERLIN);
    ARE("2026-11-22T13:00:00Z",
        ONCE("2026-07-01T14:30", "2026-07-01T12:30:00Z"),
        ONCE("2026-07-01 14:30:05", "2026-07-01T12:30:05Z"),
        ONCE("2026-12-01", "2026-11-30T23:00:00Z"),
        ONCE("2026-07-01T14:30:00Z", "2026-07-01T14:30:00Z"),
        ONCE("2026-07-01T14:30:00.25-05:30", "2026-07-01T20:00:00.25Z"),
        ONCE("@1800000000", "2027-01-15T08:00:00Z"));
}

Test(moment, a_time_that_comes_twice_is_the_first_unless_that_is_over)
{
    zone(BERLIN); /* 25 October: 03:00 is 02:00 again, at 01:00 UTC */
    ARE("2026-10-24T12:00:00Z", TWICE("tomorrow 02:30", "2026-10-25T00:30:00Z"),
        TWICE("2026-10-25 02:00", "2026-10-25T00:00:00Z"),
        ONCE("2026-10-25 03:00", "2026-10-25T02:00:00Z"),
        ONCE("2026-10-25 01:59:59", "2026-10-24T23:59:59Z"),
        ONCE("2026-10-25T02:30:00+01:00", "2026-10-25T01:30:00Z"));
    ARE("2026-10-25T00:45:00Z", /* the first 02:30 was 15 minutes ago */
        TWICE("02:30", "2026-10-25T01:30:00Z"),
        TWICE("today 02:30", "2026-10-25T00:30:00Z"));
    ARE("2026-10-25T01:45:00Z", ONCE("02:30", "2026-10-26T01:30:00Z"));
}

Test(moment, a_time_that_is_skipped_is_later_by_what_is_skipped)
{
    zone(BERLIN); /* 29 March: after 02:00 comes 03:00 */
    ARE("2026-03-28T12:00:00Z",
        SKIPPED("tomorrow 02:30", "2026-03-29T01:30:00Z"),
        SKIPPED("2026-03-29 02:00", "2026-03-29T01:00:00Z"),
        ONCE("2026-03-29 03:00", "2026-03-29T01:00:00Z"),
        ONCE("2026-03-29 01:59", "2026-03-29T00:59:00Z"));
    zone("Australia/Lord_Howe"); /* by half an hour */
    ARE("2026-10-03T00:00:00Z",
        SKIPPED("2026-10-04 02:15", "2026-10-03T15:45:00Z"));
    zone("Pacific/Apia"); /* a whole day was left out */
    ARE("2011-12-29T00:00:00Z",
        SKIPPED("2011-12-30 12:00", "2011-12-30T22:00:00Z"),
        ONCE("2011-12-31 12:00", "2011-12-30T22:00:00Z"));
}

Test(moment, each_hour_of_a_year_is_found_again)
{
    static const char *const zones[] = {BERLIN, "America/St_Johns",
                                        "Africa/Casablanca", "Asia/Kathmandu",
                                        "Pacific/Kiritimati"};

    for (size_t i = 0; i < COUNT(zones); i++) {
        uint64_t from = utc("2026-01-01T00:30:00Z");

        zone(zones[i]);
        for (uint64_t h = 0; h < UINT64_C(365) * 24; h++) {
            uint64_t at = from + h * 3600 * NS_PER_S;
            char text[MOMENT_TEXT];
            struct moment m;

            moment_print(at, text);
            text[19] = '\0'; /* without its zone */
            cr_assert_eq(moment_parse(text, 0, &m), 0, "%s", text);
            cr_assert(m.clock != MOMENT_SKIPPED, "%s %s", zones[i], text);
            cr_assert(m.wall_ns == at || m.clock == MOMENT_TWICE, "%s %s",
                      zones[i], text);
        }
    }
}

Test(moment, what_is_no_moment_is_refused_and_nothing_is_written)
{
    static const char *const bad[] = {
        "",
        "now",
        "5m",
        "1430",
        "24:00",
        "14:60",
        "4:30",
        "14:30Z",
        "14:30+01:00",
        "today",
        "today  14:30",
        "tomorrow 8:00",
        "tomorrow",
        "2026-02-30",
        "2026-11-22T",
        "2026-11-22T14",
        "20261122",
        "14:30 ",
        "@",
        "@-1",
        "14:30:00.",
        "yesterday 14:30",
        "14:30:00.00000000000000000000000000000000000000000000000000000000000"};

    for (size_t i = 0; i < COUNT(bad); i++) {
        struct moment m = {.wall_ns = UNTOUCHED};

        cr_expect_eq(moment_parse(bad[i], utc("2026-11-22T13:00:00Z"), &m),
                     -EINVAL, "\"%s\"", bad[i]);
        cr_expect_eq(m.wall_ns, UNTOUCHED, "\"%s\"", bad[i]);
    }
    cr_expect_eq(moment_parse("1969-12-31", 0, &(struct moment){0}), -ERANGE);
    cr_expect_eq(moment_parse("9999-01-01", 0, &(struct moment){0}), -ERANGE);
    cr_expect_eq(moment_parse("@99999999999", 0, &(struct moment){0}), -ERANGE);
}

Test(moment, is_printed_with_its_zone)
{
    char text[MOMENT_TEXT];

    zone(BERLIN);
    cr_assert_str_eq(moment_print(utc("2026-11-22T13:00:00Z"), text),
                     "2026-11-22 14:00:00 +0100");
}

/* Check that `text`, read at `now`, names the past time `is`. */
static void past_is(const char *now, const char *text, const char *is)
{
    char got[TIME_TEXT];
    uint64_t ns = 0;

    cr_expect_eq(moment_past_parse(text, utc(now), &ns), 0, "%s", text);
    cr_expect_eq(ns, utc(is), "%s at %s: %s", text, now, time_print(ns, got));
}

Test(moment, a_past_time_is_local_and_the_last_one)
{
    static const char now[] = "2026-11-22T13:00:00Z"; /* 14:00 in Berlin */

    zone(BERLIN);
    past_is(now, "08:00", "2026-11-22T07:00:00Z");
    past_is(now, "14:00", "2026-11-22T13:00:00Z");
    past_is(now, "14:30", "2026-11-21T13:30:00Z");
    past_is(now, "today 14:30", "2026-11-22T13:30:00Z");
    past_is(now, "yesterday 14:30", "2026-11-21T13:30:00Z");
    past_is(now, "2h", "2026-11-22T11:00:00Z");
    past_is(now, "2026-07-01", "2026-06-30T22:00:00Z");
    past_is(now, "2026-07-01T14:30", "2026-07-01T12:30:00Z");
    past_is(now, "2026-07-01T14:30Z", "2026-07-01T14:30:00Z");
    past_is(now, "@1800000000", "2027-01-15T08:00:00Z");
    cr_expect_eq(moment_past_parse("yesterday", utc(now), &(uint64_t){0}),
                 -EINVAL);
    cr_expect_eq(moment_past_parse("25:00", utc(now), &(uint64_t){0}), -EINVAL);
}
