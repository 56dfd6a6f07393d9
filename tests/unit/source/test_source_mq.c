/* test_source_mq.c - what source_mq promises: slots, rows and claims behind
 * take_due, unpark and settle */
#include "tests/fixtures/store_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/log.h"
#include "worker/source/mq/source_mq.h"
#include "tests/unit/store/store_stats.h"

enum { SLOTS = 4 };

static struct settings set = {.queue = "/q"};
static struct source_mq mq;
static struct source *const s = &mq.source;
static struct attention attention;
static struct pool *no_pool;
static struct source_death death;
static unsigned deaths, ends;

static void changed(struct flow *flow)
{
    (void)flow;
}

static void died(struct flow *flow, const struct source_death *d)
{
    (void)flow;
    death = *d;
    deaths++;
}

static void ended(struct gate *gate, const char *why, int status)
{
    (void)gate, (void)why, (void)status;
    ends++;
}

static void setup(void)
{
    const struct custody_spec spec = {
        .body_bytes = 64, .slots = SLOTS, .slots_max = SLOTS};
    struct problem p = {0};
    char path[PATH_MAX];

    log_setup(LOG_ERROR + 1, LOG_TEXT);
    fixture_init();
    snprintf(path, sizeof path, "%s/custody", fixture_dir);
    mq.store = fixture_open();
    cr_assert_eq(store_clock_follow(mq.store), 0);
    cr_assert_eq(custody_open(&mq.custody, path, &spec, &p), 0);
    cr_assert_eq(custody_recover(mq.custody, &p), 0);
    cr_assert_eq(timers_open(&mq.timers), 0);
    mq.set = &set;
    mq.source.attention = &attention;
    mq.folder = fixture_dir;
    mq.pool = &no_pool;
    mq.events = (struct source_events){
        .changed = changed, .died = died, .ended = ended};
    cr_assert_eq(source_mq_open(&mq, &p), 0);
}

static void teardown(void)
{
    source_mq_close(&mq);
    timers_close(&mq.timers);
    custody_close(&mq.custody);
    store_close(&mq.store);
    fixture_fini();
}

TestSuite(source_mq, .init = setup, .fini = teardown);

/* Put a row of group "k" into the store. */
static int64_t put(enum store_state state, uint64_t seq, uint32_t priority)
{
    struct store_row m = fixture_row(state, "body");

    m.group = "k";
    m.group_size = 1;
    m.receive_seq = seq;
    m.priority = priority;
    return fixture_put(mq.store, &m);
}

static struct message *take_due(unsigned lane)
{
    struct message *m = NULL;

    cr_assert_eq(s->ops->take_due(s, lane, &m), 0);
    return m;
}

static int settle(struct message *m, enum settle_kind kind, unsigned lane)
{
    struct settle st = {.m = m,
                        .kind = kind,
                        .lane = lane,
                        .group = m->group,
                        .due_boot_ns = clock_boot_ns(),
                        .delay_ns = 1,
                        .reason = REASON_REJECTED};

    return s->ops->settle(s, &st, 1);
}

static struct store_row row_of(uint64_t seq)
{
    struct store_row m;
    int64_t row;

    cr_assert_eq(store_find_seq(mq.store, seq, &row), 0);
    cr_assert_eq(store_get(mq.store, row, &m, NULL, 0, NULL), 0);
    return m;
}

Test(source_mq, a_due_row_is_lent_with_all_that_the_store_knows)
{
    struct message *m;

    put(STORE_WAITING, 7, 3);
    cr_assert(source_due(s));
    m = take_due(0);
    cr_assert_eq(m->seq, 7);
    cr_assert_eq(m->priority, 3);
    cr_assert(m->flags & MESSAGE_STORED);
    cr_assert_eq(m->group.size, 1);
    cr_assert_eq(memcmp(m->data, "body", m->size), 0);
    cr_assert_eq(s->ops->take_due(s, 1, &m), -EAGAIN, "the row was lent twice");
}

Test(source_mq, what_is_settled_with_a_lane_keeps_its_slot_warm_until_it_rests)
{
    struct message *m;

    put(STORE_WAITING, 1, 0);
    m = take_due(2);
    cr_assert_eq(s->ops->count(s, COUNT_FREE), SLOTS - 1);
    cr_assert_eq(settle(m, SETTLE_DONE, 2), 0);
    cr_assert_eq(s->ops->count(s, COUNT_FREE), SLOTS - 1);
    cr_assert_eq(m->seq, 1, "it cannot be read any more");
    s->ops->rest(s, 2);
    cr_assert_eq(s->ops->count(s, COUNT_FREE), SLOTS);
}

