/* pool.h - bounded pool of threads
 *
 * WHAT   Runs submitted jobs on at most N threads, started as needed. The
 *        thread that went to sleep last is woken first: it is warm, and the
 *        others stay asleep.
 * WHO    Any thread may submit. A job runs with no lock of ours held.
 * OWNS   Borrows each job from submit until it runs; frees none.
 * FAILS  pool_submit: -EAGAIN no thread can be started and none exists,
 *        -ESHUTDOWN closing. Never blocks, never exits.
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
/* More or fewer threads from now on; those over the number end when idle. */
void pool_resize(struct pool *pool, unsigned max_threads);
/* NULL-safe; waits; then sets NULL. Jobs that still run may submit until then,
 * and are refused. */
void pool_close(struct pool **pool);

#endif
