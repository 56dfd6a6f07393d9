/* lane_state.c - what a lane is in, and what takes it on
 *
 * docs/lifecycle.md has the drawing. The lane's own thread looks at the time of
 * a state, and at the time limits of messages, as it waits in epoll anyway: a
 * timer of the timer service would cost a lock at each message, and what it
 * decides would have to be agreed upon by two threads.
 */
#include "worker/handlers/lane_inner.h"

#include <signal.h>

#include "common/base/clock.h"
#include "common/base/panic.h"

/* How long a child that closed a pipe may take to end. One that is just ending
 * closes all it has, and its exit status is yet to come. */
#define SHUT_NS NS_PER_S

/* ---- what is done on the way into a state ---- */

static void shut(struct lane *l)
{
    l->until_ns = ns_add(clock_mono_ns(), SHUT_NS);
}

/* leave - the end of its input; what it still says is not read as answers */
static void leave(struct lane *l)
{
    lane_unwatch(l, l->child.in);
    child_close(&l->child.in);
    l->until_ns = ns_add(clock_mono_ns(), l->stream->set->kill_after_ns);
}

/* lane_term - the worker's own stop has sent its signal itself */
void lane_term(struct lane *l)
{
    uint64_t from = clock_mono_ns();

    if (lane_stops(l))
        from = atomic_load(&l->stream->signal_ns);
    else
        child_signal(&l->child, SIGTERM);
    l->kill_at_ns = ns_add(from, l->stream->set->kill_after_ns);
}

static void term(struct lane *l)
{
    lane_term(l);
    l->until_ns = l->kill_at_ns;
}

static void kill_now(struct lane *l)
{
    child_signal(&l->child, SIGKILL);
}

/* ---- the table ---- */

enum {
    LIVES = 1 << 0, /* there is a child that has not ended */
    WORKS = 1 << 1, /* and that was not told to */
    FEEDS = 1 << 2, /* what it was sent goes on into its input */
};

struct row {
    const char *name;
    unsigned is;
    void (*enter)(struct lane *l);   /* NULL: nothing to do */
    enum lane_state on[LANE_EVENTS]; /* NOWHERE: cannot happen */
};

static const struct row rows[LANE_STATES] = {
    [LANE_EMPTY] =
        {.name = "empty",
         .on = {[LANE_STARTED] = LANE_RUNS, [LANE_END] = LANE_EMPTY}},
    [LANE_RESTS] = {.name = "rests",
                    .on = {[LANE_DUE] = LANE_EMPTY, [LANE_END] = LANE_RESTS}},
    [LANE_RUNS] = {.name = "runs",
                   .is = LIVES | WORKS | FEEDS,
                   .on = {[LANE_IS_FULL] = LANE_SPENT,
                          [LANE_SHUTS] = LANE_CLOSED,
                          [LANE_LEAVE] = LANE_LEAVES,
                          [LANE_END] = LANE_TERMED,
                          [LANE_EXIT] = LANE_ENDED}},
    [LANE_SPENT] = {.name = "spent",
                    .is = LIVES | WORKS | FEEDS,
                    .on = {[LANE_SHUTS] = LANE_CLOSED,
                           [LANE_LEAVE] = LANE_LEAVES,
                           [LANE_END] = LANE_TERMED,
                           [LANE_EXIT] = LANE_ENDED}},
    [LANE_CLOSED] = {.name = "closed",
                     .is = LIVES | WORKS,
                     .enter = shut,
                     .on = {[LANE_SHUTS] = LANE_CLOSED,
                            [LANE_LEAVE] = LANE_CLOSED,
                            [LANE_END] = LANE_TERMED,
                            [LANE_EXIT] = LANE_ENDED}},
    [LANE_LEAVES] = {.name = "leaves",
                     .is = LIVES,
                     .enter = leave,
                     .on = {[LANE_SHUTS] = LANE_LEAVES,
                            [LANE_LEAVE] = LANE_LEAVES,
                            [LANE_END] = LANE_TERMED,
                            [LANE_DUE] = LANE_TERMED,
                            [LANE_EXIT] = LANE_ENDED}},
    [LANE_TERMED] = {.name = "termed",
                     .is = LIVES,
                     .enter = term,
                     .on = {[LANE_SHUTS] = LANE_TERMED,
                            [LANE_LEAVE] = LANE_TERMED,
                            [LANE_END] = LANE_TERMED,
                            [LANE_DUE] = LANE_KILLED,
                            [LANE_EXIT] = LANE_ENDED}},
    [LANE_KILLED] = {.name = "killed",
                     .is = LIVES,
                     .enter = kill_now,
                     .on = {[LANE_SHUTS] = LANE_KILLED,
                            [LANE_LEAVE] = LANE_KILLED,
                            [LANE_END] = LANE_KILLED,
                            [LANE_EXIT] = LANE_ENDED}},
    [LANE_ENDED] = {.name = "ended",
                    .on = {[LANE_SHUTS] = LANE_ENDED,
                           [LANE_LEAVE] = LANE_ENDED,
                           [LANE_END] = LANE_ENDED,
                           [LANE_BURIED] = LANE_RESTS}},
};

static const char *const event_names[LANE_EVENTS] = {
    [LANE_STARTED] = "started", [LANE_IS_FULL] = "full",
    [LANE_SHUTS] = "shuts",     [LANE_LEAVE] = "leave",
    [LANE_END] = "end",         [LANE_DUE] = "due",
    [LANE_EXIT] = "exit",       [LANE_BURIED] = "buried",
};

/* lane_step - to the state of the table; staying in one is no step */
void lane_step(struct lane *l, enum lane_event event)
{
    enum lane_state next = rows[l->state].on[event];

    if (next == LANE_NOWHERE)
        panic("lane %s: event %s cannot be", rows[l->state].name,
              event_names[event]);
    if (next == l->state)
        return;
    if (rows[l->state].is & ~rows[next].is & FEEDS)
        lane_unfeed(l);
    l->state = next;
    l->until_ns = UINT64_MAX;
    if (rows[next].enter)
        rows[next].enter(l);
}

bool lane_feeds(const struct lane *l)
{
    return rows[l->state].is & FEEDS;
}

bool lane_lives(const struct lane *l)
{
    return rows[l->state].is & LIVES;
}

bool lane_works(const struct lane *l)
{
    return rows[l->state].is & WORKS;
}
