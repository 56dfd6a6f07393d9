/* test_chore.c - when a chore runs, is repeated and calls `tell`, in virtual
 * time. The test takes the place of the pool: `work` runs the queued job. */
#include "tests/fixtures/virtual_clock.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "worker/loop/chore.h"

enum { FIRST = 1, MOST = 4 }; /* seconds */

static struct timers *timers;
static struct pool *pool;
static struct pool_job *queued;
static int submit_err, result;
static unsigned runs, asks, told, over;

int pool_submit(struct pool *p, struct pool_job *job)
{
    (void)p;
    cr_assert_null(queued, "a second job is queued");
    if (submit_err == 0)
        queued = job;
    return submit_err;
}

static int run(struct chore *chore)
{
    runs++;
    if (asks > 0) {
        asks--;
        chore_soon(chore);
    }
    return result;
}

static void tell(struct chore *chore, int err)
{
    (void)chore;
    told += err != 0;
    over += err == 0;
}

static struct chore chore = {.run = run,
                             .tell = tell,
                             .first_ns = FIRST * NS_PER_S,
                             .most_ns = MOST * NS_PER_S,
                             .pool = &pool};

/* Run the queued job, as a pool thread would; false: none was queued. */
static bool work(void)
{
    struct pool_job *job = queued;

    queued = NULL;
    if (job)
        job->run(job);
    return job != NULL;
}

/* Let time pass until the chore's timer queues a run. Returns the seconds. */
static unsigned waits(void)
{
    unsigned s = 0;

    while (!queued && s < 100) {
        virtual_pass(timers, NS_PER_S);
        s++;
    }
    return s;
}

static void setup(void)
{
    cr_assert_eq(timers_open(&timers), 0);
    pool = (struct pool *)(void *)&queued; /* not NULL; not used */
    chore.timers = timers;
    chore_init(&chore);
}

static void teardown(void)
{
    timers_close(&timers);
}

TestSuite(chore, .init = setup, .fini = teardown);

Test(chore, it_runs_once_for_all_who_asked_before)
{
    chore_soon(&chore);
    chore_soon(&chore);
    cr_assert_eq(runs, 0);
    cr_assert(work());
    cr_assert_eq(runs, 1);
    cr_assert_eq(waits(), 100, "a run without an error is repeated");
    chore_soon(&chore);
    cr_assert(work());
    cr_assert_eq(runs, 2);
}

Test(chore, who_asks_during_a_run_gets_another)
{
    asks = 2;
    chore_run(&chore);
    cr_assert_eq(runs, 3);
    cr_assert(!work());
}

Test(chore, after_trouble_the_wait_doubles_up_to_its_most)
{
    result = -EIO;
    chore_soon(&chore);
    cr_assert(work());
    for (unsigned i = 0, wait = FIRST; i < 4; i++) {
        cr_assert_eq(waits(), wait, "wait %u", i);
        cr_assert(work());
        wait = 2 * wait < MOST ? 2 * wait : MOST;
    }
    cr_assert_eq(told, 1, "tell was not called once");
    cr_assert_eq(over, 0);
    result = 0;
    cr_assert_eq(waits(), MOST);
    cr_assert(work());
    cr_assert_eq(over, 1);
    cr_assert_eq(waits(), 100);
    result = -EIO;
    chore_soon(&chore);
    cr_assert(work());
    cr_assert_eq(told, 2);
    cr_assert_eq(waits(), FIRST, "the wait does not start anew");
}

Test(chore, another_trouble_is_told_as_well)
{
    result = -EIO;
    chore_run(&chore);
    result = -ENOSPC;
    chore_run(&chore);
    chore_run(&chore);
    cr_assert_eq(told, 2);
}

Test(chore, a_run_takes_the_place_of_one_that_waits)
{
    result = -EIO;
    chore_run(&chore);
    result = 0;
    chore_run(&chore);
    cr_assert_eq(waits(), 100);
}

Test(chore, the_earlier_of_two_times_counts)
{
    chore_after(&chore, 3 * NS_PER_S);
    chore_after(&chore, 9 * NS_PER_S);
    cr_assert_eq(waits(), 3);
    cr_assert(work());
    cr_assert_eq(waits(), 100);
}

Test(chore, without_a_thread_it_is_tried_again)
{
    submit_err = -EAGAIN;
    chore_soon(&chore);
    submit_err = 0;
    cr_assert_eq(waits(), FIRST);
    cr_assert(work());
    cr_assert_eq(runs, 1);
}

Test(chore, none_runs_after_the_stop)
{
    chore_after(&chore, NS_PER_S);
    chore_stop(&chore);
    chore_soon(&chore);
    cr_assert_eq(waits(), 100);
    cr_assert_eq(runs, 0);
}
