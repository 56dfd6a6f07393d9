/* test_settle.c - what each verdict leaves in the store, the slot and the
 * numbers: flow with source_mq behind it */
#include "tests/fixtures/mq_fixture.h"

#include <errno.h>

#include "worker/flow/settle.h"

enum { SLOTS = 4 };

#define DELAY (7 * NS_PER_S)

static struct slot *slot;
static struct delivery d;
static struct outcome out;

/* Put a message into a slot, and begin its run. */
static void setup(void)
{
    set = (struct settings){.queue = "/q",
                            .concurrency = 2,
                            .group_quantum = 10,
                            .max_parked = 8,
                            .max_attempts = 3,
                            .retry_for_ns = UINT64_MAX,
                            .max_delay_ns = 60 * NS_PER_S,
                            .max_waiting = UINT64_MAX,
                            .backoff = {.count = 1, .step_ns = {DELAY}}};
    mq_files("/tmp/mqw-settle-XXXXXX");
    mq_custody(64, SLOTS, SLOTS);
    cr_assert_eq(custody_recover(mq.custody, &problem), 0);
    mq_parts(0);
    slot = custody_acquire(mq.custody);
    memcpy(slot->body, "body", 4);
    slot_hold(slot,
              &(struct slot_meta){.seq = 5, .length = 4, .received_ns = 1});
    lent_fill(source_mq_lent(&mq, slot));
    delivery_read(&d, &source_mq_lent(&mq, slot)->m, 0);
    d.started_ns = clock_wall_ns();
    d.message->ops->run(d.message, d.started_ns);
    out = (struct outcome){.kind = OUTCOME_VERDICT, .error = "exit 1"};
}

TestSuite(settle, .init = setup, .fini = mq_parts_close);

/* Return the message's row in the store, which must be there. */
static struct store_row row(void)
{
    struct store_row m;
    int64_t at;

    cr_assert_eq(store_find_seq(mq.store, 5, &at), 0);
    cr_assert_eq(store_get(mq.store, at, &m, NULL, 0, NULL), 0);
    return m;
}

static bool stored(void)
{
    int64_t at;

    return store_find_seq(mq.store, 5, &at) == 0;
}

Test(settle, done_leaves_nothing)
{
    out.verdict = MQW_DONE;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(slot_word(slot).state, SLOT_FREE);
    cr_assert(!stored());
    cr_assert_eq(mq_numbers().done, 1);
}

Test(settle, discard_leaves_nothing_and_is_counted_so)
{
    out.verdict = MQW_DISCARD;
    settle_outcome(&flow, &d, &out);
    cr_assert(!stored());
    cr_assert_eq(mq_numbers().discarded, 1);
}

Test(settle, a_retry_waits_as_the_backoff_says)
{
    uint64_t before = clock_boot_ns();

    out.verdict = MQW_RETRY;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(row().state, STORE_WAITING);
    cr_assert_eq(row().attempts, 1);
    cr_assert_geq(row().due_ns, before + DELAY);
    cr_assert_eq(mq_numbers().retried, 1);
}

Test(settle, a_delay_of_the_handler_counts_up_to_the_most)
{
    uint64_t before = clock_boot_ns();

    out.verdict = MQW_RETRY;
    out.delayed = true;
    out.delay_ns = UINT64_MAX;
    settle_outcome(&flow, &d, &out);
    cr_assert_geq(row().due_ns, before + set.max_delay_ns);
    cr_assert_leq(row().due_ns, clock_boot_ns() + set.max_delay_ns);
}

Test(settle, the_last_attempt_that_fails_is_a_letter)
{
    slot->failures = d.message->failures = (uint32_t)set.max_attempts - 1;
    out.verdict = MQW_RETRY;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(row().state, STORE_DEAD);
    cr_assert_eq(row().reason, REASON_EXHAUSTED);
    cr_assert_eq(row().attempts, set.max_attempts);
    cr_assert_eq(mq_numbers().dead, 1);
}

Test(settle, dead_is_a_letter_at_once)
{
    out.verdict = MQW_DEAD;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(row().state, STORE_DEAD);
    cr_assert_eq(row().reason, REASON_REJECTED);
}

Test(settle, what_was_not_started_is_first_in_line_again)
{
    out.kind = OUTCOME_NOT_STARTED;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(slot_word(slot).state, SLOT_HELD);
    cr_assert(!(slot_word(slot).flags & SLOT_REDELIVERED));
    cr_assert_eq(ready_take(&flow.ready, 0), d.message);
    cr_assert_eq(gate_why(&flow.gate), WHY_BREAKER);
    cr_assert(!stored());
}

Test(settle, what_was_stopped_stays_and_may_have_run)
{
    out.kind = OUTCOME_STOPPED;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(slot_word(slot).state, SLOT_HELD);
    cr_assert(slot_word(slot).flags & SLOT_REDELIVERED);
    cr_assert(ready_empty(&flow.ready));
}

/* The store refuses until the file is back: nothing is lost, nothing more is
 * taken, and the verdict is that of the handler when it can be written. */
Test(settle, a_verdict_that_cannot_be_written_waits_in_its_slot)
{
    atomic_store(&mq.store_gone, true);
    out.verdict = MQW_RETRY;
    settle_outcome(&flow, &d, &out);
    cr_assert_eq(unsettled_count(&flow.unsettled), 1);
    cr_assert_eq(slot_word(slot).state, SLOT_HELD);
    cr_assert(gate_held(&flow.gate, HOLD_STORE));
    cr_assert(!stored());
    atomic_store(&mq.store_gone, false);
    flow_parts_last_try();
    cr_assert_eq(unsettled_count(&flow.unsettled), 0);
    cr_assert_eq(slot_word(slot).state, SLOT_FREE);
    cr_assert_eq(row().state, STORE_WAITING);
    cr_assert_eq(row().attempts, 1);
}
