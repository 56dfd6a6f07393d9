/* store_look.h - the check of the whole store at the start
 *
 * WHAT   A small store, or that of a run that ends by itself, is checked before
 *        the worker starts: a damaged one refuses the start. A large one is
 *        checked by a pool thread while the worker runs; if it is damaged,
 *        nothing more is taken (HOLD_DAMAGED).
 * WHO    open, start, stop: the engine. text: any thread.
 * OWNS   Its job; embedded in the engine.
 * FAILS  open: a problem with status 73.
 */
#ifndef WORKER_FILES_STORE_LOOK_H
#define WORKER_FILES_STORE_LOOK_H

#include <stdatomic.h>

#include "common/base/problem.h"
#include "common/store/store.h"
#include "worker/loop/pool.h"

struct flow;

/* c = constant once the worker runs   a = atomic   j = the job's until `state`
 * is another one than CHECKING */
struct store_look {
    struct flow *flow;   /* c */
    struct store *store; /* c */
    struct pool_job job;
    atomic_bool stop;        /* a  the check is to end */
    atomic_int state;        /* a  enum store_look_state */
    char found[STORE_FOUND]; /* j */
};
enum store_look_state {
    STORE_LOOK_NONE, /* there is no store, or no check yet */
    STORE_LOOK_DUE,  /* once the worker runs */
    STORE_LOOK_CHECKING,
    STORE_LOOK_FINE,
    STORE_LOOK_DAMAGED,
    STORE_LOOK_FAILED, /* it could not be checked */
};

/* Check a small store now; before anything is written to it. */
int store_look_open(struct store_look *l, struct flow *f, struct store *s,
                    struct problem *p);
/* Check a large one from now on. */
void store_look_start(struct store_look *l);
/* Cut the check short; the pool waits for its end. */
void store_look_stop(struct store_look *l);
/* Return "ok", "being checked", or what was found; NULL: there is no store. */
const char *store_look_text(const struct store_look *l);

#endif
