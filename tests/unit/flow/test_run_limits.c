/* test_run_limits.c - runs that end by themselves, in virtual time */
#include "tests/fixtures/flow_fixture.h"

#include <sysexits.h>

#define RUN_FOR (100 * NS_PER_S)
#define IDLE    (10 * NS_PER_S)

static struct work_item *item; /* an item that has entered the gate */

/* Prepare the settings. The test sets a limit, then calls `begin`. */
static void setup(void)
{
    flow_settings();
    set.estimated_duration_ns = 2 * NS_PER_S;
    set.tolerance_factor = 5;
}

/* Begin a run with nothing to do. */
static void begin(void)
{
    flow_open();
    run_limits_busy(&flow);
    run_limits_left(&flow);
}

static void teardown(void)
{
    flow_close();
}

TestSuite(run_limits, .init = setup, .fini = teardown);

static bool over(const char *why)
{
    const char *is = atomic_load(&flow.gate.why);

    return is && strcmp(is, why) == 0;
}

/* Let a work item enter with a message. */
static void enters(void)
{
    item = flow_item();
    run_limits_busy(&flow);
}

/* Let the item's handler end after took_ns, with no more work. */
static void leaves(uint64_t took_ns)
{
    run_limits_busy(&flow);
    counters_add(&item->count->ended, 1);
    counters_add(&item->count->took_ns, took_ns);
    if (counters_get(&item->count->longest_ns) < took_ns)
        counters_put(&item->count->longest_ns, took_ns);
    items_put(&flow.items, item);
    gate_leave(&flow.gate);
    run_limits_left(&flow);
}

/* ---- --run-for ---- */

Test(run_limits, nothing_is_taken_that_could_run_past_the_end)
{
    set.run_for_ns = RUN_FOR;
    begin();
    cr_assert(run_limits_take(&flow));
    flow_pass(89 * NS_PER_S); /* the margin is 5 times 2 s */
    cr_assert(run_limits_take(&flow));
    flow_pass(2 * NS_PER_S);
    cr_assert(!run_limits_take(&flow));
    cr_assert(over("run-for"));
    cr_assert_eq(atomic_load(&flow.gate.status), 0);
}

