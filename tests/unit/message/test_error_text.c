/* test_error_text.c - what a person would say of a failure */
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
    cr_assert_str_eq(last("a\n\x1b[31mred\xff"), "\\x1b[31mred\\xff");
    cr_assert_str_eq(error_text(buf, "e", false, "a\0b\0\0", 5), "a\\x00b");
    cr_assert_str_eq(error_text(buf, "e\x01", true, "line", 4), "e\\x01");
    cr_assert_str_eq(error_text(buf, NULL, true, "line", 4), "");
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