Test(source_mq, what_is_settled_without_a_lane_is_released_by_who_settled)
{
    struct message *m;

    put(STORE_WAITING, 1, 0);
    m = take_due(0);
    cr_assert_eq(settle(m, SETTLE_DEAD, LANE_NONE), 0);
    cr_assert_eq(row_of(1).state, STORE_DEAD);
    cr_assert_eq(s->ops->count(s, COUNT_FREE), SLOTS - 1);
    s->ops->release(s, m);
    cr_assert_eq(s->ops->count(s, COUNT_FREE), SLOTS);
}

Test(source_mq, what_is_returned_waits_as_before)
{
    struct message *m;

    put(STORE_WAITING, 1, 0);
    m = take_due(0);
    cr_assert_eq(settle(m, SETTLE_RETURN, 0), 0);
    cr_assert(custody_empty(mq.custody));
    cr_assert_eq(row_of(1).state, STORE_WAITING);
    cr_assert_eq(row_of(1).attempts, 0);
    cr_assert_eq(take_due(0)->seq, 1);
}

Test(source_mq, a_refused_verdict_changes_nothing_but_that_it_may_have_run)
{
    struct message *m;

    put(STORE_WAITING, 1, 0);
    m = take_due(0);
    m->ops->run(m, 1);
    atomic_store(&mq.store_gone, true);
    cr_assert_eq(settle(m, SETTLE_DEAD, 0), -EBADFD);
    cr_assert_eq(slot_word(lent_of(m)->slot).state, SLOT_HELD);
    cr_assert(m->flags & MESSAGE_REDELIVERED);
    cr_assert_eq(row_of(1).state, STORE_WAITING);
    atomic_store(&mq.store_gone, false);
    cr_assert_eq(settle(m, SETTLE_DEAD, 0), 0);
    cr_assert_eq(row_of(1).state, STORE_DEAD);
    cr_assert(row_of(1).flags & STORE_REDELIVERED);
}

Test(source_mq, a_letter_that_is_gone_meanwhile_was_discarded)
{
    struct settle st = {.kind = SETTLE_RETRY, .lane = 0};
    int64_t row = put(STORE_WAITING, 1, 0);

    st.m = take_due(0);
    st.group = st.m->group;
    cr_assert_eq(store_delete(mq.store, row, NULL), 0);
    cr_assert_eq(s->ops->settle(s, &st, 1), 0);
    cr_assert_eq(st.kind, SETTLE_DISCARD);
    cr_assert(custody_empty(mq.custody));
}

Test(source_mq, parked_ones_come_by_priority_and_after_what_is_before_them)
{
    struct message first = {.priority = 9, .seq = 1}, last = {.seq = 9};
    const struct header_text key = {.at = "k", .size = 1}, none = {"n", 1};
    struct message *m;

    put(STORE_PARKED, 2, 0);
    put(STORE_PARKED, 3, 5);
    cr_assert_eq(s->local->unpark(s, 0, none, false, NULL, &m), -ENOENT);
    cr_assert_eq(s->local->unpark(s, 0, key, false, &first, &m), -EAGAIN);
    cr_assert_eq(s->local->unpark(s, 0, key, false, &last, &m), 0);
    cr_assert_eq(m->seq, 3);
    cr_assert_eq(settle(m, SETTLE_DONE, 0), 0);
    cr_assert_eq(s->local->unpark(s, 0, key, true, NULL, &m), 0);
    cr_assert_eq(m->seq, 2);
}

Test(source_mq, many_are_parked_in_one_commit)
{
    struct settle list[SLOTS];
    struct store_stats before, after;

    for (unsigned i = 0; i < SLOTS; i++)
        put(STORE_WAITING, i + 1, 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        list[i] = (struct settle){
            .m = take_due(0), .kind = SETTLE_PARK, .lane = LANE_NONE};
        list[i].group = list[i].m->group;
    }
    cr_assert_eq(s->ops->count(s, COUNT_FREE), 0);
    store_stats(mq.store, &before);
    cr_assert_eq(s->ops->settle(s, list, SLOTS), 0);
    store_stats(mq.store, &after);
    cr_assert_eq(after.commits, before.commits + 1);
    for (unsigned i = 0; i < SLOTS; i++) {
        cr_assert_eq(row_of(i + 1).state, STORE_PARKED);
        s->ops->release(s, list[i].m);
    }
    cr_assert_eq(s->ops->count(s, COUNT_FREE), SLOTS);
}

