/* test_group_table.c - groups by key: many of them, of every shape */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/groups/groups_check.h"

#define KEYS 3000
#define OPS  300000

static struct group_table table;

static void setup(void)
{
    cr_assert_eq(group_table_init(&table), 0);
}

static void teardown(void)
{
    const char *wrong = group_table_check(&table);

    cr_assert_null(wrong, "%s", wrong);
    group_table_fini(&table);
}

TestSuite(group_table, .init = setup, .fini = teardown);

static struct group *get(const char *key, size_t size)
{
    return group_table_get(&table, group_hash(key, size), key, size);
}

static struct group *find(const char *key, size_t size)
{
    return group_table_find(&table, group_hash(key, size), key, size);
}

/* Write key k, of any length up to the longest; return its size. All differ. */
static size_t key_of(unsigned k, char key[GROUP_KEY_MAX])
{
    size_t size = 4 + k * 7 % (GROUP_KEY_MAX - 3);

    memset(key, (int)(k % 251), GROUP_KEY_MAX);
    memcpy(key + (k % 2 ? 0 : size - 4), &k, 4);
    return size;
}

Test(group_table, finds_what_is_in_it_and_nothing_else_in_random_turns)
{
    static struct group *model[KEYS];
    const char *given = getenv("MQW_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10)
                          : (unsigned)time(NULL) ^ (unsigned)getpid();
    char key[GROUP_KEY_MAX];
    size_t count = 0;

    fprintf(stderr, "MQW_SEED=%u\n", seed);
    srandom(seed);
    for (unsigned op = 0; op < OPS; op++) {
        /* Grow in one eighth of the run, shrink in the next. */
        bool grow = op / (OPS / 8) % 2 == 0;
        unsigned k = (unsigned)random() % KEYS;
        size_t size = key_of(k, key);

        cr_assert_eq(find(key, size), model[k], "op %u", op);
        if (model[k] && (!grow || random() % 4 == 0)) {
            group_table_remove(&table, model[k]);
            model[k] = NULL;
            count--;
        } else if (grow || random() % 8 == 0) {
            struct group *group = get(key, size);

            cr_assert(group && (!model[k] || group == model[k]), "op %u", op);
            cr_assert(group->key_size == size &&
                      !memcmp(group->key, key, size));
            count += !model[k];
            model[k] = group;
        }
        cr_assert_eq(table.count, count);
        if (op % 1000 == 0)
            cr_assert_null(group_table_check(&table), "op %u", op);
    }
}

/* For keys of one word the size is enough: two of a size share no hash. */
Test(group_table, keys_with_one_hash_are_told_apart)
{
    static const char *const keys[] = {"customer-4711",
                                       "customer-4712",
                                       "dustomer-4711",
                                       "customer-47111",
                                       "a customer with a long name",
                                       "a customer with a long nams",
                                       "ab",
                                       "a"};
    enum { N = sizeof keys / sizeof *keys };
    struct group *group[N];

    for (unsigned k = 0; k < N; k++)
        group[k] = group_table_get(&table, 7, keys[k], strlen(keys[k]));
    for (unsigned k = 0; k < N; k++)
        cr_assert_eq(group_table_find(&table, 7, keys[k], strlen(keys[k])),
                     group[k]);
    cr_assert_eq(table.count, N);
    for (unsigned k = 0; k < N; k++)
        group_table_remove(&table, group[k]);
    cr_assert_null(group_table_find(&table, 7, "a", 1));
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* All keys of one and two bytes, and of each larger size those that differ in
 * two neighbouring bytes. */
Test(group_table, keys_of_one_word_have_a_hash_of_their_own)
{
    static uint64_t hashes[1 << 16];

    for (size_t size = 1; size <= GROUP_KEY_WORD; size++)
        for (size_t at = 0; at < (size < 2 ? 1 : size - 1); at++) {
            char key[GROUP_KEY_WORD] = "";
            size_t n = size < 2 ? 1 << 8 : 1 << 16;

            for (size_t k = 0; k < n; k++) {
                key[at] = (char)k;
                if (size > 1)
                    key[at + 1] = (char)(k >> 8);
                hashes[k] = group_hash(key, size);
            }
            qsort(hashes, n, sizeof *hashes, by_value);
            for (size_t k = 1; k < n; k++)
                cr_assert_neq(hashes[k - 1], hashes[k], "size %zu", size);
        }
}

Test(group_table, grows_and_shrinks_with_what_is_in_it)
{
    size_t least = table.size;
    unsigned n = 100000;

    for (unsigned k = 0; k < n; k++)
        cr_assert_not_null(get((char *)&k, sizeof k));
    cr_assert_geq(table.size, n);
    cr_assert_leq(table.size, 4 * (size_t)n);
    for (unsigned k = 0; k < n; k++)
        group_table_remove(&table, find((char *)&k, sizeof k));
    cr_assert_eq(table.size, least);
    cr_assert_eq(table.count, 0);
}

/* Return how many slots a search looks at, on average, with n keys. */
static double probes(const char *format, unsigned n, unsigned step)
{
    size_t sum = 0;
    char key[64];

    for (unsigned k = 0; k < n; k++) {
        int size = snprintf(key, sizeof key, format, k * step, k * step);

        cr_assert_not_null(get(key, (size_t)size));
    }
    cr_assert_eq(table.count, n, "%s: a key was taken for another one", format);
    for (size_t i = 0; i < table.size; i++)
        if (table.slots[i].group)
            sum += ((i - (size_t)table.slots[i].hash) & (table.size - 1)) + 1;
    group_table_fini(&table);
    cr_assert_eq(group_table_init(&table), 0);
    return (double)sum / n;
}

/* Numbered keys once shared 10 buckets in 1000. */
Test(group_table, keys_that_differ_in_few_places_spread)
{
    static const char *const formats[] = {
        "%u",         "%07u",          "account-%06u",   "account-%07u",
        "user-%x",    "%08x",          "%015u",          "%016x",
        "%u@example", "session/%x/in", "00000000%08u",   "%u-00000000-0000",
        "%08u%08u",   "a%03ub",        "tenant-12/%05u", "%033u",
    };
    static const unsigned steps[] = {1, 10, 4096};

    for (unsigned f = 0; f < sizeof formats / sizeof *formats; f++)
        for (unsigned s = 0; s < 3; s++) {
            double mean = probes(formats[f], 700, steps[s]);

            cr_assert_leq(mean, 2.5, "%s by %u: %.1f slots", formats[f],
                          steps[s], mean);
        }
}

Test(group_table, bytes_in_any_place_spread)
{
    char key[24] = {0};

    for (size_t size = 1; size <= sizeof key; size++)
        for (size_t at = 0; at < size; at++) {
            size_t sum = 0;

            for (unsigned k = 0; k < 256; k++) {
                key[at] = (char)k;
                cr_assert_not_null(get(key, size));
            }
            cr_assert_eq(table.count, 256);
            for (size_t i = 0; i < table.size; i++)
                if (table.slots[i].group)
                    sum +=
                        ((i - (size_t)table.slots[i].hash) & (table.size - 1)) +
                        1;
            cr_assert_leq(sum, 3 * 256, "byte %zu of %zu: %zu", at, size, sum);
            for (unsigned k = 0; k < 256; k++) {
                key[at] = (char)k;
                group_table_remove(&table, find(key, size));
            }
            key[at] = 0;
        }
}

Test(group_table, memory_of_freed_groups_is_used_again_but_not_kept_for_ever)
{
    struct group *first = get("a", 1), *again;

    group_table_remove(&table, first);
    again = get("b", 1);
    cr_assert_eq(again, first);
    cr_assert_eq(again->state, GROUP_IDLE);
    for (unsigned k = 0; k < 10000; k++)
        cr_assert_not_null(get((char *)&k, sizeof k));
    for (unsigned k = 0; k < 10000; k++)
        group_table_remove(&table, find((char *)&k, sizeof k));
    cr_assert_leq(table.spares, 1024);
}

Test(group_table, a_group_at_rest_is_found_again_as_new)
{
    struct group *first = get("a", 1);

    first->state = GROUP_RUNNING;
    first->used = first->high = 3;
    first->head = 7;
    first->recheck = true;
    group_table_rest(&table, first);
    cr_assert_eq(group_table_busy(&table), 0);
    cr_assert_eq(get("a", 1), first);
    cr_assert_eq(first->state, GROUP_IDLE);
    cr_assert(!first->used && !first->high && !first->head && !first->recheck);
}

Test(group_table, few_groups_at_rest_stay_however_many_there_were)
{
    for (unsigned k = 0; k < 10000; k++)
        get((char *)&k, sizeof k)->state = GROUP_RUNNING;
    for (unsigned k = 0; k < 10000; k++) {
        cr_assert_eq(group_table_busy(&table), 10000 - k);
        group_table_rest(&table, find((char *)&k, sizeof k));
        cr_assert_leq(table.count, 10000 - k - 1 + GROUPS_KEPT);
    }
    cr_assert_eq(table.count, GROUPS_KEPT);
    cr_assert_null(group_table_check(&table));
}

/* A group that runs while it loses its place is removed later: when it has come
 * to rest and lost its place again. */
Test(group_table, a_group_that_runs_outlives_its_place)
{
    struct group *runs = get("runs", 4);

    group_table_rest(&table, runs);
    runs->state = GROUP_RUNNING;
    for (unsigned k = 0; k < GROUPS_KEPT; k++)
        group_table_rest(&table, get((char *)&k, sizeof k));
    cr_assert(!runs->kept);
    cr_assert_eq(find("runs", 4), runs);
    group_table_rest(&table, runs);
    cr_assert_eq(table.count, GROUPS_KEPT);
    for (unsigned k = 0; k < GROUPS_KEPT; k++)
        group_table_rest(&table, get((char *)&k, sizeof k));
    cr_assert_null(find("runs", 4));
    cr_assert_eq(table.count, GROUPS_KEPT);
}
