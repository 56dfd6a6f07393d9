/* test_settle_source.c - what each verdict and each failure of the source lead
 * to, for a source in memory and in virtual time */
#include "tests/fixtures/flow_fixture.h"

#define DELAY (7 * NS_PER_S)

static struct work_item *item;
static struct settlement told; /* by handler_ops.settled */
static unsigned tellings;

static void on_settled(struct handler *h, const struct settlement *s)
{
    (void)h;
    told = *s;
    tellings++;
}

static void setup(void)
{
    flow_settings();
    set.max_attempts = 3;
    set.retry_for_ns = UINT64_MAX;
    set.max_delay_ns = 60 * NS_PER_S;
    set.backoff = (struct backoff){.count = 1, .step_ns = {DELAY}};
    flow_open();
    flow_handler.settled = on_settled;
    flow.wants_settled = true;
    item = flow_item();
}

static void teardown(void)
{
    flow_close();
}

TestSuite(settle_source, .init = setup, .fini = teardown);

/* Give a message to a handler; return it. */
static struct fake_message *begun(const char *text)
{
    struct fake_message *x = fake_give(text);

    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &x->m);
    item_delivery_begin(item, item->d);
    return x;
}

/* ---- each verdict ---- */

Test(settle_source, done_is_gone)
{
    struct fake_message *x = begun("a");

    flow_end(item, MQW_DONE, "");
    cr_assert_eq(x->at, FAKE_GONE);
    cr_assert_eq(x->last.kind, SETTLE_DONE);
    cr_assert_eq(flow_numbers().done, 1);
    cr_assert_eq(tellings, 1);
    cr_assert_eq(told.verdict, MQW_DONE);
    cr_assert_eq(told.took_ns, NS_PER_MS);
}

Test(settle_source, discard_is_gone_and_counted_so)
{
    struct fake_message *x = begun("a");

    flow_end(item, MQW_DISCARD, "exit 9");
    cr_assert_eq(x->at, FAKE_GONE);
    cr_assert_eq(x->last.kind, SETTLE_DISCARD);
    cr_assert_eq(flow_numbers().discarded, 1);
    cr_assert_eq(told.verdict, MQW_DISCARD);
}

Test(settle_source, a_retry_waits_as_the_backoff_says)
{
    struct fake_message *x = begun("a");

    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_eq(x->m.failures, 1);
    cr_assert_eq(x->due_ns, clock_boot_ns() + DELAY);
    cr_assert_str_eq(x->error, "exit 1");
    cr_assert_eq(flow_numbers().retried, 1);
    cr_assert_eq(told.verdict, MQW_RETRY);
}

Test(settle_source, a_delay_of_the_handler_counts_up_to_the_most)
{
    struct fake_message *x = begun("a");

    item->out = (struct outcome){.verdict = MQW_RETRY,
                                 .ran = true,
                                 .delayed = true,
                                 .delay_ns = 30 * NS_PER_S};
    settle_outcome(&flow, item->d, &item->out);
    cr_assert_eq(x->due_ns, clock_boot_ns() + 30 * NS_PER_S);
    x = begun("b");
    item->out.delay_ns = UINT64_MAX;
    settle_outcome(&flow, item->d, &item->out);
    cr_assert_eq(x->due_ns, clock_boot_ns() + set.max_delay_ns);
}

/* Return the delay of a message that failed so often and asks for an hour. */
static uint64_t asks_for_an_hour(const char *text, uint32_t failures)
{
    struct fake_message *x = begun(text);

    x->m.failures = failures;
    item->out = (struct outcome){.verdict = MQW_RETRY,
                                 .ran = true,
                                 .delayed = true,
                                 .delay_ns = 3600 * NS_PER_S};
    settle_outcome(&flow, item->d, &item->out);
    return x->due_ns - clock_boot_ns();
}

/* For three attempts, a delay is the backoff and a third of what is left of 20
 * minutes. */
