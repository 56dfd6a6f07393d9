/* test_ready.c - messages that wait for a thread: which is next */
#include "tests/fixtures/flow_fixture.h"

enum { COUNT = 4 };

static struct message m[COUNT];

static void setup(void)
{
    flow_settings();
    flow_open();
}

TestSuite(ready, .init = setup, .fini = flow_close);

Test(ready, none_waits_at_first)
{
    cr_assert(ready_empty(&flow.ready));
    cr_assert_null(ready_take(&flow.ready, 0));
}

Test(ready, they_come_in_the_order_they_went)
{
    for (unsigned i = 0; i < COUNT; i++)
        ready_put(&flow.ready, &m[i], false);
    cr_assert_eq(ready_waiting(&flow.ready), COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        cr_assert_eq(ready_take(&flow.ready, 0), &m[i]);
    cr_assert(ready_empty(&flow.ready));
}

Test(ready, what_was_given_back_is_first_again)
{
    ready_put(&flow.ready, &m[1], false);
    ready_put(&flow.ready, &m[0], true);
    cr_assert_eq(ready_take(&flow.ready, 0), &m[0]);
    ready_put(&flow.ready, &m[0], true);
    cr_assert_eq(ready_take(&flow.ready, 0), &m[0]);
    cr_assert_eq(ready_take(&flow.ready, 0), &m[1]);
    cr_assert_null(ready_take(&flow.ready, 0));
}

Test(ready, one_is_taken_out_by_its_sequence)
{
    for (unsigned i = 0; i < COUNT; i++) {
        m[i].seq = i + 1;
        ready_put(&flow.ready, &m[i], false);
    }
    cr_assert_null(ready_take(&flow.ready, COUNT + 1));
    cr_assert_eq(ready_take(&flow.ready, 2), &m[1]);
    cr_assert_eq(ready_waiting(&flow.ready), COUNT - 1);
    cr_assert_eq(ready_take(&flow.ready, COUNT), &m[COUNT - 1], "the last one");
    ready_put(&flow.ready, &m[1], false);
    cr_assert_eq(ready_take(&flow.ready, 0), &m[0]);
    cr_assert_eq(ready_take(&flow.ready, 0), &m[2]);
    cr_assert_eq(ready_take(&flow.ready, 0), &m[1]);
    cr_assert(ready_empty(&flow.ready));
}
