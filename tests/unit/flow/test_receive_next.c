/* test_receive_next.c - which message a work item takes next from a source in
 * memory */
#include "tests/fixtures/flow_fixture.h"

#include <inttypes.h>

#include "worker/flow/recovery.h"
#include "worker/flow/limits.h"

static struct work_item *item;

static void setup(void)
{
    flow_settings();
    flow_open();
    item = flow_item();
}

static void teardown(void)
{
    flow_close();
}

TestSuite(receive_next, .init = setup, .fini = teardown);

/* Take the next message, which must be there, and begin its delivery. */
static struct fake_message *taken(void)
{
    int err = take_next(item);

    cr_assert_eq(err, TAKEN, "%d", err);
    item_delivery_begin(item, item->d);
    return fake_of(item->d->message);
}

static void next_is(const char *text)
{
    struct fake_message *x = taken();

    cr_assert_str_eq(x->text, text);
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(x->at, FAKE_GONE);
}

static void nothing_is_next(void)
{
    int err = take_next(item);

    cr_assert_eq(err, -EAGAIN, "%d", err);
}

Test(receive_next, fresh_ones_come_in_the_order_of_the_source)
{
    fake_give("a");
    fake_give("b");
    next_is("a");
    next_is("b");
    nothing_is_next();
    cr_assert_eq(fake.lent, 0);
}

Test(receive_next, due_ones_come_when_they_are_due)
{
    fake_store("later", clock_boot_ns() + NS_PER_S);
    fake_store("now", clock_boot_ns());
    next_is("now");
    nothing_is_next();
    flow_pass(2 * NS_PER_S);
    next_is("later");
}

Test(receive_next, groups_due_and_fresh_ones_take_turns)
{
    unsigned came[3] = {0}; /* of groups, due, fresh */
    char text[16];

    set.lookahead = 100;
    for (unsigned i = 0; i < 60; i++) {
        snprintf(text, sizeof text, "%u", i);
        fake_give(text);
        fake_store("due", clock_boot_ns());
        fake_group(fake_add("parked", FAKE_PARKED), "g");
    }
    cr_assert_eq(
        flow.source->local->groups(flow.source, dispatch_restore, &flow), 0);
    for (unsigned n = 1; n <= 60; n++) {
        struct fake_message *x = taken();

        came[x->group[0] ? 0 : x->m.flags & MESSAGE_STORED ? 1 : 2]++;
        flow_end(item, MQW_DONE, "");
        for (unsigned i = 0; i < 3; i++)
            cr_assert(came[i] + 1 >= n / 3 && came[i] <= n / 3 + 1,
                      "after %u: %u, %u, %u", n, came[0], came[1], came[2]);
    }
}

Test(receive_next, none_waits_for_a_turn_that_nobody_takes)
{
    fake_give("a");
    fake_give("b");
    fake_store("c", clock_boot_ns());
    for (unsigned i = 0; i < 3; i++) {
        taken();
        flow_end(item, MQW_DONE, "");
    }
    nothing_is_next();
}

Test(receive_next, what_the_last_worker_kept_comes_before_fresh_ones)
{
    for (unsigned i = 0; i < 6; i++) {
        fake_give("fresh");
        fake_store("kept", clock_boot_ns());
    }
    atomic_store(&flow.due_first, 4);
    for (unsigned i = 0; i < 4; i++)
        next_is("kept");
    cr_assert_eq(atomic_load(&flow.due_first), 0);
    taken(); /* in turns again: of two, one is fresh */
    flow_end(item, MQW_DONE, "");
    taken();
    cr_assert_eq(fake_in(FAKE_FRESH), 5);
}

Test(receive_next, kept_ones_that_are_not_there_keep_no_fresh_one_waiting)
{
    fake_give("fresh");
    atomic_store(&flow.due_first, 4);
    source_due_set(&fake.source, 1); /* the source says that some are due */
    next_is("fresh");
}

Test(receive_next, what_was_given_back_goes_before_all)
{
    struct fake_message *x;

    fake_give("a");
    fake_store("due", clock_boot_ns());
    x = taken();
    item->out = (struct outcome){.kind = OUTCOME_UNSENT};
    settle_outcome(&flow, item->d, &item->out);
    cr_assert_eq(x->at, FAKE_IS_LENT);
    cr_assert_eq(taken(), x);
    cr_assert_eq(x->runs, 2);
    cr_assert(!(x->m.flags & MESSAGE_REDELIVERED),
              "marked, but no handler had seen it");
}

