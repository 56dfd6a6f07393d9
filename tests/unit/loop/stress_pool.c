/* stress_pool.c - jobs from many threads while the pool grows, shrinks, closes
 *
 * Every job that was taken runs exactly once, and no more at a time than there
 * may be. A plain program, so that it runs under the thread sanitizer.
 * stress_pool [ROUNDS [SEED]].
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "worker/loop/pool.h"

#define SUBMITTERS 3
#define JOBS       128 /* of one submitter, used again and again */
#define MAX        8

struct item {
    struct pool_job job;
    atomic_bool queued; /* handed to the pool, has not run yet */
    atomic_uint ran;
    unsigned taken; /* how often; only for its submitter */
};

struct submitter {
    pthread_t thread;
    struct item item[JOBS];
    uint64_t random;
};

static struct pool *pool, *pool_known;
static struct submitter submitter[SUBMITTERS];
static atomic_uint running, most, twice;
static unsigned rounds; /* of each submitter */

/* Give way to all other threads, some times. */
static void give_way(void)
{
    for (int i = 0; i < 16; i++)
        sched_yield();
}

static void job_run(struct pool_job *job)
{
    struct item *i = CONTAINER_OF(job, struct item, job);
    unsigned n = atomic_fetch_add(&running, 1) + 1, m = atomic_load(&most);

    while (n > m && !atomic_compare_exchange_weak(&most, &m, n))
        ;
    if ((atomic_load(&i->ran) & 15) == 0)
        give_way(); /* some jobs take long */
    atomic_fetch_add(&i->ran, 1);
    atomic_fetch_sub(&running, 1);
    if (!atomic_exchange(&i->queued, false))
        atomic_fetch_add(&twice, 1);
}

static uint64_t next(struct submitter *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

/* Submit a job unless it is on its way; false: the pool is closed. */
static bool submit(struct item *i)
{
    int err;

    if (atomic_exchange(&i->queued, true))
        return true;
    err = pool_submit(pool_known, &i->job);
    if (!err)
        i->taken++;
    else
        atomic_store(&i->queued, false);
    return err != -ESHUTDOWN;
}

static void *submitter_run(void *arg)
{
    struct submitter *s = arg;

    for (unsigned i = 0; i < rounds; i++) {
        if (!submit(&s->item[next(s) % JOBS]))
            break;
        if (next(s) % 64 == 0)
            pool_resize(pool_known, 1 + (unsigned)(next(s) % MAX));
        if (next(s) % 32 == 0)
            give_way();
    }
    return NULL;
}

/* Count the jobs that did not run as often as they were taken. */
static unsigned wrong(unsigned long *sum)
{
    unsigned n = atomic_load(&twice);

    for (int t = 0; t < SUBMITTERS; t++)
        for (int k = 0; k < JOBS; k++) {
            struct item *i = &submitter[t].item[k];

            *sum += i->taken;
            if (i->taken == atomic_load(&i->ran))
                continue;
            n++;
            fprintf(stderr, "job %d/%d: taken %u times, ran %u\n", t, k,
                    i->taken, atomic_load(&i->ran));
        }
    return n;
}

int main(int argc, char **argv)
{
    unsigned seed = argc > 2 ? (unsigned)atoi(argv[2]) : arc4random();
    unsigned long sum = 0;
    unsigned bad;

    rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 2000;
    printf("stress_pool: seed %u\n", seed);
    if (pool_open(&pool, MAX) < 0)
        return 1;
    pool_known = pool;
    for (unsigned t = 0; t < SUBMITTERS; t++) {
        submitter[t].random = seed * UINT64_C(0x9e3779b97f4a7c15) + t + 1;
        for (int k = 0; k < JOBS; k++)
            submitter[t].item[k].job.run = job_run;
        pthread_create(&submitter[t].thread, NULL, submitter_run,
                       &submitter[t]);
    }
    for (int t = 0; t < SUBMITTERS; t++)
        pthread_join(submitter[t].thread, NULL);
    pool_close(&pool); /* what is queued still runs */
    bad = wrong(&sum);
    printf("stress_pool: %lu jobs, %u at once at most\n", sum,
           atomic_load(&most));
    return bad || sum == 0 || atomic_load(&most) > MAX;
}