Test(settle_source, in_hand_runs_and_delays_end_within_20_minutes)
{
    uint64_t all = 1200 * NS_PER_S, sum;

    set.max_delay_ns = UINT64_MAX;
    set.timeout_ns = 100 * NS_PER_S;
    fake.ops.late = true;
    remote_source();
    sum = 3 * set.timeout_ns + asks_for_an_hour("g:1", 0) +
          asks_for_an_hour("h:1", 1);
    cr_assert_leq(sum, all);
    cr_assert_geq(sum, all - (all - 314 * NS_PER_S) / 3 - 1);
    set.max_timeout_ns = 300 * NS_PER_S; /* messages may ask for that much */
    sum = 3 * set.max_timeout_ns + asks_for_an_hour("i:1", 0) +
          asks_for_an_hour("j:1", 1);
    cr_assert_leq(sum, all);
    cr_assert_eq(asks_for_an_hour("no group", 0), 3600 * NS_PER_S);
}

Test(settle_source, the_last_attempt_that_fails_is_a_letter)
{
    struct fake_message *x = begun("a");

    x->m.failures = (uint32_t)set.max_attempts - 1;
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(x->last.reason, REASON_EXHAUSTED);
    cr_assert_eq(x->m.failures, set.max_attempts);
    cr_assert_gt(x->last.died_ns, 0);
    cr_assert_eq(flow_numbers().dead, 1);
    cr_assert_eq(told.verdict, MQW_DEAD);
}

Test(settle_source, so_is_one_that_was_tried_for_long_enough)
{
    struct fake_message *x;

    set.retry_for_ns = 100 * NS_PER_S;
    x = begun("a");
    flow_pass(99 * NS_PER_S);
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(x->at, FAKE_WAITS);
    flow_pass(DELAY);
    item_read_clock(item);
    cr_assert_eq(take_next(item), TAKEN);
    item_delivery_begin(item, item->d);
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(x->last.reason, REASON_EXHAUSTED);
}

Test(settle_source, dead_is_a_letter_at_once)
{
    struct fake_message *x = begun("a");

    flow_end(item, MQW_DEAD, "exit 65");
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(x->last.reason, REASON_REJECTED);
    cr_assert_eq(x->m.failures, 1);
}

Test(settle_source, what_was_not_started_is_first_in_line_again)
{
    struct fake_message *x = begun("a");

    fake_give("b");
    item->out = (struct outcome){.kind = OUTCOME_NOT_STARTED};
    settle_outcome(&flow, item->d, &item->out);
    cr_assert_eq(x->at, FAKE_IS_LENT);
    cr_assert(!x->running);
    cr_assert(!(x->m.flags & MESSAGE_REDELIVERED));
    cr_assert_eq(gate_why(&flow.gate), WHY_BREAKER);
    cr_assert_eq(ready_take(&flow.ready, 0), &x->m);
    cr_assert_eq(x->settled, 0);
}

Test(settle_source, so_it_is_in_its_group)
{
    struct fake_message *x = begun("g:1");

    fake_give("g:2");
    item->out = (struct outcome){.kind = OUTCOME_UNSENT};
    settle_outcome(&flow, item->d, &item->out);
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &x->m);
}

Test(settle_source, what_was_stopped_stays_lent_and_may_have_run)
{
    struct fake_message *x = begun("a");

    item->out = (struct outcome){.kind = OUTCOME_STOPPED, .ran = true};
    settle_outcome(&flow, item->d, &item->out);
    cr_assert_eq(x->at, FAKE_IS_LENT);
    cr_assert(x->m.flags & MESSAGE_REDELIVERED);
    cr_assert(ready_empty(&flow.ready), "it would run again");
    cr_assert_eq(x->m.failures, 0);
}

/* ---- the source refuses ---- */

static void refuse(unsigned times, int err)
{
    fake.refusals = times;
    fake.refused = err;
}