Test(receive_next, a_full_store_stops_fresh_ones_only)
{
    set.max_waiting = 1;
    fake_give("fresh");
    fake_store("due", clock_boot_ns());
    fake_store("later", clock_boot_ns() + NS_PER_S);
    backlog_look(&flow);
    cr_assert_eq(gate_why(&flow.gate), WHY_WAITING);
    next_is("due");
    nothing_is_next();
    flow_pass(2 * NS_PER_S);
    next_is("later");
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO,
                 "held, but there is room again");
    next_is("fresh");
}

Test(receive_next, trouble_of_the_source_is_not_nothing)
{
    fake_give("a");
    fake.take_fails = -EIO;
    cr_assert_eq(take_next(item), -EIO);
    fake.take_fails = 0;
    next_is("a");
}

Test(receive_next, without_room_to_lend_nothing_is_lost)
{
    struct work_item *other = flow_item();
    char text[16];

    for (unsigned i = 0; i < FAKE_LENT + 2; i++) {
        snprintf(text, sizeof text, "%u", i);
        fake_give(text);
    }
    for (unsigned i = 0; i < FAKE_LENT; i++)
        cr_assert_eq(take_next(other), TAKEN); /* they run elsewhere */
    nothing_is_next();
    flow_end(other, MQW_DONE, ""); /* the last of them */
    next_is("16");
}

Test(receive_next, a_ticket_is_given_back_for_what_was_not_delivered)
{
    flow.run_limits.max_deliveries = 1;
    nothing_is_next();
    fake_give("MQW/1\nexpires: 1000000000000000000\n\nold");
    cr_assert_eq(take_next(item), TAKEN_NONE);
    fake_give("a");
    next_is("a");
    fake_give("b");
    nothing_is_next();
}

/* ---- what needs no handler ---- */

Test(receive_next, a_message_that_expired_is_a_dead_letter)
{
    struct fake_message *x =
        fake_give("MQW/1\nexpires: 1000000000000000000\n\nold");

    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(x->last.reason, REASON_EXPIRED);
    cr_assert_eq(x->runs, 0);
    cr_assert_null(x->last.attempt);
    cr_assert_eq(flow_numbers().expired, 1);
    x = fake_give("MQW/1\nexpires: 1000000000000000000\n\nseen");
    x->m.flags |= MESSAGE_REDELIVERED;
    x->m.failures = 1;
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(x->at, FAKE_DEAD, "an expired repeat is not a letter");
}

Test(receive_next, a_broken_header_is_a_dead_letter)
{
    struct fake_message *x = fake_give("MQW/1\nnonsense\n\nbody");

    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(x->last.reason, REASON_BAD_HEADER);
}

/* Give a message that is delayed by so many seconds. */
static struct fake_message *not_before(unsigned s)
{
    char text[128];

    snprintf(text, sizeof text, "MQW/1\nnot-before: %" PRIu64 "\n\nbody",
             clock_wall_ns() + s * NS_PER_S);
    return fake_give(text);
}

Test(receive_next, delayed_ones_go_back_in_one_commit_until_their_time)
{
    struct fake_message *x[5];

    for (unsigned i = 0; i < 5; i++) {
        x[i] = not_before(60 + i);
        cr_assert_eq(take_next(item), TAKEN_NONE);
        cr_assert_eq(x[i]->at, FAKE_IS_LENT,
                     "it was stored before the others came");
    }
    nothing_is_next();
    settle_later(item);
    cr_assert_eq(fake.commits, 1);
    cr_assert_eq(fake.releases, 5);
    for (unsigned i = 0; i < 5; i++) {
        cr_assert_eq(x[i]->at, FAKE_WAITS);
        cr_assert_eq(x[i]->m.failures, 0);
    }
    flow_pass(58 * NS_PER_S);
    item_read_clock(item);
    nothing_is_next();
    flow_pass(10 * NS_PER_S);
    for (unsigned i = 0; i < 5; i++)
        cr_assert_eq(taken(), x[i]);
}

Test(receive_next, many_delayed_ones_are_not_kept_for_ever)
{
    set.lookahead = 100;
    for (unsigned i = 0; i < SETTLE_LATER_MOST; i++) {
        not_before(60);
        cr_assert_eq(take_next(item), TAKEN_NONE);
    }
    cr_assert_eq(fake_in(FAKE_WAITS), SETTLE_LATER_MOST);
    cr_assert_eq(fake.commits, 1);
}

