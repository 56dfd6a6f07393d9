/* stderr_limit.h - how much of what handlers write to stderr is logged
 *
 * WHAT   A token bucket for all handlers of a worker: --stderr-rate lines a
 *        second, and what ten seconds of that are at once. Lines beyond that
 *        are counted, and the number is logged a second later, so at most once
 *        a second (event=handler_stderr_dropped).
 *        Without it one handler's 30 MB cost the worker seconds of processor
 *        time, and journald drops what a service writes over some 333 lines a
 *        second: our own lines with those of the handler.
 * WHO    take: any thread, without a lock. init, tell, fini: the engine's.
 * OWNS   A timer.
 * FAILS  Never.
 */
#ifndef WORKER_PROCESS_STDERR_LIMIT_H
#define WORKER_PROCESS_STDERR_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/config/settings.h"
#include "worker/loop/timers.h"

/* c = constant after init   a = atomic */
struct stderr_limit {
    const struct settings *set; /* c  stderr_rate; read each time */
    struct timers *timers;      /* c */
    struct timer timer;         /* tells a second after the first was dropped */
    _Atomic uint64_t next_ns;   /* a  when the bucket is full again */
    _Atomic uint64_t dropped;   /* a  not told yet */
};

void stderr_limit_init(struct stderr_limit *l, const struct settings *set,
                       struct timers *timers);
/* Whether a line may be logged now; if not, it is counted. */
bool stderr_limit_take(struct stderr_limit *l);
/* Log what was dropped since the last time, if anything. */
void stderr_limit_tell(struct stderr_limit *l);
/* Nothing is taken any more. */
void stderr_limit_fini(struct stderr_limit *l);

#endif
