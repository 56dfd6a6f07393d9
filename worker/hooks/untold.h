/* untold.h - deaths whose --on-dead command failed, and when it runs again
 *
 * WHAT   Each has a wait of its own, which doubles with each failure, whatever
 *        becomes of others. While none succeeds, there is a pause between two
 *        that run again, which doubles, too: a command that is broken is tried
 *        for one letter, not for all. In memory: after a restart each is tried
 *        once, at once.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  untold_failed: 0, there is no room for more.
 */
#ifndef WORKER_HOOKS_UNTOLD_H
#define WORKER_HOOKS_UNTOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/clock.h"

#define UNTOLD_MOST     1024
#define UNTOLD_FIRST_NS NS_PER_S /* the first wait, and the longest */
#define UNTOLD_LAST_NS  (300 * NS_PER_S)

struct untold_one {
    int64_t n; /* of the death (source.h, hook) */
    uint64_t wait_ns, due_ns;
};

/* All 0: there are none. */
struct untold {
    struct untold_one all[UNTOLD_MOST];
    size_t count;
    uint64_t pause_ns, paused_until_ns; /* between those that run again */
};

bool untold_has(const struct untold *u, int64_t n);
/* It failed at `now_ns` (monotonic): how long it waits; 0: it is not noted. */
uint64_t untold_failed(struct untold *u, int64_t n, uint64_t now_ns);
/* It has another number from here on; 0: it is gone. */
void untold_moved(struct untold *u, int64_t n, int64_t next);
/* One was told: this one is gone, if it was noted, and there is no pause. */
void untold_told(struct untold *u, int64_t n);
/* Which runs again first, and when; 0 and UINT64_MAX: there are none. */
int64_t untold_first(const struct untold *u, uint64_t *due_ns);

#endif
