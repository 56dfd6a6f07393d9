/* criterion.h - the part of Criterion that the unit tests use
 *
 * WHAT   Test, TestSuite, assertions and skips, for architectures that have no
 *        Criterion. scripts/cross gives the compiler this folder and the
 *        archive of tests/cross/criterion.c, whose main() runs the tests.
 * WHO    Unit tests, the fixtures and the harness.
 * FAILS  cr_assert ends the test, cr_expect lets it continue; both print a line
 *        that begins with "[FAIL]".
 */
#ifndef TESTS_CROSS_CRITERION_H
#define TESTS_CROSS_CRITERION_H

#include <stdbool.h>
#include <string.h>

struct cr_options {
    void (*init)(void);
    void (*fini)(void);
    double timeout; /* seconds; 0: the usual one */
    int unused;
};

struct cr_test {
    const char *suite, *name; /* name NULL: the options are of the suite */
    struct cr_options options;
    void (*run)(void);
    struct cr_test *next;
};

/* Add a test, or the options of a suite. Called before main(). */
void cr_add(struct cr_test *test);
/* Report a failed check; `fatal` ends the test. */
void cr_failed(bool fatal, const char *file, int line, const char *what,
               const char *format, ...) __attribute__((format(printf, 5, 6)));
/* End the test as skipped. */
_Noreturn void cr_skipped(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

#define CR_ADD_(id, suite, name, run, ...)                                     \
    static struct cr_test id##_test = {suite, name, {__VA_ARGS__}, run, NULL}; \
    __attribute__((constructor)) static void id##_test_add(void)               \
    {                                                                          \
        cr_add(&id##_test);                                                    \
    }
#define CR_TEST_(s, n, ...)                              \
    static void s##_##n##_run(void);                     \
    CR_ADD_(s##_##n, #s, #n, s##_##n##_run, __VA_ARGS__) \
    static void s##_##n##_run(void)
#define CR_SUITE_(s, ...)                           \
    CR_ADD_(s##_suite, #s, NULL, NULL, __VA_ARGS__) \
    struct cr_test
#define Test(...)      CR_TEST_(__VA_ARGS__, .unused = 0)
#define TestSuite(...) CR_SUITE_(__VA_ARGS__, .unused = 0)

/* The message is optional, so a blank comes before it. */
#define CR_IS_(fatal, good, what, ...) \
    ((good) ? (void)0                  \
            : cr_failed(fatal, __FILE__, __LINE__, what, " " __VA_ARGS__))
#define CR_PAIR_(fatal, a, op, b, ...) \
    CR_IS_(fatal, (a)op(b), #a " " #op " " #b, __VA_ARGS__)
#define CR_TEXT_(fatal, a, op, b, ...) \
    CR_IS_(fatal, strcmp(a, b) op 0, #a " " #op " " #b, __VA_ARGS__)

#define cr_assert(x, ...)            CR_IS_(true, x, #x, __VA_ARGS__)
#define cr_assert_not(x, ...)        CR_IS_(true, !(x), "not " #x, __VA_ARGS__)
#define cr_assert_null(x, ...)       CR_PAIR_(true, x, ==, NULL, __VA_ARGS__)
#define cr_assert_not_null(x, ...)   CR_PAIR_(true, x, !=, NULL, __VA_ARGS__)
#define cr_assert_eq(a, b, ...)      CR_PAIR_(true, a, ==, b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...)     CR_PAIR_(true, a, !=, b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...)      CR_PAIR_(true, a, <, b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...)     CR_PAIR_(true, a, <=, b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...)      CR_PAIR_(true, a, >, b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...)     CR_PAIR_(true, a, >=, b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...)  CR_TEXT_(true, a, ==, b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) CR_TEXT_(true, a, !=, b, __VA_ARGS__)
#define cr_assert_str_empty(a, ...)  CR_TEXT_(true, a, ==, "", __VA_ARGS__)
#define cr_assert_arr_eq(a, b, size, ...) \
    CR_IS_(true, memcmp(a, b, size) == 0, #a " == " #b, __VA_ARGS__)
#define cr_assert_fail(...) CR_IS_(true, false, "reached", __VA_ARGS__)

#define cr_expect(x, ...)           CR_IS_(false, x, #x, __VA_ARGS__)
#define cr_expect_not(x, ...)       CR_IS_(false, !(x), "not " #x, __VA_ARGS__)
#define cr_expect_null(x, ...)      CR_PAIR_(false, x, ==, NULL, __VA_ARGS__)
#define cr_expect_not_null(x, ...)  CR_PAIR_(false, x, !=, NULL, __VA_ARGS__)
#define cr_expect_eq(a, b, ...)     CR_PAIR_(false, a, ==, b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...)    CR_PAIR_(false, a, !=, b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...)     CR_PAIR_(false, a, <, b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...)    CR_PAIR_(false, a, <=, b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...)     CR_PAIR_(false, a, >, b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...)    CR_PAIR_(false, a, >=, b, __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) CR_TEXT_(false, a, ==, b, __VA_ARGS__)

#define cr_skip(...)      cr_skipped(__VA_ARGS__)
#define cr_skip_test(...) cr_skipped(__VA_ARGS__)

#endif
