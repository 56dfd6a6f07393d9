/* stress_fixture.h - threads against timers that another thread runs
 *
 * WHAT   A round of a thread is the stress program's; the seed and how many
 *        rounds there are come from its arguments: [ROUNDS [SEED]].
 * WHO    Stress programs with a plain main, as Criterion cannot start under the
 *        thread sanitizer.
 * OWNS   `timers`, while stress_run runs.
 * FAILS  stress_run: false, there is no thread or timer to be had.
 */
#ifndef TESTS_UNIT_WHEEL_STRESS_FIXTURE_H
#define TESTS_UNIT_WHEEL_STRESS_FIXTURE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/loop/timers.h"

#define THREADS 4
#define FEW_NS  20000 /* limits and waits go up to this */

static struct timers *timers;
static atomic_bool stress_ended;
static atomic_uint in_time, late, wrong;
static unsigned stress_rounds = 20000, stress_seed;
static void (*stress_once)(unsigned thread, unsigned *state);

static inline void *stress_work(void *arg)
{
    unsigned n = *(unsigned *)arg, state = stress_seed + n;

    for (unsigned i = 0; i < stress_rounds / THREADS; i++)
        stress_once(n, &state);
    return NULL;
}

static inline void *stress_peek(void *arg)
{
    struct pollfd p = {.fd = timers_fd(timers), .events = POLLIN};

    while (!atomic_load(&stress_ended))
        if (poll(&p, 1, 10) > 0)
            timers_run(timers);
    return arg;
}

/* Open the timers, and read the arguments of the program. */
static inline bool stress_open(int argc, char **argv)
{
    if (argc > 1)
        stress_rounds = (unsigned)strtoul(argv[1], NULL, 10);
    stress_seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10)
                           : (unsigned)clock_wall_ns();
    printf("SEED=%u\n", stress_seed);
    return timers_open(&timers) == 0;
}

static inline bool stress_run(void (*once)(unsigned thread, unsigned *state))
{
    pthread_t thread[THREADS], peeker;
    unsigned number[THREADS];

    stress_once = once;
    if (pthread_create(&peeker, NULL, stress_peek, NULL) != 0)
        return false;
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, stress_work, &number[i]) != 0)
            return false;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&stress_ended, true);
    pthread_join(peeker, NULL);
    return true;
}

/* Return the exit status: 0 if both ends were seen, and nothing was wrong. */
static inline int stress_close(const char *name)
{
    timers_close(&timers);
    printf("%s: %u in time, %u late, %u wrong\n", name, in_time, late, wrong);
    return wrong || !late || !in_time;
}

#endif
