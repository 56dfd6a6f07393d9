/* coprocess_end.c - how a coprocess's child ends, and what becomes of what it
 * had open
 *
 * A message that was sent comes back from coprocess_next once: answered, or
 * lost with its child. One that was lost comes back only when nothing is left
 * of the child and of what it started, so that nothing of it can be in the way
 * of the next attempt. One of which no byte reached the child comes back at
 * once, as if it had never been sent.
 *
 * A crash of the worker at any point of this: the slot of a message that was
 * sent reads RUNNING and names the child, by its mark since before its first
 * byte went into the pipe. So the next worker ends that child before the
 * message runs again.
 */
#include "worker/handlers/coprocess_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <bsd/string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/process/leftovers.h"
#include "worker/rules/verdict.h"

#define BACKOFF_FIRST (100 * NS_PER_MS)
#define BACKOFF_MOST  (10 * NS_PER_S)
#define QUOTED        256 /* of a line, for the log */

void coprocess_fault(struct coprocess *l, const char *what,
                     const struct header_text *line)
{
    size_t size = line && line->size < QUOTED ? line->size : QUOTED;

    if (line)
        log_warn("stream_protocol", F_INT("pid", l->child.pid),
                 F_STR("what", what), F_BYTES("line", line->at, size),
                 F_UINT("open", l->count),
                 F_STR("next", "the child is ended, and what it has open "
                               "counts as failed"));
    else
        log_warn("stream_protocol", F_INT("pid", l->child.pid),
                 F_STR("what", what), F_UINT("open", l->count),
                 F_STR("next", "the child is ended, and what it has open "
                               "counts as failed"));
    if (!l->cause[0])
        strlcpy(l->cause, what, sizeof l->cause);
    l->why = what;
    coprocess_unwatch(l, l->child.out);
    child_close(&l->child.out);
    l->input.begin = l->input.end = 0;
    coprocess_step(l, COPROCESS_END);
}

struct delivery *coprocess_take_out(struct coprocess *l, struct open_message *m)
{
    TAILQ_REMOVE(&l->open, m, link);
    TAILQ_INSERT_HEAD(&l->spare, m, link);
    l->count--;
    if (m->deadline_ns != UINT64_MAX)
        l->limited--;
    return m->d;
}

/* ---- the end of a child ---- */

/* sweep - nothing of it is left
 * Where we ended it, or it left messages behind: those may run again soon. What
 * a child that ended well by itself leaves in the background goes on.
 */
static void sweep(struct coprocess *l)
{
    struct child *c = &l->child;

    if (!l->kill_at_ns)
        coprocess_term(l);

    struct leftovers_of of = {.group = c->pid,
                              .end = -1,
                              .seq = c->mark,
                              .kill_at_ns = l->kill_at_ns,
                              .stderr_fd = c->err,
                              .tail = &l->tail,
                              .known = l->stream->ended,
                              .known_count = l->stream->ended_count};

    leftovers_end(l->stream->leftovers, &of);
}

/* how_it_ended - as an error of a message */
static void how_it_ended(const siginfo_t *how, bool known,
                         char text[OUTCOME_ERROR])
{
    if (!known)
        strlcpy(text, "exit unknown", OUTCOME_ERROR);
    else
        snprintf(text, OUTCOME_ERROR, "%s %d",
                 how->si_code == CLD_EXITED ? "exit" : "signal",
                 how->si_status);
}

/* judge - what becomes of what it had open */
static void judge(struct coprocess *l, const siginfo_t *how, bool known)
{
    struct outcome none = {0};
    char why[COMMAND_WHY];

    l->kind = coprocess_stops(l) ? OUTCOME_STOPPED : OUTCOME_VERDICT;
    if (!l->cause[0])
        how_it_ended(how, known, l->cause);
    if (l->kind == OUTCOME_STOPPED || l->why || l->answered || !known ||
        how->si_code != CLD_EXITED ||
        !verdict_no_command(&none, how->si_status))
        return;
    l->kind = OUTCOME_NOT_STARTED;
    strlcpy(l->cause, none.error, sizeof l->cause);
    if (command_fault(&l->stream->command, why))
        snprintf(l->cause, sizeof l->cause, "exit %d: %s", how->si_status, why);
}

