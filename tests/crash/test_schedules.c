/* test_schedules.c - some orders of the threads of flow, and the faults that
 * such runs find (tests/schedules/schedules.c); make schedules tries many more
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(schedules, .init = harness_init, .fini = harness_fini,
          .timeout = 300);

/* tried - a program of tests/schedules/, so many runs of a kind, in a scene or,
 * with NULL, in each */
static struct harness_result tried(const char *program, const char *runs,
                                   const char *scene)
{
    return harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(
            harness_path("%s/%s", harness_handler("../schedules"), program),
            "--singles", runs, "--pairs", runs, "--runs", runs,
            scene ? "--scene" : NULL, scene)});
}

Test(schedules, no_order_loses_a_message_or_runs_it_twice)
{
    struct harness_result r = tried("schedules", "50", NULL);

    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert(strstr(r.out, "no fault"), "%s", r.out);
}

/* found - a fault that was put in; `said` is among the words it ends with */
static void found(const char *program, const char *scene, const char *said)
{
    struct harness_result r = tried(program, "1500", scene);

    cr_assert_eq(r.status, 1, "%s is not found: %s%s", program, r.out, r.err);
    cr_assert(strstr(r.out, said), "%s", r.out);
}

Test(schedules, a_cap_that_is_not_counted_in_one_step)
{
    found("fault_cap_store", NULL, "schedules: ");
}

Test(schedules, a_cap_that_is_exceeded)
{
    found("fault_cap_exceeded", "window", "are used, and the cap is");
}

Test(schedules, a_group_that_is_leased_twice)
{
    found("fault_lease_twice", NULL, "of group ");
}

Test(schedules, a_wake_up_that_is_missing)
{
    found("fault_missing_wake", NULL, "slept over");
}

Test(schedules, peek_mode_that_ends_too_late)
{
    found("fault_wrong_order", NULL, "slept over");
}

Test(schedules, a_window_that_does_not_look_once_more)
{
    found("fault_missing_look", "window", "a window has room");
}
