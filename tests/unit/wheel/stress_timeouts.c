/* stress_timeouts.c - start and cancel against time, for the thread sanitizer
 *
 * stress_timeouts [STARTS [SEED]]. Threads start items with limits around the
 * time that they take, and cancel them; one thread runs what is due. For each
 * start exactly one of the two must happen: the cancel said true, or the
 * callback ran. An item is on the stack of its round, so a callback after
 * timers_cancel_sync is a use after return.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/container.h"
#include "worker/loop/timers.h"

#define THREADS 4
#define FEW_NS  20000 /* limits and waits go up to this */

struct item {
    struct timer timer;
    unsigned fired; /* by the peeker; read after timers_cancel_sync */
};

static struct timers *timers;
static atomic_bool ended;
static atomic_uint cancelled, timed_out, wrong;
static unsigned starts = 20000, seed;

static void on_timeout(struct timer *timer)
{
    CONTAINER_OF(timer, struct item, timer)->fired++;
}

/* once - one start; now and then the callback is let come for sure */
static void once(unsigned *state)
{
    uint64_t limit = (uint64_t)rand_r(state) % FEW_NS;
    uint64_t wait = (uint64_t)rand_r(state) % FEW_NS;
    uint64_t until = clock_mono_ns() + wait;
    struct item item = {.fired = 0};
    bool in_time;

    timer_init(&item.timer, on_timeout);
    timers_start_after(timers, &item.timer, limit);
    while (clock_mono_ns() < until)
        ;
    in_time = timers_cancel_sync(timers, &item.timer);
    atomic_fetch_add(in_time ? &cancelled : &timed_out, 1);
    if (in_time + item.fired != 1) {
        fprintf(stderr, "cancel said %d, called back %u times\n", in_time,
                item.fired);
        atomic_fetch_add(&wrong, 1);
    }
}

static void *work(void *arg)
{
    unsigned state = seed + *(unsigned *)arg;

    for (unsigned i = 0; i < starts / THREADS; i++)
        once(&state);
    return NULL;
}

static void *peek(void *arg)
{
    struct pollfd p = {.fd = timers_fd(timers), .events = POLLIN};

    while (!atomic_load(&ended))
        if (poll(&p, 1, 10) > 0)
            timers_run(timers);
    return arg;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS], peeker;
    unsigned number[THREADS];

    if (argc > 1)
        starts = (unsigned)strtoul(argv[1], NULL, 10);
    seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10)
                    : (unsigned)clock_wall_ns();
    printf("stress_timeouts %u %u\n", starts, seed);
    if (timers_open(&timers) < 0 ||
        pthread_create(&peeker, NULL, peek, NULL) != 0)
        return 1;
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, work, &number[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&ended, true);
    pthread_join(peeker, NULL);
    timers_close(&timers);
    printf("cancelled %u, timed out %u, wrong %u\n", cancelled, timed_out,
           wrong);
    return wrong || !cancelled || !timed_out;
}
