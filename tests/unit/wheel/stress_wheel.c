/* stress_wheel.c - threads start, cancel and restart while another advances
 *
 * A plain program, as Criterion cannot start under the thread sanitizer. The
 * wheel has no lock of its own: this program has one mutex around it and fires
 * outside of it, as worker/loop/timers.c does. Each start must end in exactly
 * one of fired, cancelled, replaced. Arguments: operations of a thread
 * (200000), seed. Exit 1 when something was wrong.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "tests/unit/wheel/wheel_check.h"

#define THREADS 4
#define TIMERS  64 /* shared by all */

/* m = under mtx   a = atomic */
static pthread_mutex_t mtx = PTHREAD_MUTEX_INITIALIZER;
static struct wheel *wheel;                       /* m */
static struct wheel_timer timer[TIMERS];          /* m */
static uint64_t starts, cancels, replaced, fires; /* m */
static atomic_uint running;                       /* a */
static atomic_ulong callbacks;                    /* a */
static unsigned long operations = 200000, seed;

/* Print what was wrong, and exit. */
static void fail(const char *what)
{
    fprintf(stderr, "stress_wheel: %s (seed %lu)\n", what, seed);
    exit(1);
}

/* Return the next number of xorshift64, with one state for each thread. */
static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Start, restart or cancel any timer; mtx is held. */
static void change_locked(uint64_t random)
{
    struct wheel_timer *t = &timer[random % TIMERS];
    bool was = wheel_pending(t);
    uint64_t when = wheel_now(wheel) + (random >> 20) % 20000;

    if (random >> 62 == 0) {
        if (wheel_cancel(wheel, t) != was)
            fail("cancel lied");
        cancels += was;
        return;
    }
    wheel_start(wheel, t, when > 5000 ? when - 5000 : 0);
    starts++;
    replaced += was;
}

/* Run one of the THREADS that change timers. */
static void *change(void *arg)
{
    uint64_t state = seed * 2654435761 + (uint64_t)(uintptr_t)arg + 1;

    for (unsigned long i = 0; i < operations; i++) {
        pthread_mutex_lock(&mtx);
        change_locked(random_next(&state));
        pthread_mutex_unlock(&mtx);
    }
    running--;
    return NULL;
}

/* Let time reach `now`. Callbacks run without the lock. */
static void drain(uint64_t now)
{
    struct wheel_timer *t;
    bool more = true;

    while (more) {
        pthread_mutex_lock(&mtx);
        t = wheel_pop(wheel, now, 16, &more);
        fires += t != NULL;
        if (t && t->when_ns > now)
            fail("fired early");
        pthread_mutex_unlock(&mtx);
        callbacks += t != NULL;
        more |= t != NULL;
    }
}

/* Let time go on until the other threads have ended. */
static void *advance(void *arg)
{
    uint64_t now = 0, checks = 0;
    const char *wrong;

    (void)arg;
    while (running) {
        drain(now += 997);
        if (++checks % 64)
            continue;
        pthread_mutex_lock(&mtx);
        wrong = wheel_check(wheel);
        if (wrong)
            fail(wrong);
        if (starts != cancels + replaced + fires + wheel_count(wheel))
            fail("a start ended twice, or not at all");
        pthread_mutex_unlock(&mtx);
    }
    drain(now + 1000000);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS + 1];

    seed =
        argc > 2 ? strtoul(argv[2], NULL, 10) : (unsigned long)clock_wall_ns();
    operations = argc > 1 ? strtoul(argv[1], NULL, 10) : operations;
    running = THREADS;
    if (wheel_open(&wheel, 0))
        fail("no memory");
    for (unsigned i = 0; i < TIMERS; i++)
        wheel_timer_init(&timer[i]);
    for (uintptr_t i = 0; i <= THREADS; i++)
        if (pthread_create(&thread[i], NULL, i < THREADS ? change : advance,
                           (void *)i))
            fail("no thread");
    for (unsigned i = 0; i <= THREADS; i++)
        pthread_join(thread[i], NULL);
    if (wheel_count(wheel) || starts != cancels + replaced + fires ||
        fires != callbacks || !fires || !cancels)
        fail("the sums do not match");
    printf("stress_wheel: seed %lu, %lu starts: %lu fired, %lu cancelled, "
           "%lu replaced\n",
           seed, (unsigned long)starts, (unsigned long)fires,
           (unsigned long)cancels, (unsigned long)replaced);
    wheel_close(&wheel);
    return 0;
}
