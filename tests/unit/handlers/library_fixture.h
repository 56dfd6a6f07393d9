/* library_fixture.h - a worker of libmqworker in a thread of its own
 *
 * WHAT   Opens it with the options that the test has filled in, works until it
 *        is stopped, closes it.
 * WHO    Tests of the library, after harness_init.
 * OWNS   The thread, from runner_start to runner_end.
 * FAILS  By ending the test.
 */
#ifndef TESTS_UNIT_HANDLERS_LIBRARY_FIXTURE_H
#define TESTS_UNIT_HANDLERS_LIBRARY_FIXTURE_H

#include "worker/mqworker.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>

#include "tests/harness/harness.h"

#define RUNNER_MS 20000

struct runner {
    pthread_t thread;
    struct mqw_options o;
    mqw_handler *handler;
    void *user;
    struct mqw_worker *_Atomic worker;
    int status;
};

static void *runner_main(void *arg)
{
    struct runner *r = arg;
    struct mqw_worker *w;

    r->status = mqw_open(&w, &r->o, r->handler, r->user);
    atomic_store(&r->worker, w);
    if (r->status == 0)
        r->status = mqw_work(w);
    mqw_close(&w);
    return NULL;
}

static inline struct mqw_worker *runner_start(struct runner *r,
                                              mqw_handler *handler, void *user)
{
    r->handler = handler;
    r->user = user;
    cr_assert_eq(pthread_create(&r->thread, NULL, runner_main, r), 0);
    harness_until(atomic_load(&r->worker) != NULL, RUNNER_MS);
    return atomic_load(&r->worker);
}

static inline void runner_end(struct runner *r)
{
    mqw_stop(atomic_load(&r->worker));
    pthread_join(r->thread, NULL);
    cr_assert_eq(r->status, 0);
}

#endif