Test(run_limits, an_empty_queue_is_waited_on_until_the_margin_begins)
{
    set.run_for_ns = RUN_FOR;
    begin();
    flow_pass(89 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    flow_pass(2 * NS_PER_S);
    cr_assert(over("run-for"), "it ends only when somebody takes");
}

Test(run_limits, the_margin_is_that_of_the_handlers_that_ran)
{
    set.run_for_ns = RUN_FOR;
    begin();
    enters();
    leaves(NS_PER_S / 10); /* the margin is 5 times 0.1 s from here on */
    flow_pass(99 * NS_PER_S);
    cr_assert(run_limits_take(&flow));
    cr_assert_null(atomic_load(&flow.gate.why));
    flow_pass(NS_PER_S);
    cr_assert(over("run-for"));
}

Test(run_limits, a_handler_that_took_longer_widens_the_margin)
{
    set.run_for_ns = RUN_FOR;
    begin();
    enters();
    leaves(10 * NS_PER_S);
    cr_assert(run_limits_take(&flow));
    flow_pass(51 * NS_PER_S);
    cr_assert(!run_limits_take(&flow));
    cr_assert(over("run-for"));
}

/* ---- --max-deliveries ---- */

Test(run_limits, as_many_as_are_allowed_and_not_one_more)
{
    set.max_deliveries = 2;
    begin();
    cr_assert(run_limits_take(&flow));
    cr_assert(run_limits_take(&flow));
    cr_assert(!run_limits_take(&flow));
    cr_assert(gate_held(&flow.gate, HOLD_BOUND), "open, but no ticket is left");
    cr_assert_null(atomic_load(&flow.gate.why), "over, but two may come back");
}

Test(run_limits, what_was_not_delivered_does_not_count)
{
    set.max_deliveries = 1;
    begin();
    cr_assert(run_limits_take(&flow));
    cr_assert(!run_limits_take(&flow));
    run_limits_untake(&flow);
    cr_assert(!gate_held(&flow.gate, HOLD_BOUND), "held, but one may be taken");
    cr_assert(run_limits_take(&flow));
}

Test(run_limits, the_run_is_over_when_the_last_of_them_has_left)
{
    set.max_deliveries = 1;
    begin();
    cr_assert(gate_enter(&flow.gate));
    cr_assert(gate_enter(&flow.gate));
    cr_assert(run_limits_take(&flow));
    gate_leave(&flow.gate);
    run_limits_left(&flow);
    cr_assert_null(atomic_load(&flow.gate.why), "over, but one runs");
    gate_leave(&flow.gate);
    run_limits_left(&flow);
    cr_assert(over("max-deliveries"));
}

/* ---- --exit-when-idle ---- */

static void begin_idle(void)
{
    set.exit_when_idle = true;
    set.exit_when_idle_ns = IDLE;
    begin();
}

Test(run_limits, it_ends_when_it_was_idle_for_so_long)
{
    begin_idle();
    flow_pass(9 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    flow_pass(2 * NS_PER_S);
    cr_assert(over("idle"));
}

Test(run_limits, the_time_counts_from_the_last_message)
{
    begin_idle();
    flow_pass(8 * NS_PER_S);
    enters();
    flow_pass(60 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why), "over, but a handler runs");
    leaves(60 * NS_PER_S);
    flow_pass(9 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    flow_pass(2 * NS_PER_S);
    cr_assert(over("idle"));
}

Test(run_limits, work_that_came_while_the_timer_ran_counts)
{
    begin_idle();
    flow_pass(5 * NS_PER_S);
    run_limits_busy(&flow); /* it went to its group, and nobody left */
    flow_pass(8 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    flow_pass(3 * NS_PER_S);
    cr_assert(over("idle"));
}

Test(run_limits, a_message_in_the_queue_is_work)
{
    begin_idle();
    fake_give("x");
    flow_pass(60 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
}

Test(run_limits, a_message_that_another_consumer_takes_is_no_work_any_more)
{
    struct fake_message *x;

    begin_idle();
    x = fake_give("x");
    flow_pass(60 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    x->at = FAKE_GONE;
    flow_pass(2 * NS_PER_S);
    cr_assert(over("idle"));
}

/* A broker's source counts fresh messages only when is_due is called. */
static int counted;

static int64_t fresh_counted(struct source *s, enum source_count what)
{
    return what == COUNT_FRESH ? counted : fake_count(s, what);
}

static int due_counts(struct source *s)
{
    (void)s;
    counted = 0;
    return NO;
}

Test(run_limits, an_old_count_of_what_is_fresh_keeps_no_run_alive)
{
    begin_idle();
    counted = 5;
    fake.ops.count = fresh_counted;
    fake.ops.is_due = due_counts;
    flow_pass(IDLE + NS_PER_S);
    cr_assert(over("idle"));
}

Test(run_limits, a_retry_in_an_hour_is_the_next_runs)
{
    begin_idle();
    fake_store("later", clock_boot_ns() + 3600 * NS_PER_S);
    flow_pass(11 * NS_PER_S);
    cr_assert(over("idle"));
}

Test(run_limits, one_that_is_due_is_work)
{
    begin_idle();
    fake_store("now", clock_boot_ns());
    flow_pass(60 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
}

Test(run_limits, a_verdict_that_is_not_written_is_work)
{
    begin_idle();
    fake_give("a");
    item = flow_item();
    cr_assert_eq(take_next(item), TAKEN);
    item_delivery_begin(item, item->d);
    fake.refusals = 1000;
    fake.refused = -ENOSPC;
    flow_end(item, MQW_DISCARD, "");
    leaves(NS_PER_S);
    flow_pass(60 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    fake.refusals = 0;
    flow_pass(20 * NS_PER_S);
    cr_assert(over("idle"));
}

Test(run_limits, a_source_that_cannot_be_read_ends_the_run_after_some_looks)
{
    begin_idle();
    fake.due = -EIO;
    flow_pass(IDLE + 3 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why), "the trouble may go by");
    flow_pass(3 * NS_PER_S);
    cr_assert(over("store-unreadable"));
    cr_assert_eq(atomic_load(&flow.gate.status), EX_CANTCREAT);
}

Test(run_limits, one_that_is_busy_does_not)
{
    begin_idle();
    fake.due = -EBUSY;
    flow_pass(100 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    fake.due = 0;
    flow_pass(3 * NS_PER_S);
    cr_assert(over("idle"));
    cr_assert_eq(atomic_load(&flow.gate.status), 0);
}

Test(run_limits, a_look_that_works_forgets_those_that_failed)
{
    begin_idle();
    fake.due = -EIO;
    flow_pass(IDLE + 3 * NS_PER_S);
    fake.due = 0;
    fake_store("now", clock_boot_ns());
    flow_pass(3 * NS_PER_S);
    cr_assert_eq(flow.run_limits.unread, 0);
}

Test(run_limits, no_bound_costs_nothing_and_ends_nothing)
{
    begin();
    for (unsigned i = 0; i < 100; i++)
        cr_assert(run_limits_take(&flow));
    enters();
    leaves(1);
    flow_pass(100000 * NS_PER_S);
    cr_assert_null(atomic_load(&flow.gate.why));
    cr_assert_eq(atomic_load(&flow.run_limits.tickets), 0);
}
