/* test_gate.c - every reason not to take messages, in virtual time */
#include "tests/fixtures/virtual_clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/flow/gate.h"
#include "worker/loop/loop.h"

enum { CAP = 4, EVENTS = 3 };

#define PAUSE (10 * NS_PER_S)

static struct settings set = {.queue = "/q",
                              .concurrency = CAP,
                              .breaker_failures = 2,
                              .breaker_pause_ns = PAUSE};
static struct gate gate;
static struct dirty dirty;
static struct timers *timers;
static struct loop *loop;
static struct counters *counters;
static unsigned told[EVENTS];

static void on_event(void *arg, enum gate_event event)
{
    cr_assert_eq(arg, &told);
    told[event]++;
}

static void no_count(void *arg)
{
    (void)arg;
}

static void setup(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    cr_assert_eq(timers_open(&timers), 0);
    cr_assert_eq(loop_open(&loop, timers), 0);
    cr_assert_eq(counters_open(&counters, "/nowhere/counters", 1), 0);
    dirty_init(&dirty, NS_PER_S, no_count, NULL);
    dirty.timers = timers;
    dirty.loop = loop;
    gate_init(&gate, &set, on_event, &told);
    gate.timers = timers;
    gate.dirty = &dirty;
    gate.counters = counters;
}

static void teardown(void)
{
    gate_fini(&gate);
    counters_close(&counters);
    loop_close(&loop);
    timers_close(&timers);
}

TestSuite(gate, .init = setup, .fini = teardown);

Test(gate, as_many_enter_as_the_cap_allows)
{
    for (unsigned i = 0; i < CAP; i++) {
        cr_assert_eq(gate_why(&gate), WHY_NOT_SO);
        cr_assert(gate_enter(&gate));
    }
    cr_assert_eq(gate_why(&gate), WHY_BUSY);
    cr_assert(!gate_enter(&gate));
    cr_assert(!gate_leave_over(&gate, CAP));
    cr_assert(gate_leave_over(&gate, CAP - 1));
    cr_assert_eq(gate_running(&gate), CAP - 1);
    gate_leave(&gate);
    cr_assert_eq(gate_running(&gate), CAP - 2);
}

Test(gate, each_hold_is_a_reason_and_shuts_it)
{
    static const struct {
        unsigned bit;
        enum gate_why why;
    } holds[] = {
        {HOLD_STOP, WHY_STOPPING},   {HOLD_STORE_GONE, WHY_FILES},
        {HOLD_READ_ONLY, WHY_FILES}, {HOLD_CUSTODY_GONE, WHY_FILES},
        {HOLD_PAUSE, WHY_PAUSED},    {HOLD_STORE, WHY_STORE},
        {HOLD_QUEUE, WHY_QUEUE},     {HOLD_BOUND, WHY_BOUND},
        {HOLD_RATE, WHY_RATE},
    };

    for (size_t i = 0; i < sizeof holds / sizeof holds[0]; i++) {
        gate_hold(&gate, holds[i].bit);
        cr_assert_eq(gate_why(&gate), holds[i].why, "hold %zu", i);
        cr_assert_eq(gate_room(&gate), 0);
        cr_assert(!gate_enter(&gate));
        cr_assert_eq(told[GATE_SHUT], i + 1);
        cr_assert_eq(told[GATE_CHANGED], i);
        gate_unhold(&gate, holds[i].bit);
        cr_assert_eq(told[GATE_CHANGED], i + 1);
        cr_assert_eq(gate_why(&gate), WHY_NOT_SO);
        cr_assert(dirty_state_take(&dirty), "the change is not reported");
    }
}

Test(gate, a_full_store_shuts_the_queue_only)
{
    gate_hold(&gate, HOLD_WAITING);
    cr_assert_eq(gate_why(&gate), WHY_WAITING);
    cr_assert(!gate_takes(&gate));
    cr_assert_eq(gate_room(&gate), CAP);
    cr_assert(gate_enter(&gate));
}

Test(gate, of_several_reasons_the_first_is_told)
{
    gate_hold(&gate, HOLD_WAITING);
    gate_hold(&gate, HOLD_QUEUE);
    cr_assert_eq(gate_why(&gate), WHY_QUEUE);
    gate_hold(&gate, HOLD_PAUSE);
    cr_assert_eq(gate_why(&gate), WHY_PAUSED);
    gate_hold(&gate, HOLD_STORE_GONE);
    cr_assert_eq(gate_why(&gate), WHY_FILES);
    gate_hold(&gate, HOLD_STOP);
    cr_assert_eq(gate_why(&gate), WHY_STOPPING);
}

