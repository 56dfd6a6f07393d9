/* test_term_time.c - common/cli/term_time: times for people, and for scripts
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/cli/term.h"

#define MOMENT UINT64_C(1795326121123000000) /* 2026-11-22T05:42:01.123Z */

/* Set the local time zone, by POSIX rules, which need no tzdata. */
static void zone(const char *rule)
{
    setenv("TZ", rule, 1);
    term_time_local(true);
}

Test(term_time, is_utc_until_a_person_reads)
{
    char text[TIME_TEXT];

    setenv("TZ", "CET-1", 1);
    cr_assert_str_eq(term_time(MOMENT, text), "2026-11-22T05:42:01.123Z");
    cr_assert_str_eq(term_time_ago(MOMENT, text), "2026-11-22T05:42:01.123Z");
    cr_assert_str_eq(term_time_both(MOMENT, text), "2026-11-22T05:42:01.123Z");
}

Test(term_time, what_is_shown_in_any_zone_is_read_back_to_the_second)
{
    static const char *const zones[] = {"UTC0", "CET-1", "IST-5:30", "EST5",
                                        "NST3:30"};
    char text[TIME_TEXT];
    uint64_t back;

    for (size_t i = 0; i < sizeof zones / sizeof *zones; i++) {
        zone(zones[i]);
        term_time(MOMENT, text);
        cr_assert_eq(time_parse(text, 0, &back), 0, "%s: %s", zones[i], text);
        cr_assert_eq(back, MOMENT / NS_PER_S * NS_PER_S, "%s", text);
    }
    zone("CET-1");
    cr_assert_str_eq(term_time(MOMENT, text), "2026-11-22 06:42:01+01:00");
    zone("NST3:30");
    cr_assert_str_eq(term_time(MOMENT, text), "2026-11-22 02:12:01-03:30");
}

/* Each age is in the middle of its range, so a slow test sees the same. */
Test(term_time, how_long_ago_has_one_unit)
{
    static const struct {
        uint64_t seconds;
        const char *text;
    } rows[] = {
        {150, "2 min ago"},        {5400, "90 min ago"},
        {9000, "2 h ago"},         {30 * 3600, "30 h ago"},
        {60 * 3600, "2 days ago"}, {36000000, "416 days ago"},
    };
    char text[TIME_TEXT];

    zone("CET-1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t at = clock_wall_ns() - rows[i].seconds * NS_PER_S;

        cr_assert_str_eq(term_time_ago(at - 20 * NS_PER_S, text), rows[i].text);
    }
    cr_assert_str_eq(term_time_ago(clock_wall_ns() + 170 * NS_PER_S, text),
                     "in 2 min");
}

Test(term_time, both_fit_however_far_away)
{
    char text[TIME_TEXT];

    zone("CET-1");
    cr_assert_not_null(strstr(term_time_both(NS_PER_S, text), " days ago"),
                       "%s", text);
    cr_assert_not_null(strstr(term_time_both(UINT64_MAX, text), "in "), "%s",
                       text);
}
