/* test_timers_wake.c - the timerfd becomes readable for each due timer, also
 * one that another thread started, and at no other time
 *
 * test_timers.c tests the order of timers. Time is real here; a test waits for
 * the timerfd, never for time to pass.
 */
#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/loop/timers.h"

#define HOUR (3600 * NS_PER_S)

static struct timers *timers;

/* A timer that notes its calls. Tests make it static: the teardown closes the
 * timers while it may be pending. */
struct noting {
    struct timer timer;
    unsigned fired;
    unsigned order;  /* number of its last call among the calls of all */
    uint64_t at_ns;  /* time of its last call */
    uint64_t due_ns; /* time for which it was started */
};
static unsigned calls;

static void note(struct timer *timer)
{
    struct noting *n = CONTAINER_OF(timer, struct noting, timer);

    n->fired++;
    n->order = ++calls;
    n->at_ns = clock_mono_ns();
}

static void setup(void)
{
    cr_assert_eq(timers_open(&timers), 0);
    calls = 0;
}

static void teardown(void)
{
    timers_close(&timers);
}

TestSuite(timers_wake, .init = setup, .fini = teardown);

static void begin(struct noting *n, uint64_t in_ns)
{
    n->due_ns = clock_mono_ns() + in_ns;
    timers_start(timers, &n->timer, n->due_ns);
}

/* Wait for the timerfd and run due timers; false: the limit has passed. */
static bool turn(int limit_ms)
{
    struct pollfd p = {.fd = timers_fd(timers), .events = POLLIN};

    if (poll(&p, 1, limit_ms) != 1)
        return false;
    timers_run(timers);
    return true;
}

static void until_fired(const struct noting *n, unsigned times)
{
    while (n->fired < times)
        cr_assert(turn(10000), "the timerfd did not become readable");
}

Test(timers_wake, fires_once_and_never_early)
{
    static struct noting n;

    timer_init(&n.timer, note);
    for (unsigned i = 1; i <= 20; i++) {
        begin(&n, i * 300 * NS_PER_US);
        until_fired(&n, i);
        cr_assert_geq(n.at_ns, n.due_ns);
    }
    cr_assert_not(turn(20), "a wake-up without a pending timer");
    cr_assert_eq(n.fired, 20);
}

Test(timers_wake, idle_service_is_never_woken)
{
    static struct noting n;

    timer_init(&n.timer, note);
    cr_assert_not(turn(0));
    begin(&n, HOUR);
    cr_assert_not(turn(20));
    cr_assert(timers_cancel(timers, &n.timer));
    cr_assert_not(turn(0));
}

Test(timers_wake, deadline_in_the_past_is_run_at_once)
{
    static struct noting n, zero;

    timer_init(&n.timer, note);
    timer_init(&zero.timer, note);
    timers_start(timers, &n.timer, clock_mono_ns() - NS_PER_S);
    until_fired(&n, 1);
    timers_start(timers, &zero.timer, 0); /* must not switch the timerfd off */
    until_fired(&zero, 1);
}

Test(timers_wake, fire_in_the_order_of_their_deadlines)
{
    static struct noting n[50];
    uint64_t first = clock_mono_ns() + 20 * NS_PER_MS;

    for (unsigned i = 0; i < 50; i++) {
        unsigned place = i * 17 % 50;

        timer_init(&n[place].timer, note);
        timers_start(timers, &n[place].timer, first + place * 50 * NS_PER_US);
    }
    until_fired(&n[49], 1);
    for (unsigned i = 0; i < 50; i++)
        cr_assert_eq(n[i].order, i + 1);
}

Test(timers_wake, started_again_is_moved)
{
    static struct noting n;

    timer_init(&n.timer, note);
    begin(&n, HOUR);
    begin(&n, 5 * NS_PER_MS);
    until_fired(&n, 1);
    begin(&n, 5 * NS_PER_MS);
    begin(&n, HOUR);
    turn(30); /* the old wake-up may come; it fires nothing */
    cr_assert_eq(n.fired, 1);
}

/* ---- from callbacks ---- */

static struct noting victim;
static bool cancelled;

static void cancel_the_other(struct timer *timer)
{
    (void)timer;
    cancelled = timers_cancel(timers, &victim.timer);
}

Test(timers_wake, callback_may_cancel_another_that_is_due_with_it)
{
    static struct timer first;
    uint64_t at = clock_mono_ns() + NS_PER_MS;

    timer_init(&first, cancel_the_other);
    timer_init(&victim.timer, note);
    timers_start(timers, &first, at);
    timers_start(timers, &victim.timer, at);
    while (turn(20))
        ;
    cr_assert(cancelled);
    cr_assert_eq(victim.fired, 0, "a cancelled timer fired");
}

