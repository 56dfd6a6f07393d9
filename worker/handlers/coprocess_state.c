/* coprocess_state.c - the states of a coprocess, and the events that change
 * them
 *
 * docs/design/machines.md has a table. The coprocess's own thread keeps the
 * time of a state and the time limits of messages, because it waits in epoll
 * anyway. A timer of the timer service would cost a lock at each message, and
 * two threads would have to agree on what it decides.
 */
#include "worker/handlers/coprocess.h"

#include <signal.h>

#include "common/base/clock.h"
#include "common/base/log.h"

/* How long a child that closed a pipe may take to end. An exiting child closes
 * all its descriptors before its exit status is there. */
#define SHUT_NS NS_PER_S

/* Send SIGTERM and start --kill-after. A worker that is stopping has sent its
 * signal already: send no other, and count from that signal. */
void coprocess_term(struct coprocess *l)
{
    uint64_t from = clock_mono_ns();

    if (coprocess_stops(l))
        from = atomic_load(&l->stream->signal_ns);
    else
        child_signal(&l->child, SIGTERM);
    l->kill_at_ns = ns_add(from, l->stream->set->kill_after_ns);
}

/* ---- the table ---- */

enum {
    LIVES = 1 << 0, /* there is a child that has not ended */
    WORKS = 1 << 1, /* the worker is not ending that child */
    FEEDS = 1 << 2, /* pending output is written to that child */
};

struct row {
    const char *name;
    unsigned is;
    enum coprocess_state on[COPROCESS_EVENTS]; /* NOWHERE: cannot happen */
};

static const struct row rows[COPROCESS_STATES] = {
    [COPROCESS_EMPTY] = {.name = "empty",
                         .on = {[COPROCESS_STARTED] = COPROCESS_RUNS,
                                [COPROCESS_END] = COPROCESS_EMPTY}},
    [COPROCESS_BACKOFF] = {.name = "backoff",
                           .on = {[COPROCESS_DUE] = COPROCESS_EMPTY,
                                  [COPROCESS_END] = COPROCESS_BACKOFF}},
    [COPROCESS_RUNS] = {.name = "runs",
                        .is = LIVES | WORKS | FEEDS,
                        .on = {[COPROCESS_IS_FULL] = COPROCESS_RETIRING,
                               [COPROCESS_SHUTS] = COPROCESS_CLOSED,
                               [COPROCESS_LEAVE] = COPROCESS_DRAINING,
                               [COPROCESS_END] = COPROCESS_TERMINATING,
                               [COPROCESS_EXIT] = COPROCESS_ZOMBIE}},
    [COPROCESS_RETIRING] = {.name = "retiring",
                            .is = LIVES | WORKS | FEEDS,
                            .on = {[COPROCESS_SHUTS] = COPROCESS_CLOSED,
                                   [COPROCESS_LEAVE] = COPROCESS_DRAINING,
                                   [COPROCESS_END] = COPROCESS_TERMINATING,
                                   [COPROCESS_EXIT] = COPROCESS_ZOMBIE}},
    [COPROCESS_CLOSED] = {.name = "closed",
                          .is = LIVES | WORKS,
                          .on = {[COPROCESS_SHUTS] = COPROCESS_CLOSED,
                                 [COPROCESS_LEAVE] = COPROCESS_CLOSED,
                                 [COPROCESS_END] = COPROCESS_TERMINATING,
                                 [COPROCESS_EXIT] = COPROCESS_ZOMBIE}},
    [COPROCESS_DRAINING] = {.name = "draining",
                            .is = LIVES,
                            .on = {[COPROCESS_SHUTS] = COPROCESS_DRAINING,
                                   [COPROCESS_LEAVE] = COPROCESS_DRAINING,
                                   [COPROCESS_END] = COPROCESS_TERMINATING,
                                   [COPROCESS_DUE] = COPROCESS_TERMINATING,
                                   [COPROCESS_EXIT] = COPROCESS_ZOMBIE}},
    [COPROCESS_TERMINATING] = {.name = "terminating",
                               .is = LIVES,
                               .on = {[COPROCESS_SHUTS] = COPROCESS_TERMINATING,
                                      [COPROCESS_LEAVE] = COPROCESS_TERMINATING,
                                      [COPROCESS_END] = COPROCESS_TERMINATING,
                                      [COPROCESS_DUE] = COPROCESS_KILLED,
                                      [COPROCESS_EXIT] = COPROCESS_ZOMBIE}},
    [COPROCESS_KILLED] = {.name = "killed",
                          .is = LIVES,
                          .on = {[COPROCESS_SHUTS] = COPROCESS_KILLED,
                                 [COPROCESS_LEAVE] = COPROCESS_KILLED,
                                 [COPROCESS_END] = COPROCESS_KILLED,
                                 [COPROCESS_EXIT] = COPROCESS_ZOMBIE}},
    [COPROCESS_ZOMBIE] = {.name = "zombie",
                          .on = {[COPROCESS_SHUTS] = COPROCESS_ZOMBIE,
                                 [COPROCESS_LEAVE] = COPROCESS_ZOMBIE,
                                 [COPROCESS_END] = COPROCESS_ZOMBIE,
                                 [COPROCESS_REAPED] = COPROCESS_BACKOFF}},
};

static const char *const event_names[COPROCESS_EVENTS] = {
    [COPROCESS_STARTED] = "started", [COPROCESS_IS_FULL] = "full",
    [COPROCESS_SHUTS] = "shuts",     [COPROCESS_LEAVE] = "leave",
    [COPROCESS_END] = "end",         [COPROCESS_DUE] = "due",
    [COPROCESS_EXIT] = "exit",       [COPROCESS_REAPED] = "reaped",
};

void coprocess_step(struct coprocess *l, enum coprocess_event event)
{
    enum coprocess_state next = rows[l->state].on[event];

    if (next == COPROCESS_NOWHERE)
        panic("coprocess %s: event %s cannot be", rows[l->state].name,
              event_names[event]);
    if (next == l->state)
        return;
    if (rows[l->state].is & ~rows[next].is & FEEDS)
        coprocess_unfeed(l);
    l->state = next;
    l->until_ns = UINT64_MAX;
    if (next == COPROCESS_CLOSED) {
        l->until_ns = ns_add(clock_mono_ns(), SHUT_NS);
    } else if (next == COPROCESS_DRAINING) {
        /* Close stdin: the child exits, and what it still writes is ignored. */
        coprocess_drop_fd(l, &l->child.in);
        l->until_ns = ns_add(clock_mono_ns(), l->stream->set->kill_after_ns);
    } else if (next == COPROCESS_TERMINATING) {
        coprocess_term(l);
        l->until_ns = l->kill_at_ns;
    } else if (next == COPROCESS_KILLED) {
        child_signal(&l->child, SIGKILL);
    }
}

bool coprocess_feeds(const struct coprocess *l)
{
    return rows[l->state].is & FEEDS;
}

bool coprocess_lives(const struct coprocess *l)
{
    return rows[l->state].is & LIVES;
}

bool coprocess_works(const struct coprocess *l)
{
    return rows[l->state].is & WORKS;
}