Test(receive_next, delayed_ones_that_the_disk_refuses_wait_as_verdicts_do)
{
    struct fake_message *x = not_before(60), *y = not_before(61);

    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(take_next(item), TAKEN_NONE);
    fake.refusals = 3;
    fake.refused = -ENOSPC;
    settle_later(item);
    cr_assert_eq(x->at, FAKE_IS_LENT);
    cr_assert_eq(unsettled_count(&flow.unsettled), 2);
    flow_pass(3 * NS_PER_S);
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_eq(y->at, FAKE_WAITS);
}

Test(receive_next, a_delay_that_is_too_long_is_a_dead_letter)
{
    struct fake_message *x;

    set.max_delay_ns = 30 * NS_PER_S;
    x = not_before(60);
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(x->last.reason, REASON_BAD_HEADER);
}

Test(receive_next, a_claim_that_is_gone_is_not_worth_a_run)
{
    struct fake_message *x = fake_give("a");
    struct message *m;

    cr_assert_eq(fake.ops.take(&fake.source, 0, 1, &m), 0);
    atomic_store(&m->stale, true);
    ready_put(&flow.ready, m, false);
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(x->at, FAKE_NOWHERE);
    cr_assert_eq(x->runs, 0);
    cr_assert_eq(atomic_load(&flow.stale), 1);
    next_is("a"); /* it comes again */
}

Test(receive_next, a_second_copy_of_a_letter_is_dropped)
{
    struct fake_message *x = fake_give("MQW/1\nletter: 7\n\nbody");

    fake.link = LINK_REPEAT;
    cr_assert_eq(take_next(item), TAKEN_NONE);
    cr_assert_eq(x->at, FAKE_GONE);
    cr_assert_eq(x->last.kind, SETTLE_DISCARD);
    cr_assert_eq(flow_numbers().discarded, 1);
}

/* ---- groups ---- */

Test(receive_next, of_a_group_one_runs_at_a_time)
{
    struct work_item *other = flow_item();
    struct fake_message *a = fake_give("g:1"), *b = fake_give("g:2"),
                        *c = fake_give("h:1");

    cr_assert_eq(taken(), a);
    cr_assert_eq(take_next(other), TAKEN);
    cr_assert_eq(fake_of(other->d->message), c, "another group waits as well");
    cr_assert_eq(take_next(other), -EAGAIN);
    cr_assert_eq(b->at, FAKE_IS_LENT, "b does not wait in its group");
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(taken(), b);
}

Test(receive_next, a_retry_keeps_its_group_waiting)
{
    struct fake_message *a = fake_give("g:1"), *b = fake_give("g:2");

    cr_assert_eq(taken(), a);
    flow_end(item, MQW_RETRY, "exit 1");
    nothing_is_next();
    cr_assert_eq(b->runs, 0);
    flow_pass(set.max_delay_ns < 3600 * NS_PER_S ? set.max_delay_ns
                                                 : 3600 * NS_PER_S);
    cr_assert_eq(taken(), a);
    cr_assert_eq(a->m.failures, 1);
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(taken(), b);
}

Test(receive_next, a_retry_that_is_due_while_its_group_is_leased_comes_soon)
{
    struct work_item *other = flow_item();
    struct fake_message *b;

    fake_give("g:1");
    cr_assert_eq(take_next(other), TAKEN);
    b = fake_group(fake_store("g:0", clock_boot_ns()), "g");
    b->m.failures = 1;
    nothing_is_next();
    cr_assert_eq(b->at, FAKE_WAITS, "b was not given back to the source");
    cr_assert_eq(b->last.kind, SETTLE_RETURN);
    cr_assert_eq(b->m.failures, 1, "giving back counts as a failure");
    cr_assert_eq(b->due_ns, clock_boot_ns() + NS_PER_MS);
    flow_end(other, MQW_DONE, "");
    flow_pass(2 * NS_PER_MS);
    cr_assert_eq(taken(), b);
}

Test(receive_next, what_was_parked_comes_in_order)
{
    struct fake_message *x[4];

    for (unsigned i = 0; i < 4; i++)
        x[i] = fake_group(fake_add("parked", FAKE_PARKED), "g");
    cr_assert_eq(
        flow.source->local->groups(flow.source, dispatch_restore, &flow), 0);
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(taken(), x[i]);
        flow_end(item, MQW_DONE, "");
    }
    nothing_is_next();
    cr_assert_eq(groups_count(flow.groups), 0);
}

