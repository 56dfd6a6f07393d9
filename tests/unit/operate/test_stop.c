/* test_stop.c - the ladder of a stop, in virtual time: grace, SIGTERM, then
 * SIGKILL */
#include "tests/fixtures/flow_parts.h"
#include "tests/fixtures/virtual_clock.h"

#include <criterion/criterion.h>
#include <signal.h>

#include "worker/operate/halt.h"

#define GRACE      (20 * NS_PER_S)
#define KILL_AFTER (5 * NS_PER_S)

static struct stop stop;
static int sent[8]; /* signals to the handlers */
static unsigned count, lasts;

static void on_stop(struct handler *h, int signal)
{
    (void)h;
    cr_assert_lt(count, 8);
    sent[count++] = signal;
}

static unsigned on_seize(struct handler *h)
{
    (void)h;
    return 0;
}

static const struct handler_ops processes = {.name = "processes",
                                             .stop = on_stop};
static const struct handler_ops threads = {
    .name = "threads", .within = true, .stop = on_stop, .seize = on_seize};

static void on_last(void *arg)
{
    cr_assert_eq(arg, &stop);
    lasts++;
}

static void setup(void)
{
    set = (struct settings){.queue = "/q",
                            .concurrency = 2,
                            .grace_ns = GRACE,
                            .kill_after_ns = KILL_AFTER};
    flow_parts_open(&(struct flow_parts){.ops = &processes, .lent_most = 1});
    stop_init(&stop, &flow, on_last, &stop);
    cr_assert(gate_enter(&flow.gate)); /* a handler runs */
}

TestSuite(stop, .init = setup, .fini = flow_parts_close);

/* Check that no signal comes for so long, less two milliseconds. */
static void nothing_until(uint64_t ns)
{
    unsigned before = count;

    virtual_pass(flow.timers, ns - 2 * NS_PER_MS);
    cr_assert_eq(count, before, "signal %d came too early", sent[before]);
}

/* Check that this signal comes within 10 ms. */
static void then(int signal)
{
    unsigned before = count;

    virtual_pass(flow.timers, 10 * NS_PER_MS);
    cr_assert_eq(count, before + 1);
    cr_assert_eq(sent[before], signal);
}

Test(stop, grace_then_term_then_kill)
{
    stop_worker(&stop, SIGTERM);
    cr_assert_eq(gate_why(&flow.gate), WHY_STOPPING);
    nothing_until(GRACE);
    then(SIGTERM);
    nothing_until(KILL_AFTER - 8 * NS_PER_MS);
    then(SIGKILL);
    cr_assert_eq(lasts, 0, "on_last was called, but processes are waited for");
}

Test(stop, sigkill_is_the_end_of_the_ladder)
{
    stop_worker(&stop, SIGTERM);
    virtual_pass(flow.timers, GRACE + KILL_AFTER + NS_PER_S);
    cr_assert_eq(count, 2);
    virtual_pass(flow.timers, 10 * KILL_AFTER);
    cr_assert_eq(count, 2, "a signal after SIGKILL");
}

Test(stop, a_second_signal_skips_the_rest_of_the_grace)
{
    stop_worker(&stop, SIGTERM);
    virtual_pass(flow.timers, NS_PER_S);
    stop_worker(&stop, SIGTERM);
    then(SIGTERM);
    nothing_until(KILL_AFTER - 8 * NS_PER_MS);
    then(SIGKILL);
}

Test(stop, a_third_signal_skips_the_rest_of_the_time_to_clean_up)
{
    stop_worker(&stop, SIGINT);
    stop_worker(&stop, SIGINT);
    then(SIGTERM);
    stop_worker(&stop, SIGINT);
    then(SIGKILL);
}

Test(stop, quit_kills_processes_at_once)
{
    stop_worker(&stop, SIGQUIT);
    cr_assert_eq(count, 1);
    cr_assert_eq(sent[0], SIGKILL);
    cr_assert_eq(lasts, 0);
}

Test(stop, threads_that_do_not_end_end_with_the_process)
{
    flow.ops = &threads;
    stop_worker(&stop, SIGTERM);
    nothing_until(GRACE);
    then(SIGTERM);
    cr_assert_eq(lasts, 0, "a C function has not got its time");
    nothing_until(KILL_AFTER - 8 * NS_PER_MS);
    then(SIGKILL);
    cr_assert_eq(lasts, 1);
}

Test(stop, quit_ends_the_process_in_the_next_round)
{
    flow.ops = &threads;
    stop_worker(&stop, SIGQUIT);
    cr_assert_eq(count, 0, "signalled before the order could be answered");
    then(SIGKILL);
    cr_assert_eq(lasts, 1);
}

Test(stop, without_a_grace_they_are_ended_at_once)
{
    set.grace_ns = 0;
    stop_worker(&stop, SIGTERM);
    then(SIGTERM);
}
