/* test_error_text.c - one line that tells a person what failed */
#include <criterion/criterion.h>
#include <string.h>

#include "common/message/error_text.h"

static const char *last(const char *tail)
{
    static char buf[ERROR_TEXT];
    return error_text(buf, "exit 1", false, tail, strlen(tail));
}

Test(error_text, is_the_last_line_that_is_not_blank)
{
    cr_assert_str_eq(last(""), "");
    cr_assert_str_eq(last(" \n\t\r\n"), "");
    cr_assert_str_eq(last("one"), "one");
    cr_assert_str_eq(last("one\n"), "one");
    cr_assert_str_eq(last("one\n  two words \r\n\n \n"), "two words");
}

Test(error_text, cannot_draw_what_it_is_not)
{
    char buf[ERROR_TEXT];
    cr_assert_str_eq(last("a\n\x1b[31mred\xff"), "red\\xff");
    cr_assert_str_eq(error_text(buf, "e", false, "a\0b\0\0", 5), "a\\x00b");
    cr_assert_str_eq(error_text(buf, "e\x01", true, "line", 4), "e\\x01");
    cr_assert_str_eq(error_text(buf, NULL, true, "line", 4), "");
}

Test(error_text, is_what_a_terminal_shows_of_it)
{
    char buf[ERROR_TEXT];
    cr_assert_str_eq(last("\x1b[1;31merror:\x1b[0m no \x1b[4mdisk\x1b[m\n"),
                     "error: no disk");
    cr_assert_str_eq(last("why\n\x1b[0m\x1b[K\n \x1b(B\n"), "why");
    cr_assert_str_eq(last(" 10%\r 50%\r100%\r\n"), "100%");
    cr_assert_str_eq(last("10%\rno disk\r\n"), "no disk");
    cr_assert_str_eq(last("\x1b]0;title\awhy\x1b]8;;a://b\x1b\\link"),
                     "whylink");
    cr_assert_str_eq(last("\x1b[31"), "");
    cr_assert_str_eq(last("why\x1b"), "why");
    cr_assert_str_eq(error_text(buf, "\x1b[31mno\x1b[m", true, "", 0), "no");
}

Test(error_text, has_a_bound)
{
    char tail[4096];
    memset(tail, 'x', sizeof tail - 1);
    tail[sizeof tail - 1] = '\0';
    const char *text = last(tail);
    cr_assert(strlen(text) <= ERROR_TEXT - 1);
    cr_assert_str_eq(text + strlen(text) - 4, "x...");
}

Test(error_text, is_shown_beside_the_error_once)
{
    char buf[ERROR_JOINED];
    cr_assert_str_eq(error_text_join(buf, sizeof buf, "exit 1", "why"),
                     "exit 1: why");
    cr_assert_str_eq(error_text_join(buf, sizeof buf, "why", "why"), "why");
    cr_assert_str_eq(error_text_join(buf, sizeof buf, NULL, "why"), "why");
    cr_assert_str_eq(error_text_join(buf, sizeof buf, "exit 1", NULL),
                     "exit 1");
    cr_assert_str_eq(error_text_join(buf, sizeof buf, NULL, NULL), "");
}

#define LIKE(part)   error_text_like(part, "exit 12", "no such account [7]")
#define UNLIKE(part) (!LIKE(part))

Test(error_text, is_found_by_a_part_of_it)
{
    cr_assert(LIKE("such") && LIKE("o such acc") && LIKE("exit 12"));
    cr_assert(LIKE("12: no") && LIKE("[7]"),
              "not found as it is shown; a part is no pattern");
    cr_assert(UNLIKE("Such") && UNLIKE("account no") && UNLIKE(""));
    cr_assert(!error_text_like(NULL, "exit 1", "x"));
    cr_assert(!error_text_like("x", NULL, NULL));
    cr_assert(!error_text_like("*", NULL, NULL));
    cr_assert(error_text_like("x", NULL, "xy") &&
              error_text_like("x", "xy", NULL));
}

/* Otherwise a discard of "exit 1" would take letters of "exit 127" with it. */
Test(error_text, a_part_cuts_no_number_in_two)
{
    cr_assert(UNLIKE("exit 1") && UNLIKE("2") && UNLIKE("2: no"));
    cr_assert(LIKE("12") && LIKE("exit ") && LIKE(" 12"));
    cr_assert(error_text_like("exit 1", "exit 12", "not exit 1 but exit 12"));
    cr_assert(error_text_like("1.5", "after 1.5s", NULL));
}

Test(error_text, is_found_by_a_pattern_of_all_of_it)
{
    cr_assert(LIKE("exit*") && LIKE("no such*") && LIKE("exit 1?: no*"));
    cr_assert(LIKE("*account*") && UNLIKE("account*") && UNLIKE("exit ?"));
}
