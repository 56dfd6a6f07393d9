/* pool.c - bounded pool of threads (see pool.h) */
#include "worker/loop/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#define STACK_BYTES (256u << 10) /* handlers in C run on it, too */

/* An idle thread. The struct is on the stack of that thread. */
struct idler {
    LIST_ENTRY(idler) link;
    pthread_cond_t wake;
    bool woken;
};

/* m = under mtx   c = constant after open */
struct pool {
    pthread_mutex_t mtx;
    pthread_cond_t gone;         /* m  a thread has ended */
    TAILQ_HEAD(, pool_job) jobs; /* m  FIFO */
    LIST_HEAD(, idler) idle;     /* m  last to sleep is first */
    unsigned threads;            /* m */
    unsigned woken;              /* m  threads on their way to a job */
    unsigned queued;             /* m  jobs waiting */
    unsigned max_threads;        /* m */
    bool closing;                /* m */
    pthread_attr_t attr;         /* c */
};

int pool_open(struct pool **out, unsigned max_threads)
{
    struct pool *p = calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return -ENOMEM;
    pthread_mutex_init(&p->mtx, NULL);
    pthread_cond_init(&p->gone, NULL);
    pthread_attr_init(&p->attr);
    pthread_attr_setstacksize(&p->attr, STACK_BYTES);
    pthread_attr_setdetachstate(&p->attr, PTHREAD_CREATE_DETACHED);
    TAILQ_INIT(&p->jobs);
    LIST_INIT(&p->idle);
    p->max_threads = max_threads;
    *out = p;
    return 0;
}

static void wake_locked(struct pool *p)
{
    struct idler *i = LIST_FIRST(&p->idle);

    LIST_REMOVE(i, link);
    i->woken = true;
    p->woken++;
    pthread_cond_signal(&i->wake);
}

/* Run jobs until the pool closes or shrinks. */
static void *thread_main(void *arg)
{
    struct pool *p = arg;

    pthread_mutex_lock(&p->mtx);
    p->woken--; /* staff_locked counted the new thread as on its way */
    for (;;) {
        struct pool_job *job = TAILQ_FIRST(&p->jobs);

        if (job) {
            TAILQ_REMOVE(&p->jobs, job, link);
            p->queued--;
            pthread_mutex_unlock(&p->mtx);
            job->run(job);
            pthread_mutex_lock(&p->mtx);
        } else if (p->closing || p->threads > p->max_threads) {
            break;
        } else { /* sleep until woken */
            struct idler me = {.woken = false};

            pthread_cond_init(&me.wake, NULL);
            LIST_INSERT_HEAD(&p->idle, &me, link);
            while (!me.woken)
                pthread_cond_wait(&me.wake, &p->mtx);
            p->woken--;
            pthread_cond_destroy(&me.wake);
        }
    }
    p->threads--;
    pthread_cond_broadcast(&p->gone);
    pthread_mutex_unlock(&p->mtx);
    return NULL;
}

/* Wake or start threads until `jobs` threads are on their way to a job, or no
 * more are allowed. New threads block all signals: the peeker handles them. */
static int staff_locked(struct pool *p, unsigned jobs)
{
    sigset_t all, old;
    pthread_t thread;
    int err = 0;

    while (p->woken < jobs && !err) {
        if (!LIST_EMPTY(&p->idle)) {
            wake_locked(p);
        } else if (p->threads < p->max_threads) {
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &old);
            err = -pthread_create(&thread, &p->attr, thread_main, p);
            pthread_sigmask(SIG_SETMASK, &old, NULL);
            if (!err) {
                p->threads++;
                p->woken++;
            }
        } else {
            break;
        }
    }
    return err;
}

int pool_submit(struct pool *pool, struct pool_job *job)
{
    int err;

    pthread_mutex_lock(&pool->mtx);
    if (pool->closing) {
        pthread_mutex_unlock(&pool->mtx);
        return -ESHUTDOWN;
    }
    err = staff_locked(pool, pool->queued + 1);
    /* If no thread could be started, a busy one takes the job after its own. */
    if (err == 0 || pool->threads > 0) {
        err = 0;
        TAILQ_INSERT_TAIL(&pool->jobs, job, link);
        pool->queued++;
    }
    pthread_mutex_unlock(&pool->mtx);
    return err;
}

void pool_resize(struct pool *pool, unsigned max_threads)
{
    pthread_mutex_lock(&pool->mtx);
    pool->max_threads = max_threads;
    /* Wake idle threads that are too many, so that they exit. */
    for (unsigned over = pool->threads; over > max_threads; over--)
        if (!LIST_EMPTY(&pool->idle))
            wake_locked(pool);
    /* If this fails, the jobs run when a thread is free. */
    (void)staff_locked(pool, pool->queued);
    pthread_mutex_unlock(&pool->mtx);
}

/* A running job may still call pool_submit(*pool), so *pool is set to NULL only
 * when no thread is left. */
void pool_close(struct pool **pool)
{
    struct pool *p = *pool;

    if (!p)
        return;
    pthread_mutex_lock(&p->mtx);
    p->closing = true;
    while (!LIST_EMPTY(&p->idle))
        wake_locked(p);
    while (p->threads > 0)
        pthread_cond_wait(&p->gone, &p->mtx);
    pthread_mutex_unlock(&p->mtx);
    *pool = NULL;
    pthread_attr_destroy(&p->attr);
    pthread_cond_destroy(&p->gone);
    pthread_mutex_destroy(&p->mtx);
    free(p);
}
