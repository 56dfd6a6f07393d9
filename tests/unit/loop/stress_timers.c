/* stress_timers.c - start, move and cancel from many threads while they fire
 *
 * For each start exactly one of two things happens: a cancel says true, or the
 * callback runs. A plain program, so that it runs under the thread sanitizer.
 * stress_timers [ROUNDS [SEED]].
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/loop/timers.h"

#define THREADS 4
#define TIMERS  64 /* of one thread; nobody else starts or cancels them */

struct item {
    struct timer timer;
    atomic_uint fired;
    unsigned started, cancelled; /* how often; only for its thread */
};

struct worker {
    pthread_t thread;
    struct item item[TIMERS];
    uint64_t random;
};

static struct timers *timers;
static struct worker worker[THREADS];
static unsigned rounds; /* of each thread */
static atomic_bool drained;
static struct timer last;

static void fire(struct timer *timer)
{
    struct item *i = CONTAINER_OF(timer, struct item, timer);

    atomic_fetch_add(&i->fired, 1);
}

/* Return a random number of this thread (xorshift64). */
static uint64_t next(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

/* Start a timer again after it has fired or was cancelled. */
static void start_anew(struct worker *w, struct item *i)
{
    uint64_t delay = next(w) % (200 * NS_PER_US);

    if (i->started != i->cancelled + atomic_load(&i->fired))
        return;
    i->started++;
    if (next(w) % 2)
        timers_start(timers, &i->timer, clock_mono_ns() + delay);
    else
        timers_start_after(timers, &i->timer, delay);
}

/* Do something to a random timer. */
static void step(struct worker *w)
{
    struct item *i = &w->item[next(w) % TIMERS];

    switch (next(w) % 4) {
    case 0:
    case 1:
        start_anew(w, i);
        break;
    case 2:
        i->cancelled += timers_cancel(timers, &i->timer);
        break;
    default:
        i->cancelled += timers_cancel_sync(timers, &i->timer);
    }
}

static void *worker_run(void *arg)
{
    struct worker *w = arg;

    for (unsigned i = 0; i < rounds; i++)
        step(w);
    return NULL;
}

static void *peeker_run(void *arg)
{
    struct pollfd p = {.fd = timers_fd(timers), .events = POLLIN};

    (void)arg;
    while (!atomic_load(&drained))
        if (poll(&p, 1, -1) == 1)
            timers_run(timers);
    return NULL;
}

/* Count the timers whose starts did not each have exactly one end. */
static int wrong(void)
{
    int n = 0;

    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < TIMERS; k++) {
            struct item *i = &worker[t].item[k];

            if (i->started == i->cancelled + atomic_load(&i->fired))
                continue;
            n++;
            fprintf(stderr, "timer %d/%d: %u started, %u cancelled, %u fired\n",
                    t, k, i->started, i->cancelled, atomic_load(&i->fired));
        }
    return n;
}

/* Wait until all that is pending has fired. After a lost wake-up some timers do
 * not fire within the limit. */
static void settle(void)
{
    uint64_t end = clock_mono_ns() + 5 * NS_PER_S;

    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < TIMERS; k++) {
            struct item *i = &worker[t].item[k];

            while (i->started != i->cancelled + atomic_load(&i->fired) &&
                   clock_mono_ns() < end)
                sched_yield();
        }
}

/* End the last wait of the peeker, from the last timer. */
static void drain(struct timer *timer)
{
    (void)timer;
    atomic_store(&drained, true);
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : arc4random();
    unsigned long starts = 0, fires = 0;
    pthread_t peeker;

    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 500000;
    printf("stress_timers: seed %u\n", seed);
    if (timers_open(&timers) < 0)
        return 1;
    for (unsigned t = 0; t < THREADS; t++) {
        worker[t].random = seed * UINT64_C(0x9e3779b97f4a7c15) + t + 1;
        for (int k = 0; k < TIMERS; k++)
            timer_init(&worker[t].item[k].timer, fire);
        pthread_create(&worker[t].thread, NULL, worker_run, &worker[t]);
    }
    pthread_create(&peeker, NULL, peeker_run, NULL);
    for (int t = 0; t < THREADS; t++)
        pthread_join(worker[t].thread, NULL);
    settle();
    timer_init(&last, drain);
    timers_start(timers, &last, 0);
    pthread_join(peeker, NULL);
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < TIMERS; k++) {
            starts += worker[t].item[k].started;
            fires += atomic_load(&worker[t].item[k].fired);
        }
    printf("stress_timers: %lu started, %lu fired\n", starts, fires);
    timers_close(&timers);
    return wrong() || fires == 0 || fires == starts;
}
