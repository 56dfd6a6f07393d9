/* test_coprocess_state.c - the table of a coprocess, in virtual time
 *
 * The child is fake: what is done to it is written down. The tests hold the
 * table against properties of all its cells, and walk its ladders.
 */
#include "tests/fixtures/virtual_clock.h"

#include <criterion/criterion.h>
#include <setjmp.h>
#include <signal.h>

#include "common/base/log.h"
#include "worker/handlers/coprocess.h"

#define KILL_AFTER (5 * NS_PER_S)

static struct settings set = {.kill_after_ns = KILL_AFTER};
static struct stream stream = {.set = &set};
static struct coprocess l;
static int sent[4];
static unsigned signals, closed, unfed;
static jmp_buf on_panic;

/* ---- in place of process.c, coprocess.c and log.c ---- */

void child_signal(struct child *c, int sig)
{
    cr_assert_eq(c, &l.child);
    cr_assert_lt(signals, 4);
    sent[signals++] = sig;
}

void coprocess_drop_fd(struct coprocess *of, int *fd)
{
    cr_assert_eq(of, &l);
    cr_assert_eq(fd, &l.child.in);
    *fd = -1;
    closed++;
}

void coprocess_unfeed(struct coprocess *of)
{
    cr_assert_eq(of, &l);
    unfed++;
}

void panic(const char *fmt, ...)
{
    cr_assert_not_null(fmt);
    longjmp(on_panic, 1);
}

static void in(enum coprocess_state state)
{
    l = (struct coprocess){.stream = &stream,
                           .state = state,
                           .until_ns = UINT64_MAX,
                           .child = {.pid = 1, .in = 7}};
    signals = closed = unfed = 0;
    atomic_store(&stream.signal, 0);
}

TestSuite(coprocess_state);

/* Do a step; return false if the table says that it cannot be. */
static bool step(enum coprocess_event event)
{
    if (setjmp(on_panic))
        return false;
    coprocess_step(&l, event);
    return true;
}

/* Check that the state's time ends after `ns`, and let it pass. */
static void after(uint64_t ns)
{
    cr_assert_eq(l.until_ns, clock_mono_ns() + ns, "state %d", (int)l.state);
    atomic_fetch_add(&virtual_ns, ns);
    cr_assert(step(COPROCESS_DUE));
}

Test(coprocess_state, a_child_that_leaves_has_its_time_then_term_then_kill)
{
    in(COPROCESS_EMPTY);
    cr_assert(step(COPROCESS_STARTED));
    cr_assert_eq(l.until_ns, UINT64_MAX, "a running child has a time limit");
    cr_assert(step(COPROCESS_LEAVE));
    cr_assert_eq(l.state, COPROCESS_DRAINING);
    cr_assert_eq(closed, 1, "its input was not closed");
    cr_assert_eq(signals, 0);
    after(KILL_AFTER);
    cr_assert_eq(l.state, COPROCESS_TERMINATING);
    cr_assert_eq(signals, 1);
    cr_assert_eq(sent[0], SIGTERM);
    cr_assert_eq(l.kill_at_ns, clock_mono_ns() + KILL_AFTER,
                 "what it leaves behind has another limit");
    after(KILL_AFTER);
    cr_assert_eq(l.state, COPROCESS_KILLED);
    cr_assert_eq(signals, 2);
    cr_assert_eq(sent[1], SIGKILL);
    cr_assert_eq(l.until_ns, UINT64_MAX, "a killed child has a time limit");
    cr_assert(step(COPROCESS_EXIT));
    cr_assert(step(COPROCESS_REAPED));
    cr_assert_eq(l.state, COPROCESS_BACKOFF);
    cr_assert(step(COPROCESS_DUE));
    cr_assert_eq(l.state, COPROCESS_EMPTY);
}

Test(coprocess_state, one_that_closed_a_pipe_has_a_second_to_end)
{
    in(COPROCESS_RUNS);
    cr_assert(step(COPROCESS_SHUTS));
    cr_assert_eq(l.until_ns, clock_mono_ns() + NS_PER_S);
    atomic_fetch_add(&virtual_ns, NS_PER_MS);
    cr_assert(step(COPROCESS_SHUTS));
    cr_assert_eq(l.until_ns, clock_mono_ns() + NS_PER_S - NS_PER_MS,
                 "the second pipe gives it another second");
    cr_assert(coprocess_works(&l));
    cr_assert(!coprocess_feeds(&l));
}

