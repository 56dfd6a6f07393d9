/* tail.h - what a child writes to stderr: logged by line, its end kept
 *
 * WHAT   Splits a byte stream into lines for the log and keeps the last 4 KiB.
 * WHO    The thread that runs the handler.
 * OWNS   Its buffers.
 * FAILS  Never. A line over TAIL_LINE bytes is logged in pieces.
 */
#ifndef WORKER_TAIL_H
#define WORKER_TAIL_H

#include <stddef.h>

#include "worker/delivery.h"

#define TAIL_LINE 2048

struct tail {
    const char *id;                       /* message id for the log */
    size_t line_size, kept_size, kept_at; /* kept: a ring */
    char line[TAIL_LINE];
    char kept[OUTCOME_TAIL];
};

void tail_init(struct tail *t, const char *id);
void tail_add(struct tail *t, const char *data, size_t size);
/* Log the last line, which may have no newline; copy what was kept. */
void tail_end(struct tail *t, struct outcome *out);

#endif
