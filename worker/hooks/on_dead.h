/* on_dead.h - --on-dead: a command that is run once for each dead letter
 *
 * WHAT   Runs the command for one death after the other, the oldest first, with
 *        the letter as JSON on stdin. A command that ends with 0 was told of
 *        it. Anything else is told again, after a wait of its own that doubles
 *        (struct untold); what a kill cuts off, by the next worker. Where it
 *        is durable: source.h, hook.
 * WHO    open, close: the engine. wake: any thread.
 * OWNS   A thread, which waits where there is nothing to do, and the process.
 *        No thread of the pool and no lock of the worker's waits for it.
 * FAILS  open: a problem.
 */
#ifndef WORKER_HOOKS_ON_DEAD_H
#define WORKER_HOOKS_ON_DEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"
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

/* ---- when a command that failed runs again ---- */

#define UNTOLD_MOST     1024
#define UNTOLD_FIRST_NS NS_PER_S /* the first wait, and the longest */
#define UNTOLD_LAST_NS  (300 * NS_PER_S)

struct untold_one {
    int64_t n; /* of the death (source.h) */
    uint64_t wait_ns, due_ns;
};

/* Deaths whose command failed. Each has a wait of its own, which doubles with
 * each failure, whatever becomes of others. While none succeeds, there is a
 * pause between two that run again, which doubles, too: a command that is
 * broken is tried for one letter, not for all. In memory: after a restart each
 * is tried once, at once. All 0: there are none. For one thread. */
struct untold {
    struct untold_one all[UNTOLD_MOST];
    size_t count;
    uint64_t pause_ns, paused_until_ns; /* between those that run again */
};

bool untold_has(const struct untold *u, int64_t n);
/* It failed at `now_ns` (monotonic): how long it waits; 0: there is no room to
 * note it. */
uint64_t untold_failed(struct untold *u, int64_t n, uint64_t now_ns);
/* It has another number from here on; 0: it is gone. */
void untold_moved(struct untold *u, int64_t n, int64_t next);
/* One was told: this one is gone, if it was noted, and there is no pause. */
void untold_told(struct untold *u, int64_t n);
/* Which runs again first, and when; 0 and UINT64_MAX: there are none. */
int64_t untold_first(const struct untold *u, uint64_t *due_ns);

#endif
