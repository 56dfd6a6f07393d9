/* verdict.c - the table of verdicts, and how a handler process ended (see
 * verdict.h) */
#include "worker/rules/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <sysexits.h>
#include <sys/wait.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/problem.h"

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND      127

#define COUNTER(name) offsetof(struct counters_block, name)

const struct verdict_rule verdict_rules[VERDICT_COUNT] = {
    [MQW_DONE] = {.name = "done",
                  .word = "OK",
                  .event = "done",
                  .level = LOG_DEBUG,
                  .kind = SETTLE_DONE,
                  .group = GROUP_GOES_ON,
                  .breaker = BREAKER_GOOD,
                  .counter = COUNTER(done),
                  .end = COUNTERS_DONE},
    [MQW_RETRY] = {.name = "retry",
                   .word = "RETRY",
                   .event = "retry",
                   .level = LOG_WARN,
                   .explains = true,
                   .kind = SETTLE_RETRY,
                   .group = GROUP_WAITS,
                   .breaker = BREAKER_BAD,
                   .counter = COUNTER(retried),
                   .reason = REASON_EXHAUSTED},
    [MQW_DEAD] = {.name = "dead",
                  .word = "DEAD",
                  .event = "dead",
                  .level = LOG_WARN,
                  .explains = true,
                  .kind = SETTLE_DEAD,
                  .group = GROUP_DIED,
                  .breaker = BREAKER_GOOD,
                  .counter = COUNTER(dead),
                  .end = COUNTERS_DEAD,
                  .reason = REASON_REJECTED},
    [MQW_DISCARD] = {.name = "discard",
                     .word = "DISCARD",
                     .event = "discarded",
                     .level = LOG_INFO,
                     .kind = SETTLE_DISCARD,
                     .group = GROUP_GOES_ON,
                     .breaker = BREAKER_GOOD,
                     .counter = COUNTER(discarded),
                     .end = COUNTERS_DISCARDED},
};

int verdict_named(const char *name)
{
    for (int i = 0; i < VERDICT_COUNT; i++)
        if (strcmp(name, verdict_rules[i].name) == 0)
            return i;
    return -1;
}

void verdict_not_started(struct outcome *out, const char *fmt, ...)
{
    va_list args;

    out->kind = OUTCOME_NOT_STARTED;
    va_start(args, fmt);
    vsnprintf(out->error, sizeof out->error, fmt, args);
    va_end(args);
}

/* A shell uses exit codes 126 and 127 for this. */
bool verdict_no_command(struct outcome *out, int code)
{
    if (code != EXIT_NOT_EXECUTABLE && code != EXIT_NOT_FOUND)
        return false;
    verdict_not_started(out, "exit %d: the command %s", code,
                        code == EXIT_NOT_FOUND ? "was not found"
                                               : "is not executable");
    return true;
}

void verdict_exit(struct outcome *out, const uint8_t *map,
                  const siginfo_t *info, bool stopped)
{
    uint8_t mapped = map[info->si_status & 0xff];

    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_RETRY;
    if (info->si_code == 0) {
        snprintf(out->error, sizeof out->error, "exit unknown: waitid: %s",
                 errno_text(info->si_errno));
    } else if (info->si_code != CLD_EXITED) {
        snprintf(out->error, sizeof out->error, "signal %d", info->si_status);
    } else {
        if (info->si_status != 0 || mapped != VERDICT_UNMAPPED)
            snprintf(out->error, sizeof out->error, "exit %d", info->si_status);
        if (mapped != VERDICT_UNMAPPED)
            out->verdict = (enum mqw_verdict)mapped;
        else if (info->si_status == 0)
            out->verdict = MQW_DONE;
        else if (info->si_status == EX_DATAERR)
            out->verdict = MQW_DEAD;
        else
            (void)verdict_no_command(out, info->si_status);
    }
    if (stopped && out->verdict == MQW_RETRY)
        out->kind = OUTCOME_STOPPED;
}

void verdict_timeout(struct outcome *out, uint64_t limit_ns)
{
    char limit[DURATION_TEXT];

    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_RETRY;
    snprintf(out->error, sizeof out->error, "timeout %s",
             duration_print(limit_ns, limit));
}

/* The error is the same as for a message that was cancelled while it waited. */
void verdict_cancelled(struct outcome *out)
{
    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_DISCARD;
    out->delayed = out->said = false;
    strlcpy(out->error, "cancelled", sizeof out->error);
}
