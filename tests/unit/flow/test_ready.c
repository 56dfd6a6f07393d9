/* test_ready.c - slots that wait for a thread: which is next */
#include "tests/unit/storage/custody_fixture.h"

#include "worker/flow/ready.h"

enum { SLOTS = 4 };

static struct custody *custody;
static struct ready ready;
static struct slot *slots[SLOTS];

static void visit(struct slot *slot, void *arg)
{
    (void)slot, (void)arg;
}

static void setup(void)
{
    struct problem p = {0};

    fixture_init();
    custody = fixture_open(SLOTS);
    cr_assert_eq(custody_recover(custody, visit, NULL, &p), 0);
    cr_assert_eq(ready_open(&ready, custody), 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        slots[i] = custody_acquire(custody);
        cr_assert_not_null(slots[i]);
    }
}

static void teardown(void)
{
    ready_close(&ready);
    custody_close(&custody);
    fixture_fini();
}

TestSuite(ready, .init = setup, .fini = teardown, .timeout = 10);

Test(ready, none_waits_at_first)
{
    cr_assert(ready_empty(&ready));
    cr_assert_null(ready_take(&ready));
}

Test(ready, they_come_in_the_order_they_went)
{
    for (unsigned i = 0; i < SLOTS; i++)
        ready_put(&ready, slots[i], false);
    cr_assert_eq(ready_waiting(&ready), SLOTS);
    for (unsigned i = 0; i < SLOTS; i++)
        cr_assert_eq(ready_take(&ready), slots[i]);
    cr_assert(ready_empty(&ready));
}

Test(ready, what_was_given_back_is_first_again)
{
    ready_put(&ready, slots[1], false);
    ready_put(&ready, slots[0], true);
    cr_assert_eq(ready_take(&ready), slots[0]);
    ready_put(&ready, slots[0], true);
    cr_assert_eq(ready_take(&ready), slots[0]);
    cr_assert_eq(ready_take(&ready), slots[1]);
    cr_assert_null(ready_take(&ready));
}

Test(ready, closing_what_was_never_opened_is_nothing)
{
    struct ready none = {0};

    ready_close(&none);
}
