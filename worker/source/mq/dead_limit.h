/* dead_limit.h - --keep-dead and --max-dead: dead letters that are removed
 *
 * WHAT   Removes the oldest dead letters: those that died too long ago, then
 *        those that are too many. A letter that is on its way again is none,
 *        and one that is in flight is left alone.
 * WHO    open, close: the engine. wake: any thread.
 * OWNS   A chore, which runs on a pool thread when a letter died, when a
 *        setting was changed, and when the next one has been there for long
 *        enough; ten times a second at most.
 * FAILS  open: a problem. A removal that the store refuses is tried again.
 */
#ifndef WORKER_SOURCE_MQ_DEAD_LIMIT_H
#define WORKER_SOURCE_MQ_DEAD_LIMIT_H

#include <stdint.h>

#include "common/base/problem.h"

struct dirty;
struct due_rows;
struct pool;
struct settings;
struct store;
struct timers;
struct dead_limit; /* opaque; body in dead_limit.c */

/* What it works on; all of it outlives it. */
struct dead_limit_setup {
    const struct settings *set; /* read each time */
    struct store *store;
    struct due_rows *due_rows;
    struct timers *timers;
    struct pool **pool; /* NULL once the pool is gone */
    struct dirty *dirty;
    void (*removed)(void *arg, uint64_t letters);
    void *arg;
};

int dead_limit_open(struct dead_limit **out,
                    const struct dead_limit_setup *setup, struct problem *p);
/* There may be something to remove. Never waits; NULL-safe. */
void dead_limit_wake(struct dead_limit *l);
void dead_limit_close(struct dead_limit **l); /* after the pool; sets NULL */

#endif
