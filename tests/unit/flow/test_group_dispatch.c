/* test_group_dispatch.c - messages of groups that come out of the store,
 * without a worker around
 *
 * A row that one thread has just written may be taken by another one, before
 * the first has returned from its commit.
 */
#include "tests/fixtures/mq_fixture.h"

#include <errno.h>
#include <pthread.h>

#include "common/custody/custody.h"

enum { SLOTS = 8, ROWS = 800, PARKERS = 6, GROUPS = 8 };

static void setup(void)
{
    set = (struct settings){
        .queue = "/q", .group_quantum = 10, .max_parked = ROWS};
    mq_files("/tmp/mqw-group_dispatch-XXXXXX");
    mq_custody(64, SLOTS, SLOTS);
    cr_assert_eq(custody_recover(mq.custody, &problem), 0);
    mq_parts(0);
}

TestSuite(ordered, .init = setup, .fini = mq_parts_close);

/* Put a message of one of the groups into the store; return its row. */
static int64_t put(enum store_state state, uint64_t seq)
{
    struct store_row m = fixture_row(state, "body");
    char key = (char)('a' + seq % GROUPS);

    m.group = &key;
    m.group_size = sizeof key;
    m.receive_seq = seq;
    return fixture_put(mq.store, &m);
}

/* End a delivery, in the order of settle.c. */
static void done(struct delivery *d)
{
    struct settle st = {.m = d->message, .kind = SETTLE_DONE};

    cr_assert_eq(mq.source.ops->settle(&mq.source, &st, 1), 0);
    dispatch_settled(&flow, d->lease, GROUP_GOES_ON, 0, true);
}

Test(ordered, a_row_that_is_claimed_still_is_taken_when_it_is_not)
{
    int64_t row = put(STORE_PARKED, 1);
    struct delivery d = {0};

    cr_assert_eq(
        flow.source->local->groups(flow.source, dispatch_restore, &flow), 0);
    cr_assert(due_rows_claim(mq.due_rows, row, CLAIM_LEND) == 0);
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(dispatch_take(&flow, 0, &d), -EAGAIN);
        cr_assert(custody_empty(mq.custody));
        cr_assert(dispatch_ready(&flow), "no thread would try again");
    }
    due_rows_release(mq.due_rows, row);
    cr_assert_eq(dispatch_take(&flow, 0, &d), 0);
    cr_assert_eq(d.message->seq, 1);
    done(&d);
    cr_assert(dispatch_empty(&flow));
}

/* Rows that are due, which the parking threads count down. */
static atomic_uint due_left;

/* Park due rows until none is left; return NULL, or `arg` on failure. */
static void *put_by_some(void *arg)
{
    unsigned left = atomic_load(&due_left);
    struct delivery d = {.place = *(unsigned *)arg};

    while (left) {
        struct message *m;

        if (!atomic_compare_exchange_weak(&due_left, &left, left - 1))
            continue;
        if (mq.source.ops->take_due(&mq.source, d.place, &m) != 0)
            return arg;
        delivery_read(&d, m, 0);
        if (dispatch_due(&flow, &d) != PUT_BACK)
            return arg;
    }
    mq.source.ops->rest(&mq.source, d.place);
    return NULL;
}

/* Take and settle all rows, while others park them; return the last error. */
static int take_all(void)
{
    struct delivery d = {0};
    unsigned taken = 0;
    int wrong = 0;

    while (taken < ROWS) {
        int err = dispatch_take(&flow, 0, &d);

        if (err && err != -EAGAIN)
            wrong = err;
        if (!err) {
            done(&d);
            taken++;
        }
    }
    mq.source.ops->rest(&mq.source, 0);
    return wrong;
}

/* There is no lookahead, so each row that is due goes to the store again. */
Test(ordered, rows_are_taken_while_those_that_parked_them_are_on_the_way_back)
{
    pthread_t thread[PARKERS];
    unsigned lanes[PARKERS];
    void *wrong;
    int err;

    for (unsigned i = 0; i < ROWS; i++)
        (void)put(STORE_WAITING, i + 1);
    atomic_store(&due_left, ROWS);
    for (unsigned i = 0; i < PARKERS; i++) {
        lanes[i] = i + 1;
        cr_assert_eq(pthread_create(&thread[i], NULL, put_by_some, &lanes[i]),
                     0);
    }
    err = take_all();
    for (unsigned i = 0; i < PARKERS; i++) {
        cr_assert_eq(pthread_join(thread[i], &wrong), 0);
        cr_assert_null(wrong);
    }
    cr_assert_eq(err, 0, "%s", strerror(-err));
    cr_assert(dispatch_empty(&flow));
}
