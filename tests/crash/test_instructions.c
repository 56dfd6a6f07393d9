/* test_instructions.c - count the user instructions of a message, from the
 * return of one mq_receive to the call of the next
 *
 * The number is the same on every machine, quiet or busy, so it can bound the
 * cost of a message. If you save instructions, lower the bounds to 3 % above
 * the new number; if you delete an optimization that did not pay
 * (docs/performance.md), raise them. `make instructions` prints the functions.
 */
#include "tests/crash/torture_test.h"

#include <limits.h>
#include <string.h>

/* The bounds are for gcc 12; other compilers may need 10 % more. */
#if defined __GNUC__ && __GNUC__ == 12
#define MOST(n) (n)
#else
#define MOST(n) ((n)*11 / 10)
#endif
/* Measured 482. */
#define PLAIN_MOST MOST(500)
/* With --timeout, each message with a group. Measured 725. */
#define ALL_ON_MOST MOST(750)

/* On a busy machine, most messages of a run may read the kernel's clocks, but
 * not those of every run. */
#define RUNS 10

TestSuite(instructions, .init = harness_init, .fini = harness_fini,
          .timeout = 3600);

/* Return the number in the line "NAME: number instructions a message ...". */
static unsigned long count_of(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    cr_assert_not_null(line, "no line \"%s\"", name);
    return strtoul(line + strlen(name), NULL, 10);
}

static unsigned long least(unsigned long a, unsigned long b)
{
    return a < b ? a : b;
}

Test(instructions, message_costs_no_more_than_it_did)
{
    unsigned long plain = ULONG_MAX, all_on = ULONG_MAX;

#ifndef MQW_OPTIMIZED
    cr_skip_test("the bounds are for a worker that was built with -O2");
#endif
    for (int i = 0; i < RUNS && (plain > PLAIN_MOST || all_on > ALL_ON_MOST);
         i++) {
        const char *text = torture_traces(HARNESS_LIST(
            harness_handler("../crash/torture"), "--instructions"));

        plain = least(plain, count_of(text, "\nplain: "));
        all_on = least(all_on, count_of(text, "\nlimit and groups: "));
    }
    cr_expect_leq(plain, PLAIN_MOST);
    cr_expect_leq(all_on, ALL_ON_MOST);
    cr_expect_gt(plain, 100, "that was no message");
}