Test(coprocess_state, the_workers_stop_has_sent_its_signal_itself)
{
    in(COPROCESS_RUNS);
    atomic_store(&stream.signal_ns, clock_mono_ns());
    atomic_store(&stream.signal, SIGTERM);
    atomic_fetch_add(&virtual_ns, NS_PER_S);
    cr_assert(step(COPROCESS_END));
    cr_assert_eq(signals, 0);
    cr_assert_eq(l.until_ns, clock_mono_ns() - NS_PER_S + KILL_AFTER,
                 "the time does not count from the signal");
    after(KILL_AFTER - NS_PER_S);
    cr_assert_eq(sent[0], SIGKILL);
}

Test(coprocess_state, whatever_lives_ends_and_is_reaped_once_it_has_ended)
{
    unsigned lives = 0;

    for (int s = COPROCESS_EMPTY; s < COPROCESS_STATES; s++) {
        in((enum coprocess_state)s);
        if (!coprocess_lives(&l))
            continue;
        lives++;
        cr_assert(step(COPROCESS_END), "state %d", s);
        cr_assert(l.state == COPROCESS_TERMINATING ||
                      l.state == COPROCESS_KILLED,
                  "state %d", s);
        in((enum coprocess_state)s);
        cr_assert(step(COPROCESS_EXIT));
        cr_assert_eq(l.state, COPROCESS_ZOMBIE);
        cr_assert(!coprocess_lives(&l));
        cr_assert(step(COPROCESS_REAPED));
    }
    cr_assert_eq(lives, 6);
}

Test(coprocess_state, only_a_child_that_has_ended_is_reaped)
{
    for (int s = COPROCESS_EMPTY; s < COPROCESS_STATES; s++) {
        in((enum coprocess_state)s);
        cr_assert_eq(step(COPROCESS_REAPED), s == COPROCESS_ZOMBIE, "state %d",
                     s);
        in((enum coprocess_state)s);
        cr_assert_eq(step(COPROCESS_EXIT),
                     coprocess_lives(&(struct coprocess){
                         .state = (enum coprocess_state)s}));
        in((enum coprocess_state)s);
        cr_assert_eq(step(COPROCESS_STARTED), s == COPROCESS_EMPTY,
                     "a second child in state %d", s);
    }
}

/* Return the state after an event; NOWHERE if it cannot be. */
static enum coprocess_state from(int state, int event)
{
    in((enum coprocess_state)state);
    return step((enum coprocess_event)event) ? l.state : COPROCESS_NOWHERE;
}

Test(coprocess_state, no_event_makes_a_child_work_again)
{
    for (int s = COPROCESS_EMPTY; s < COPROCESS_STATES; s++)
        for (int e = 0; e < COPROCESS_EVENTS; e++) {
            bool fed, worked, lived;
            enum coprocess_state to;

            in((enum coprocess_state)s);
            fed = coprocess_feeds(&l);
            worked = coprocess_works(&l);
            lived = coprocess_lives(&l);
            cr_assert(lived || !worked);
            cr_assert(worked || !fed);
            to = from(s, e);
            if (to == COPROCESS_NOWHERE || e == COPROCESS_STARTED)
                continue;
            cr_assert(lived || !coprocess_lives(&l), "%d %d", s, e);
            cr_assert(worked || !coprocess_works(&l), "%d %d", s, e);
            cr_assert(fed || !coprocess_feeds(&l), "%d %d", s, e);
            cr_assert_eq(unfed, fed && !coprocess_feeds(&l),
                         "what is pending is not dropped once: %d %d", s, e);
        }
}

Test(coprocess_state, staying_in_a_state_is_no_second_signal)
{
    in(COPROCESS_RUNS);
    cr_assert(step(COPROCESS_END));
    cr_assert(step(COPROCESS_END));
    cr_assert(step(COPROCESS_LEAVE));
    cr_assert_eq(signals, 1);
    after(KILL_AFTER);
    cr_assert(step(COPROCESS_END));
    cr_assert_eq(signals, 2);
}

Test(coprocess_state, each_state_can_be_left)
{
    for (int s = COPROCESS_EMPTY; s < COPROCESS_STATES; s++) {
        unsigned ways = 0;

        for (int e = 0; e < COPROCESS_EVENTS; e++) {
            enum coprocess_state to = from(s, e);

            ways += to != COPROCESS_NOWHERE && to != (enum coprocess_state)s;
        }
        cr_assert_gt(ways, 0, "state %d", s);
    }
}
