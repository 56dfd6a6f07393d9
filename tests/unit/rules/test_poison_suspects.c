/* test_poison_suspects.c - who was running at a crash runs alone, until all are
 * done */
#include <criterion/criterion.h>

#include "worker/rules/poison_suspects.h"

enum { COUNT = 3 };

static struct suspects suspects;

static void setup(void)
{
    for (unsigned i = 0; i < COUNT; i++)
        cr_assert_eq(suspects_add(&suspects, i + 1), 0);
}

static void teardown(void)
{
    suspects_fini(&suspects);
}

TestSuite(suspects, .init = setup, .fini = teardown);

Test(no_suspects, without_a_crash_nobody_waits)
{
    cr_assert(!suspects_left(&suspects));
}

Test(suspects, the_last_one_that_is_done_ends_it)
{
    cr_assert(suspects_left(&suspects));
    suspects_done(&suspects, 2);
    cr_assert(suspects_left(&suspects));
    suspects_done(&suspects, 1);
    cr_assert(suspects_left(&suspects));
    suspects_done(&suspects, 3);
    cr_assert(!suspects_left(&suspects));
}

Test(suspects, the_end_of_another_message_says_nothing)
{
    suspects_done(&suspects, 1);
    suspects_done(&suspects, 2);
    suspects_done(&suspects, 9);
    cr_assert(suspects_left(&suspects));
    suspects_done(&suspects, 3);
    cr_assert(!suspects_left(&suspects));
}

Test(suspects, those_that_cannot_run_keep_nobody_waiting)
{
    cr_assert(suspects_left(&suspects));
    suspects_forget(&suspects);
    cr_assert(!suspects_left(&suspects));
    suspects_done(&suspects, 1);
    cr_assert(!suspects_left(&suspects));
}
