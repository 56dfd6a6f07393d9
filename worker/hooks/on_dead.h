/* on_dead.h - --on-dead: a command that is run once for each dead letter
 *
 * WHAT   Runs the command for one death after the other, the oldest first, with
 *        the letter as JSON on stdin. A command that ends with 0 was told of
 *        it. Anything else is told again, after a wait of its own that doubles
 *        (untold.h); what a kill cuts off, by the next worker. Where it is
 *        durable: source.h, hook.
 * WHO    open, close: the engine. wake: any thread.
 * OWNS   A thread, which waits where there is nothing to do, and the process.
 *        No thread of the pool and no lock of the worker's waits for it.
 * FAILS  open: a problem.
 */
#ifndef WORKER_HOOKS_ON_DEAD_H
#define WORKER_HOOKS_ON_DEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/problem.h"

struct settings;
struct source;
struct stderr_limit;
struct on_dead; /* opaque; body in on_dead.c */

/* What it works on; all of it outlives it. */
struct on_dead_setup {
    const struct settings *set;
    struct source *source;
    struct stderr_limit *stderr_limit;
    /* So many letters wait for the command to run again; `failed`: it has just
     * failed for one. Its thread. */
    void (*failing)(void *arg, uint64_t letters, bool failed);
    void *arg;
};

int on_dead_open(struct on_dead **out, const struct on_dead_setup *setup,
                 struct problem *p);
/* There may be a death to tell of. NULL-safe; never waits. */
void on_dead_wake(struct on_dead *h);
/* A command that runs may finish within --kill-after, gets SIGTERM, and, that
 * much later, SIGKILL; no other is started. NULL-safe; waits; sets NULL. */
void on_dead_close(struct on_dead **on_dead);

#endif
