/* test_closings.c - Groups that are closing: which messages they refuse */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/groups/closings.h"

static struct closings all;

static void teardown(void)
{
    closings_fini(&all);
    cr_assert_not(closings_any(&all));
}

TestSuite(closings, .fini = teardown);

static struct closing *add(const char *key, uint64_t from)
{
    cr_assert_eq(closings_add(&all, key, strlen(key), from, 0), 0);
    return closings_find(&all, key, strlen(key));
}

static bool refuses(const char *key, uint64_t seq)
{
    return closings_refuse(&all, key, strlen(key), seq);
}

/* keys - of those that are closing still, one behind the other */
static const char *keys(void)
{
    static char text[64];
    size_t bytes, size, n = 0;
    char *copies = closings_keys(&all, &bytes);

    for (size_t at = 0; at < bytes; at += sizeof size + size, n += size) {
        memcpy(&size, copies + at, sizeof size);
        memcpy(text + n, copies + at + sizeof size, size);
    }
    text[n] = '\0';
    free(copies);
    return text;
}

Test(closings, what_was_there_before_is_taken_and_what_comes_is_refused)
{
    struct closing *one;

    cr_assert_not(refuses("b", 1));
    one = add("b", 10);
    cr_assert(closings_any(&all));
    cr_assert_not(refuses("b", 9));
    cr_assert(refuses("b", 10));
    cr_assert(refuses("b", UINT64_MAX));
    cr_assert_not(refuses("a", 10));
    cr_assert_not(refuses("bb", 10));
    one->until = 20;
    cr_assert(refuses("b", 19));
    cr_assert_not(refuses("b", 20));
}

Test(closings, a_group_can_be_closed_again_while_the_last_time_is_not_forgotten)
{
    struct closing *again;

    add("a", 10)->until = 20;
    cr_assert_null(closings_find(&all, "a", 1));
    again = add("a", 30);
    cr_assert_not_null(again);
    cr_assert(refuses("a", 15));
    cr_assert_not(refuses("a", 25));
    cr_assert(refuses("a", 35));
    closings_prune(&all);
    cr_assert_eq(closings_find(&all, "a", 1), again);
    cr_assert_not(refuses("a", 15));
    cr_assert(refuses("a", 35));
    closings_remove(&all, again);
    cr_assert_not(refuses("a", 35));
    cr_assert_not(closings_any(&all));
}

Test(closings, one_that_is_opened_has_no_close_left)
{
    cr_assert_not(closings_open(&all, "b", 1));
    add("b", 10)->until = 20;
    add("b", 30)->until = 40;
    (void)add("b", 50);
    (void)add("bb", 10);
    (void)add("a", 10);
    cr_assert(closings_open(&all, "b", 1));
    for (uint64_t seq = 0; seq < 60; seq++)
        cr_assert_not(refuses("b", seq));
    cr_assert(refuses("bb", 15));
    cr_assert(refuses("a", 15));
    cr_assert_not(closings_open(&all, "b", 1));
}

Test(closings, those_that_close_still_are_listed_by_their_keys)
{
    size_t bytes;

    cr_assert_null(closings_keys(&all, &bytes));
    cr_assert_eq(bytes, 0);
    (void)add("c", 1);
    (void)add("a", 2);
    add("b", 3)->until = 4;
    (void)add("aa", 5);
    cr_assert_str_eq(keys(), "aaac");
}

/* A list of many, of which half is over, against a table. */
Test(closings, many_are_told_apart)
{
    enum { MANY = 1000 };
    char key[16];

    for (unsigned i = 0; i < MANY; i++) {
        sprintf(key, "k%u", i * 7919 % MANY);
        struct closing *one = add(key, 100 + i);

        if (i % 2)
            one->until = 200 + i;
    }
    for (int pruned = 0; pruned < 2; pruned++) {
        for (unsigned i = 0; i < MANY; i++) {
            sprintf(key, "k%u", i * 7919 % MANY);
            cr_assert_not(refuses(key, 99 + i));
            cr_assert_eq(refuses(key, 100 + i), !(i % 2) || !pruned);
            cr_assert_eq(refuses(key, 200 + i), !(i % 2));
        }
        closings_prune(&all);
    }
}
