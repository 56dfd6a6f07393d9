/* test_faults_answer.c - answers of a worker with failing or late calls
 *
 * If a call fails that the worker makes to answer mqctl, the worker answers the
 * next request and goes on. Other tests check what mqctl and mqdlq print about
 * a worker that is starting, stopping or stopped by a signal, and so cannot
 * answer.
 */
#include <signal.h>
#include <unistd.h>

#include "tests/e2e/faults/faults_fixture.h"

TestSuite(faults_answer, .init = faults_init, .fini = harness_fini,
          .timeout = 300);

/* Check that a worker with one failed call obeys mqctl at the next request. The
 * first request must fail with the text `refused`, or succeed if that is
 * NULL. */
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
    steered("accept4", EMFILE, NULL); /* accepted later */
    steered("recv", ECONNRESET, "does not answer");
    steered("send", EPIPE, "does not answer");
    steered("getsockopt", ENOMEM, "only the worker's user");
}

/* Saving the pause takes longer than a client waits for an answer. */
Test(faults_answer, a_pause_is_answered_while_the_disk_is_slow)
{
    const char *queue = harness_queue(10, 256);
    const char *const argv[] = {
        "mqworker", "--state-dir", harness_state_dir(),
        queue,      "--",          harness_path("handler"),
        NULL};
    static const char *const verbs[] = {"pause", "resume"};
    struct harness_process *w =
        fault_start("fsync@/pause:1:-600", "tally", argv);
    struct harness_result r;
    uint64_t seen, failed;

    harness_wait_log(w, "event=started", 10000);
    for (size_t i = 0; i < 2; i++) {
        r = harness_run("mqctl", verbs[i], "--state-dir", harness_state_dir(),
                        queue);
        cr_assert_eq(r.status, 0, "%s: %s", verbs[i], r.err);
        cr_assert(strstr(r.err, "not yet saved") &&
                      strstr(r.err, "the disk has not finished writing"),
                  "%s: %s", verbs[i], r.err);
    }
    fault_tally("tally", &seen, &failed);
    cr_assert_eq(failed, 1);
    cr_assert_eq(harness_log_count(w, "event=paused"), 1);
    harness_send_text(queue, "body");
    harness_until(harness_lines_with("done", "body") == 1, 10000);
    harness_kill(w);
}

/* ---- a worker that takes long to start or to stop ---- */

static const char *last_queue;

/* One verb, run while the worker is starting or stopping. */
struct verb_run {
    const char *program, *verb, *flag, *queue, *operand;
    bool controls; /* reports that the worker is starting or stopping */
    struct harness_process *p;
};

static void verb_start(struct verb_run *v)
{
    const char *argv[9] = {v->program, v->verb, "--state-dir",
                           harness_state_dir()};
    size_t n = 4;

    if (v->flag)
        argv[n++] = v->flag;
    if (v->queue)
        argv[n++] = v->queue;
    if (v->operand)
        argv[n++] = v->operand;
    v->p = harness_start(&(struct harness_spec){.argv = argv});
}

/* Check that the verb took the starting or stopping worker for no fault. */
static void verb_check(struct verb_run *v)
{
    int status = harness_wait(v->p, 30000);
    const char *out = harness_stdout(v->p, NULL);
    const char *err = harness_stderr(v->p, NULL);

    if (v->controls)
        cr_assert(status == 75 && (strstr(err, " is starting") ||
                                   strstr(err, " is stopping")),
                  "%s: %d: %s", v->verb, status, err);
    else if (strcmp(v->verb, "explain") == 0)
        cr_assert_eq(status, 66, "%s: %d: %s", v->verb, status, err);
    else if (strcmp(v->verb, "doctor") != 0)
        cr_assert_eq(status, 0, "%s: %d: %s", v->verb, status, err);
    for (const char *at = out; strcmp(v->verb, "doctor") == 0 && at;
         at = strchr(at + 1, '\n')) {
        at += *at == '\n';
        cr_assert(
            (strncmp(at, "warn", 4) != 0 && strncmp(at, "bad", 3) != 0) ||
                !memmem(at, strcspn(at, "\n"), last_queue, strlen(last_queue)),
            "%s", out);
    }
}

