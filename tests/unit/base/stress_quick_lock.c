/* stress_quick_lock.c - threads hold the lock one at a time, and none sleeps
 * for ever; run also under the thread sanitizer
 *
 * Usage: stress_quick_lock [ROUNDS]
 */
#include "common/base/quick_lock.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4 };

static struct quick_lock lock;
static uint64_t one, two; /* changed under `lock`; equal while it is free */
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
            sched_yield(); /* let others find the lock taken, and sleep */
        two++;
        quick_unlock(&lock);
    }
    return NULL;
}

/* ---- the last unlock: no later one wakes a sleeper ---- */

enum { LAST_ROUNDS = 2000, PAUSES = 400, STUCK_S = 300 };

static pthread_barrier_t meet;
static atomic_uint has;

static void *sleeper(void *arg)
{
    (void)arg;
    for (unsigned r = 0; r < LAST_ROUNDS; r++) {
        pthread_barrier_wait(&meet);
        while (atomic_load(&has) != r + 1)
            sched_yield();
        quick_lock(&lock);
        quick_unlock(&lock);
        pthread_barrier_wait(&meet);
    }
    return NULL;
}

/* Unlock once in each round, about when the other thread goes to sleep. If it
 * is not woken, SIGALRM ends the program. */
static bool last_ones(void)
{
    unsigned state = 1;
    pthread_t thread;

    if (pthread_barrier_init(&meet, NULL, 2) != 0 ||
        pthread_create(&thread, NULL, sleeper, NULL) != 0)
        return false;
    alarm(STUCK_S);
    for (unsigned r = 0; r < LAST_ROUNDS; r++) {
        pthread_barrier_wait(&meet);
        quick_lock(&lock);
        atomic_store(&has, r + 1);
        for (int i = rand_r(&state) % PAUSES; i > 0; i--)
            cpu_pause();
        quick_unlock(&lock);
        pthread_barrier_wait(&meet);
    }
    alarm(0);
    return pthread_join(thread, NULL) == 0;
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
    if (!last_ones())
        return 1;
    printf("%llu rounds, %u wrong\n", (unsigned long long)one,
           atomic_load(&wrong));
    return atomic_load(&wrong) > 0 || one != (uint64_t)rounds * THREADS ||
           atomic_load(&lock.state) != 0 || atomic_load(&lock.waiters) != 0;
}