Test(source_mq, without_a_free_slot_nothing_is_lent_and_nothing_claimed)
{
    struct message *m;

    for (unsigned i = 0; i <= SLOTS; i++)
        put(STORE_WAITING, i + 1, 0);
    for (unsigned i = 0; i < SLOTS; i++)
        (void)take_due(i);
    cr_assert_eq(s->ops->take_due(s, SLOTS, &m), -EAGAIN);
    cr_assert_eq(settle(&mq.lents[0].m, SETTLE_DONE, 0), 0);
    cr_assert_eq(take_due(0)->seq, SLOTS + 1);
}

Test(source_mq, one_that_no_slot_has_room_for_dies)
{
    struct store_row row = fixture_row(STORE_WAITING, "");
    char large[200] = {0};
    struct message *m;

    row.data = large;
    row.size = custody_body_bytes(mq.custody) + 1;
    row.receive_seq = 5;
    cr_assert_leq(row.size, sizeof large);
    fixture_put(mq.store, &row);
    cr_assert_eq(s->ops->take_due(s, 0, &m), -EAGAIN);
    cr_assert_eq(deaths, 1);
    cr_assert_eq(death.seq, 5);
    cr_assert_eq(death.size, row.size);
    cr_assert_eq(row_of(5).state, STORE_DEAD);
}

/* ---- what an operator wants of rows that wait ---- */

static enum steered steer(enum steer what, int64_t row)
{
    enum steered out = STEERED_IN_FLIGHT;

    cr_assert_eq(s->local->steer(s, what, &row, 1, &out), 0);
    return out;
}

/* Put a row of group "k" that is due in an hour into the store. */
static int64_t later(uint64_t seq, uint32_t attempts)
{
    struct store_row m = fixture_row(STORE_WAITING, "body");

    m.group = "k";
    m.group_size = 1;
    m.receive_seq = seq;
    m.attempts = attempts;
    m.due_ns = clock_wall_ns() + 3600 * NS_PER_S;
    return fixture_put(mq.store, &m);
}

Test(source_mq, what_is_to_run_now_is_due)
{
    int64_t row = later(1, 2), parked = put(STORE_PARKED, 2, 0);
    struct message *m;

    cr_assert_eq(s->ops->take_due(s, 0, &m), -EAGAIN);
    cr_assert_eq(steer(STEER_RUN_NOW, row), STEERED);
    cr_assert_eq(steer(STEER_RUN_NOW, row), STEERED_BEFORE);
    cr_assert_eq(steer(STEER_RUN_NOW, parked), STEERED_BEFORE);
    cr_assert_eq(steer(STEER_RUN_NOW, 99), STEERED_GONE);
    atomic_store(&s->due, 1); /* as the timer does */
    m = take_due(0);
    cr_assert_eq(m->seq, 1);
    cr_assert_eq(m->failures, 2);
    cr_assert_not(m->flags & MESSAGE_CANCELLED);
}

Test(source_mq, what_is_cancelled_comes_with_its_mark_and_keeps_it)
{
    const struct header_text key = {.at = "k", .size = 1};
    int64_t row = later(1, 1), parked = put(STORE_PARKED, 2, 0);
    struct message *m;

    cr_assert_eq(steer(STEER_CANCEL, row), STEERED);
    cr_assert_eq(steer(STEER_CANCEL, row), STEERED_BEFORE);
    cr_assert_eq(steer(STEER_CANCEL, parked), STEERED);
    atomic_store(&s->due, 1);
    m = take_due(0);
    cr_assert(m->flags & MESSAGE_CANCELLED);
    cr_assert_eq(settle(m, SETTLE_RETRY, 0), 0, "the retry was refused");
    cr_assert(row_of(1).flags & STORE_CANCELLED,
              "the write took the mark back");
    cr_assert_eq(s->local->unpark(s, 0, key, false, NULL, &m), 0);
    cr_assert(m->flags & MESSAGE_CANCELLED);
    cr_assert_eq(settle(m, SETTLE_DISCARD, 0), 0);
    cr_assert_eq(steer(STEER_CANCEL, parked), STEERED_GONE);
}