Test(gate, each_reason_has_words_of_its_own)
{
    for (int a = WHY_NOT_SO; a <= WHY_GROUPS; a++) {
        cr_assert_not_null(gate_why_text((enum gate_why)a), "%d", a);
        for (int b = WHY_NOT_SO; b < a; b++)
            cr_assert_str_neq(gate_why_text((enum gate_why)a),
                              gate_why_text((enum gate_why)b));
    }
}

/* Return the seconds until the trouble is over. */
static unsigned held_for(void)
{
    unsigned s = 0;

    while (gate_held(&gate, HOLD_QUEUE) && s < 100) {
        virtual_pass(timers, NS_PER_S);
        s++;
    }
    return s;
}

Test(gate, trouble_that_comes_back_waits_twice_as_long)
{
    static const unsigned waits[] = {1, 2, 4, 8, 16, 30, 30};

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        unsigned s;

        gate_trouble(&gate, "receiving", EIO);
        cr_assert_eq(gate_why(&gate), WHY_QUEUE);
        s = held_for();
        cr_assert(s == waits[i] || s == waits[i] + 1, "%zu: %u s", i, s);
        virtual_pass(timers, NS_PER_MS);
    }
    virtual_pass(timers, 61 * NS_PER_S);
    gate_trouble(&gate, "receiving", EIO);
    cr_assert_leq(held_for(), 2,
                  "a long time without trouble did not reset the delay");
}

Test(gate, trouble_of_two_threads_at_once_is_one_delay)
{
    gate_trouble(&gate, "receiving", EIO);
    gate_trouble(&gate, "receiving", EIO);
    cr_assert_leq(held_for(), 2);
}

Test(gate, the_breaker_lets_one_probe_through_beside_what_runs)
{
    cr_assert(gate_enter(&gate)); /* it runs until the end of the test */
    gate_breaker(&gate, BREAKER_BAD, "exit 1");
    cr_assert_eq(gate_why(&gate), WHY_NOT_SO);
    gate_breaker(&gate, BREAKER_BAD, "exit 1");
    cr_assert_eq(gate_why(&gate), WHY_BREAKER);
    cr_assert_eq(gate_room(&gate), 0);
    virtual_pass(timers, PAUSE - NS_PER_MS);
    cr_assert_eq(gate_room(&gate), 0);
    cr_assert_eq(told[GATE_CHANGED], 0);
    virtual_pass(timers, NS_PER_S);
    cr_assert_eq(told[GATE_CHANGED], 1, "the end of the pause is not reported");
    cr_assert_eq(gate_room(&gate), 2);
    cr_assert(gate_enter(&gate));
    cr_assert(!gate_enter(&gate));
    cr_assert_eq(gate_why(&gate), WHY_BREAKER);
    gate_breaker(&gate, BREAKER_GOOD, NULL);
    cr_assert_eq(gate_room(&gate), CAP);
    cr_assert_eq(told[GATE_CHANGED], 2);
}

Test(gate, a_suspect_runs_alone_and_then_all_may)
{
    gate_run_alone(&gate, 1);
    cr_assert_eq(gate_room(&gate), 1);
    cr_assert(gate_enter(&gate));
    cr_assert_eq(gate_why(&gate), WHY_ALONE);
    cr_assert_eq(told[GATE_WIDER], 0);
    gate_run_together(&gate, 1);
    cr_assert_eq(gate_room(&gate), CAP);
    cr_assert_eq(told[GATE_WIDER], 1);
}

Test(gate, it_is_finished_when_nothing_runs_and_the_first_reason_counts)
{
    cr_assert(gate_enter(&gate));
    gate_finish(&gate, "run-for", 0);
    gate_finish(&gate, "store-unreadable", 73);
    gate_finish(&gate, "signal", 0);
    cr_assert(!gate_finished(&gate));
    gate_leave(&gate);
    cr_assert(gate_finished(&gate));
    cr_assert_str_eq(atomic_load(&gate.why), "run-for");
    cr_assert_eq(atomic_load(&gate.status), 73);
}
