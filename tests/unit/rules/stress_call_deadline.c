/* stress_call_deadline.c - calls against their time limits, for the thread
 * sanitizer
 *
 * stress_place [CALLS [SEED]]. Each thread has a place and makes calls with
 * limits around the time that they take, now and then one that goes on until
 * its limit has come: it must come, though the timer is not started for each
 * call. A call is late exactly if it was told so, once, and never before its
 * time. It is on the stack of its round, so to be told after
 * call_deadline_leave is a use after return.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/handlers/call_deadline.h"

#define THREADS 4
#define FEW_NS  20000 /* limits and waits go up to this */
#define SURELY  16    /* one in so many waits for its limit */
#define STUCK   (20 * NS_PER_S)

struct call {
    atomic_uint told;
    uint64_t not_before; /* ns */
};

static struct timers *timers;
static struct call_deadline place[THREADS];
static atomic_bool ended;
static atomic_uint in_time, late, wrong;
static unsigned calls = 20000, seed;

static void on_late(void *arg)
{
    struct call *c = arg;

    if (clock_mono_ns() < c->not_before) {
        fprintf(stderr, "told before its time\n");
        atomic_fetch_add(&wrong, 1);
    }
    atomic_fetch_add(&c->told, 1);
}

/* once - one call */
static void once(struct call_deadline *p, unsigned *state)
{
    bool surely = rand_r(state) % SURELY == 0, was_late;
    uint64_t limit = (uint64_t)rand_r(state) % FEW_NS;
    uint64_t now = clock_mono_ns();
    uint64_t until = now + (uint64_t)rand_r(state) % FEW_NS;
    struct call c = {.not_before = now + limit};

    call_deadline_enter(
        p, NULL, rand_r(state) % 8 || surely ? limit : UINT64_MAX, on_late, &c);
    while (surely ? atomic_load(&c.told) == 0 && clock_mono_ns() < now + STUCK
                  : clock_mono_ns() < until)
        ;
    was_late = call_deadline_leave(p);
    atomic_fetch_add(was_late ? &late : &in_time, 1);
    if (was_late != atomic_load(&c.told) || (surely && !was_late)) {
        fprintf(stderr, "late %d, told %u times, waited for it %d\n", was_late,
                atomic_load(&c.told), surely);
        atomic_fetch_add(&wrong, 1);
    }
}

static void *work(void *arg)
{
    unsigned n = *(unsigned *)arg, state = seed + n;

    for (unsigned i = 0; i < calls / THREADS; i++)
        once(&place[n], &state);
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
        calls = (unsigned)strtoul(argv[1], NULL, 10);
    seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10)
                    : (unsigned)clock_mono_ns();
    printf("SEED=%u\n", seed);
    if (timers_open(&timers) < 0 ||
        pthread_create(&peeker, NULL, peek, NULL) != 0)
        return 1;
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        call_deadline_init(&place[i], timers);
        if (pthread_create(&thread[i], NULL, work, &number[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        call_deadline_fini(&place[i]);
    atomic_store(&ended, true);
    pthread_join(peeker, NULL);
    timers_close(&timers);
    printf("stress_place: %u in time, %u late, %u wrong\n", in_time, late,
           wrong);
    return wrong || !late || !in_time;
}
