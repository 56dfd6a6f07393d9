/* mq_fixture.h - the parts of flow that settle and recover, over source_mq
 *
 * WHAT   Custody and store are real files in a scratch folder; no queue, no
 *        loop that runs, no work item.
 * WHO    Unit tests; mq_files, mq_custody, mq_parts in this order in the
 *        set-up, mq_close in the tear-down. The test has the settings.
 * OWNS   All of `flow` and `mq`.
 * FAILS  By ending the test.
 */
#ifndef TESTS_UNIT_FLOW_MQ_FIXTURE_H
#define TESTS_UNIT_FLOW_MQ_FIXTURE_H

#include "tests/unit/store/store_fixture.h"

#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"
#include "worker/loop/loop.h"
#include "worker/source/mq/source_mq.h"

enum { SLOTS = 4 };

static struct settings set;
static struct handler_ops ops = {.name = "none"};
static struct flow flow;
static struct source_mq mq;
static struct problem problem;

static inline void mq_visit_none(struct slot *slot, void *arg)
{
    (void)slot, (void)arg;
}

static inline void mq_no_event(void *arg, enum gate_event event)
{
    (void)arg, (void)event;
}

static inline void mq_nothing(void *arg)
{
    (void)arg;
}

static inline void mq_due(struct flow *f)
{
    (void)f;
}

static inline void mq_files(void)
{
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    fixture_init();
    mq.store = fixture_open();
}

static inline void mq_custody(void)
{
    const struct custody_spec spec = {
        .body_bytes = 64, .slots = SLOTS, .slots_max = SLOTS};
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/custody", fixture_dir);
    cr_assert_eq(custody_open(&mq.custody, path, &spec, &problem), 0);
}

static inline void mq_parts(void)
{
    flow.set = &set;
    flow.ops = &ops;
    flow.folder = fixture_dir;
    cr_assert_eq(timers_open(&flow.timers), 0);
    cr_assert_eq(loop_open(&flow.loop, flow.timers), 0);
    cr_assert_eq(counters_open(&flow.counters, "/nowhere/counters", 1), 0);
    ready_init(&flow.ready, &flow.gate.attention);
    mq.set = &set;
    mq.folder = fixture_dir;
    mq.timers = flow.timers;
    mq.pool = &flow.pool;
    mq.events.changed = mq_due;
    mq.source.attention = &flow.gate.attention;
    cr_assert_eq(source_mq_open(&mq, &problem), 0);
    flow.source = &mq.source;
    cr_assert_eq(dispatch_open(&flow, SLOTS), 0);
    dirty_init(&flow.dirty, NS_PER_S, mq_nothing, NULL);
    flow.dirty.timers = flow.timers;
    flow.dirty.loop = flow.loop;
    unsettled_init(&flow);
    crashes_init(&flow);
    gate_init(&flow.gate, &set, mq_no_event, NULL);
    flow.gate.timers = flow.timers;
    flow.gate.dirty = &flow.dirty;
    flow.gate.counters = flow.counters;
}

/* mq_close_tried - after unsettled_fini */
static inline void mq_close_tried(void)
{
    crashes_fini(&flow);
    gate_fini(&flow.gate);
    dispatch_close(&flow);
    ready_fini(&flow.ready);
    source_mq_close(&mq);
    counters_close(&flow.counters);
    loop_close(&flow.loop);
    timers_close(&flow.timers);
    custody_close(&mq.custody);
    store_close(&mq.store);
    fixture_fini();
}

static inline void mq_close(void)
{
    unsettled_fini(&flow);
    mq_close_tried();
}

static inline struct counters_sum mq_numbers(void)
{
    struct counters_sum n;

    counters_sum(flow.counters, false, &n);
    return n;
}

#endif