static unsigned rounds;

static void again_at_once(struct timer *timer)
{
    rounds++;
    timers_start(timers, timer, 0);
}

Test(timers_wake, callback_that_starts_itself_at_once_lets_others_run)
{
    static struct timer greedy;
    static struct noting n;

    timer_init(&greedy, again_at_once);
    timer_init(&n.timer, note);
    timers_start(timers, &greedy, 0);
    begin(&n, 2 * NS_PER_MS);
    until_fired(&n, 1);
    while (rounds < 2)
        cr_assert(turn(10000), "the timerfd did not become readable");
    cr_assert(timers_cancel_sync(timers, &greedy));
}

static void again_soon(struct timer *timer)
{
    rounds++;
    timers_start_after(timers, timer, 100 * NS_PER_US);
}

Test(timers_wake, timer_started_in_its_own_callback_wakes_up_again)
{
    static struct timer t;

    timer_init(&t, again_soon);
    timers_start(timers, &t, 0);
    while (rounds < 50)
        cr_assert(turn(10000));
    timers_cancel(timers, &t);
}

/* ---- from other threads ---- */

static void *start_soon(void *arg)
{
    begin(arg, NS_PER_MS);
    return NULL;
}

Test(timers_wake, start_in_another_thread_wakes_the_one_that_waits)
{
    static struct noting later, n;
    pthread_t thread;

    timer_init(&later.timer, note);
    timer_init(&n.timer, note);
    begin(&later, HOUR);
    for (unsigned i = 1; i <= 100; i++) {
        pthread_create(&thread, NULL, start_soon, &n);
        until_fired(&n, i);
        pthread_join(thread, NULL);
    }
    cr_assert_eq(later.fired, 0);
}

static sem_t in_callback, go_on;
static atomic_bool returned;

static void slow(struct timer *timer)
{
    (void)timer;
    sem_post(&in_callback);
    sem_wait(&go_on);
    atomic_store(&returned, true);
}

static void *run_it(void *arg)
{
    (void)arg;
    while (!atomic_load(&returned))
        turn(100);
    return NULL;
}

static void *let_go(void *arg)
{
    (void)arg;
    for (int i = 0; i < 1000; i++)
        sched_yield();
    cr_assert_not(atomic_load(&returned));
    sem_post(&go_on);
    return NULL;
}

Test(timers_wake, cancel_sync_waits_for_a_callback_that_runs)
{
    static struct timer t;
    pthread_t peeker, other;

    sem_init(&in_callback, 0, 0);
    sem_init(&go_on, 0, 0);
    timer_init(&t, slow);
    timers_start(timers, &t, 0);
    pthread_create(&peeker, NULL, run_it, NULL);
    sem_wait(&in_callback);
    cr_assert_not(timers_cancel(timers, &t),
                  "the callback was already running");
    pthread_create(&other, NULL, let_go, NULL);
    cr_assert_not(timers_cancel_sync(timers, &t));
    cr_assert(atomic_load(&returned), "it returned before the callback");
    pthread_join(other, NULL);
    pthread_join(peeker, NULL);
}

static void slow_and_again(struct timer *timer)
{
    sem_post(&in_callback);
    sem_wait(&go_on);
    timers_start_after(timers, timer, 0);
    atomic_store(&returned, true);
}

Test(timers_wake, cancel_sync_cancels_what_the_callback_started_anew)
{
    static struct timer t;
    pthread_t peeker, other;

    sem_init(&in_callback, 0, 0);
    sem_init(&go_on, 0, 0);
    timer_init(&t, slow_and_again);
    timers_start(timers, &t, 0);
    pthread_create(&peeker, NULL, run_it, NULL);
    sem_wait(&in_callback);
    pthread_create(&other, NULL, let_go, NULL);
    cr_assert(timers_cancel_sync(timers, &t));
    pthread_join(other, NULL);
    pthread_join(peeker, NULL);
    cr_assert_not(timers_cancel(timers, &t), "the timer is still pending");
}

Test(timers_wake, closing_forgets_what_is_pending)
{
    static struct noting n;

    timer_init(&n.timer, note);
    begin(&n, 0);
    timers_close(&timers);
    cr_assert_null(timers);
    timers_close(&timers);
    cr_assert_eq(n.fired, 0);
}
