/* pool.h - bounded pool of threads
 *
 * WHAT   Runs submitted jobs on at most N threads, started as needed. The
 *        thread that went to sleep last is woken first: it is warm, and the
 *        others stay asleep.
 * WHO    Any thread may submit; items.c submits work items and chore.c chores.
 *        A job runs on a pool thread, with no lock of the pool held.
 *        open, close: the engine's thread. resize: live_settings.c.
 * OWNS   Borrows each job from submit until it runs; frees none.
 * FAILS  pool_submit: -EAGAIN if there is no thread and none can be started;
 *        -ESHUTDOWN while the pool closes. It never blocks.
 */
#ifndef WORKER_LOOP_POOL_H
#define WORKER_LOOP_POOL_H

#include <bsd/sys/queue.h>

struct pool; /* opaque; body in pool.c */

struct pool_job {
    TAILQ_ENTRY(pool_job) link;
    void (*run)(struct pool_job *job);
};

int pool_open(struct pool **out, unsigned max_threads);
int pool_submit(struct pool *pool, struct pool_job *job);
/* Change the limit of threads. If more are running, some exit once idle. */
void pool_resize(struct pool *pool, unsigned max_threads);
/* Run the queued jobs, wait for all threads, then set *pool to NULL. A job that
 * submits another one during that gets -ESHUTDOWN. NULL-safe. */
void pool_close(struct pool **pool);

#endif
