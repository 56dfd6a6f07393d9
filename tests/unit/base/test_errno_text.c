/* test_errno_text.c - errno_text: words for an errno */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/problem.h"

/* A limit is named with its value. */
Test(errno_text, a_limit_that_was_reached_is_named)
{
    struct rlimit limit = {.rlim_cur = 123, .rlim_max = 456};
    char buf[ERRNO_LIMIT_TEXT];

    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect_str_eq(errno_limit_text(EMFILE, buf),
                     "too many open files: raise RLIMIT_NOFILE (123): ulimit "
                     "-n, LimitNOFILE=");
    cr_assert_eq(setrlimit(RLIMIT_NPROC, &limit), 0);
    cr_expect_str_eq(errno_limit_text(EAGAIN, buf),
                     "too many processes: raise RLIMIT_NPROC (123), pids.max "
                     "(TasksMax=) or kernel.threads-max");
    cr_expect_str_eq(errno_limit_text(ENFILE, buf),
                     "too many open files on this machine: raise fs.file-max");
    cr_expect_str_eq(errno_limit_text(EACCES, buf), "Permission denied");
}

Test(errno_text, each_number_has_the_words_of_the_library)
{
    for (int err = 0; err < 200; err++)
        if (err != EUCLEAN && err != EBUSY) /* these have plainer words */
            cr_assert_str_eq(errno_text(err), strerror(err), "%d", err);
    cr_assert_str_eq(errno_text(ENOENT), "No such file or directory");
}

Test(errno_text, an_unknown_number_is_told)
{
    cr_assert_str_eq(errno_text(4711), "Unknown error 4711");
    cr_assert_str_eq(errno_text(-ENOENT), "Unknown error -2");
}
