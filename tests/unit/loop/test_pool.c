/* test_pool.c - a bounded number of threads, started as needed */
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "worker/loop/pool.h"

#define MAX 4

static struct pool *pool;

/* A job that says that it runs, and waits until it may end. */
struct gate {
    struct pool_job job;
    pthread_t by;
    pid_t tid;
};
static sem_t started, end;
static atomic_uint running, most, ran;
static unsigned tasks_before;  /* threads that are not the pool's */
static atomic_bool no_threads; /* pthread_create fails from now on */

/* Replace pthread_create(3), so that it fails while no_threads is set. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                   void *(*run)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (atomic_load(&no_threads))
        return EAGAIN;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attr, run, arg);
}

/* Count the threads of this process. */
static unsigned tasks(void)
{
    DIR *dir = opendir("/proc/self/task");
    unsigned n = 0;

    cr_assert_not_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static unsigned pool_threads(void)
{
    return tasks() - tasks_before;
}

static void setup(void)
{
    sem_init(&started, 0, 0);
    sem_init(&end, 0, 0);
    tasks_before = tasks();
    cr_assert_eq(pool_open(&pool, MAX), 0);
}

static void teardown(void)
{
    pool_close(&pool);
}

TestSuite(pool, .init = setup, .fini = teardown, .timeout = 120);

static void gate_run(struct pool_job *job)
{
    struct gate *g = CONTAINER_OF(job, struct gate, job);
    unsigned n = atomic_fetch_add(&running, 1) + 1, m = atomic_load(&most);

    while (n > m && !atomic_compare_exchange_weak(&most, &m, n))
        ;
    g->by = pthread_self();
    g->tid = gettid();
    sem_post(&started);
    sem_wait(&end);
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&ran, 1);
}

static void count_run(struct pool_job *job)
{
    (void)job;
    atomic_fetch_add(&ran, 1);
}

static void submit(struct gate *g)
{
    g->job.run = gate_run;
    cr_assert_eq(pool_submit(pool, &g->job), 0);
}

/* Let n jobs end. */
static void let_end(int n)
{
    while (n-- > 0)
        sem_post(&end);
}

static void wait_started(int n)
{
    while (n-- > 0)
        sem_wait(&started);
}

Test(pool, no_thread_before_the_first_job)
{
    cr_assert_eq(pool_threads(), 0);
}

Test(pool, jobs_that_take_long_get_a_thread_each_up_to_the_bound)
{
    struct gate g[10];

    for (int i = 0; i < 10; i++)
        submit(&g[i]);
    wait_started(MAX);
    cr_assert_eq(pool_threads(), MAX);
    cr_assert_eq(sem_trywait(&started), -1, "one too many runs");
    let_end(10);
    pool_close(&pool);
    cr_assert_eq(atomic_load(&ran), 10);
    cr_assert_eq(atomic_load(&most), MAX);
}

Test(pool, jobs_run_in_the_order_they_came)
{
    struct gate g[5];

    pool_resize(pool, 1);
    for (int i = 0; i < 5; i++) {
        g[i].by = 0;
        submit(&g[i]);
    }
    for (int i = 0; i < 5; i++) {
        wait_started(1);
        for (int k = 0; k < 5; k++)
            cr_assert_eq(g[k].by != 0, k <= i, "job %d before %d", k, i);
        let_end(1);
    }
}

/* Wait until no job runs. The threads are asleep or on their way there. */
static void idle_wait(void)
{
    while (atomic_load(&running) > 0)
        sched_yield();
}

