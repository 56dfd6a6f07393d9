/* stderr_tail.h - what a child writes to stderr: logged by line, its end kept
 *
 * WHAT   Splits a byte stream into lines for the log, as many as the limit
 *        allows, and keeps the last 4 KiB of all of them. The limit is a token
 *        bucket for all handlers of a worker: --stderr-rate lines a second, and
 *        what ten seconds of that are at once. Lines beyond that are counted,
 *        and the number is logged a second later, so at most once a second
 *        (event=handler_stderr_dropped). Without it one handler's 30 MB cost
 *        the worker seconds of processor time, and journald drops what a
 *        service writes over some 333 lines a second: our own lines with those
 *        of the handler.
 * WHO    The thread that runs the handler. stderr_limit_take: any thread,
 *        without a lock. stderr_limit_init, tell, fini: the engine's.
 * OWNS   Its buffers; of the limit a timer.
 * FAILS  Never. A line over TAIL_LINE bytes is logged in pieces.
 */
#ifndef WORKER_PROCESS_STDERR_TAIL_H
#define WORKER_PROCESS_STDERR_TAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker/config/settings.h"
#include "worker/loop/timers.h"
#include "worker/rules/delivery.h"

/* ---- how much is logged ---- */

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

/* ---- what one child writes ---- */

#define TAIL_LINE 2048

struct stderr_tail {
    const char *id; /* message id for the log; NULL: none is meant */
    pid_t pid;      /* of a child that lasts, for the log; 0: none */
    struct stderr_limit *limit;           /* NULL: every line is logged */
    size_t line_size, kept_size, kept_at; /* kept: a ring */
    char line[TAIL_LINE];
    char kept[OUTCOME_TAIL];
};

void stderr_tail_init(struct stderr_tail *t, const char *id,
                      struct stderr_limit *limit);
/* Of a child that is given many messages. The caller sets `id` while one alone
 * is meant. */
void stderr_tail_init_child(struct stderr_tail *t, pid_t pid,
                            struct stderr_limit *limit);
/* What comes from now on belongs to something new: keep none of the old. */
void stderr_tail_forget(struct stderr_tail *t);
void stderr_tail_add(struct stderr_tail *t, const char *data, size_t size);
/* Add what a non-blocking descriptor has now, a piece of it at most; false at
 * the end of the stream. */
bool stderr_tail_read(struct stderr_tail *t, int fd);
/* Add what it has now, but no more than a pipe holds: somebody may go on
 * writing. */
void stderr_tail_drain(struct stderr_tail *t, int fd);
/* Copy what was kept. */
void stderr_tail_copy(const struct stderr_tail *t, struct outcome *out);
/* Log the last line, which may have no newline. */
void stderr_tail_finish(struct stderr_tail *t);
/* Both. */
void stderr_tail_end(struct stderr_tail *t, struct outcome *out);

#endif
