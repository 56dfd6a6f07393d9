/* test_mqdlq_known.c - which letters of a broker are known, which are copies */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <search.h>
#include <string.h>

#include "scripts/mqdlq/amqp/known.h"

TestSuite(mqdlq_known);

static struct known known;

static struct store_row letter(const char *body, uint64_t died_ns)
{
    return (struct store_row){.id = {.bytes = {1}},
                              .died_ns = died_ns,
                              .reason = REASON_REJECTED,
                              .data = body,
                              .size = strlen(body)};
}

static void add(const char *body, uint64_t died_ns, uint64_t line,
                uint64_t sent_ns, int64_t row)
{
    const struct store_row m = letter(body, died_ns);
    const struct envelope e = {.line = line, .sent_ns = sent_ns};

    cr_assert_eq(known_add(&known, &m, &e, row), 0);
}

static int64_t first(const char *body, uint64_t line, uint64_t sent_ns,
                     uint64_t replay)
{
    const struct store_row m = letter(body, 77);
    const struct envelope e = {
        .line = line, .sent_ns = sent_ns, .replay = replay};

    return known_first(&known, &m, &e);
}

static bool is(const char *body, uint64_t died_ns, bool dated)
{
    const struct store_row m = letter(body, died_ns);

    return known_has(&known, &m, dated);
}

Test(mqdlq_known, a_copy_is_found_by_its_line_or_its_time)
{
    cr_assert_eq(first("a", 7, 5, 0), 0, "found in an empty list");
    add("a", 10, 7, 5, 1);
    cr_assert_eq(first("a", 7, 0, 0), 1);
    cr_assert_eq(first("a", 0, 5, 0), 1);
    cr_assert_eq(first("a", 8, 5, 0), 1);
    cr_assert_eq(first("a", 8, 6, 0), 0);
    cr_assert_eq(first("a", 0, 0, 0), 0);
    cr_assert_eq(first("a", 7, 5, 1), 0, "found, but it is of another replay");
    cr_assert_eq(first("b", 7, 5, 0), 0, "found, but its body is another");
    known_free(&known);
}

Test(mqdlq_known, a_letter_is_known_by_its_death)
{
    cr_assert(!is("a", 10, true));
    add("a", 10, 7, 0, 1);
    add("a", 20, 7, 0, 1);
    cr_assert(is("a", 10, true) && is("a", 20, true) && is("a", 30, false));
    cr_assert(!is("a", 30, true) && !is("b", 10, false));
    known_free(&known);
}

/* ---- many letters ---- */

static int (*order)(const void *, const void *);
static unsigned long comparisons;

static int order_count(const void *a, const void *b)
{
    comparisons++;
    return order(a, b);
}

/* Replace tfind(3) of libc, and count the comparisons of each search. */
void *tfind(const void *key, void *const *root,
            int (*compare)(const void *, const void *))
{
    void *(*real)(const void *, void *const *,
                  int (*)(const void *, const void *));

    *(void **)&real = dlsym(RTLD_NEXT, "tfind");
    order = compare;
    return real(key, root, order_count);
}

/* Each letter causes at most four searches: one by `first`, three by `add`. */
Test(mqdlq_known, a_letter_of_many_equal_messages_is_found_in_few_steps)
{
    enum { MANY = 20000, SEARCHES = 4, DEPTH = 40 };

    for (uint64_t i = 1; i <= MANY; i++) {
        cr_assert_eq(first("same", i, 0, 0), 0);
        add("same", i, i, 0, (int64_t)i);
    }
    /* A search among n keys takes about log2 n comparisons. With fewer, tfind
     * was not replaced, or letters are not told apart. */
    cr_assert_gt(comparisons, MANY * 10);
    cr_assert_lt(comparisons, MANY * SEARCHES * DEPTH);
    cr_assert_eq(first("same", MANY, 0, 0), MANY);
    cr_assert(is("same", MANY / 2, true) && is("same", 0, false));
    cr_assert(!is("same", 0, true));
    known_free(&known);
}
