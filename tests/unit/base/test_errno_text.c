/* test_errno_text.c - errno_text.h */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "common/base/errno_text.h"

Test(errno_text, each_number_has_the_words_of_the_library)
{
    for (int err = 0; err < 200; err++)
        cr_assert_str_eq(errno_text(err), strerror(err), "%d", err);
    cr_assert_str_eq(errno_text(ENOENT), "No such file or directory");
}

Test(errno_text, an_unknown_number_is_told)
{
    cr_assert_str_eq(errno_text(4711), "Unknown error 4711");
    cr_assert_str_eq(errno_text(-ENOENT), "Unknown error -2");
}
