/* store_look.h - the check of the whole store at the start
 *
 * WHAT   A small store, and the store of a bounded run, is checked before the
 *        worker starts; if it is damaged, the start fails. A large store is
 *        checked by a pool thread while the worker is running; if it is
 *        damaged, the worker takes no more messages (HOLD_DAMAGED).
 * WHO    inherit_open calls open. The engine calls start, and sets `stop` when
 *        it closes. orders.c calls text, in the loop.
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

/* c = constant while the worker is running   a = atomic   j = owned by the job
 * while `state` is CHECKING */
struct store_look {
    struct flow *flow;   /* c */
    struct store *store; /* c */
    struct pool_job job;
    atomic_bool stop;        /* a  set by the engine to end the check early */
    atomic_int state;        /* a  enum store_look_state */
    char found[STORE_FOUND]; /* j */
};
enum store_look_state {
    STORE_LOOK_NONE, /* no store, or not opened yet */
    STORE_LOOK_DUE,  /* to be checked while the worker is running */
    STORE_LOOK_CHECKING,
    STORE_LOOK_FINE,
    STORE_LOOK_DAMAGED,
    STORE_LOOK_FAILED, /* the store could not be checked */
};

/* Check a small store now, before anything is written to it. */
int store_look_open(struct store_look *l, struct flow *f, struct store *s,
                    struct problem *p);
/* Start the check of a large store. */
void store_look_start(struct store_look *l);
/* Return "ok", "being checked", or a description of the damage; NULL if there
 * is no store. */
const char *store_look_text(const struct store_look *l);

#endif
