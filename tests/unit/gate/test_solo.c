/* test_solo.c - who takes a lock to take, and who does not
 *
 * That two are never inside at once is stress_solo's to show.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <time.h>

#include "common/base/clock.h"
#include "worker/gate/solo.h"
#include "worker/gate/spin.h"

static struct attention attention;
static struct solo solo;
/* So many pauses between two tries of the mutex, and whoever has it gives it
 * back; 0: it is not given back in one. */
static unsigned pauses;

/* spin_pause - in place of that of spin.c: what happens between two tries */
void spin_pause(void)
{
    if (pauses > 0 && --pauses == 0)
        pthread_mutex_unlock(&solo.mtx);
}

static void setup(void)
{
    solo_init(&solo, &attention);
}

static void teardown(void)
{
    solo_fini(&solo);
}

TestSuite(solo, .init = setup, .fini = teardown);

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

    attention_on(&attention, ATTEND_OTHERS);
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

/* enter_once - as one that is not alone */
static void *enter_once(void *arg)
{
    solo_leave(&solo, solo_enter(&solo));
    return arg;
}

/* held_for - another one comes while the mutex is held for that long */
static void held_for(uint64_t ns)
{
    struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S),
                            .tv_nsec = (long)(ns % NS_PER_S)};
    pthread_t thread;

    pthread_mutex_lock(&solo.mtx);
    cr_assert_eq(pthread_create(&thread, NULL, enter_once, NULL), 0);
    nanosleep(&time, NULL);
    pthread_mutex_unlock(&solo.mtx);
    pthread_join(thread, NULL);
}

/* The other one may come too late; then it is tried again, with more time. */
Test(solo, a_wait_in_vain_is_counted)
{
    attention_on(&attention, ATTEND_OTHERS);
    for (uint64_t ns = NS_PER_MS; atomic_load(&solo.vain) == 0; ns *= 2)
        held_for(ns);
    cr_assert_eq(atomic_load(&solo.vain), 1);
}

Test(solo, after_waits_in_vain_it_is_slept_for_and_tried_again_later)
{
    unsigned rounds = 0;

    attention_on(&attention, ATTEND_OTHERS);
    atomic_store(&solo.vain, 62);
    for (uint64_t ns = NS_PER_MS; atomic_load(&solo.vain) >= 62; ns *= 2)
        for (unsigned i = 0; i < 2 && atomic_load(&solo.vain) >= 62; i++) {
            held_for(ns);
            rounds++;
        }
    cr_assert_geq(rounds, 2);
    cr_assert_eq(atomic_load(&solo.vain), 0);
}

Test(solo, a_try_that_pays_resets_the_waits_in_vain)
{
    attention_on(&attention, ATTEND_OTHERS);
    atomic_store(&solo.vain, 3); /* one more, and none would be tried */
    pthread_mutex_lock(&solo.mtx);
    pauses = 5;
    cr_assert_not(solo_enter(&solo));
    cr_assert_eq(pauses, 0, "it was not tried until it was given back");
    cr_assert(locked());
    cr_assert_eq(atomic_load(&solo.vain), 0);
    solo_leave(&solo, false);
    cr_assert_not(locked());
}

Test(solo, a_mutex_that_is_free_says_nothing_of_waits)
{
    attention_on(&attention, ATTEND_OTHERS);
    atomic_store(&solo.vain, 3);
    cr_assert_not(solo_enter(&solo));
    solo_leave(&solo, false);
    cr_assert_eq(atomic_load(&solo.vain), 3);
}
