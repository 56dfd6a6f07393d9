/* test_timers.c - the timer service and timeout manager, by one thread;
 * stress_timeouts.c has the races */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/loop/timers.h"

#define ITEMS 64

struct item {
    struct timer timer;
    uint64_t at_ns; /* when its callback ran; 0: not yet */
    unsigned order, times;
};

static struct timers *timers;
static struct item item[ITEMS];
static unsigned fired;

static void on_timeout(struct timer *timer)
{
    struct item *i = CONTAINER_OF(timer, struct item, timer);

    i->at_ns = clock_mono_ns();
    i->order = fired++;
    i->times++;
}

static void setup(void)
{
    cr_assert_eq(timers_open(&timers), 0);
    for (unsigned i = 0; i < ITEMS; i++)
        timer_init(&item[i].timer, on_timeout);
}

static void teardown(void)
{
    timers_close(&timers);
    cr_assert_null(timers);
}

TestSuite(timers, .init = setup, .fini = teardown);

/* Wait on the descriptor, as the peeker does, until `count` have fired. */
static void run_until(unsigned count)
{
    struct pollfd p = {.fd = timers_fd(timers), .events = POLLIN};

    while (fired < count) {
        cr_assert_eq(poll(&p, 1, 10000), 1, "%u of %u fired", fired, count);
        timers_run(timers);
    }
}

/* Return true if the descriptor tells of nothing that is due. */
static bool quiet(void)
{
    struct pollfd p = {.fd = timers_fd(timers), .events = POLLIN};

    return poll(&p, 1, 0) == 0;
}

Test(timers, what_was_cancelled_in_time_never_times_out)
{
    timers_start_after(timers, &item[0].timer, 2 * NS_PER_MS);
    timers_start_after(timers, &item[1].timer, 4 * NS_PER_MS);
    cr_assert(timers_cancel(timers, &item[0].timer));
    cr_assert_not(timers_cancel(timers, &item[0].timer), "cancelled twice");
    run_until(1);
    cr_assert_eq(item[0].times, 0);
    cr_assert_eq(item[1].times, 1);
}

Test(timers, what_timed_out_is_called_back_once_and_cannot_be_cancelled)
{
    uint64_t before = clock_mono_ns();

    timers_start_after(timers, &item[0].timer, NS_PER_MS);
    run_until(1);
    cr_assert_not(timers_cancel(timers, &item[0].timer));
    cr_assert_geq(item[0].at_ns, before + NS_PER_MS, "it fired early");
    timers_run(timers);
    cr_assert_eq(item[0].times, 1);
    cr_assert(quiet());
}

Test(timers, what_was_not_called_back_yet_can_be_cancelled_late)
{
    timers_start(timers, &item[0].timer, 0);
    cr_assert(timers_cancel(timers, &item[0].timer));
    timers_run(timers);
    cr_assert_eq(item[0].times, 0);
}

Test(timers, same_limits_time_out_in_the_order_of_their_starts)
{
    for (unsigned i = 0; i < ITEMS; i++)
        timers_start_after(timers, &item[i].timer, 3 * NS_PER_MS);
    run_until(ITEMS);
    for (unsigned i = 0; i < ITEMS; i++)
        cr_assert_eq(item[i].order, i, "item %u came as %u", i, item[i].order);
}

Test(timers, any_number_of_intervals_each_after_its_own_time)
{
    uint64_t due[ITEMS], latest[ITEMS]; /* of each: not before, not after */

    /* Limits of 2, 4, ... ms, the longest first; each is used twice. */
    for (unsigned i = 0; i < ITEMS; i++) {
        uint64_t limit = (ITEMS - i) / 2 * 2 * NS_PER_MS;

        due[i] = clock_mono_ns() + limit;
        timers_start_after(timers, &item[i].timer, limit);
        latest[i] = clock_mono_ns() + limit;
    }
    run_until(ITEMS);
    for (unsigned i = 0; i < ITEMS; i++)
        cr_assert_geq(item[i].at_ns, due[i]);
    for (unsigned i = 2; i < ITEMS; i++) /* unless it was started so late */
        cr_assert(item[i].order < item[i - 2].order || latest[i] > due[i - 2]);
}

Test(timers, a_start_while_pending_counts_anew)
{
    timers_start_after(timers, &item[0].timer, NS_PER_MS);
    timers_start_after(timers, &item[1].timer, 2 * NS_PER_MS);
    timers_start_after(timers, &item[0].timer, 5 * NS_PER_MS);
    run_until(2);
    cr_assert_eq(item[1].order, 0);
    cr_assert_eq(item[0].times, 1);
}

Test(timers, the_longest_limit_there_is_never_fires)
{
    timers_start_after(timers, &item[0].timer, UINT64_MAX);
    timers_run(timers);
    cr_assert_eq(fired, 0);
    cr_assert(timers_cancel(timers, &item[0].timer));
}

Test(timers, earlier_never_makes_it_later)
{
    uint64_t now = clock_mono_ns();

    timers_start(timers, &item[0].timer, now + NS_PER_MS);
    timers_start_earlier(timers, &item[0].timer, now + 3600 * NS_PER_S);
    run_until(1);
    timers_start(timers, &item[1].timer, now + 3600 * NS_PER_S);
    timers_start_earlier(timers, &item[1].timer, now);
    run_until(2);
}

/* Count a call, and start the timer again, already due. */
static void again(struct timer *timer)
{
    fired++;
    timers_start(timers, timer, 0);
}

Test(timers, a_callback_that_starts_its_timer_again_does_not_stay_in_the_run)
{
    timer_init(&item[0].timer, again);
    timers_start(timers, &item[0].timer, 0);
    timers_start(timers, &item[1].timer, 0);
    timers_run(timers);
    cr_assert_eq(fired, 2);
    cr_assert_not(quiet(), "the timer is not due again");
    timers_run(timers);
    cr_assert_eq(fired, 3);
}

static atomic_int stage; /* 1: in the callback, 2: it may return */

/* Do the same, but only when the test lets it. */
static void on_hold(struct timer *timer)
{
    atomic_store(&stage, 1);
    while (atomic_load(&stage) != 2)
        ;
    again(timer);
}

static void *peek(void *arg)
{
    run_until(1);
    return arg;
}

static void *let_go(void *arg)
{
    atomic_store(&stage, 2);
    return arg;
}

Test(timers, cancel_sync_ends_a_timer_whose_callback_starts_it_again)
{
    pthread_t peeker, helper;

    timer_init(&item[0].timer, on_hold);
    timers_start(timers, &item[0].timer, 0);
    cr_assert_eq(pthread_create(&peeker, NULL, peek, NULL), 0);
    while (atomic_load(&stage) != 1)
        ;
    cr_assert_eq(pthread_create(&helper, NULL, let_go, NULL), 0);
    timers_cancel_sync(timers, &item[0].timer);
    cr_assert_eq(atomic_load(&stage), 2, "cancel_sync did not wait");
    cr_assert_not(timers_cancel(timers, &item[0].timer), "it is pending");
    pthread_join(peeker, NULL);
    pthread_join(helper, NULL);
    timers_run(timers);
    cr_assert_eq(fired, 1);
}
