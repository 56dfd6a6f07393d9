/* on_dead.h - --on-dead: a command that is run once for each dead letter
 *
 * WHAT   A death is a message that became a dead letter; the source keeps the
 *        deaths for this command (source.h, hook). Runs the command for one
 *        death after the other, the oldest first, with the letter as JSON on
 *        stdin. If it exits with another status than 0, it runs again for that
 *        death after a wait that doubles each time (struct hook_retries). If a
 *        kill of the worker interrupts it, the next worker runs it again.
 * WHO    open, close: the engine. wake: any thread that has made a letter.
 * OWNS   A thread, which runs the commands and sleeps while there is nothing to
 *        do. No thread of the pool waits for it.
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

/* The parts that on_dead works on; all of them outlive it. */
struct on_dead_setup {
    const struct settings *set;
    struct source *source;
    struct stderr_limit *stderr_limit;
    /* Called by the thread when the number of letters for which the command
     * will run again may have changed. `failed`: it has just failed. */
    void (*failing)(void *arg, uint64_t letters, bool failed);
    void *arg;
};

int on_dead_open(struct on_dead **out, const struct on_dead_setup *setup,
                 struct problem *p);
/* Look for new deaths. NULL-safe; never waits. */
void on_dead_wake(struct on_dead *h);
/* Start no more commands, and wait for the running one. It may finish within
 * --kill-after, then gets SIGTERM, and SIGKILL after --kill-after again.
 * NULL-safe; sets NULL. */
void on_dead_close(struct on_dead **on_dead);

/* ---- when a command that failed runs again ---- */

#define HOOK_RETRIES_MOST   1024
#define HOOK_RETRY_FIRST_NS NS_PER_S         /* the first wait */
#define HOOK_RETRY_LAST_NS  (300 * NS_PER_S) /* the longest wait */

struct hook_retry {
    int64_t n; /* of the death (source.h) */
    uint64_t wait_ns, due_ns;
};

/* Deaths whose command failed and will run again. Each has a wait of its own,
 * which doubles with each of its failures. While no retry succeeds, there is
 * also a pause between two retries, which doubles too, so that a broken command
 * is tried for one letter and not for all. The list is in memory only: after a
 * restart the command runs for each death without a wait. A list of zeros is
 * empty. Used by one thread. */
struct hook_retries {
    struct hook_retry all[HOOK_RETRIES_MOST];
    size_t count;
    uint64_t pause_ns, paused_until_ns; /* between two retries */
};

bool hook_retries_has(const struct hook_retries *r, int64_t n);
/* Add a failure at `now_ns` (monotonic). Returns the wait of the death, or 0 if
 * the list has no room for it. */
uint64_t hook_retries_postpone(struct hook_retries *r, int64_t n,
                               uint64_t now_ns);
/* If death `n` is in the list, change its number to `next`; 0: remove it. */
void hook_retries_renumber(struct hook_retries *r, int64_t n, int64_t next);
/* Remove a death whose command succeeded, and end the pause. */
void hook_retries_end(struct hook_retries *r, int64_t n);
/* Return the death that is due first, and when; 0 and UINT64_MAX: none. */
int64_t hook_retries_first(const struct hook_retries *r, uint64_t *due_ns);

#endif
