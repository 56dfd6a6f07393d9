/* test_power.c - the short form of the power cuts (tests/crash/power/power.c)
 *
 * make power-cuts is the long form.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/crash/power/power_trace.h"
#include "tests/harness/harness.h"

#define LIMIT_MS 300000
#define LOST     "a commit that had returned is missing"

TestSuite(power, .init = harness_init, .fini = harness_fini, .timeout = 3600);

/* Run the program to its end. Return its status, as harness_wait does, and its
 * stderr in *found. */
static int power_run(const char *const *argv, const char **found)
{
    struct harness_process *p =
        harness_start(&(struct harness_spec){.argv = argv});
    int status;

    status = harness_wait(p, LIMIT_MS);
    *found = harness_stderr(p, NULL);
    fprintf(stderr, "%s", harness_stdout(p, NULL));
    return status;
}

Test(power, cut_at_points_of_a_run_loses_nothing_that_was_promised)
{
    const char *found;
    int status =
        power_run(HARNESS_LIST(harness_handler("../crash/power"), "--states",
                               "300", "--worker-every", "10"),
                  &found);

    cr_assert_eq(status, 0, "status %d: %s", status, found);
}

Test(power, syncs_that_are_left_out_are_found_and_found_again)
{
    const char *kept = harness_path("kept"), *found, *at;
    char seed[24], point[24], line[160];
    int status =
        power_run(HARNESS_LIST(harness_handler("../crash/power"), "--states",
                               "300", "--worker-every", "0", "--drop",
                               "store.db-wal", "--keep", kept),
                  &found);

    cr_assert_eq(status, 1, "status %d: %s", status, found);
    cr_assert(strstr(found, LOST), "%s", found);
    at = strstr(found, "--seed ");
    cr_assert(
        at && sscanf(at, "--seed %23[0-9] --point %23[0-9]", seed, point) == 2,
        "%s", found);
    snprintf(line, sizeof line, "--seed %s --point %s: " LOST, seed, point);
    cr_assert(strstr(found, line), "%s", found);

    status =
        power_run(HARNESS_LIST(harness_handler("../crash/power"), "--replay",
                               kept, "--seed", seed, "--point", point),
                  &found);
    cr_assert_eq(status, 1, "replay: status %d: %s", status, found);
    cr_assert(strstr(found, line), "%s", found);
}

Test(power, a_record_that_is_cut_short_is_said)
{
    const char *kept = harness_path("kept"), *found;
    struct power_trace trace;
    int status;

    power_trace_open(&trace, kept, true);
    trace.head->pid = getpid();
    power_trace_add(&trace, (struct power_record){.kind = POWER_WORLD}, "", "",
                    "B 1 1 0\n", 8);
    power_trace_add(&trace, (struct power_record){.kind = POWER_WRITE}, "", "",
                    kept, strlen(kept));
    cr_assert_eq(ftruncate(trace.fd, lseek(trace.fd, 0, SEEK_END) - 1), 0);

    status =
        power_run(HARNESS_LIST(harness_handler("../crash/power"), "--replay",
                               kept, "--seed", "1", "--point", "1"),
                  &found);
    cr_assert_eq(status, 70, "status %d: %s", status, found);
    cr_assert(strstr(found, "record 1 is cut short"), "%s", found);
}
