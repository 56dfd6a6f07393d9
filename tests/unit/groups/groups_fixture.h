/* groups_fixture.h - ordered groups with messages that have a number
 *
 * WHAT   Messages 1 to MANY - 1; the number is also the sequence.
 * WHO    test_groups.c and test_groups_park.c.
 * OWNS   `groups`, opened and closed around each test.
 * FAILS  By ending the test.
 */
#ifndef TESTS_GROUPS_FIXTURE_H
#define TESTS_GROUPS_FIXTURE_H

#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/groups/groups_check.h"

#define MANY    20001
#define QUANTUM 10

static struct groups *groups;
static struct group_item item[MANY];
static uint32_t priority[MANY]; /* a message's own, also with GROUP_FRONT */

static void sound(void)
{
    const char *wrong = groups_check(groups);

    cr_assert_null(wrong, "%s", wrong);
}

static void setup(void)
{
    cr_assert_eq(groups_open(&groups, QUANTUM, false, NULL), 0);
    memset(item, 0, sizeof item);
}

static void teardown(void)
{
    sound();
    groups_close(&groups);
    cr_assert_null(groups);
}

/* Add message `i`; return the result. */
static int add(const char *key, unsigned i, uint32_t of_priority)
{
    priority[i] = of_priority == GROUP_FRONT ? 0 : of_priority;
    item[i].seq = i;
    item[i].priority = of_priority;
    return groups_add(groups, key, strlen(key), &item[i]);
}

/* Add message `i`, which must be accepted. */
static void put(const char *key, unsigned i, uint32_t of_priority)
{
    cr_assert_eq(add(key, i, of_priority), 0);
}

/* Lease the next group, which must be `key`; NULL: there must be none. */
static struct group *lease(const char *key)
{
    struct group *group = groups_lease(groups);
    const char *is;
    size_t size;

    cr_assert_eq(group == NULL, key == NULL, "leased %s", key ? "none" : "one");
    if (group) {
        is = groups_key(group, &size);
        cr_assert(size == strlen(key) && memcmp(is, key, size) == 0,
                  "not %s but %.*s", key, (int)size, is);
    }
    return group;
}

/* Take what is next in a leased group; return its number, or 0. */
static unsigned take(struct group *group)
{
    struct group_item *at = groups_peek(groups, group);

    if (!at)
        return 0;
    groups_take(groups, group, at, priority[at - item]);
    return (unsigned)(at - item);
}

/* Settle the message of a lease, then lease any group. */
static __attribute__((unused)) struct group *settle_next(struct group *group)
{
    cr_assert(groups_release(groups, group));
    return groups_lease(groups);
}

/* Lease any group, deliver its next message; return its number, or 0. */
static __attribute__((unused)) unsigned deliver(void)
{
    struct group *group = groups_lease(groups);
    unsigned i = group ? take(group) : 0;

    if (group)
        groups_release(groups, group);
    return i;
}

/* Check that these messages, up to a 0, come in this order, then none. */
static __attribute__((unused)) void delivers(const unsigned *order)
{
    for (; *order; order++) {
        unsigned i = deliver();

        cr_assert_eq(i, *order, "%u, not %u", i, *order);
        sound();
    }
    cr_assert_eq(deliver(), 0);
}
#define DELIVERS(...) delivers((const unsigned[]){__VA_ARGS__, 0})

#endif
