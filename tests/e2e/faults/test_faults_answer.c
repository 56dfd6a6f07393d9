/* test_faults_answer.c - the worker: a call it makes to answer mqctl fails; it
 * answers the next, and goes on */
#include "tests/e2e/faults/faults_fixture.h"

TestSuite(faults_answer, .init = faults_init, .fini = harness_fini,
          .timeout = 300);

/* steered - whether a worker one of whose calls failed is steered soon */
static void steered(const char *call, int err, const char *refused)
{
    char fault[32];
    const char *queue = harness_queue(10, 256);
    const char *const argv[] = {
        "mqworker", "--state-dir", harness_state_dir(),
        queue,      "--",          harness_path("handler"),
        NULL};
    uint64_t seen, failed;
    snprintf(fault, sizeof fault, "%s:1:%d", call, err);
    struct harness_process *w = fault_start(fault, "tally", argv);
    harness_wait_log(w, "event=started", 10000);
    struct harness_result r = harness_run("mqctl", "resume", "--state-dir",
                                          harness_state_dir(), queue);
    fault_tally("tally", &seen, &failed);
    cr_assert_eq(failed, 1, "%s", fault);
    if (refused)
        cr_assert_not_null(strstr(r.err, refused), "%s: %s", fault, r.err);
    else
        cr_assert_eq(r.status, 0, "%s: %s", fault, r.err);
    r = harness_run("mqctl", "resume", "--state-dir", harness_state_dir(),
                    queue);
    cr_assert_eq(r.status, 0, "%s: %s", fault, r.err);
    harness_send_text(queue, fault);
    harness_until(harness_lines_with("done", fault) == 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0, "%s", harness_stderr(w, NULL));
}

Test(faults_answer, a_worker_that_cannot_answer_one_answers_the_next)
{
    steered("accept4", EMFILE, NULL); /* it is let in later */
    steered("recv", ECONNRESET, "does not answer");
    steered("send", EPIPE, "does not answer");
    steered("getsockopt", ENOMEM, "only the worker's user");
}