Test(source_mq, what_is_lent_is_not_cancelled_and_what_is_about_to_be_is)
{
    int64_t lent_row = put(STORE_WAITING, 1, 0);
    int64_t next = put(STORE_WAITING, 2, 0);

    cr_assert_eq(take_due(0)->seq, 1);
    cr_assert_eq(steer(STEER_CANCEL, lent_row), STEERED_IN_FLIGHT);
    cr_assert_not(row_of(1).flags & STORE_CANCELLED);
    cr_assert_eq(steer(STEER_CANCEL, next), STEERED,
                 "not cancelled, but it was read and not lent");
    atomic_store(&s->due, 1);
    cr_assert(take_due(1)->flags & MESSAGE_CANCELLED);
}

Test(source_mq, a_store_that_is_gone_steers_nothing)
{
    int64_t row = later(1, 0);
    enum steered out;

    atomic_store(&mq.store_gone, true);
    cr_assert_eq(s->local->steer(s, STEER_CANCEL, &row, 1, &out), -EBADFD);
    atomic_store(&mq.store_gone, false);
    cr_assert_not(row_of(1).flags & STORE_CANCELLED);
    cr_assert_eq(steer(STEER_CANCEL, row), STEERED, "the row is still claimed");
}

static int none_left(void *arg, const struct source_left *left)
{
    (void)arg, (void)left;
    cr_assert_fail("a message was lent");
    return 0;
}

static void no_run(void *arg, const struct source_run *run)
{
    (void)arg, (void)run;
    cr_assert_fail("a run was reported");
}

/* Open everything again, as a next worker that has not looked at the slots. */
static void open_again(void)
{
    const struct custody_spec spec = {
        .body_bytes = 64, .slots = SLOTS, .slots_max = SLOTS};
    struct problem p = {0};
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/custody", fixture_dir);
    source_mq_close(&mq);
    custody_close(&mq.custody);
    cr_assert_eq(custody_open(&mq.custody, path, &spec, &p), 0, "%s", p.text);
    cr_assert_eq(source_mq_open(&mq, &p), 0);
}

Test(source_mq, a_kill_before_its_end_lends_a_cancelled_one_to_nobody_else)
{
    struct message *m;
    struct problem p;

    steer(STEER_CANCEL, later(1, 1));
    atomic_store(&s->due, 1);
    (void)take_due(0); /* it is in a slot, and the worker is killed */
    open_again();
    cr_assert_eq(s->ops->runs(s, no_run, NULL, &p), 0);
    cr_assert_eq(s->ops->recover(s, none_left, NULL), 0);
    m = take_due(1);
    cr_assert_eq(m->seq, 1);
    cr_assert(m->flags & MESSAGE_CANCELLED);
}

/* ---- a queue with larger messages ---- */

/* spool_take calls large_refuse under spool.mtx. */
Test(source_mq, an_end_is_reported_after_the_take_that_found_the_reason)
{
    const struct queue_attr large = {.depth = 1, .message_size = 65};
    int flags = QUEUE_RECEIVE | QUEUE_CREATE;
    struct queue *fresh;
    struct message *m;
    char name[64];

    snprintf(name, sizeof name, "/mqw-test-source-%d", (int)getpid());
    snprintf(set.queue, sizeof set.queue, "%s", name);
    cr_assert_eq(queue_open(&mq.queue, name, flags, NULL, NULL, NULL), 0);
    queue_unlink(name);
    cr_assert_eq(queue_open(&fresh, name, flags, &large, NULL, NULL), 0);
    atomic_store(&mq.name_gone, true);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(s->ops->take(s, 0, 1, &m), -EAGAIN);
    cr_expect_eq(ends, 0, "reported inside of take");
    chore_run(&mq.large);
    cr_expect_eq(ends, 1);
    queue_close(&fresh);
    queue_close(&mq.queue);
    queue_unlink(name);
}

/* ---- how many wait ---- */

static atomic_bool parks_over;

static void *park_again(void *arg)
{
    (void)arg;
    for (uint64_t seq = 1; seq <= 500; seq++)
        (void)store_delete(mq.store, put(STORE_PARKED, seq, 0), NULL);
    atomic_store(&parks_over, true);
    return NULL;
}

/* Fails if all rows are counted, then one is parked, then the parked ones are
 * counted: these would be more than all, and the difference an error. */
Test(source_mq, what_is_parked_meanwhile_is_not_missing_among_what_waits)
{
    pthread_t other;

    cr_assert_eq(pthread_create(&other, NULL, park_again, NULL), 0);
    while (!atomic_load(&parks_over))
        cr_assert_geq(s->ops->count(s, COUNT_WAITING), 0);
    cr_assert_eq(pthread_join(other, NULL), 0);
    cr_assert_eq(s->ops->count(s, COUNT_PARKED), 0);
}
