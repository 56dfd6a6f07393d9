/* test_schedules.c - try some thread schedules of the worker's flow, and check
 * that such runs find faults (tests/schedules/schedules.c)
 *
 * make schedules tries many more.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/harness/sweep.h"

enum { FAULTS = 6 };

TestSuite(schedules, .init = harness_init, .fini = harness_fini,
          .timeout = 300);

/* Run a program of tests/schedules/ with so many schedules of each kind, in one
 * scene or, if `scene` is NULL, in all. */
static struct harness_result schedules_run(const char *program,
                                           const char *runs, const char *scene)
{
    return harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(
            harness_path("%s/%s", harness_handler("../schedules"), program),
            "--singles", runs, "--pairs", runs, "--runs", runs,
            scene ? "--scene" : NULL, scene)});
}

Test(schedules, no_order_loses_a_message_or_runs_it_twice)
{
    struct harness_result r = schedules_run("schedules", "50", NULL);

    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert(strstr(r.out, "no fault"), "%s", r.out);
}

/* Expect that the program, which has a fault put in, finds it and prints
 * `said`. A run that takes a part of sweeps tries one fault, a different one
 * each day. */
static void fault_is_found(unsigned day, const char *program, const char *scene,
                           const char *said)
{
    struct harness_result r;

    if (sweep_step() > 1 && day != sweep_first() % FAULTS)
        cr_skip_test("one fault a day; MQW_TEST_WHOLE=1 finds all");
    r = schedules_run(program, "1500", scene);
    cr_assert_eq(r.status, 1, "%s is not found: %s%s", program, r.out, r.err);
    cr_assert(strstr(r.out, said), "%s", r.out);
}

Test(schedules, a_cap_that_is_not_counted_in_one_step)
{
    fault_is_found(0, "fault_cap_store", NULL, "schedules: ");
}

Test(schedules, a_cap_that_is_exceeded)
{
    fault_is_found(1, "fault_cap_exceeded", "window",
                   "are used, and the cap is");
}

Test(schedules, a_group_that_is_leased_twice)
{
    fault_is_found(2, "fault_lease_twice", NULL, "of group ");
}

Test(schedules, a_wake_up_that_is_missing)
{
    fault_is_found(3, "fault_missing_wake", NULL, "overlooked");
}

Test(schedules, peek_mode_that_ends_too_late)
{
    fault_is_found(4, "fault_wrong_order", NULL, "overlooked");
}

Test(schedules, a_window_that_does_not_look_once_more)
{
    fault_is_found(5, "fault_missing_look", "window", "a window has room");
}
