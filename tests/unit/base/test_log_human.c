/* test_log_human.c - log_human: the line that a person reads */
#include "common/base/log.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"

#define ID "01M80WFKMB86V9D1J2H1PPY6BW"

static char line[4096];

static void utc(void)
{
    setenv("TZ", "UTC-2", 1); /* two hours ahead of UTC */
    tzset();
}

TestSuite(log_human, .init = utc);

/* Return the line of an event at 5 s after the epoch, in the zone of utc(). */
static const char *line_of(const char *name, const struct log_field *fields,
                           size_t n, bool colour, unsigned columns)
{
    const struct log_event event = {LOG_WARN, name, fields, n, 5 * NS_PER_S};
    size_t size = log_human(line, sizeof line, &event, colour, columns);

    cr_assert_eq(size, strlen(line));
    return line;
}
#define LINE(name, colour, columns, ...)                      \
    line_of(name, (const struct log_field[]){__VA_ARGS__},    \
            sizeof((const struct log_field[]){__VA_ARGS__}) / \
                sizeof(struct log_field),                     \
            colour, columns)

#define RETRY                                                              \
    F_STR("msg", ID), F_STR("error", "exit 1"),                            \
        F_STR("error_text", "bank does not answer"), F_UINT("attempt", 1), \
        F_UINT("of", 3), F_DURATION("in", 1230 * NS_PER_MS)

Test(log_human, retry_says_why_and_when_again_in_local_time)
{
    cr_expect_str_eq(LINE("retry", false, 0, RETRY),
                     "02:00:05 retry  " ID "  exit 1: bank does not answer"
                     "  1 of 3, again in 1.2s");
}

Test(log_human, id_is_cut_to_its_end_only_where_the_line_is_too_wide)
{
    const char *whole = LINE("retry", false, 96, RETRY);

    cr_expect_not_null(strstr(whole, ID), "%s", whole);
    cr_expect_str_eq(LINE("retry", false, 80, RETRY),
                     "02:00:05 retry  \u2026H1PPY6BW"
                     "  exit 1: bank does not answer"
                     "  1 of 3, again in 1.2s");
}

Test(log_human, dead_says_the_reason_and_the_letter)
{
    cr_expect_str_eq(
        LINE("dead", false, 0, F_STR("msg", ID), F_INT("letter", 7),
             F_STR("reason", "exhausted"), F_STR("error", "exit 1"),
             F_STR("error_text", NULL), F_UINT("attempts", 3)),
        "02:00:05 dead   " ID "  exhausted: exit 1  3 failed, letter 7");
}

#define LONG_DEATH                                                      \
    F_STR("msg", ID), F_INT("letter", 7), F_STR("reason", "exhausted"), \
        F_STR("error", "exit 1"),                                       \
        F_STR("error_text", "b\u00e4nk does not answer to us today"),   \
        F_UINT("attempts", 3)

Test(log_human, text_of_an_error_is_cut_so_that_the_line_fits)
{
    cr_expect_str_eq(LINE("dead", false, 80, LONG_DEATH),
                     "02:00:05 dead   \u2026H1PPY6BW  exhausted: exit 1: "
                     "b\u00e4nk does not\u2026  3 failed, letter 7");
    cr_expect_not_null(strstr(LINE("dead", false, 0, LONG_DEATH), "today"));
    cr_expect_not_null(strstr(LINE("dead", false, 40, LONG_DEATH), "today"),
                       "it is cut, though too little would be left");
}

/* Count the columns of a line without colour. */
static size_t columns(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

Test(log_human, a_line_whose_error_is_cut_is_as_wide_as_it_may_be)
{
    for (unsigned most = 76; most < 98; most++)
        cr_expect_eq(columns(LINE("dead", false, most, LONG_DEATH)), most);
}

Test(log_human, first_and_last_line_of_a_run_fit_80_columns)
{
    const char *text =
        LINE("started", false, 80, F_STR("queue", "/orders"),
             F_INT("pid", 4194304), F_UINT("max_concurrency", 2),
             F_STR("handler", "stream"), F_STR("state_dir", "/var/lib/x"),
             F_STR("runtime_dir", "/run/x"), F_INT("in_queue", 0));

    cr_expect_str_eq(text, "02:00:05 started  queue=/orders  pid=4194304  "
                           "max_concurrency=2  handler=stream");
    text =
        LINE("stopped", false, 80, F_STR("queue", "/orders"),
             F_STR("why", "control"), F_DURATION("ran", 80 * NS_PER_S),
             F_UINT("deliveries", 3), F_UINT("done", 2), F_UINT("retried", 1),
             F_UINT("dead", 0), F_UINT("discarded", 0), F_DURATION("mean", 0),
             F_DURATION("longest", 0), F_INT("in_queue", 0));
    cr_expect_str_eq(text, "02:00:05 stopped  why=control  ran=1m20s  done=2"
                           "  retried=1  dead=0");
    cr_expect_not_null(strstr(LINE("started", false, 80, F_STR("queue", "/o"),
                                   F_STR("state_dir", "/x")),
                              "state_dir=/x"),
                       "it is left out, though there is room");
}

Test(log_human, other_events_have_their_fields_and_nothing_escapes)
{
    cr_expect_str_eq(
        LINE("x", false, 0, F_STR("queue", "/o"), F_STR("why", "two words"),
             F_STR("no", NULL), F_BYTES("line", "a\033[31m\nb", 8)),
        "02:00:05 x       queue=/o  why=\"two words\"  a\\x1b[31m\\nb");
}

Test(log_human, colour_changes_no_word_and_no_width)
{
    char plain[sizeof line];
    size_t n = 0;

    strcpy(plain, LINE("retry", false, 80, RETRY));
    const char *at = LINE("retry", true, 80, RETRY);
    cr_expect_not_null(strstr(at, "\033[33mretry \033[0m"), "%s", at);
    for (; *at; at++) {
        if (*at == '\033')
            at += strcspn(at, "m");
        else
            cr_assert_eq(*at, plain[n++]);
    }
    cr_expect_eq(n, strlen(plain));
}

Test(log_human, line_that_is_too_long_is_cut_between_its_pieces)
{
    static char much[2000];
    char small[64];
    const struct log_field fields[] = {F_STR("a", "1"), F_STR("line", much)};
    const struct log_event event = {LOG_INFO, "x", fields, 2, 0};

    memset(much, 'y', sizeof much - 1);
    size_t size = log_human(small, sizeof small, &event, false, 0);
    cr_expect_eq(size, strlen(small));
    cr_expect_str_eq(small, "02:00:00 x       a=1  ");
}