/* backoff - how long until the next one may be started */
static uint64_t backoff(struct coprocess *l, bool well)
{
    uint64_t wait = BACKOFF_FIRST;

    if (l->recycled || (well && l->answered && l->count == 0 && !l->why))
        return 0;
    for (unsigned i = 0; i < l->failures && wait < BACKOFF_MOST; i++)
        wait *= 2;
    l->failures++;
    return wait < BACKOFF_MOST ? wait : BACKOFF_MOST;
}

/* level_of - the level of the log line: a planned replacement is debug, however
 * often it happens */
static enum log_level level_of(const struct coprocess *l, bool well,
                               uint64_t wait)
{
    if (l->recycled && well)
        return LOG_DEBUG;
    return coprocess_stops(l) || (wait == 0 && l->count == 0) ? LOG_INFO
                                                              : LOG_WARN;
}

/* tell - the end of a child, in one line */
static void tell(const struct coprocess *l, pid_t pid, const char *how,
                 enum log_level level, uint64_t wait)
{
    size_t unread = l->input.end - l->input.begin;
    const char *rest = l->input.bytes + l->input.begin;

    LOG_AT(level, "stream_child_ended", F_INT("pid", pid), F_STR("how", how),
           F_STR("why", l->why), F_UINT("answered", l->answered),
           F_UINT("open", l->count),
           F_BYTES("unfinished", unread ? rest : NULL,
                   unread < QUOTED ? unread : QUOTED),
           F_DURATION("again_in", wait));
}

void coprocess_reap(struct coprocess *l)
{
    struct child *c = &l->child;
    pid_t pid = c->pid;
    char text[OUTCOME_ERROR];
    bool known, well;
    uint64_t wait;
    siginfo_t how;

    if (c->err >= 0)
        stderr_tail_drain(coprocess_tail(l), c->err);
    if (l->why || l->count || coprocess_stops(l))
        sweep(l);
    stderr_tail_finish(&l->tail);
    coprocess_unwatch_all(l);
    known = child_reap(c, &how);
    well = known && how.si_code == CLD_EXITED && how.si_status == 0;
    how_it_ended(&how, known, text);
    judge(l, &how, known);
    wait = backoff(l, well);
    tell(l, pid, text, level_of(l, well, wait), wait);
    l->input.begin = l->input.end = 0;
    coprocess_step(l, COPROCESS_REAPED);
    l->until_ns = ns_add(clock_mono_ns(), wait);
}

/* ---- what it had open ---- */

/* unsent - nothing of it reached the child; the newest first, as each goes back
 * to the front */
static struct delivery *unsent(struct coprocess *l, struct outcome *out)
{
    struct open_message *m = TAILQ_LAST(&l->open, open_list);

    if (m->at != OPEN_NEVER &&
        (coprocess_feeds(l) || m->at < l->output.written))
        return NULL;
    out->kind = OUTCOME_UNSENT;
    out->ran = m->cancelled;
    out->said = false;
    out->error[0] = '\0';
    out->tail_size = 0;
    if (m->cancelled)
        verdict_cancelled(out);
    return coprocess_take_out(l, m);
}

/* failed - the oldest of those that it had when it ended; the newest, if they
 * go back to the front */
static struct delivery *failed(struct coprocess *l, struct outcome *out)
{
    struct open_message *m = l->kind == OUTCOME_NOT_STARTED
                                 ? TAILQ_LAST(&l->open, open_list)
                                 : TAILQ_FIRST(&l->open);

    out->kind = l->kind;
    out->verdict = MQW_RETRY;
    out->ran = true;
    out->delayed = false;
    strlcpy(out->error, l->cause, sizeof out->error);
    stderr_tail_copy(&l->tail, out);
    if (m->late)
        verdict_timeout(out, m->limit_ns);
    if (m->cancelled)
        verdict_cancelled(out);
    return coprocess_take_out(l, m);
}

struct delivery *coprocess_lost(struct coprocess *l, struct outcome *out)
{
    struct delivery *d;

    if (l->count == 0)
        return NULL;
    d = unsent(l, out);
    if (!d && (l->state == COPROCESS_BACKOFF || l->state == COPROCESS_EMPTY))
        d = failed(l, out);
    return d;
}