/* Run all verbs while the worker is starting or stopping. */
static void verbs_run(const char *q)
{
    struct verb_run all[] = {
        {"mqctl", "status", NULL, q, NULL, false, NULL},
        {"mqctl", "status", "--json", NULL, NULL, false, NULL},
        {"mqctl", "queues", NULL, NULL, NULL, false, NULL},
        {"mqctl", "metrics", NULL, NULL, NULL, false, NULL},
        {"mqctl", "doctor", NULL, q, NULL, false, NULL},
        {"mqctl", "list", NULL, q, NULL, false, NULL},
        {"mqctl", "groups", NULL, q, NULL, false, NULL},
        {"mqctl", "explain", NULL, q, "01ARZ3NDEKTSV4RRFFQ69G5FAV", false,
         NULL},
        {"mqdlq", "list", NULL, q, NULL, false, NULL},
        {"mqctl", "resume", NULL, q, NULL, true, NULL},
        {"mqctl", "set", NULL, q, "jitter=0", true, NULL},
    };
    size_t n = sizeof all / sizeof *all;

    last_queue = q;
    for (size_t i = 0; i < n; i++)
        verb_start(&all[i]);
    for (size_t i = 0; i < n; i++)
        verb_check(&all[i]);
}

/* Start a worker in which one call does not return until late_end is called. */
static struct harness_process *slow_start(const char *q, const char *call)
{
    const char *const argv[] = {
        "mqworker", "--state-dir", harness_state_dir(),
        q,          "--",          harness_path("handler"),
        NULL};
    char fault[64];

    snprintf(fault, sizeof fault, "%s:1:-600", call);
    return fault_start(fault, "tally", argv);
}

/* Wait until the worker makes the late call. */
static void late_wait(void)
{
    uint64_t seen, failed;

    harness_until((fault_tally("tally", &seen, &failed), seen > 0), 20000);
}

static void late_end(void)
{
    cr_assert_eq(unlink(harness_path("tally")), 0);
}

static void starts_slowly(const char *call)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = slow_start(q, call);

    late_wait();
    verbs_run(q);
    late_end();
    harness_wait_log(w, "event=started", 20000);
    cr_assert_eq(harness_stop(w, 20000), 0, "%s", harness_stderr(w, NULL));
}

Test(faults_answer, a_worker_without_its_store_yet_is_starting)
{
    starts_slowly("link@store.db");
}

Test(faults_answer, a_worker_without_its_socket_yet_is_starting)
{
    starts_slowly("listen");
}

Test(faults_answer, a_worker_without_its_socket_any_more_is_stopping)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = slow_start(q, "rename@/counters");

    harness_wait_log(w, "event=started", 20000);
    harness_signal(w, SIGTERM);
    late_wait();
    verbs_run(q);
    late_end();
    cr_assert_eq(harness_wait(w, 20000), 0, "%s", harness_stderr(w, NULL));
}

Test(faults_answer, forget_at_the_start_of_a_worker_does_not_end_it)
{
    const char *q = harness_queue_name();
    struct harness_process *w = slow_start(q, "flock");
    struct harness_result r;

    late_wait();
    r = harness_run("mqctl", "forget", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    late_end();
    harness_wait_log(w, "event=started", 20000);
    cr_assert_eq(harness_stop(w, 20000), 0, "%s", harness_stderr(w, NULL));
}

Test(faults_answer, a_worker_that_a_signal_stopped_is_said_to_be)
{
    const char *q = harness_queue(10, 256), *line;
    struct harness_process *w = harness_worker(q, "--", "true");
    struct harness_result r;

    harness_wait_log(w, "event=started", 20000);
    harness_signal(w, SIGSTOP);
    line = strstr(harness_path("kill -CONT %d", (int)harness_pid(w)), "kill");
    harness_until((r = harness_run("mqctl", "status", "--state-dir",
                                   harness_state_dir(), q),
                   strstr(r.out, "stopped by a signal")),
                  20000);
    cr_assert_eq(r.status, 75);
    cr_assert_not_null(strstr(r.err, line), "%s", r.err);
    r = harness_run("mqctl", "pause", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 75);
    cr_assert_not_null(strstr(r.err, line), "%s", r.err);
    harness_signal(w, SIGCONT);
    r = harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_null(strstr(r.out, "paused"), "the order was sent: %s", r.out);
    cr_assert_eq(harness_stop(w, 20000), 0, "%s", harness_stderr(w, NULL));
}
