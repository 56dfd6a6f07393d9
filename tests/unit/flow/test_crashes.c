/* test_crashes.c - messages under which the worker crashed: which are dead,
 * which run alone, and who waits for them */
#include "tests/fixtures/flow_fixture.h"

enum { MAX_CRASHES = 3 };

static struct work_item *item;

static void setup(void)
{
    flow_settings();
    set.max_crashes = MAX_CRASHES;
    flow_open();
    item = flow_item();
}

TestSuite(crashes, .init = setup, .fini = flow_close);

/* Add a message that has come again after so many crashes. */
static struct fake_message *crashed(const char *text, uint32_t crashes)
{
    struct fake_message *x = fake_give(text);

    x->m.crashes = crashes;
    return x;
}

static void runs(const struct fake_message *x)
{
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &x->m, "%s is not next", x->text);
    item_delivery_begin(item, item->d);
}

static void ends(enum mqw_verdict verdict)
{
    item->out = (struct outcome){
        .kind = OUTCOME_VERDICT, .verdict = verdict, .ran = true};
    item_delivery_end(item, item->d, 0);
}

static void another_runs(void)
{
    cr_assert(gate_enter(&flow.gate));
}

Test(crashes, a_message_with_crashes_to_spare_runs_beside_others)
{
    another_runs();
    runs(crashed("a", MAX_CRASHES - 2));
    cr_assert_gt(gate_room(&flow.gate), 1);
}

Test(crashes, a_suspect_keeps_others_from_starting_until_it_has_ended)
{
    runs(crashed("a", MAX_CRASHES - 1));
    cr_assert_eq(gate_room(&flow.gate), 1);
    cr_assert_eq(gate_why(&flow.gate), WHY_ALONE);
    cr_assert_eq(flow_told[GATE_WIDER], 0);
    ends(MQW_DONE);
    cr_assert_gt(gate_room(&flow.gate), 1);
    cr_assert_eq(flow_told[GATE_WIDER], 1);
}

Test(crashes, a_suspect_that_fails_lets_others_start_as_well)
{
    runs(crashed("a", MAX_CRASHES - 1));
    ends(MQW_RETRY);
    cr_assert_gt(gate_room(&flow.gate), 1);
}

Test(crashes, a_suspect_waits_for_those_that_run_and_comes_next)
{
    const struct fake_message *a = crashed("a", MAX_CRASHES - 1);

    another_runs();
    fake_give("b");
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(gate_room(&flow.gate), 1, "another one may start meanwhile");
    gate_leave(&flow.gate);
    runs(a);
}

Test(crashes, a_suspect_of_a_group_waits_as_the_first_of_its_group)
{
    struct fake_message *a = crashed("g:a", MAX_CRASHES - 1);
    int err;

    another_runs();
    fake_give("g:b");
    do
        err = take_next(item);
    while (err == TAKEN_NONE && gate_room(&flow.gate) != 1);
    cr_assert_eq(err, TAKEN_NONE);
    gate_leave(&flow.gate);
    runs(a);
    ends(MQW_DONE);
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_str_eq(fake_of(item->d->message)->text, "g:b");
}

Test(crashes, of_two_suspects_each_runs_alone)
{
    const struct fake_message *a = crashed("a", MAX_CRASHES - 1),
                              *b = crashed("b", MAX_CRASHES - 1);

    runs(a);
    ends(MQW_DONE);
    runs(b);
    cr_assert_eq(gate_room(&flow.gate), 1);
    ends(MQW_DONE);
    cr_assert_gt(gate_room(&flow.gate), 1);
}

Test(crashes, a_message_that_crashed_alone_too_often_is_dead)
{
    struct fake_message *a = crashed("a", MAX_CRASHES),
                        *b = crashed("b", MAX_CRASHES);

    a->m.flags |= MESSAGE_CRASHED_ALONE;
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(a->at, FAKE_DEAD);
    cr_assert_eq(a->last.reason, REASON_CRASHED);
    runs(b); /* it may not be the one to blame */
}

/* Fails if others wait for a cancelled suspect until nothing is due. */
Test(crashes, a_suspect_that_an_operator_cancels_lets_others_start)
{
    const struct fake_message *a = crashed("a", MAX_CRASHES - 1);

    another_runs();
    fake_store("due", 0);
    cr_assert_eq(take_next(item), TAKEN);
    ends(MQW_DONE);
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(gate_room(&flow.gate), 1);
    cr_assert_eq(settle_cancel(&flow, (struct header_text){0}, a->m.seq), 0);
    cr_assert_gt(gate_room(&flow.gate), 1);
}

Test(crashes, a_suspect_that_is_gone_keeps_nobody_waiting)
{
    enum why why;

    crashed("a", MAX_CRASHES - 1);
    another_runs();
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert(!item_must_leave(item, &why) || why == LEFT_OVER_CAP);
    ready_take(&flow.ready, 0); /* an operator cancels it */
    crashes_stuck(&flow);
    cr_assert_gt(gate_room(&flow.gate), 1);
}
