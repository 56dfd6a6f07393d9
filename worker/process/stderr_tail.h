/* stderr_tail.h - what a child writes to stderr: logged by line, its end kept
 *
 * WHAT   Splits a byte stream into lines for the log, as many as the limit
 *        allows, and keeps the last 4 KiB of all of them.
 * WHO    The thread that runs the handler.
 * OWNS   Its buffers.
 * FAILS  Never. A line over TAIL_LINE bytes is logged in pieces.
 */
#ifndef WORKER_PROCESS_STDERR_TAIL_H
#define WORKER_PROCESS_STDERR_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "worker/rules/delivery.h"

#define TAIL_LINE 2048

struct stderr_limit; /* stderr_limit.h */

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
