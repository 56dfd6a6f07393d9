/* test_group_dispatch.c - messages of groups that come out of the store,
 * without a worker around
 *
 * What one thread has just written another one may read at once, before the
 * first is back from the commit.
 */
#include "tests/unit/storage/store_fixture.h"

#include <errno.h>
#include <pthread.h>

#include "common/custody/custody.h"
#include "worker/flow/flow.h"
#include "worker/source/mq/row_restore.h"
#include "worker/flow/group_dispatch.h"
#include "worker/source/mq/delivery_read.h"

enum { SLOTS = 8, ROWS = 800, PARKERS = 6, GROUPS = 8 };

static struct settings set = {
    .queue = "/q", .group_quantum = 10, .max_parked = ROWS};
static struct flow flow = {.set = &set};

static void visit(struct slot *slot, void *arg)
{
    (void)slot, (void)arg;
}

static void on_due(void *arg)
{
    (void)arg;
}

static void setup(void)
{
    const struct custody_spec spec = {
        .body_bytes = 64, .slots = SLOTS, .slots_max = SLOTS};
    char path[PATH_MAX];
    struct problem p = {0};

    fixture_init();
    flow.store = fixture_open();
    snprintf(path, sizeof path, "%s/custody", fixture_dir);
    cr_assert_eq(custody_open(&flow.custody, path, &spec, &p), 0, "%s", p.text);
    cr_assert_eq(custody_recover(flow.custody, visit, NULL, &p), 0);
    cr_assert_eq(timers_open(&flow.timers), 0);
    cr_assert_eq(due_rows_open(&flow.due_rows, flow.store, flow.timers, SLOTS,
                               on_due, NULL),
                 0);
    flow.row_restore = (struct row_restore){
        .store = flow.store, .room = custody_body_bytes(flow.custody)};
    cr_assert_eq(dispatch_open(&flow.dispatch, &flow, SLOTS), 0);
}

static void teardown(void)
{
    dispatch_close(&flow.dispatch);
    due_rows_close(&flow.due_rows);
    timers_close(&flow.timers);
    custody_close(&flow.custody);
    store_close(&flow.store);
    fixture_fini();
}

TestSuite(ordered, .init = setup, .fini = teardown, .timeout = 120);

/* put - a message of one of the groups */
static int64_t put(enum store_state state, uint64_t seq)
{
    struct store_row m = fixture_row(state, "body");
    char key = (char)('a' + seq % GROUPS);

    m.group = &key;
    m.group_size = sizeof key;
    m.receive_seq = seq;
    return fixture_put(flow.store, &m);
}

/* done - the end of a delivery, in the order of op_after */
static void done(struct delivery *d)
{
    int64_t row = d->slot->row;

    cr_assert_eq(store_delete(flow.store, row), 0);
    slot_retire(d->slot);
    dispatch_settled(&flow, d->lease, NULL, false);
    due_rows_release(flow.due_rows, row);
}

Test(ordered, a_row_that_has_not_landed_yet_is_taken_when_it_has)
{
    int64_t row = put(STORE_PARKED, 1);
    struct slot *slot = custody_acquire(flow.custody);
    struct delivery d = {0};

    cr_assert_eq(dispatch_restore(&flow), 0);
    cr_assert(due_rows_try_claim(flow.due_rows, row));
    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(dispatch_take(&flow, slot, &d), -EAGAIN);
        cr_assert_eq(slot_word(slot).state, SLOT_FREE);
        cr_assert(dispatch_ready(&flow), "whoever looks next, tries");
    }
    due_rows_release(flow.due_rows, row);
    cr_assert_eq(dispatch_take(&flow, slot, &d), 0);
    cr_assert_eq(slot->row, row);
    done(&d);
    cr_assert(dispatch_empty(&flow));
    custody_release(flow.custody, slot);
}

/* Rows that are due, for the threads that put them by. */
static int64_t due[ROWS];
static atomic_uint due_left;

/* put_by_some - each comes before all that are there; NULL is well */
static void *put_by_some(void *arg)
{
    struct slot *slot = custody_acquire(flow.custody);
    struct delivery d = {0};
    unsigned left = atomic_load(&due_left);

    while (left) {
        int64_t row;

        if (!atomic_compare_exchange_weak(&due_left, &left, left - 1))
            continue;
        row = due[left - 1];
        if (!due_rows_try_claim(flow.due_rows, row) ||
            row_restore(&flow.row_restore, row, STORE_WAITING, slot, &d) != 0 ||
            dispatch_due(&flow, &d) != PUT_BY)
            return arg;
    }
    custody_release(flow.custody, slot);
    return NULL;
}

/* take_all - whatever the others do meanwhile; 0, or what went wrong */
static int take_all(void)
{
    struct slot *slot = custody_acquire(flow.custody);
    struct delivery d = {0};
    unsigned taken = 0;
    int wrong = 0;

    while (taken < ROWS) {
        int err = dispatch_take(&flow, slot, &d);

        if (err && err != -EAGAIN)
            wrong = err;
        if (!err) {
            done(&d);
            taken++;
        }
    }
    custody_release(flow.custody, slot);
    return wrong;
}

/* Without a place in line, each goes to the store again as it is due. */
Test(ordered, rows_are_taken_while_those_that_parked_them_are_on_the_way_back)
{
    pthread_t thread[PARKERS];
    void *wrong;
    int err;

    for (unsigned i = 0; i < ROWS; i++)
        due[i] = put(STORE_WAITING, i + 1);
    atomic_store(&due_left, ROWS);
    for (unsigned i = 0; i < PARKERS; i++)
        cr_assert_eq(pthread_create(&thread[i], NULL, put_by_some, &flow), 0);
    err = take_all();
    for (unsigned i = 0; i < PARKERS; i++) {
        cr_assert_eq(pthread_join(thread[i], &wrong), 0);
        cr_assert_null(wrong);
    }
    cr_assert_eq(err, 0, "%s", strerror(-err));
    cr_assert(dispatch_empty(&flow));
}
