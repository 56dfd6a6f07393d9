/* test_items.c - work items: spare ones, and those that would take more */
#include "tests/fixtures/virtual_clock.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "common/state/counters.h"
#include "worker/flow/flow.h"
#include "worker/flow/receive.h"

static void rest(struct source *s, unsigned place)
{
    (void)s;
    (void)place;
}

static const struct source_ops ops = {.rest = rest};
static struct source source = {.ops = &ops};
static struct flow flow = {.source = &source};
static struct items items;
static const void *woken;
static char coprocesses[2];

static void wake(struct coprocess *coprocess)
{
    woken = coprocess;
}

static struct coprocess *coprocess(unsigned i)
{
    return (struct coprocess *)(void *)&coprocesses[i];
}

static struct work_item *item_get(void)
{
    struct work_item *item;

    cr_assert_eq(items_get(&items, &flow, &item), 0);
    items_count(&items, item);
    return item;
}

static void setup(void)
{
    items_init(&items, 0);
    cr_assert_eq(counters_open(&items.counters, "/nowhere/counters", 8), 0);
}

static void teardown(void)
{
    items_fini(&items);
    counters_close(&items.counters);
}

TestSuite(items, .init = setup, .fini = teardown);

Test(items, a_spare_one_is_used_again_and_no_two_have_one_number)
{
    struct work_item *a = item_get(), *b = item_get();

    cr_assert_neq(a, b);
    cr_assert_neq(a->own.place, b->own.place);
    items_put(&items, a);
    cr_assert_eq(item_get(), a);
    cr_assert_eq(items.made, 2);
}

Test(items, of_those_that_would_take_more_the_last_is_woken_once)
{
    struct work_item *a = item_get(), *b = item_get();

    cr_assert(!items_wake_one(&items, wake));
    items_coprocess_set(&items, a, coprocess(0));
    items_coprocess_set(&items, b, coprocess(1));
    items_want(&items, a);
    items_want(&items, b);
    cr_assert(items_wake_one(&items, wake));
    cr_assert_eq(woken, coprocess(1));
    items_unwant(&items, a);
    items_unwant(&items, b); /* it is off the list already */
    cr_assert(!items_wake_one(&items, wake));
    cr_assert_eq(atomic_load(&items.wants), 0);
}

Test(items, a_hold_wakes_those_that_have_a_lane)
{
    struct work_item *a = item_get();

    (void)item_get();
    items_wake_all(&items, wake);
    cr_assert_null(woken);
    items_coprocess_set(&items, a, coprocess(0));
    items_wake_all(&items, wake);
    cr_assert_eq(woken, coprocess(0));
}

Test(items, who_is_in_a_long_handler_is_no_crowd)
{
    struct work_item *a = item_get(), *b = item_get();

    item_read_clock(a);
    counters_put(&b->count->since_ns, COUNTERS_BUSY);
    cr_assert(items_contended(&items, a));
    counters_put(&b->count->since_ns, item_read_clock(b));
    cr_assert(items_contended(&items, a),
              "a handler that has just begun counts as a long one");
    atomic_fetch_add(&virtual_ns, 2 * NS_PER_MS);
    item_read_clock(a);
    cr_assert(!items_contended(&items, a));
    items_put(&items, b);
    cr_assert(!items_contended(&items, a));
}

Test(items, one_slow_handler_does_not_make_the_mean_slow)
{
    for (unsigned i = 0; i < 100; i++)
        items_pace(&items, NS_PER_US);
    items_pace(&items, NS_PER_S);
    cr_assert_lt(atomic_load(&items.pace_ns), 3 * NS_PER_US);
    for (unsigned i = 0; i < 200; i++)
        items_pace(&items, NS_PER_MS);
    cr_assert_gt(atomic_load(&items.pace_ns), NS_PER_MS / 2);
}
