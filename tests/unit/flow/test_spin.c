/* test_spin.c - an empty queue is tried again while that pays; the clock is the
 * test's */
#include <criterion/criterion.h>
#include <stdbool.h>

#include "worker/flow/take.h"

static struct spin spin;
static uint64_t now;

/* Let the queue stay empty; return whether it was tried at all. */
static bool vain(void)
{
    bool tried = spin_begin(&spin);

    for (bool on = tried; on; now += SPIN_NS / 4)
        on = spin_on(&spin, now);
    spin_reset(&spin);
    return tried;
}

/* Let a message come at the second try. */
static void found(void)
{
    cr_assert(spin_on(&spin, now));
    cr_assert(spin_on(&spin, now + SPIN_NS),
              "given up before the last instant");
    spin_hit(&spin);
}

Test(spin, goes_on_for_its_time_and_no_longer)
{
    found();
    cr_assert(spin_on(&spin, 1000));
    cr_assert(spin_on(&spin, 1000 + SPIN_NS));
    cr_assert_not(spin_on(&spin, 1001 + SPIN_NS));
}

Test(spin, is_given_up_after_so_many_in_vain)
{
    found();
    for (int i = 0; i < SPIN_VAIN; i++)
        cr_assert(vain(), "%d", i);
    cr_assert_not(vain());
}

Test(spin, one_in_many_is_tried_still_and_a_hit_brings_it_back)
{
    unsigned tries = 0;

    for (int i = 0; i < 10 * SPIN_SKIP; i++)
        tries += vain();
    cr_assert_eq(tries, 10);
    while (!spin_begin(&spin))
        ;
    found();
    cr_assert(vain());
}

Test(spin, a_message_that_was_not_waited_for_brings_nothing_back)
{
    found();
    for (int i = 0; i < SPIN_VAIN; i++)
        cr_assert(vain());
    spin_hit(&spin);
    cr_assert_not(vain());
}