Test(receive_next, behind_a_blocked_head_messages_are_parked_and_come_back)
{
    struct fake_message *head = fake_give("g:head"), *x[8];

    cr_assert_eq(taken(), head);
    flow_end(item, MQW_RETRY, "exit 1");
    for (unsigned i = 0; i < 8; i++)
        x[i] = fake_give("g:next");
    nothing_is_next();
    cr_assert_gt(fake_in(FAKE_PARKED), 0,
                 "none is parked, but the lookahead is 4");
    cr_assert_eq(fake_in(FAKE_FRESH), 0, "not all were taken");
    flow_pass(3600 * NS_PER_S);
    cr_assert_eq(taken(), head);
    flow_end(item, MQW_DONE, "");
    for (unsigned i = 0; i < 8; i++) {
        cr_assert_eq(taken(), x[i], "message %u", i);
        flow_end(item, MQW_DONE, "");
    }
}

Test(receive_next, a_full_lookahead_stops_fresh_ones)
{
    struct work_item *other = flow_item();

    fake_give("g:running");
    cr_assert_eq(take_next(other), TAKEN);
    for (unsigned i = 0; i < 8; i++)
        fake_give("g:next");
    nothing_is_next();
    cr_assert_eq(fake_in(FAKE_FRESH), 4, "the lookahead of 4 was not kept");
    flow_end(other, MQW_DONE, "");
    next_is("g:next");
}

/* ---- a source that cannot park messages ---- */

/* Make a group whose head failed, with seven behind it; return the head. */
static struct fake_message *blocked(struct fake_message *next[7])
{
    struct fake_message *head = fake_give("g:head");

    remote_source();
    cr_assert_eq(taken(), head);
    flow_end(item, MQW_RETRY, "exit 1");
    for (unsigned i = 0; i < 7; i++)
        next[i] = fake_give("g:next");
    return head;
}

Test(receive_next, where_nothing_can_be_parked_what_is_behind_a_head_stays_lent)
{
    struct fake_message *next[7], *head = blocked(next);

    nothing_is_next();
    cr_assert_eq(fake_in(FAKE_PARKED), 0);
    cr_assert_eq(fake_in(FAKE_IS_LENT), 4, "the lookahead of 4 was not kept");
    flow_pass(3600 * NS_PER_S);
    cr_assert_eq(taken(), head);
    flow_end(item, MQW_DONE, "");
    for (unsigned i = 0; i < 7; i++) {
        cr_assert_eq(taken(), next[i], "message %u", i);
        flow_end(item, MQW_DONE, "");
    }
}

Test(receive_next, where_nothing_can_be_parked_what_is_due_gets_in_line)
{
    struct fake_message *next[7], *late;

    (void)blocked(next);
    nothing_is_next();
    late = fake_group(fake_store("late", clock_boot_ns()), "g");
    nothing_is_next();
    cr_assert_eq(late->at, FAKE_IS_LENT);
    cr_assert_eq(fake_in(FAKE_PARKED), 0);
}

Test(receive_next, where_nothing_can_be_parked_a_priority_keeps_its_place)
{
    struct work_item *other = flow_item();

    remote_source();
    fake_give("g:running");
    cr_assert_eq(take_next(other), TAKEN);
    fake_give("g:first");
    fake_give("g:second")->m.priority = 9;
    nothing_is_next();
    flow_end(other, MQW_DONE, "");
    next_is("g:first");
    next_is("g:second");
}

static unsigned none_seized(struct handler *handler)
{
    (void)handler;
    return 0;
}

/* The last step of a plugin's worker: it keeps what is in slots. */
Test(receive_next, at_the_end_no_cancel_begins_and_one_at_work_is_waited_for)
{
    struct fake_message *x = fake_give("x");

    flow_handler.seize = none_seized;
    set.kill_after_ns = 0;
    cr_assert_eq(taken(), x);
    gate_leave(&flow.gate); /* the item of these tests */
    ready_put(&flow.ready, &x->m, false);
    atomic_fetch_add(&flow.items.others, 1);
    cr_assert_not(keep_quiet(&flow));
    atomic_fetch_sub(&flow.items.others, 1);
    cr_assert_eq(settle_cancel(&flow, (struct header_text){0}, x->m.seq),
                 -EAGAIN, "a cancel began at the end");
    cr_assert(keep_quiet(&flow));
    cr_assert_eq(x->at, FAKE_IS_LENT);
}
