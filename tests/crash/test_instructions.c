/* test_instructions.c - what a message costs, in user instructions from the
 * return of one mq_receive to the call of the next
 *
 * That number is the same on each machine, quiet or not, so it is what speed is
 * steered by. The bounds only go down: who takes instructions away lowers them
 * to what is left and 3 %. `make instructions` says where the others are.
 */
#include "tests/crash/torture_test.h"

#include <string.h>

/* Measured 527; the goal is 500. */
#define PLAIN_MOST 538
/* With --timeout, each message with a group. Measured 818 to 825, by the key;
 * the goal is 750. */
#define ALL_ON_MOST 842

TestSuite(instructions, .init = harness_init, .fini = harness_fini,
          .timeout = 3600);

/* of - the number in the line "NAME: number instructions a message ..." */
static unsigned long of(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    cr_assert_not_null(line, "no line \"%s\"", name);
    return strtoul(line + strlen(name), NULL, 10);
}

Test(instructions, message_costs_no_more_than_it_did)
{
    const char *text;

#ifndef __OPTIMIZE__
    cr_skip_test("the bounds are for a worker that was built with -O2");
#endif
    text = torture_traces(
        HARNESS_LIST(harness_handler("../crash/torture"), "--instructions"));

    cr_expect_leq(of(text, "\nplain: "), PLAIN_MOST);
    cr_expect_leq(of(text, "\nlimit and groups: "), ALL_ON_MOST);
    cr_expect_gt(of(text, "\nplain: "), 100, "that was no message");
}
