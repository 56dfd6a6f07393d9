/* verdict.h - how a handler process ended -> what becomes of its message
 *
 * WHAT   The rules of docs/handlers.md for exit codes, signals and time limits.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef WORKER_RULES_VERDICT_H
#define WORKER_RULES_VERDICT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/rules/delivery.h"
#include "worker/config/settings.h"

/* The process ended by itself or, if `stopped`, by a signal of a worker that
 * stops. `info` with si_code 0: waitid failed with si_errno. */
void verdict_exit(struct outcome *out, const struct settings *set,
                  const siginfo_t *info, bool stopped);
/* The process ended after its time limit. */
void verdict_timeout(struct outcome *out, uint64_t limit_ns);
/* An operator had it ended; the message is not run again. */
void verdict_cancelled(struct outcome *out);
/* Whether it is that; no handler can say so. */
bool verdict_is_cancelled(const struct outcome *out);
/* Whether this exit code means that the command cannot be started; then `out`
 * says so. */
bool verdict_no_command(struct outcome *out, int code);
/* The handler never ran; the message is not to blame. */
void verdict_not_started(struct outcome *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
