/* test_schedule.c - what starts work items and what wakes them, for a source in
 * memory and real threads: each wait is for something that happens */
#include "tests/fixtures/flow_fixture.h"

#include <semaphore.h>

enum { CAP = 2 };

static atomic_bool slow;       /* a handler ends when the test says so */
static sem_t began, may, over; /* a handler began; it may end; it is settled */
static atomic_uint in_now, in_most;

static void on_run(struct handler *h, struct delivery *d, struct outcome *out)
{
    unsigned in = atomic_fetch_add(&in_now, 1) + 1;

    (void)h, (void)d;
    if (in > atomic_load(&in_most))
        atomic_store(&in_most, in);
    sem_post(&began);
    if (atomic_load(&slow))
        sem_wait(&may);
    atomic_fetch_sub(&in_now, 1);
    *out = (struct outcome){.kind = OUTCOME_VERDICT, .ran = true};
}

static void on_settled(struct handler *h, const struct settlement *s)
{
    (void)h, (void)s;
    sem_post(&over);
}

static void poke(void)
{
    schedule_wake(&flow);
}

static void setup(void)
{
    cr_assert_eq(sem_init(&began, 0, 0), 0);
    cr_assert_eq(sem_init(&may, 0, 0), 0);
    cr_assert_eq(sem_init(&over, 0, 0), 0);
    flow_settings();
    set.concurrency = CAP;
    flow_open();
    atomic_store(&virtual_tick, NS_PER_US);
    atomic_store(&flow.items.pace_ns, NS_PER_S); /* slow: threads pay off */
    flow_handler.run = on_run;
    flow_handler.settled = on_settled;
    flow.wants_settled = true;
    flow_on_changed = poke;
}

static void teardown(void)
{
    atomic_store(&slow, false);
    for (unsigned i = 0; i < 16; i++)
        sem_post(&may);
    flow_close();
}

TestSuite(schedule, .init = setup, .fini = teardown);

static void wait_for(sem_t *sem, unsigned n)
{
    while (n-- > 0)
        while (sem_wait(sem) < 0)
            continue;
}

Test(schedule, with_nothing_to_do_the_loop_waits_for_the_source)
{
    schedule_wake(&flow);
    cr_assert(peeker_armed(flow.peeker));
    cr_assert_eq(gate_running(&flow.gate), 0);
    fake_give("a");
    loop_wait(flow.loop, -1);
    wait_for(&over, 1);
    cr_assert_eq(fake_in(FAKE_GONE), 1);
}

Test(schedule, what_was_there_before_the_wait_began_is_not_slept_over)
{
    fake_give("a");
    schedule_wake(&flow);
    loop_wait(flow.loop, -1);
    wait_for(&over, 1);
}

Test(schedule, the_thread_that_is_done_waits_for_the_next_one_itself)
{
    atomic_store(&flow.items.pace_ns, 0); /* handlers are quick */
    fake_give("a");
    schedule_start(&flow);
    wait_for(&over, 1);
    for (unsigned i = 0; i < 20; i++) { /* nobody runs the loop */
        fake_give("b");
        wait_for(&over, 1);
    }
    cr_assert_eq(fake_in(FAKE_GONE), 21);
}

Test(schedule, what_is_due_needs_no_message_to_wake_it)
{
    fake_store("due", clock_boot_ns());
    schedule_wake(&flow);
    wait_for(&over, 1);
}

Test(schedule, what_becomes_due_wakes_it)
{
    fake_store("later", clock_boot_ns() + NS_PER_S);
    schedule_wake(&flow);
    atomic_fetch_add(&virtual_ns, NS_PER_S);
    fake_tick();
    wait_for(&over, 1);
}

Test(schedule, no_more_run_than_the_cap_allows)
{
    atomic_store(&slow, true);
    for (unsigned i = 0; i < 8; i++)
        fake_store("due", clock_boot_ns());
    for (unsigned i = 0; i < 8; i++)
        schedule_wake(&flow);
    wait_for(&began, CAP);
    cr_assert_eq(gate_why(&flow.gate), WHY_BUSY);
    cr_assert(!schedule_start(&flow));
    for (unsigned i = 0; i < 8; i++)
        sem_post(&may);
    wait_for(&over, 8);
    cr_assert_eq(atomic_load(&in_most), CAP);
}

Test(schedule, a_slow_handler_gets_company)
{
    atomic_store(&slow, true);
    fake_give("a");
    fake_give("b");
    atomic_store(&flow.items.pace_ns, 0); /* it has been quick so far */
    schedule_start(&flow);
    wait_for(&began, 1);
    atomic_fetch_add(&virtual_ns, NS_PER_S);
    cr_assert_eq(schedule_wait_ms(&flow), PEEKER_STUCK_MS,
                 "the loop does not look again soon");
    schedule_quiet(&flow); /* since then one more was begun */
    schedule_quiet(&flow); /* and now none */
    cr_assert(peeker_armed(flow.peeker));
    cr_assert_eq(schedule_wait_ms(&flow), -1);
    loop_wait(flow.loop, -1);
    wait_for(&began, 1);
    cr_assert_eq(atomic_load(&in_now), 2);
}

static atomic_uint asked; /* calls of flow_on_changed */

static void ask(void)
{
    atomic_fetch_add(&asked, 1);
}

