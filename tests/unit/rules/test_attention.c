/* test_attention.c - each reason sets its bit of the word, and takes it back
 *
 * What an item does with the word is in test_receive_next, test_schedule and
 * the tests of each reason. That no bit is lost between threads is
 * stress_attention's.
 */
#include "tests/fixtures/flow_fixture.h"

#include "worker/groups/groups.h"

TestSuite(attention, .init = flow_open, .fini = flow_close);

static unsigned bits(void)
{
    return attention_look(&flow.gate.attention);
}

/* Clear the bit for due rows, which may be set at first. */
static void none(void)
{
    source_due_set(&fake.source, 1);
    source_due_clear(&fake.source, 1);
}

Test(attention, nothing_is_to_be_asked_at_first)
{
    none();
    cr_assert_eq(bits(), 0);
}

Test(attention, a_hold_is_a_bit_as_long_as_any_is_on)
{
    none();
    gate_hold(&flow.gate, HOLD_PAUSE);
    gate_hold(&flow.gate, HOLD_WAITING);
    cr_assert_eq(bits(), ATTEND_HOLD);
    gate_unhold(&flow.gate, HOLD_PAUSE);
    cr_assert_eq(bits(), ATTEND_HOLD);
    gate_unhold(&flow.gate, HOLD_WAITING);
    cr_assert_eq(bits(), 0);
}

Test(attention, company_and_a_cap_that_fell_are_bits_until_one_leaves)
{
    none();
    gate_set_cap(&flow.gate, 2);
    cr_assert(gate_enter(&flow.gate));
    cr_assert_eq(bits(), 0);
    cr_assert(gate_enter(&flow.gate));
    cr_assert_eq(bits(), ATTEND_OTHERS);
    gate_set_cap(&flow.gate, 1);
    cr_assert_eq(bits(), ATTEND_OTHERS | ATTEND_CAP);
    cr_assert(gate_leave_over(&flow.gate, 1));
    cr_assert_eq(bits(), 0);
    gate_leave(&flow.gate);
    cr_assert_eq(bits(), 0);
}

Test(attention, a_suspect_is_a_bit_until_it_has_ended)
{
    none();
    gate_set_cap(&flow.gate, 2);
    gate_run_alone(&flow.gate, 1);
    cr_assert_eq(bits(), ATTEND_SUSPECT);
    cr_assert_eq(gate_room(&flow.gate), 1);
    gate_run_together(&flow.gate, 2);
    cr_assert_eq(bits(), ATTEND_SUSPECT, "another's end let others run");
    gate_run_together(&flow.gate, 1);
    cr_assert_eq(gate_room(&flow.gate), 2);
    cr_assert_eq(bits(), 0);
}

Test(attention, a_breaker_that_counts_or_is_open_is_a_bit)
{
    none();
    gate_tune_breaker(&flow.gate, 3, NS_PER_S);
    cr_assert_eq(bits(), ATTEND_BREAKER);
    gate_tune_breaker(&flow.gate, 0, NS_PER_S);
    cr_assert_eq(bits(), 0);
    gate_breaker(&flow.gate, BREAKER_NOT_STARTED, "no such file");
    cr_assert_eq(bits(), ATTEND_BREAKER);
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(breaker_state(&flow.gate.breaker), BREAKER_PROBING);
    cr_assert_eq(bits(), ATTEND_BREAKER);
    gate_breaker(&flow.gate, BREAKER_GOOD, NULL);
    cr_assert_eq(bits(), 0);
}

Test(attention, held_messages_are_a_bit_until_the_last_is_taken)
{
    struct message a = {.seq = 1}, b = {.seq = 2};

    none();
    ready_put(&flow.ready, &a, false);
    ready_put(&flow.ready, &b, false);
    (void)ready_take(&flow.ready, 0);
    cr_assert_eq(bits(), ATTEND_READY);
    (void)ready_take(&flow.ready, 0);
    cr_assert_eq(bits(), 0);
}

Test(attention, what_is_due_is_a_bit_and_a_row_that_comes_meanwhile_stays_one)
{
    none();
    source_due_set(&fake.source, 1);
    cr_assert_eq(bits(), ATTEND_DUE);
    source_due_set(&fake.source, 2); /* while somebody asks the store */
    source_due_clear(&fake.source, 1);
    cr_assert_eq(bits(), ATTEND_DUE);
    source_due_clear(&fake.source, 2);
    cr_assert_eq(bits(), 0);
}

Test(attention, a_group_is_a_bit_while_one_waits_is_parked_or_may_run)
{
    struct groups *g;
    struct group_item one = {.seq = 1}, two = {.seq = 2};
    struct attention word = {0};
    struct group *lease;

    cr_assert_eq(groups_open(&g, 10, false, &word), 0);
    cr_assert_eq(groups_pass(g, "a", 1, 0, &lease), 0);
    cr_assert_eq(attention_look(&word), 0, "a bit, but it runs at once");
    cr_assert_eq(groups_add(g, "a", 1, &one), 0);
    cr_assert_eq(attention_look(&word), ATTEND_GROUP, "no bit, but one waits");
    cr_assert(groups_release(g, lease));
    lease = groups_lease(g);
    groups_take(g, lease, groups_peek(g, lease), 0);
    cr_assert_eq(attention_look(&word), 0);
    cr_assert(groups_release(g, lease));
    cr_assert_eq(attention_look(&word), 0);
    cr_assert_eq(groups_add(g, "b", 1, &two), 0);
    cr_assert_eq(attention_look(&word), ATTEND_GROUP, "no bit, but it may run");
    groups_close(&g);
}
