/* test_backlog.c - how much may wait in the source before no more is taken */
#include "tests/fixtures/flow_fixture.h"

#include "worker/flow/limits.h"

static void setup(void)
{
    flow_settings();
    set.max_waiting = 16;
    flow_open();
}

static void teardown(void)
{
    flow_close();
}

TestSuite(backlog, .init = setup, .fini = teardown);

/* Let n messages wait in the source, and look once. */
static void waits(unsigned n)
{
    while (fake_count(&fake.source, COUNT_BACKLOG) < n)
        fake_store("a", UINT64_MAX);
    for (unsigned i = 0; fake_count(&fake.source, COUNT_BACKLOG) > n; i++)
        fake.all[i].at = FAKE_GONE;
    backlog_look(&flow);
}

Test(backlog, it_is_full_at_the_bound_and_not_before)
{
    waits(15);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
    waits(16);
    cr_assert_eq(gate_why(&flow.gate), WHY_WAITING);
    waits(15);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
}

Test(backlog, it_is_told_once_until_there_is_room_again)
{
    waits(16);
    cr_assert(atomic_load(&flow.backlog_full));
    waits(15);
    cr_assert(atomic_load(&flow.backlog_full),
              "one message less ends it: it would be told again and again");
    waits(16);
    waits(1);
    cr_assert(!atomic_load(&flow.backlog_full));
}

Test(backlog, what_is_about_to_wait_counts)
{
    waits(10);
    cr_assert(!backlog_fills(&flow, 5));
    cr_assert(backlog_fills(&flow, 6));
}

Test(backlog, a_bound_that_is_raised_lets_go)
{
    waits(20);
    cr_assert_eq(gate_why(&flow.gate), WHY_WAITING);
    set.max_waiting = 100;
    backlog_look(&flow);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
}

Test(backlog, before_the_run_nothing_is_held)
{
    flow.started = false;
    waits(100);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
}