/* Each handler's end is a commit, and those that run together share one. */
Test(schedule, stored_messages_get_company_however_quick_their_handlers_are)
{
    atomic_store(&slow, true);
    atomic_store(&flow.items.pace_ns, 0);
    flow_on_changed = ask;
    fake_store("a", clock_boot_ns());
    schedule_start(&flow);
    wait_for(&began, 1);
    cr_assert_gt(atomic_load(&asked), 0);
}

Test(schedule, a_pause_stops_it_and_its_end_goes_on)
{
    gate_hold(&flow.gate, HOLD_PAUSE);
    fake_store("due", clock_boot_ns());
    fake_give("a");
    schedule_wake(&flow);
    cr_assert(!peeker_armed(flow.peeker));
    cr_assert(!schedule_start(&flow));
    cr_assert_eq(schedule_why(&flow), WHY_PAUSED);
    gate_unhold(&flow.gate, HOLD_PAUSE);
    wait_for(&over, 2);
}

Test(schedule, the_end_of_trouble_goes_on)
{
    gate_trouble(&flow.gate, "receiving", EIO);
    fake_store("due", clock_boot_ns());
    schedule_wake(&flow);
    cr_assert_eq(gate_running(&flow.gate), 0);
    virtual_pass(flow.timers, 2 * NS_PER_S);
    wait_for(&over, 1);
}

Test(schedule, a_verdict_that_is_written_at_last_goes_on)
{
    struct fake_message *x = fake_store("a", clock_boot_ns());

    fake.refusals = 1;
    fake.refused = -ENOSPC;
    schedule_wake(&flow);
    wait_for(&began, 1);
    while (!gate_held(&flow.gate, HOLD_STORE) || gate_running(&flow.gate) > 0)
        sched_yield();
    fake_store("b", clock_boot_ns());
    schedule_wake(&flow);
    cr_assert_eq(gate_running(&flow.gate), 0);
    cr_assert_eq(schedule_why(&flow), WHY_STORE);
    virtual_pass(flow.timers, 2 * NS_PER_S);
    wait_for(&over, 2);
    cr_assert_eq(x->at, FAKE_GONE);
}

Test(schedule, a_late_answer_starts_the_next_of_its_group)
{
    struct fake_message *x = fake_give("g:1");

    late_source();
    fake.late = true;
    fake_give("g:2");
    schedule_start(&flow);
    wait_for(&began, 1);
    while (fake_in(FAKE_FRESH) > 0 || x->at != FAKE_LATE)
        sched_yield();
    cr_assert_eq(fake_in(FAKE_IS_LENT), 1);
    fake_answer(x, 0);
    gate_changed(&flow.gate); /* as the engine does after the event */
    wait_for(&began, 1);
    while (fake_in(FAKE_LATE) == 0)
        sched_yield();
    fake_answer(&fake.all[1], 0);
    wait_for(&over, 2);
}

Test(schedule, a_source_that_is_to_be_opened_again_is_asked)
{
    fake.pending = true;
    fake_give("a");
    schedule_wake(&flow); /* nobody looks at the descriptor */
    wait_for(&over, 1);
}

Test(schedule, it_tells_why_nothing_is_taken)
{
    struct work_item *item;

    flow_on_changed = NULL;
    cr_assert_eq(schedule_why(&flow), WHY_NOT_SO);
    item = flow_item();
    for (unsigned i = 0; i < 8; i++)
        fake_give("g:x");
    while (take_next(item) == TAKEN)
        continue;
    cr_assert_eq(schedule_why(&flow), WHY_GROUPS);
    flow.gate.cap = CAP;
    for (unsigned i = 0; i < FAKE_LENT; i++)
        fake_store("h", clock_boot_ns());
    while (fake_count(NULL, COUNT_FREE) > 0)
        cr_assert_eq(take_next(item), TAKEN);
    cr_assert_eq(schedule_why(&flow), WHY_SLOTS);
    set.max_waiting = 1;
    gate_hold(&flow.gate, HOLD_WAITING);
    cr_assert_eq(schedule_why(&flow), WHY_WAITING);
    cr_assert(gate_enter(&flow.gate));
    cr_assert_eq(schedule_why(&flow), WHY_BUSY);
}

Test(schedule, the_last_to_leave_ends_the_loop_of_a_worker_that_stops)
{
    atomic_store(&slow, true);
    fake_give("a");
    schedule_start(&flow);
    wait_for(&began, 1);
    gate_finish(&flow.gate, "signal", 0);
    cr_assert(!gate_finished(&flow.gate));
    sem_post(&may); /* the handler ends when the loop is about to wait */
    while (!gate_finished(&flow.gate))
        loop_wait(flow.loop, -1); /* or it would wait for ever */
    cr_assert(gate_finished(&flow.gate));
}

Test(schedule, nothing_of_many_is_left)
{
    for (unsigned i = 0; i < FAKE_MOST / 2; i++) {
        char text[16];

        snprintf(text, sizeof text, "%c:%u", (char)('a' + i % 7), i);
        fake_give(text);
        if (i % 4 == 0)
            schedule_start(&flow);
    }
    wait_for(&over, FAKE_MOST / 2);
    cr_assert_eq(fake_in(FAKE_GONE), FAKE_MOST / 2);
    cr_assert_leq(atomic_load(&in_most), CAP);
    for (unsigned i = 0; i < fake.count; i++)
        cr_assert_eq(fake.all[i].runs, 1);
}
