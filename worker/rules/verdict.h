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

/* It ended by itself; `stopped`: or by a signal of the worker that stops.
 * `info` with si_code 0: waitid gave none, si_errno is why. */
void verdict_exit(struct outcome *out, const struct settings *set,
                  const siginfo_t *info, bool stopped);
/* Its time limit had passed. */
void verdict_timeout(struct outcome *out, uint64_t limit_ns);
/* The command ended with this code before it did anything: whether the code
 * says that it cannot be started; then `out` says so. */
bool verdict_no_command(struct outcome *out, int code);
/* It never ran; the message is not to blame. */
void verdict_not_started(struct outcome *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Starting it gave this -errno. */
void verdict_cannot_start(struct outcome *out, const char *command, int err);

#endif