/* Wait until the thread sleeps. */
static void asleep_wait(pid_t tid)
{
    char path[64], state = 'R';

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    while (state != 'S') {
        FILE *f = fopen(path, "re");

        cr_assert_not_null(f);
        cr_assert_eq(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
        fclose(f);
        sched_yield();
    }
}

Test(pool, one_job_at_a_time_stays_on_one_warm_thread)
{
    struct gate g[50];
    int moves = 0;

    for (int i = 0; i < 50; i++) {
        submit(&g[i]);
        wait_started(1);
        let_end(1);
        idle_wait();
        asleep_wait(g[i].tid);
        moves += i > 0 && !pthread_equal(g[i].by, g[i - 1].by);
    }
    /* A thread may be asleep on a lock and not idle yet, and miss a job. */
    cr_assert_leq(pool_threads(), 3);
    cr_assert_leq(moves, 25);
}

Test(pool, smaller_bound_ends_threads_and_holds)
{
    struct gate g[10];

    for (int i = 0; i < MAX; i++)
        submit(&g[i]);
    wait_started(MAX);
    pool_resize(pool, 1);
    let_end(MAX);
    while (pool_threads() > 1)
        sched_yield();
    atomic_store(&most, 0);
    for (int i = 0; i < 6; i++)
        submit(&g[i]);
    let_end(6);
    pool_close(&pool);
    cr_assert_eq(atomic_load(&most), 1);
    cr_assert_eq(atomic_load(&ran), MAX + 6);
}

Test(pool, smaller_bound_ends_threads_that_sleep)
{
    struct gate g[MAX];

    for (int i = 0; i < MAX; i++)
        submit(&g[i]);
    wait_started(MAX);
    let_end(MAX);
    idle_wait();
    pool_resize(pool, 1);
    while (pool_threads() > 1)
        sched_yield();
}

Test(pool, larger_bound_is_used_by_the_next_job)
{
    struct gate g[8];

    pool_resize(pool, 1);
    for (int i = 0; i < 2; i++)
        submit(&g[i]);
    wait_started(1);
    pool_resize(pool, 8);
    for (int i = 2; i < 8; i++)
        submit(&g[i]);
    wait_started(7); /* all eight at once */
    cr_assert_eq(pool_threads(), 8);
    let_end(8);
}

/* A job that queues another one. */
struct nested {
    struct pool_job job, next;
    int err;
};

static void nested_run(struct pool_job *job)
{
    struct nested *n = CONTAINER_OF(job, struct nested, job);

    sem_post(&started);
    sem_wait(&end);
    n->next.run = count_run;
    n->err = pool_submit(pool, &n->next);
}

Test(pool, job_may_queue_a_job)
{
    struct nested n = {.job.run = nested_run, .err = 1};

    cr_assert_eq(pool_submit(pool, &n.job), 0);
    let_end(1);
    while (atomic_load(&ran) == 0)
        sched_yield();
    cr_assert_eq(n.err, 0);
}

/* A job that runs while the pool closes, and tries to queue another one. */
struct late {
    struct pool_job job, next;
    int err;
};

static void late_run(struct pool_job *job)
{
    struct late *l = CONTAINER_OF(job, struct late, job);

    sem_post(&started);
    sem_wait(&end);
    l->next.run = count_run;
    l->err = pool_submit(pool, &l->next); /* the pool that is closing */
}

/* Submit jobs until the pool refuses one. Those that it took still run. */
static void closing_seen(struct pool *p)
{
    static struct pool_job probe[1000000];
    int i = 0;

    do {
        sched_yield();
        probe[i].run = count_run;
    } while (pool_submit(p, &probe[i++]) == 0);
    cr_assert_lt(i, 1000000);
}

static void *close_run(void *arg)
{
    (void)arg;
    pool_close(&pool);
    return NULL;
}

Test(pool, closing_takes_no_job_and_waits_for_those_that_run)
{
    struct late l = {.job.run = late_run, .err = 1};
    struct gate g[2];
    pthread_t thread;

    cr_assert_eq(pool_submit(pool, &l.job), 0);
    for (int i = 0; i < 2; i++)
        submit(&g[i]);
    wait_started(3);
    pthread_create(&thread, NULL, close_run, NULL);
    closing_seen(pool);
    let_end(3);
    pthread_join(thread, NULL);
    cr_assert_eq(l.err, -ESHUTDOWN);
    cr_assert_geq(atomic_load(&ran), 2);
    cr_assert_null(pool);
}

Test(pool, queued_jobs_still_run_when_it_closes)
{
    static struct pool_job jobs[1000];

    for (int i = 0; i < 1000; i++) {
        jobs[i].run = count_run;
        cr_assert_eq(pool_submit(pool, &jobs[i]), 0);
    }
    pool_close(&pool);
    cr_assert_eq(atomic_load(&ran), 1000);
    pool_close(&pool);
}

Test(pool, first_job_is_refused_where_no_thread_can_be_had)
{
    struct pool_job job = {.run = count_run};

    atomic_store(&no_threads, true);
    cr_assert_eq(pool_submit(pool, &job), -EAGAIN);
    cr_assert_eq(pool_threads(), 0);
    atomic_store(&no_threads, false);
    cr_assert_eq(pool_submit(pool, &job), 0,
                 "it is refused, though threads can be had");
    pool_close(&pool);
    cr_assert_eq(atomic_load(&ran), 1, "the refused job ran");
}

Test(pool, job_waits_for_a_thread_there_is_where_no_other_can_be_had)
{
    struct gate g[3];

    submit(&g[0]);
    wait_started(1);
    atomic_store(&no_threads, true);
    submit(&g[1]);
    submit(&g[2]);
    let_end(3);
    wait_started(2);
    pool_close(&pool);
    cr_assert_eq(atomic_load(&ran), 3);
}

Test(pool, jobs_that_wait_get_their_threads_once_these_can_be_had)
{
    struct gate g[4];

    submit(&g[0]);
    wait_started(1);
    atomic_store(&no_threads, true);
    submit(&g[1]);
    submit(&g[2]);
    atomic_store(&no_threads, false);
    submit(&g[3]);
    wait_started(3); /* although the first one does not end */
    let_end(4);
}

static void mask_run(struct pool_job *job)
{
    sigset_t set;

    (void)job;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    for (int s = 1; s < 32; s++) /* 32 and 33 are the C library's */
        if (s != SIGKILL && s != SIGSTOP && !sigismember(&set, s))
            atomic_fetch_add(&most, 1);
    atomic_fetch_add(&ran, 1);
}

Test(pool, threads_take_no_signal)
{
    struct pool_job job = {.run = mask_run};
    sigset_t before, after;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    cr_assert_eq(pool_submit(pool, &job), 0);
    pool_close(&pool);
    cr_assert_eq(atomic_load(&ran), 1);
    cr_assert_eq(atomic_load(&most), 0, "a signal is not blocked");
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int s = 1; s < 32; s++)
        cr_assert_eq(sigismember(&before, s), sigismember(&after, s));
}
