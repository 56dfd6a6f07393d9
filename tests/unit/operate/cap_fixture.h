/* cap_fixture.h - a cap over custody that grows beside the loop
 *
 * WHAT   A source without a queue, which adds slots; the parts that cap.c has
 *        to do with. The loop is the test's.
 * WHO    Unit tests: cap_open in the set-up, cap_close in the tear-down; the
 *        file of custody is named by then (fixture_file).
 * OWNS   `flow`, `mq`, `cap`.
 * FAILS  By ending the test.
 */
#ifndef TESTS_UNIT_OPERATE_CAP_FIXTURE_H
#define TESTS_UNIT_OPERATE_CAP_FIXTURE_H

#include "tests/unit/custody/custody_fixture.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/config/settings.h"
#include "worker/flow/flow.h"
#include "worker/loop/loop.h"
#include "worker/operate/live_settings.h"
#include "worker/source/mq/source_mq.h"

static struct settings set = {.queue = "/q", .window = 1, .lookahead = 1};
static const struct handler_ops ops = {.name = "none"};
static struct flow flow;
static struct source_mq mq;
static struct cap cap;

static inline void cap_event(void *arg, enum gate_event event)
{
    (void)arg, (void)event;
}

static inline void cap_nothing(void *arg)
{
    (void)arg;
}

static inline void cap_due(struct flow *f)
{
    (void)f;
}

static inline void cap_visit(struct slot *slot, void *arg)
{
    (void)slot, (void)arg;
}

/* cap_open - `over` is called with &cap */
static inline void cap_open(unsigned now, unsigned most, size_t body_bytes,
                            void (*over)(void *arg))
{
    struct custody_spec spec = {.body_bytes = body_bytes,
                                .slots = slots_for(&set, now),
                                .slots_max = slots_for(&set, most)};
    struct problem p = {0};
    char path[PATH_MAX];

    set.concurrency = now;
    log_setup(LOG_ERROR + 1, LOG_TEXT);
    cr_assert_eq(custody_open(&mq.custody, fixture_file, &spec, &p), 0, "%s",
                 p.text);
    cr_assert_eq(custody_recover(mq.custody, cap_visit, NULL, &p), 0);
    snprintf(path, sizeof path, "%s/store.db", fixture_dir);
    cr_assert_eq(store_open(&mq.store, path, true, &p), 0, "%s", p.text);
    flow.set = &set;
    flow.ops = &ops;
    cr_assert_eq(timers_open(&flow.timers), 0);
    cr_assert_eq(loop_open(&flow.loop, flow.timers), 0);
    cr_assert_eq(pool_open(&flow.pool, now + SPARE_THREADS), 0);
    mq.set = &set;
    mq.timers = flow.timers;
    mq.pool = &flow.pool;
    mq.events.changed = cap_due;
    mq.source.attention = &flow.gate.attention;
    cr_assert_eq(source_mq_open(&mq, &p), 0);
    flow.source = &mq.source;
    dirty_init(&flow.dirty, NS_PER_S, cap_nothing, NULL);
    flow.dirty.timers = flow.timers;
    flow.dirty.loop = flow.loop;
    items_init(&flow.items, 0);
    gate_init(&flow.gate, &set, cap_event, NULL);
    cap_init(&cap, &flow, &set);
    cap.over = over;
    cap.arg = &cap;
}

static inline void cap_close(void)
{
    pool_close(&flow.pool);
    gate_fini(&flow.gate);
    items_fini(&flow.items);
    loop_close(&flow.loop);
    source_mq_close(&mq);
    timers_close(&flow.timers);
    custody_close(&mq.custody);
    store_close(&mq.store);
    fixture_fini();
}

#endif
