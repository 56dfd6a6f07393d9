/* mqdlq_canary.h - what became of the one letter that was sent first
 *
 * WHAT   Watches the store until the worker has settled a replayed letter.
 * WHO    replay, once.
 * OWNS   Nothing.
 * FAILS  Returns the exit status: 0 done (or discarded), 75 it died again, was
 *        not settled in time, or a signal came; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_CANARY_H
#define SCRIPTS_MQDLQ_MQDLQ_CANARY_H

#include <stdint.h>

#include "scripts/mqdlq/mqdlq.h"

/* `died_ns`: the death it was replayed from. `limit_ns`: UINT64_MAX for
 * none. */
int canary_wait(struct context *ctx, int64_t row, uint64_t died_ns,
                uint64_t limit_ns);

#endif
