/* test_solo.c - who waits for the lock to take: for how long it is tried */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "common/base/clock.h"
#include "worker/flow/take.h"

static struct solo solo;
/* Tries of the mutex until its holder gives it back; 0: it is not given back
 * by a try. */
static unsigned tries;

/* pthread_mutex_trylock - Replace that of libc: count the try first. A timed
 * lock whose time is over is a try. */
int pthread_mutex_trylock(pthread_mutex_t *mtx)
{
    if (mtx == &solo.mtx && tries > 0 && --tries == 0)
        pthread_mutex_unlock(mtx);
    return pthread_mutex_timedlock(mtx, &(struct timespec){0}) ? EBUSY : 0;
}

static void setup(void)
{
    solo_init(&solo);
}

static void teardown(void)
{
    solo_fini(&solo);
}

TestSuite(solo, .init = setup, .fini = teardown);

static void *enter_once(void *arg)
{
    solo_lock(&solo);
    solo_unlock(&solo);
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
    for (uint64_t ns = NS_PER_MS; atomic_load(&solo.vain) == 0; ns *= 2)
        held_for(ns);
    cr_assert_eq(atomic_load(&solo.vain), 1);
}

Test(solo, after_waits_in_vain_it_is_slept_for_and_tried_again_later)
{
    unsigned rounds = 0;

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
    atomic_store(&solo.vain, 3); /* one more, and none would be tried */
    pthread_mutex_lock(&solo.mtx);
    tries = 5;
    solo_lock(&solo);
    cr_assert_eq(tries, 0, "it was not tried until it was given back");
    cr_assert_eq(atomic_load(&solo.vain), 0);
    solo_unlock(&solo);
}

Test(solo, a_mutex_that_is_free_says_nothing_of_waits)
{
    atomic_store(&solo.vain, 3);
    solo_lock(&solo);
    solo_unlock(&solo);
    cr_assert_eq(atomic_load(&solo.vain), 3);
}
