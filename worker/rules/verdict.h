/* verdict.h - verdicts: the effects of each, and how a handler's end becomes a
 * verdict
 *
 * WHAT   One row for each enum mqw_verdict: its names, what the source does
 *        with the message, what its group and the breaker do, where it is
 *        counted and how it is logged. Then the rules of docs/handlers.md for
 *        exit codes, signals and time limits.
 * WHO    Any thread: the settings, the handlers and flow/settle.c.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef WORKER_RULES_VERDICT_H
#define WORKER_RULES_VERDICT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/log.h"
#include "common/message/error_text.h"
#include "common/state/counters.h"
#include "worker/mqworker.h"
#include "worker/rules/breaker.h"
#include "worker/rules/delivery.h"

#define VERDICT_COUNT (MQW_DISCARD + 1)

/* What the source does with a message that the worker gives back. */
enum settle_kind {
    SETTLE_DONE,    /* keep no trace */
    SETTLE_DISCARD, /* keep no trace; also the source's own answer, if an
                     * operator discarded the message meanwhile */
    SETTLE_RETRY,   /* return it again from take_due at due_ns */
    SETTLE_DEAD,    /* keep a dead letter, with its reason and history */
    SETTLE_PARK,    /* keep it behind its group's head until unpark */
    SETTLE_RETURN,  /* put it back where it was before it was taken, without an
                     * attempt; if take or take_due gave it, due at due_ns */
};

/* How a delivery ended, for the message's group. */
enum group_end {
    GROUP_GOES_ON, /* the head is gone */
    GROUP_WAITS,   /* the head waits for its retry */
    GROUP_DIED,    /* the head is a dead letter */
};

struct verdict_rule {
    const char *name;  /* in --on-exit: "retry" */
    const char *word;  /* answer of a long-lived handler: "RETRY" */
    const char *event; /* of the log */
    enum log_level level;
    bool explains; /* a reason may be given, and the end of stderr is kept */
    enum settle_kind kind;
    enum group_end group;
    enum breaker_event breaker;
    size_t counter;          /* offset of its number in struct counters_block */
    enum counters_end end;   /* COUNTERS_NO_END: the message goes on */
    enum dead_reason reason; /* of the dead letter that the message becomes;
                              * for a retry: after the last attempt */
};

extern const struct verdict_rule verdict_rules[VERDICT_COUNT];

/* Find a verdict by its name in --on-exit; -1: the name is unknown. */
int verdict_named(const char *name);

/* ---- from the end of a handler to a verdict ---- */

#define VERDICT_UNMAPPED 0xff /* in a map of exit codes: no entry */

/* Set the outcome of a process that ended by itself or, if `stopped`, by a
 * signal of a worker that stops. `map`: a verdict, or VERDICT_UNMAPPED, for
 * each exit code. `info` with si_code 0: waitid failed with si_errno. */
void verdict_exit(struct outcome *out, const uint8_t *map,
                  const siginfo_t *info, bool stopped);
/* Set the outcome of a process that ended after its time limit. */
void verdict_timeout(struct outcome *out, uint64_t limit_ns);
/* Set the outcome of a message whose run an operator cancelled. */
void verdict_cancelled(struct outcome *out);
/* Return true if an operator cancelled the run. A handler cannot cause this
 * outcome. */
static inline bool verdict_is_cancelled(const struct outcome *out)
{
    return out->verdict == MQW_DISCARD && !out->said &&
           strcmp(out->error, "cancelled") == 0;
}
/* Return true, and set the outcome, if this exit code means that the command
 * cannot be started. */
bool verdict_no_command(struct outcome *out, int code);
/* Set the outcome of a message whose handler never ran, which is not the
 * message's fault. */
void verdict_not_started(struct outcome *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
