/* test_untold.c - when a command that failed runs again, in virtual time */
#include <criterion/criterion.h>

#include "worker/hooks/on_dead.h"

static struct untold u;
static uint64_t now, due;

TestSuite(untold);

Test(untold, each_wait_doubles_by_itself_up_to_the_longest)
{
    uint64_t want = UNTOLD_FIRST_NS;

    for (int i = 0; i < 12; i++) {
        cr_assert_eq(untold_failed(&u, 1, now), want);
        want = want * 2 < UNTOLD_LAST_NS ? want * 2 : UNTOLD_LAST_NS;
        untold_succeeded(&u, 99);
        now += NS_PER_S;
    }
    cr_assert_eq(want, UNTOLD_LAST_NS);
    cr_assert_eq(untold_failed(&u, 2, now), UNTOLD_FIRST_NS, "its own");
    cr_assert_eq(untold_first(&u, &due), 2);
    cr_assert_eq(due, now + UNTOLD_FIRST_NS);
}

Test(untold, while_none_is_told_they_pause_together)
{
    cr_assert_eq(untold_first(&u, &due), 0);
    cr_assert_eq(due, UINT64_MAX);
    for (int64_t n = 1; n <= 3; n++)
        (void)untold_failed(&u, n, 0);
    now = UNTOLD_FIRST_NS;
    cr_assert_eq(untold_first(&u, &due), 1);
    cr_assert_eq(due, now, "no pause before one has failed again");
    (void)untold_failed(&u, 1, now);
    cr_assert_eq(untold_first(&u, &due), 2);
    cr_assert_eq(due, now + UNTOLD_FIRST_NS);
    (void)untold_failed(&u, 2, due);
    now = due;
    cr_assert_eq(untold_first(&u, &due), 3);
    cr_assert_eq(due, now + 2 * UNTOLD_FIRST_NS);
    untold_succeeded(&u, 3);
    (void)untold_first(&u, &due);
    cr_assert_leq(due, now + 2 * UNTOLD_FIRST_NS, "their own waits again");
    cr_assert_eq(u.pause_ns, 0);
    cr_assert_eq(u.count, 2);
}

Test(untold, a_new_number_keeps_its_wait_and_one_that_is_gone_is_none)
{
    (void)untold_failed(&u, 1, now);
    untold_moved(&u, 1, 7);
    cr_assert(untold_has(&u, 7) && !untold_has(&u, 1));
    cr_assert_eq(untold_failed(&u, 7, now), 2 * UNTOLD_FIRST_NS);
    untold_moved(&u, 7, 0);
    cr_assert_eq(u.count, 0);
    untold_moved(&u, 7, 8);
    cr_assert_eq(u.count, 0);
}

Test(untold, those_that_have_no_room_are_not_noted)
{
    for (int64_t n = 1; n <= UNTOLD_MOST; n++)
        cr_assert_gt(untold_failed(&u, n, now), 0);
    cr_assert_eq(untold_failed(&u, UNTOLD_MOST + 1, now), 0);
    cr_assert_not(untold_has(&u, UNTOLD_MOST + 1));
    cr_assert_gt(untold_failed(&u, 1, now), 0, "one that is there");
}