Test(settle_source, a_full_disk_stops_the_taking_until_the_verdict_is_written)
{
    struct fake_message *x = begun("a");

    refuse(1, -ENOSPC);
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(x->at, FAKE_IS_LENT);
    cr_assert(!x->running, "a kill now would count as a crash of its handler");
    cr_assert_eq(unsettled_count(&flow.unsettled), 1);
    cr_assert_eq(gate_why(&flow.gate), WHY_STORE);
    cr_assert_eq(tellings, 0, "it was told before it was written");
    cr_assert_eq(flow_numbers().retried, 0);
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_eq(x->m.failures, 1);
    cr_assert_str_eq(x->error, "exit 1");
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
    cr_assert_eq(flow_numbers().retried, 1);
    cr_assert_eq(tellings, 1);
}

/* Return the milliseconds until the source is asked again. */
static unsigned next_try(void)
{
    unsigned before = fake.commits, ms = 0;

    for (; fake.commits == before && ms < 60000; ms += 50)
        flow_pass(50 * NS_PER_MS);
    return ms;
}

Test(settle_source, the_wait_between_two_tries_doubles_up_to_five_seconds)
{
    static const unsigned waits[] = {1000, 2000, 4000, 5000, 5000};

    begun("a");
    refuse(100, -EIO);
    flow_end(item, MQW_DEAD, "exit 65");
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        unsigned ms = next_try();

        cr_assert(ms >= waits[i] - 50 && ms <= waits[i] + 100, "%zu: %u ms", i,
                  ms);
    }
    fake.refusals = 0;
}

Test(settle_source, every_verdict_survives_a_refusal)
{
    static const struct {
        enum mqw_verdict verdict;
        enum fake_at at;
    } all[] = {{MQW_DONE, FAKE_GONE},
               {MQW_DISCARD, FAKE_GONE},
               {MQW_RETRY, FAKE_WAITS},
               {MQW_DEAD, FAKE_DEAD}};

    for (size_t i = 0; i < 4; i++) {
        struct fake_message *x = begun("a");

        refuse(1, i % 2 ? -EIO : -ENOSPC);
        flow_end(item, all[i].verdict, "why");
        cr_assert_eq(x->at, FAKE_IS_LENT, "%zu", i);
        cr_assert_eq(unsettled_count(&flow.unsettled), 1);
        flow_pass(2 * NS_PER_S);
        cr_assert_eq(x->at, all[i].at, "%zu", i);
        cr_assert_eq(x->settled, 1);
        cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    }
}

Test(settle_source, those_that_wait_are_written_in_their_order)
{
    struct fake_message *x = begun("a"), *y;

    refuse(3, -ENOSPC);
    flow_end(item, MQW_DEAD, "1");
    gate_unhold(&flow.gate, HOLD_STORE); /* as if another still ran */
    y = begun("b");
    flow_end(item, MQW_DEAD, "2");
    flow_pass(NS_PER_S + 20 * NS_PER_MS); /* refused once more */
    cr_assert_eq(x->settled + y->settled, 0);
    fake.refusals = 0;
    flow_pass(2 * NS_PER_S + 20 * NS_PER_MS);
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(y->at, FAKE_DEAD);
    cr_assert_str_eq(y->error, "2");
    cr_assert_lt(x->order, y->order);
}

Test(settle_source, what_the_handler_wrote_is_kept_with_a_verdict_that_waits)
{
    struct fake_message *x = begun("a");

    refuse(1, -ENOSPC);
    item->out = (struct outcome){.verdict = MQW_DEAD,
                                 .ran = true,
                                 .error = "exit 65",
                                 .tail_size = 5,
                                 .tail = "words"};
    settle_outcome(&flow, item->d, &item->out);
    memset(&item->out, 'x', sizeof item->out); /* the next handler's */
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_str_eq(x->error, "exit 65");
    cr_assert_not_null(x->last.attempt);
    cr_assert_str_eq(x->tail, "words");
}

