/* test_hook_retries.c - when a failed command runs again, in virtual time */
#include <criterion/criterion.h>

#include "worker/hooks/on_dead.h"

static struct hook_retries u;
static uint64_t now, due;

TestSuite(hook_retries);

Test(hook_retries, each_wait_doubles_by_itself_up_to_the_longest)
{
    uint64_t want = HOOK_RETRY_FIRST_NS;

    for (int i = 0; i < 12; i++) {
        cr_assert_eq(hook_retries_postpone(&u, 1, now), want);
        want = want * 2 < HOOK_RETRY_LAST_NS ? want * 2 : HOOK_RETRY_LAST_NS;
        hook_retries_end(&u, 99);
        now += NS_PER_S;
    }
    cr_assert_eq(want, HOOK_RETRY_LAST_NS);
    cr_assert_eq(hook_retries_postpone(&u, 2, now), HOOK_RETRY_FIRST_NS,
                 "its own");
    cr_assert_eq(hook_retries_first(&u, &due), 2);
    cr_assert_eq(due, now + HOOK_RETRY_FIRST_NS);
}

Test(hook_retries, while_none_succeeds_they_pause_together)
{
    cr_assert_eq(hook_retries_first(&u, &due), 0);
    cr_assert_eq(due, UINT64_MAX);
    for (int64_t n = 1; n <= 3; n++)
        (void)hook_retries_postpone(&u, n, 0);
    now = HOOK_RETRY_FIRST_NS;
    cr_assert_eq(hook_retries_first(&u, &due), 1);
    cr_assert_eq(due, now, "no pause before one has failed again");
    (void)hook_retries_postpone(&u, 1, now);
    cr_assert_eq(hook_retries_first(&u, &due), 2);
    cr_assert_eq(due, now + HOOK_RETRY_FIRST_NS);
    (void)hook_retries_postpone(&u, 2, due);
    now = due;
    cr_assert_eq(hook_retries_first(&u, &due), 3);
    cr_assert_eq(due, now + 2 * HOOK_RETRY_FIRST_NS);
    hook_retries_end(&u, 3);
    (void)hook_retries_first(&u, &due);
    cr_assert_leq(due, now + 2 * HOOK_RETRY_FIRST_NS, "their own waits again");
    cr_assert_eq(u.pause_ns, 0);
    cr_assert_eq(u.count, 2);
}

Test(hook_retries, a_new_number_keeps_its_wait_and_one_that_is_gone_is_none)
{
    (void)hook_retries_postpone(&u, 1, now);
    hook_retries_renumber(&u, 1, 7);
    cr_assert(hook_retries_has(&u, 7) && !hook_retries_has(&u, 1));
    cr_assert_eq(hook_retries_postpone(&u, 7, now), 2 * HOOK_RETRY_FIRST_NS);
    hook_retries_renumber(&u, 7, 0);
    cr_assert_eq(u.count, 0);
    hook_retries_renumber(&u, 7, 8);
    cr_assert_eq(u.count, 0);
}

Test(hook_retries, those_that_have_no_room_are_not_noted)
{
    for (int64_t n = 1; n <= HOOK_RETRIES_MOST; n++)
        cr_assert_gt(hook_retries_postpone(&u, n, now), 0);
    cr_assert_eq(hook_retries_postpone(&u, HOOK_RETRIES_MOST + 1, now), 0);
    cr_assert_not(hook_retries_has(&u, HOOK_RETRIES_MOST + 1));
    cr_assert_gt(hook_retries_postpone(&u, 1, now), 0, "one that is there");
}
