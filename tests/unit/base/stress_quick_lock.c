/* stress_quick_lock.c - one at a time, and nobody sleeps for ever; also under
 * the thread sanitizer
 *
 * Usage: stress_quick_lock [ROUNDS]
 */
#include "common/base/quick_lock.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4 };

static struct quick_lock lock;
static uint64_t one, two; /* under it, and the same when it is free */
static unsigned rounds = 50000;
static atomic_uint wrong;

static void *work(void *arg)
{
    unsigned state = *(unsigned *)arg + 1;

    for (unsigned r = 0; r < rounds; r++) {
        quick_lock(&lock);
        if (one != two)
            atomic_fetch_add(&wrong, 1);
        one++;
        if (rand_r(&state) % 64 == 0)
            sched_yield(); /* the others come, and go to sleep */
        two++;
        quick_unlock(&lock);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    unsigned number[THREADS];

    if (argc > 1)
        rounds = (unsigned)strtoul(argv[1], NULL, 10);
    for (unsigned i = 0; i < THREADS; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, work, &number[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    printf("%llu rounds, %u wrong\n", (unsigned long long)one,
           atomic_load(&wrong));
    return atomic_load(&wrong) > 0 || one != (uint64_t)rounds * THREADS ||
           atomic_load(&lock.state) != 0 || atomic_load(&lock.waiters) != 0;
}
