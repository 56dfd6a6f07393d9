/* test_problem.c - one line, whole characters, whatever goes in */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/problem.h"

Test(problem, returns_minus_errno_with_status_and_text)
{
    struct problem p = {0};
    cr_assert_eq(problem_set(&p, 71, ENOSPC, "%s is full", "disk"), -ENOSPC);
    cr_assert_eq(p.status, 71);
    cr_assert_str_eq(p.text, "disk is full");
}

Test(problem, null_is_allowed)
{
    cr_assert_eq(problem_set(NULL, 64, EINVAL, "%d", 1), -EINVAL);
}

Test(problem, a_newline_or_escape_in_a_value_stays_one_line)
{
    struct problem p;
    problem_set(&p, 64, EINVAL, "\"%s\"", "a\nb\x1b[31mc\x7f");
    cr_assert_str_eq(p.text, "\"a?b?[31mc?\"");
}

Test(problem, own_text_may_be_an_argument)
{
    struct problem p;
    problem_set(&p, 64, EINVAL, "inner");
    problem_set(&p, 71, EIO, "outer: %s", p.text);
    cr_assert_str_eq(p.text, "outer: inner");
}

Test(problem, long_text_is_cut_between_characters)
{
    static const char *const letters[] = {"x", "\u00e9", "\u20ac",
                                          "\U0001F600"};
    for (size_t i = 0; i < 4; i++) {
        char text[4 * sizeof((struct problem *)0)->text];
        struct problem p;
        size_t size = strlen(letters[i]), put = 0;
        while (put + size < sizeof text) {
            memcpy(text + put, letters[i], size);
            put += size;
        }
        text[put] = '\0';
        problem_set(&p, 64, EINVAL, "%s", text);
        size_t room = sizeof p.text - 1;
        cr_expect_eq(strlen(p.text), room - room % size, "%s", letters[i]);
        cr_expect_eq(memcmp(p.text, text, strlen(p.text)), 0);
    }
}
