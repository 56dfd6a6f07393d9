/* test_problem.c - a problem's text is one line of whole characters */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/problem.h"

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

/* Set a limit of this process only: Criterion runs each test in a child. */
static void limit_set(__rlimit_resource_t which, rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(which, &limit), 0);
    limit.rlim_cur = bytes;
    cr_assert_eq(setrlimit(which, &limit), 0);
}

Test(problem, a_limit_on_memory_is_71_and_named_with_its_value)
{
    struct problem p;
    limit_set(RLIMIT_AS, RLIM_INFINITY);
    limit_set(RLIMIT_DATA, RLIM_INFINITY);
    problem_set(&p, 73, ENOMEM, "out of memory");
    cr_assert_eq(p.status, 71);
    cr_assert_str_eq(p.text, "out of memory");
    problem_memory(&p);
    cr_assert_eq(p.status, 71);
    cr_assert_str_eq(p.text, "out of memory");
    limit_set(RLIMIT_DATA, (rlim_t)8 << 30);
    problem_set(&p, 73, ENOMEM, "/x: %s; check the disk", strerror(ENOMEM));
    cr_assert_str_eq(p.text, "/x: Cannot allocate memory; RLIMIT_DATA allows "
                             "8388608 KiB of data: raise it, `ulimit -d "
                             "unlimited`, systemd `LimitDATA=infinity`");
    limit_set(RLIMIT_DATA, RLIM_INFINITY);
    limit_set(RLIMIT_AS, (rlim_t)1 << 40);
    problem_set(&p, 71, ENOMEM, "out of memory");
    cr_assert_str_eq(p.text,
                     "out of memory; RLIMIT_AS allows 1073741824 KiB of "
                     "address space: raise it, `ulimit -v unlimited`, systemd "
                     "`LimitAS=infinity`");
}

Test(problem, a_limit_on_open_files_is_71_and_says_how_to_raise_it)
{
    struct problem p;
    problem_set(&p, 73, EMFILE, "/x: %s; free some space", strerror(EMFILE));
    cr_assert_eq(p.status, 71);
    cr_assert(strstr(p.text, "/x: Too many open files; raise") &&
                  strstr(p.text, "`ulimit -n ") && !strstr(p.text, "space"),
              "%s", p.text);
    problem_set(&p, 71, EMFILE, "queue /q: `ulimit -q 4096`");
    cr_assert_str_eq(p.text, "queue /q: `ulimit -q 4096`");
    problem_set(&p, 73, ENFILE, "/x: no");
    cr_assert_eq(p.status, 71);
    cr_assert(strstr(p.text, "/x: no; ") && strstr(p.text, "fs.file-max"));
    problem_set(&p, 73, ENOSPC, "/x: no");
    cr_assert_eq(p.status, 73);
    cr_assert_str_eq(p.text, "/x: no");
}
