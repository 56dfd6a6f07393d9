/* steer_tell.c - see steer_tell.h */
#include "scripts/mqctl/steer/steer_tell.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/safe_text.h"
#include "common/text/complain.h"
#include "common/text/json_line.h"
#include "common/text/term.h"

/* of - "2 are", "1 is" */
#define IS(n) (n), (n) == 1 ? "is" : "are"
#define S(n)  (n), (n) == 1 ? "s" : ""

/* waits_tell - of run-now: those that cannot be due sooner; `due`: rows that
 * were, by the clock that counts */
static void waits_tell(const struct steered_sums *n, const struct messages *m,
                       uint64_t due)
{
    const uint64_t *at = n->waits;
    uint64_t ready = at[WAITING_READY] + due;

    if (at[WAITING_RUNNING])
        complain(0, "%" PRIu64 " run%s already, in flight",
                 S(at[WAITING_RUNNING]));
    if (ready)
        complain(0, "%" PRIu64 " %s due already; %s", IS(ready),
                 m->runs ? "mqctl status says why nothing is taken, if it "
                           "does not run soon"
                         : "start a worker");
    if (at[WAITING_SPOOLED])
        complain(0,
                 "%" PRIu64 " in the spool: each runs when those before it "
                 "have; a delayed one of a group waits for its time after "
                 "that: run-now once list has it as delayed",
                 at[WAITING_SPOOLED]);
    if (at[WAITING_PARKED])
        complain(0,
                 "%" PRIu64 " wait%s behind the head of a group; mqctl groups "
                 "%s names it: run-now or cancel that",
                 S(at[WAITING_PARKED]), SHELL_QUEUE(m->queue));
    if (at[WAITING_HELD])
        complain(0,
                 "%" PRIu64 " wait%s for a dead letter of a group; mqctl group "
                 "%s KEY release lets the group go on without it",
                 S(at[WAITING_HELD]), SHELL_QUEUE(m->queue));
}

/* runs_tell - of cancel: what a handler has */
static void runs_tell(uint64_t n, const struct messages *m, bool running)
{
    if (running)
        complain(0, "%" PRIu64 " in flight, left alone; give the order again",
                 n);
    else if (m->runs)
        complain(0,
                 "%" PRIu64 " in flight, left alone, as a handler has %s; end "
                 "it with --running",
                 n, n == 1 ? "it" : "them");
    else
        complain(0,
                 "%" PRIu64
                 " in flight, left alone, as a handler of the killed worker "
                 "may still be at work; with --running %s cancelled, and the "
                 "next start ends that handler",
                 n, n == 1 ? "it is" : "they are");
}

/* flight_tell - of cancel: what is in a slot, or on its way */
static void flight_tell(const struct steered_sums *n, const struct messages *m,
                        const struct options *o)
{
    uint64_t all = n->result[WAITING_IN_FLIGHT];
    uint64_t moving = all - n->runs - n->letters;

    if (n->runs)
        runs_tell(n->runs, m, o->running);
    if (n->letters)
        complain(0,
                 "%" PRIu64 " in flight %s a letter that was sent again; mqdlq "
                 "list --replayed %s has its number, mqdlq discard ends it",
                 IS(n->letters), SHELL_QUEUE(m->queue));
    if (moving)
        complain(0,
                 "%" PRIu64 " in flight to a handler or to the store just now, "
                 "left alone; give the order again",
                 moving);
}

/* others_tell - those that were not steered, and what to do */
static void others_tell(const struct steered_sums *n, const struct messages *m,
                        const struct options *o)
{
    bool cancel = o->line.verb == VERB_CANCEL;
    uint64_t before = n->result[WAITING_NOT_SO];

    for (int i = 0; !cancel && i < WAITING_STATES; i++)
        before -= i == WAITING_RUNNING ? 0 : n->waits[i];
    if (!cancel)
        waits_tell(n, m, before);
    else if (before)
        complain(0, "%" PRIu64 " cancelled already", before);
    if (n->result[WAITING_GONE] > n->told_gone)
        complain(0, "%" PRIu64 " finished in the meantime",
                 n->result[WAITING_GONE] - n->told_gone);
    if (cancel)
        flight_tell(n, m, o);
    if (n->unended && !o->dry_run)
        complain(0,
                 "%" PRIu64 " run%s still, or failed meanwhile; see mqctl "
                 "list, and cancel again",
                 S(n->unended));
    if (n->spooled)
        complain(0,
                 "%" PRIu64 " in the spool, left alone: the killed worker has "
                 "run them, or may have; start the next one, and cancel again "
                 "what is listed then",
                 n->spooled);
    if (n->blind && n->result[WAITING_STEERED])
        complain(0, "the file of the messages in flight is gone: unless the "
                    "machine was restarted since, a handler of the last worker "
                    "may be at work on a message that was cancelled");
}

void steered_tell(const struct steered_sums *n, const struct messages *m,
                  const struct options *o)
{
    bool cancel = o->line.verb == VERB_CANCEL;
    uint64_t done = n->result[WAITING_STEERED];

    if (o->dry_run)
        done = n->chosen - n->result[WAITING_IN_FLIGHT] -
               n->result[WAITING_NOT_SO] - n->result[WAITING_GONE];
    if (o->json) {
        if (json_print_line(
                json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "queue",
                          json_printable(m->queue), "chosen",
                          (json_int_t)n->chosen, "done",
                          (json_int_t)n->result[WAITING_STEERED], "already",
                          (json_int_t)n->result[WAITING_NOT_SO], "gone",
                          (json_int_t)n->result[WAITING_GONE], "in_flight",
                          (json_int_t)n->result[WAITING_IN_FLIGHT], "spooled",
                          (json_int_t)n->spooled, "dry_run", o->dry_run),
                stdout) < 0)
            complain_memory();
        return;
    }
    if (!o->quiet)
        printf("%s: %" PRIu64 " of %" PRIu64 " message%s %s%s\n", m->queue,
               done, n->chosen, term_plural(n->chosen),
               o->dry_run ? "would be " : "", cancel ? "cancelled" : "due now");
    others_tell(n, m, o);
}
