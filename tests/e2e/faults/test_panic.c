/* test_panic.c - mqworker: an abort is logged with its reason and loses no
 * message */
#include <signal.h>

#include "tests/e2e/faults/faults_fixture.h"

TestSuite(panic, .init = faults_init, .fini = harness_fini);

/* From the second call on, timerfd_settime fails. The second call watches the
 * clock and may fail; a later one is tried twice before the abort. */
Test(panic, a_clock_that_cannot_be_set_is_named_before_the_abort)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = fault_start(
        "timerfd_settime:2:22:0", "tally",
        HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),
                     "--timeout", "1h", q, "--", harness_path("handler")));

    harness_send_text(q, "x");
    cr_assert_eq(harness_wait(w, 10000), -SIGABRT, "%s",
                 harness_stderr(w, NULL));
    cr_assert(strstr(harness_stderr(w, NULL), " event=clock_not_watched "),
              "%s", harness_stderr(w, NULL));
    cr_assert(strstr(harness_stderr(w, NULL),
                     " event=panic what=\"timers: timerfd_settime("),
              "%s", harness_stderr(w, NULL));
    w = harness_worker(q, "--", harness_path("handler"));
    harness_until_lines("done", 1, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}