Test(settle_source, a_group_waits_for_a_verdict_that_is_not_written)
{
    struct fake_message *y;

    begun("g:1");
    y = fake_give("g:2");
    refuse(1, -ENOSPC);
    flow_end(item, MQW_DONE, "");
    gate_unhold(&flow.gate, HOLD_STORE);
    cr_assert_eq(take_next(item), -EAGAIN);
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &y->m);
}

Test(settle_source, the_end_tries_once_more)
{
    struct fake_message *x = begun("a");

    refuse(1, -ENOSPC);
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert(chore_quiet(&flow.unsettled.retry_chore));
    unsettled_fini(&flow);
    cr_assert_eq(x->at, FAKE_WAITS);
    unsettled_init(&flow);
}

/* A copy that the source refuses to drop is dropped later, and counted then. */
Test(settle_source, a_second_copy_of_a_letter_is_dropped_once_the_source_can)
{
    struct fake_message *x = begun("a");

    item->d->repeat = true;
    refuse(1, -EIO);
    settle_repeat(&flow, item->d);
    cr_assert_eq(flow_numbers().discarded, 0);
    cr_assert_eq(x->at, FAKE_IS_LENT);
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(flow_numbers().discarded, 1);
    cr_assert_eq(x->at, FAKE_GONE);
    cr_assert_eq(tellings, 0,
                 "told, but the message that has its id ends by itself");
}

/* ---- a claim is lost ---- */

Test(settle_source, a_verdict_on_a_claim_that_is_gone_is_in_vain)
{
    struct fake_message *x = begun("a");

    atomic_store(&x->m.stale, true);
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(x->at, FAKE_NOWHERE);
    cr_assert_eq(flow_numbers().done, 0, "it is counted as done");
    cr_assert_eq(tellings, 0);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(atomic_load(&flow.stale), 1);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
    cr_assert_eq(take_next(item), TAKEN, "it does not come again");
    cr_assert(item->d->message->flags & MESSAGE_REDELIVERED);
}

Test(settle_source, its_group_goes_on_with_the_next)
{
    struct fake_message *x = begun("g:1"), *y = fake_give("g:2");

    atomic_store(&x->m.stale, true);
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &y->m,
                 "y is not next, though the lost one has a new place");
    cr_assert_eq(x->m.failures, 0);
}

Test(settle_source, a_claim_that_goes_while_the_verdict_waits_ends_the_wait)
{
    struct fake_message *x = begun("a");

    refuse(1, -ENOSPC);
    flow_end(item, MQW_DONE, "");
    atomic_store(&x->m.stale, true);
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(x->at, FAKE_NOWHERE);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
}

/* ---- a source that settles late ---- */

static void settles_late(void)
{
    late_source();
    fake.late = true;
}

Test(settle_source, nothing_follows_before_the_source_says_so)
{
    struct fake_message *x = begun("a");

    settles_late();
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(x->at, FAKE_LATE);
    cr_assert_eq(unsettled_count(&flow.unsettled), 1,
                 "a stop would not wait for it");
    cr_assert_eq(tellings, 0);
    cr_assert_eq(flow_numbers().done, 0);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO, "others do not go on");
    fake_answer(x, 0);
    cr_assert_eq(x->at, FAKE_GONE);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(tellings, 1);
    cr_assert_eq(flow_numbers().done, 1);
}

Test(settle_source, an_answer_may_come_before_settle_returns)
{
    struct fake_message *x = begun("a");

    settles_late();
    fake.at_once = true;
    flow_end(item, MQW_DEAD, "exit 65");
    cr_assert_eq(x->at, FAKE_DEAD);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(tellings, 1);
}

Test(settle_source, a_source_that_may_be_late_may_also_answer_at_once)
{
    struct fake_message *x = begun("a");

    late_source();
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(x->at, FAKE_GONE);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(tellings, 1);
}

