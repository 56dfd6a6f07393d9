/* stress_solo.c - two are never inside at once, whoever comes and goes; also
 * under the thread sanitizer
 *
 * Usage: stress_solo [ROUNDS]
 * Work items come through the gate, enter some times and leave. What is inside
 * is two plain numbers that must be the same, which no atomic guards.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "worker/gate/gate.h"
#include "worker/gate/solo.h"

enum { THREADS = 3, TAKES = 20 };

static struct gate gate;
static struct settings set = {.concurrency = THREADS};
static struct solo solo;
static pthread_barrier_t start;
static unsigned rounds = 20000;
static uint64_t one, two, alone, together; /* inside */
static atomic_uint wrong;

static void told(void *arg, enum gate_event event)
{
    (void)arg;
    (void)event;
}

/* take - what is inside is whole before it and after it */
static void take(unsigned *state)
{
    bool was_alone = solo_enter(&solo);

    if (one != two)
        atomic_fetch_add(&wrong, 1);
    one++;
    if (rand_r(state) % 32 == 0)
        sched_yield(); /* whoever can come in does it now */
    *(was_alone ? &alone : &together) += 1;
    two++;
    solo_leave(&solo, was_alone);
}

static void *work(void *arg)
{
    unsigned state = *(unsigned *)arg + 1;

    pthread_barrier_wait(&start);
    for (unsigned r = 0; r < rounds; r++) {
        unsigned takes = 1 + (unsigned)rand_r(&state) % TAKES;

        if (!gate_enter(&gate))
            continue;
        if (attention_look(&gate.attention) & ATTEND_OTHERS)
            solo_joined(&solo);
        for (unsigned i = 0; i < takes; i++) {
            take(&state);
            if (rand_r(&state) % 8 == 0)
                sched_yield(); /* the others come in */
        }
        gate_leave(&gate);
        if (rand_r(&state) % 4 == 0)
            sched_yield();
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    unsigned number[THREADS];

    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    gate_init(&gate, &set, told, NULL);
    solo_init(&solo, &gate.attention);
    pthread_barrier_init(&start, NULL, THREADS);
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, work, &number[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    printf("%llu alone, %llu with the lock, %u wrong\n",
           (unsigned long long)alone, (unsigned long long)together,
           atomic_load(&wrong));
    if (one != two || one != alone + together || alone == 0 || together == 0)
        atomic_fetch_add(&wrong, 1);
    solo_fini(&solo);
    gate_fini(&gate);
    return atomic_load(&wrong) > 0;
}
