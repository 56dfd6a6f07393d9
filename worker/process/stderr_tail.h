/* stderr_tail.h - what a child writes to stderr: logged by line, its end kept
 *
 * WHAT   Splits a byte stream into lines for the log, as many as the limit
 *        allows, and keeps the last 4 KiB of all of them. The limit is a token
 *        bucket for all handlers of a worker: --stderr-rate lines a second, in
 *        bursts of up to ten seconds' worth. Lines beyond that are counted, and
 *        the number is logged a second later, so at most once a second
 *        (event=handler_stderr_dropped). Without the limit, 30 MB from one
 *        handler would cost the worker seconds of processor time, and journald,
 *        which drops what a service writes beyond some 333 lines a second,
 *        would drop lines of the worker, too.
 * WHO    The thread that runs the handler. stderr_tail_last: any thread, while
 *        the tail exists. stderr_limit_take: any thread, without a lock.
 *        stderr_limit_init, fini: the engine's.
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
    struct timer timer;         /* for the next report of dropped lines */
    _Atomic uint64_t next_ns;   /* a  time when the bucket is full again */
    _Atomic uint64_t dropped;   /* a  lines since the last report */
};

void stderr_limit_init(struct stderr_limit *l, const struct settings *set,
                       struct timers *timers);
/* Return true if a line may be logged now; otherwise count it as dropped. */
bool stderr_limit_take(struct stderr_limit *l);
/* Stop the timer and log the rest; no thread takes a line any more. */
void stderr_limit_fini(struct stderr_limit *l);

/* ---- what one child writes ---- */

#define TAIL_LINE 2048

struct stderr_tail {
    const char *id; /* message id for the log; NULL: not exactly one is open */
    pid_t pid;      /* of a long-lived child, for the log; 0: none */
    struct stderr_limit *limit; /* NULL: every line is logged */
    size_t line_size;
    char line[TAIL_LINE];
    /* A ring with the end of stderr, and the id of the message that wrote last
     * ("": not known, or nothing was written). The handler's thread writes them
     * under a lock, because stderr_tail_last reads them on other threads. */
    size_t kept_size, kept_at;
    char kept[OUTCOME_TAIL];
    char writer[ULID_TEXT];
};

/* Begin for a new child. `pid`: of a long-lived child, for which the caller
 * sets `id` whenever a single message is open; otherwise 0. */
void stderr_tail_init(struct stderr_tail *t, const char *id, pid_t pid,
                      struct stderr_limit *limit);
/* Clear the kept end, because it belongs to other messages. */
void stderr_tail_forget(struct stderr_tail *t);
void stderr_tail_add(struct stderr_tail *t, const char *data, size_t size);
/* Add up to 4 KiB of what a non-blocking descriptor has now. Returns false at
 * the end of the stream. */
bool stderr_tail_read(struct stderr_tail *t, int fd);
/* Add what a descriptor has now, but no more than a pipe holds, because the
 * writer may go on. */
void stderr_tail_drain(struct stderr_tail *t, int fd);
/* Print the last line that the message with this id has written, as error_text
 * does. Returns false if it has written none, or other messages were open. */
bool stderr_tail_last(const struct stderr_tail *t, const char *id,
                      char text[ERROR_TEXT]);
/* Copy the kept end, from its oldest byte. */
void stderr_tail_copy(const struct stderr_tail *t, struct outcome *out);
/* Log the last line, which may have no newline. */
void stderr_tail_finish(struct stderr_tail *t);
/* Log the last line, then copy the kept end. */
void stderr_tail_end(struct stderr_tail *t, struct outcome *out);

#endif