Test(settle_source, many_are_late_and_answered_in_any_order)
{
    struct fake_message *x[6];

    settles_late();
    for (unsigned i = 0; i < 6; i++) {
        x[i] = begun("a");
        flow_end(item, i % 2 ? MQW_DONE : MQW_RETRY, "why");
    }
    cr_assert_eq(unsettled_count(&flow.unsettled), 6);
    for (unsigned i = 0; i < 6; i++)
        fake_answer(x[(i * 5 + 3) % 6], 0);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(flow_numbers().done, 3);
    cr_assert_eq(flow_numbers().retried, 3);
}

Test(settle_source, a_group_waits_for_an_answer_that_is_late)
{
    struct fake_message *x = begun("g:1"), *y = fake_give("g:2");

    settles_late();
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(take_next(item), -EAGAIN, "the lease is over");
    cr_assert_eq(y->runs, 0);
    fake_answer(x, 0);
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &y->m);
}

Test(settle_source, a_late_retry_keeps_its_group_waiting_for_it)
{
    struct fake_message *x = begun("g:1"), *y = fake_give("g:2");

    settles_late();
    flow_end(item, MQW_RETRY, "exit 1");
    fake_answer(x, 0);
    cr_assert_eq(take_next(item), -EAGAIN);
    flow_pass(DELAY);
    item_read_clock(item);
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &x->m);
    cr_assert_eq(y->runs, 0);
}

Test(settle_source, a_retry_that_stays_in_hand_is_let_go_at_once)
{
    struct fake_message *x = begun("g:1");

    late_source();
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_eq(fake.releases, 1,
                 "not released, though its lane may run another for long");
}

Test(settle_source, a_late_refusal_is_tried_again)
{
    struct fake_message *x = begun("a");

    settles_late();
    flow_end(item, MQW_RETRY, "exit 1");
    fake_answer(x, -ENOSPC);
    cr_assert_eq(x->at, FAKE_IS_LENT);
    cr_assert_eq(gate_why(&flow.gate), WHY_STORE);
    flow_pass(2 * NS_PER_S);
    cr_assert_eq(x->at, FAKE_LATE, "it was not given again");
    fake_answer(x, 0);
    cr_assert_eq(x->at, FAKE_WAITS);
    cr_assert_eq(x->m.failures, 1);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
}

Test(settle_source, a_claim_may_be_lost_while_it_is_settled)
{
    struct fake_message *x = begun("g:1"), *y = fake_give("g:2");

    settles_late();
    flow_end(item, MQW_DONE, "");
    fake_answer(x, -ESTALE);
    cr_assert_eq(flow_numbers().done, 0);
    cr_assert_eq(tellings, 0);
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &y->m);
}

/* ---- what it means for the gate ---- */

Test(settle_source, failures_in_a_row_open_the_breaker_and_a_success_closes_it)
{
    teardown();
    flow_settings();
    set.breaker_failures = 2;
    set.breaker_pause_ns = 10 * NS_PER_S;
    flow_open();
    item = flow_item();
    begun("a");
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO);
    begun("b");
    flow_end(item, MQW_RETRY, "exit 1");
    cr_assert_eq(gate_why(&flow.gate), WHY_BREAKER);
    flow_pass(11 * NS_PER_S);
    cr_assert_eq(gate_why(&flow.gate), WHY_NOT_SO, "no probe may run");
    item_read_clock(item);
    cr_assert_eq(take_next(item), TAKEN);
    item_delivery_begin(item, item->d);
    flow_end(item, MQW_DISCARD, "");
    cr_assert_eq(breaker_state(&flow.gate.breaker), BREAKER_CLOSED);
}

Test(settle_source, a_message_that_comes_twice_is_two_messages)
{
    struct fake_message *x = begun("a"), *y;

    y = fake_again(x);
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(item->d->message, &y->m);
    item_delivery_begin(item, item->d);
    flow_end(item, MQW_DONE, "");
    cr_assert_eq(flow_numbers().done, 2);
}
