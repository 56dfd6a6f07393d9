/* flow_fixture.h - the parts of flow over a source in memory, in virtual time
 *
 * WHAT   Every part of struct flow, opened as the engine does it; a work item
 *        that no thread runs; handlers that the test decides about.
 * WHO    Unit tests of flow; flow_settings, flow_open and flow_close in their
 *        set-up and tear-down.
 * OWNS   All of `flow`.
 * FAILS  By ending the test.
 */
#ifndef TESTS_UNIT_FLOW_FLOW_FIXTURE_H
#define TESTS_UNIT_FLOW_FLOW_FIXTURE_H

#include "tests/unit/flow/fake_source.h"
#include "tests/unit/flow/virtual_clock.h"

#include <stdio.h>

#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/flow/receive.h"
#include "worker/flow/items.h"
#include "worker/loop/loop.h"
#include "worker/loop/peeker.h"

static struct settings set;
static struct flow flow;
static struct handler_ops flow_handler = {.name = "none"};
static unsigned flow_told[3];         /* of each gate_event */
static void (*flow_on_changed)(void); /* a message may be taken, maybe */

static inline void flow_event(void *arg, enum gate_event event)
{
    (void)arg;
    flow_told[event]++;
    if (event == GATE_CHANGED && flow_on_changed)
        flow_on_changed();
}

static inline void flow_nothing(void *arg)
{
    (void)arg;
}

static inline void flow_changed(struct flow *f)
{
    gate_changed(&f->gate);
}

static inline int flow_poll_fd(const struct flow *f)
{
    (void)f;
    return fake.fd;
}

/* flow_settings - those of a worker without flags, and a small one; one failure
 * opens no breaker, unless the test says so */
static inline void flow_settings(void)
{
    settings_init(&set);
    snprintf(set.queue, sizeof set.queue, "/q");
    set.concurrency = 2;
    set.lookahead = 4;
    set.group_separator = ':';
    set.jitter_percent = 0;
}

/* flow_open - after flow_settings, and what the test changes there */
static inline void flow_open(void)
{
    struct peeker_setup with = {.flow = &flow,
                                .fd = flow_poll_fd,
                                .ready = schedule_start,
                                .gate = &flow.gate,
                                .trouble = gate_trouble};

    log_setup(LOG_ERROR + 1, LOG_TEXT);
    memset(&flow, 0, sizeof flow);
    flow.set = &set;
    flow.ops = &flow_handler;
    flow.folder = "/nowhere";
    flow.source = fake_open();
    flow.source->attention = &flow.gate.attention;
    fake.events = (struct source_events){.flow = &flow,
                                         .changed = flow_changed,
                                         .settled = unsettled_on_settled};
    cr_assert_eq(timers_open(&flow.timers), 0);
    cr_assert_eq(loop_open(&flow.loop, flow.timers), 0);
    cr_assert_eq(pool_open(&flow.pool, 4), 0);
    cr_assert_eq(counters_open(&flow.counters, "/nowhere/counters", 8), 0);
    with.loop = flow.loop;
    with.timers = flow.timers;
    cr_assert_eq(peeker_open(&flow.peeker, &with), 0);
    dirty_init(&flow.dirty, NS_PER_S, flow_nothing, NULL);
    flow.dirty.timers = flow.timers;
    flow.dirty.loop = flow.loop;
    ready_init(&flow.ready, &flow.gate.attention);
    cr_assert_eq(dispatch_open(&flow, FAKE_LENT), 0);
    unsettled_init(&flow);
    crashes_init(&flow);
    gate_init(&flow.gate, &set, flow_event, NULL);
    flow.gate.timers = flow.timers;
    flow.gate.dirty = &flow.dirty;
    flow.gate.counters = flow.counters;
    items_init(&flow.items, 0);
    flow.items.counters = flow.counters;
    run_limits_init(&flow);
    flow.started = true;
}

static inline void flow_close(void)
{
    peeker_release(flow.peeker);
    pool_close(&flow.pool);
    unsettled_fini(&flow);
    items_fini(&flow.items);
    crashes_fini(&flow);
    gate_fini(&flow.gate);
    dispatch_close(&flow);
    ready_fini(&flow.ready);
    peeker_close(&flow.peeker);
    counters_close(&flow.counters);
    loop_close(&flow.loop);
    timers_close(&flow.timers);
    fake_close();
}

/* remote_source - from here on, as a source that is no local store */
static inline void remote_source(void)
{
    fake.source.local = NULL;
    attention_on(&flow.gate.attention, ATTEND_LATE);
}

/* late_source - from here on, as a source that settles late does */
static inline void late_source(void)
{
    fake.ops.late = true;
    attention_on(&flow.gate.attention, ATTEND_LATE);
}

/* flow_item - a work item as a thread has it, counted in */
static inline struct work_item *flow_item(void)
{
    struct work_item *item;

    cr_assert(gate_enter(&flow.gate));
    cr_assert_eq(items_get(&flow.items, &flow, &item), 0);
    items_count(&flow.items, item);
    item->d = &item->own;
    item_read_clock(item);
    return item;
}

static inline struct counters_sum flow_numbers(void)
{
    struct counters_sum n;

    counters_sum(flow.counters, false, &n);
    return n;
}

/* flow_jobs_end - what was submitted to the pool so far has run */
static inline void flow_jobs_end(void)
{
    pool_close(&flow.pool);
    cr_assert_eq(pool_open(&flow.pool, 4), 0);
}

/* flow_pass - so much time: what is due fires, and what that submits has run */
static inline void flow_pass(uint64_t ns)
{
    uint64_t end = clock_mono_ns() + ns;

    while (clock_mono_ns() < end) {
        uint64_t step = ns / 50 > NS_PER_MS ? ns / 50 : NS_PER_MS;

        if (step > end - clock_mono_ns())
            step = end - clock_mono_ns();
        virtual_pass(flow.timers, step);
        fake_tick();
        flow_jobs_end();
    }
}

/* flow_end - a handler of this one ended so */
static inline void flow_end(struct work_item *item, enum mqw_verdict verdict,
                            const char *error)
{
    struct outcome *out = &item->out;

    out->kind = OUTCOME_VERDICT;
    out->verdict = verdict;
    out->ran = true;
    out->delayed = false;
    out->tail_size = 0;
    snprintf(out->error, sizeof out->error, "%s", error);
    out->duration_ns = NS_PER_MS;
    settle_outcome(&flow, item->d, out);
}

#endif
