/* verdict.c - how a handler process ended (see verdict.h) */
#include "worker/rules/verdict.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sysexits.h>
#include <sys/wait.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/errno_text.h"

#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND      127

void verdict_not_started(struct outcome *out, const char *fmt, ...)
{
    va_list args;

    out->kind = OUTCOME_NOT_STARTED;
    va_start(args, fmt);
    vsnprintf(out->error, sizeof out->error, fmt, args);
    va_end(args);
}

/* verdict_no_command - 126 and 127, as a shell says it */
bool verdict_no_command(struct outcome *out, int code)
{
    if (code != EXIT_NOT_EXECUTABLE && code != EXIT_NOT_FOUND)
        return false;
    verdict_not_started(out, "exit %d: the command %s", code,
                        code == EXIT_NOT_FOUND ? "was not found"
                                               : "is not executable");
    return true;
}

/* by_code - the verdict of an exit code */
static void by_code(struct outcome *out, const struct settings *set, int code)
{
    bool mapped = set->on_exit[code & 0xff] != EXIT_UNMAPPED;

    if (code != 0 || mapped)
        snprintf(out->error, sizeof out->error, "exit %d", code);
    if (mapped)
        out->verdict = (enum mqw_verdict)set->on_exit[code & 0xff];
    else if (code == 0)
        out->verdict = MQW_DONE;
    else if (code == EX_DATAERR)
        out->verdict = MQW_DEAD;
    else
        (void)verdict_no_command(out, code);
}

/* verdict_exit - exit status to verdict */
void verdict_exit(struct outcome *out, const struct settings *set,
                  const siginfo_t *info, bool stopped)
{
    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_RETRY;
    if (info->si_code == CLD_EXITED)
        by_code(out, set, info->si_status);
    else if (info->si_code == 0)
        snprintf(out->error, sizeof out->error, "exit unknown: waitid: %s",
                 errno_text(info->si_errno));
    else
        snprintf(out->error, sizeof out->error, "signal %d", info->si_status);
    if (stopped && out->verdict == MQW_RETRY)
        out->kind = OUTCOME_STOPPED;
}

/* verdict_timeout - whatever its exit status is */
void verdict_timeout(struct outcome *out, uint64_t limit_ns)
{
    char limit[DURATION_TEXT];

    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_RETRY;
    snprintf(out->error, sizeof out->error, "timeout %s",
             duration_print(limit_ns, limit));
}

/* verdict_cancelled - the word is that of a message that waited */
void verdict_cancelled(struct outcome *out)
{
    out->kind = OUTCOME_VERDICT;
    out->verdict = MQW_DISCARD;
    out->delayed = out->said = false;
    strlcpy(out->error, "cancelled", sizeof out->error);
}

bool verdict_is_cancelled(const struct outcome *out)
{
    return out->verdict == MQW_DISCARD && !out->said &&
           strcmp(out->error, "cancelled") == 0;
}
