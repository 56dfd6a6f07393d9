/* test_solo.c - who takes a lock to take, and who does not
 *
 * That two are never inside at once is stress_solo's to show.
 */
#include <criterion/criterion.h>

#include "worker/gate/solo.h"

static struct attention attention;
static struct solo solo;

static void setup(void)
{
    solo_init(&solo, &attention);
}

static void teardown(void)
{
    solo_fini(&solo);
}

TestSuite(solo, .init = setup, .fini = teardown, .timeout = 30);

/* locked - whether somebody inside holds the mutex */
static bool locked(void)
{
    if (pthread_mutex_trylock(&solo.mtx) != 0)
        return true;
    pthread_mutex_unlock(&solo.mtx);
    return false;
}

Test(solo, one_that_is_alone_takes_no_lock)
{
    bool alone;

    if (attention_look(&attention) & ATTEND_LOCK)
        cr_skip_test("no membarrier(2) here");
    alone = solo_enter(&solo);
    cr_assert(alone);
    cr_assert_not(locked());
    cr_assert(atomic_load(&solo.inside));
    solo_leave(&solo, alone);
    cr_assert_not(atomic_load(&solo.inside));
    solo_joined(&solo); /* nobody is inside: it returns */
}

Test(solo, one_that_has_company_takes_the_lock)
{
    bool alone;

    attention_on(&attention, ATTEND_COMPANY);
    alone = solo_enter(&solo);
    cr_assert_not(alone);
    cr_assert(locked());
    cr_assert_not(atomic_load(&solo.inside));
    solo_leave(&solo, alone);
    cr_assert_not(locked());
}

Test(solo, nobody_is_alone_while_it_is_stopped)
{
    unsigned was = attention_look(&attention);

    solo_stop(&solo);
    cr_assert(locked());
    cr_assert(attention_look(&attention) & ATTEND_LOCK);
    solo_go_on(&solo);
    cr_assert_not(locked());
    cr_assert_eq(attention_look(&attention), was);
}

Test(solo, without_a_barrier_the_lock_is_taken_each_time)
{
    bool alone;

    attention_on(&attention, ATTEND_LOCK);
    solo_joined(&solo);
    alone = solo_enter(&solo);
    cr_assert_not(alone);
    cr_assert(locked());
    solo_leave(&solo, alone);
}
