/* test_cap.c - the cap is raised while slots are added beside the loop */
#include "tests/unit/flow/virtual_clock.h"
#include "tests/unit/storage/custody_fixture.h"

#include <errno.h>
#include <poll.h>

#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/config/slots.h"
#include "worker/flow/flow.h"
#include "worker/loop/loop.h"
#include "worker/operate/cap.h"
#include "worker/source/mq/source_mq.h"

enum { CAP = 2, MORE = 20, MOST = 40, WAIT_MS = 60000 };

static struct settings set = {
    .queue = "/q", .concurrency = CAP, .window = 1, .lookahead = 1};
static const struct handler_ops ops = {.name = "none"};
static struct flow flow;
static struct source_mq mq;
static struct cap cap;
static unsigned over;

static void on_event(void *arg, enum gate_event event)
{
    (void)arg, (void)event;
}

static void on_over(void *arg)
{
    cr_assert_eq(arg, &cap);
    over++;
}

static void no_count(void *arg)
{
    (void)arg;
}

static void visit(struct slot *slot, void *arg)
{
    (void)slot, (void)arg;
}

/* custody_ready - a source without a queue and a store, which adds slots */
static void custody_ready(void)
{
    struct custody_spec spec = {.body_bytes = FIXTURE_ROOM,
                                .slots = slots_for(&set, CAP),
                                .slots_max = slots_for(&set, MOST)};
    struct problem p = {0};

    fixture_init();
    cr_assert_eq(custody_open(&mq.custody, fixture_file, &spec, &p), 0);
    cr_assert_eq(custody_recover(mq.custody, visit, NULL, &p), 0);
}

static void setup(void)
{
    struct problem p = {0};

    log_setup(LOG_ERROR + 1, LOG_TEXT);
    custody_ready();
    flow.set = &set;
    flow.ops = &ops;
    cr_assert_eq(timers_open(&flow.timers), 0);
    cr_assert_eq(loop_open(&flow.loop, flow.timers), 0);
    cr_assert_eq(pool_open(&flow.pool, CAP + SPARE_THREADS), 0);
    mq.set = &set;
    mq.timers = flow.timers;
    mq.pool = &flow.pool;
    mq.events.changed = no_count;
    cr_assert_eq(source_mq_open(&mq, &p), 0);
    flow.source = &mq.source;
    dirty_init(&flow.dirty, NS_PER_S, no_count, NULL);
    flow.dirty.timers = flow.timers;
    flow.dirty.loop = flow.loop;
    items_init(&flow.items, 0);
    gate_init(&flow.gate, &set, on_event, NULL);
    cap_init(&cap, &flow, &set);
    cap.over = on_over;
    cap.arg = &cap;
}

static void teardown(void)
{
    pool_close(&flow.pool);
    gate_fini(&flow.gate);
    items_fini(&flow.items);
    loop_close(&flow.loop);
    source_mq_close(&mq);
    timers_close(&flow.timers);
    custody_close(&mq.custody);
    fixture_fini();
}

TestSuite(cap, .init = setup, .fini = teardown, .timeout = 120);

/* job_over - as the loop would: wait for the timer that the job starts */
static void job_over(void)
{
    struct pollfd fd = {.fd = timers_fd(flow.timers), .events = POLLIN};
    unsigned was = over;

    while (over == was) {
        cr_assert_eq(poll(&fd, 1, WAIT_MS), 1);
        timers_run(flow.timers);
    }
}

static unsigned cap_now(void)
{
    return atomic_load(&flow.gate.cap);
}

Test(cap, it_is_lowered_at_once)
{
    cr_assert_eq(cap_set(&cap, 1, NULL), 0);
    cr_assert_eq(cap_now(), 1);
    cr_assert_eq(set.concurrency, 1);
    cr_assert_eq(cap_set(&cap, CAP, NULL), 0, "the slots are there still");
    cr_assert_eq(cap_now(), CAP);
}

Test(cap, slots_are_added_by_a_job_and_the_cap_follows)
{
    cr_assert_eq(cap_set(&cap, MORE, NULL), -EINPROGRESS);
    cr_assert_eq(cap_now(), CAP);
    job_over();
    cr_assert_eq(cap_now(), MORE);
    cr_assert_geq(custody_slots(mq.custody), slots_for(&set, MORE));
    cr_assert(!atomic_load(&flow.growing));
}

Test(cap, the_last_order_counts)
{
    cr_assert_eq(cap_set(&cap, MORE, NULL), -EINPROGRESS);
    cr_assert_eq(cap_set(&cap, MORE + 1, NULL), -EINPROGRESS);
    while (cap_now() != MORE + 1)
        job_over();
    cr_assert_eq(cap_set(&cap, MORE, NULL), 0);
    cr_assert_eq(cap_now(), MORE);
}

Test(cap, one_more_is_one_more_than_what_is_on_its_way)
{
    cap_change(&cap, +1);
    cap_change(&cap, +1);
    while (cap_now() != CAP + 2)
        job_over();
}

Test(cap, who_waits_asks_again_and_hears_that_there_is_no_room)
{
    struct problem p = {0};

    cr_assert_eq(cap_ready(&cap, MOST + 1, &p), -EINPROGRESS);
    job_over();
    cr_assert_eq(cap_ready(&cap, MOST + 1, &p), -ENOSPC);
    cr_assert_not_null(strstr(p.text, "slots"), "%s", p.text);
    cr_assert_eq(cap_now(), CAP);
    cr_assert_eq(cap_ready(&cap, MOST, &p), -EINPROGRESS, "less may do");
    job_over();
    cr_assert_eq(cap_ready(&cap, MOST, &p), 0);
    cr_assert_eq(cap_now(), CAP, "nobody has set it");
}
