/* on_dead.h - --on-dead: a command that is run once for each dead letter
 *
 * WHAT   Runs the command for one death after the other, the oldest first, with
 *        the letter as JSON on stdin. Exit status 0 ends that; after any other
 *        end the command is run again, after a wait that doubles for each death
 *        (struct untold). If a kill cuts the command off, the next worker runs
 *        it again. The source keeps the deaths (source.h, hook).
 * WHO    open, close: the engine. wake: any thread.
 * OWNS   A thread, which sleeps while there is nothing to do, and the process.
 *        No thread of the pool waits for it, and no lock.
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

/* The parts that it works on; all of them outlive it. */
struct on_dead_setup {
    const struct settings *set;
    struct source *source;
    struct stderr_limit *stderr_limit;
    /* The number of letters for which the command is to run again changed;
     * `failed`: it has just failed for one. Called by its thread. */
    void (*failing)(void *arg, uint64_t letters, bool failed);
    void *arg;
};

int on_dead_open(struct on_dead **out, const struct on_dead_setup *setup,
                 struct problem *p);
/* Look for new deaths. NULL-safe; never waits. */
void on_dead_wake(struct on_dead *h);
/* Start no other command. A running command may finish within --kill-after,
 * gets SIGTERM, and, that much later, SIGKILL. NULL-safe; waits; sets NULL. */
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
 * each failure, whatever happens to others. While none succeeds, there is also
 * a pause between two runs, which doubles: a broken command is tried for one
 * letter, not for all. In memory only: after a restart each is tried once,
 * immediately. All 0: there are none. For one thread. */
struct untold {
    struct untold_one all[UNTOLD_MOST];
    size_t count;
    uint64_t pause_ns, paused_until_ns; /* between those that run again */
};

bool untold_has(const struct untold *u, int64_t n);
/* Note a failure at `now_ns` (monotonic). Returns how long the death waits; 0
 * if there is no room to note it. */
uint64_t untold_failed(struct untold *u, int64_t n, uint64_t now_ns);
/* Change the number of a death; 0: forget it. */
void untold_moved(struct untold *u, int64_t n, int64_t next);
/* Forget a death whose command succeeded, and end the pause. */
void untold_succeeded(struct untold *u, int64_t n);
/* Return the death that runs again first, and when; 0 and UINT64_MAX: none. */
int64_t untold_first(const struct untold *u, uint64_t *due_ns);

#endif
