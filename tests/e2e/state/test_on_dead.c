/* test_on_dead.c - mqworker --on-dead: a command runs at least once for each
 * dead letter */
#include <signal.h>

#include "common/state/counters.h"
#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(on_dead, .init = harness_init, .fini = harness_fini);

#define dlq(verb, ...)                                               \
    harness_run("mqdlq", (verb), "--state-dir", harness_state_dir(), \
                __VA_ARGS__)
#define TELLS  "cd $TEST_DIR; echo $MQW_LETTER >>told"
#define FAILS  "--max-attempts", "1"
#define REJECT "--", "sh", "-c", "exit 65"

/* Return how often the command ran for a letter. */
static size_t told(const char *letter)
{
    return harness_lines_with("told", letter);
}

static void says(const char *text, const char *what)
{
    cr_assert_not_null(strstr(text, what), "no '%s' in: %s", what, text);
}

Test(on_dead, the_command_gets_the_letter_and_what_its_handler_had)
{
    const char *q = harness_queue(0, 0), *id, *show;
    struct harness_process *w = ctl_worker(
        q, "--on-dead",
        "cd $TEST_DIR; cat >json.new; echo $MQW_LETTER $MQW_ID $MQW_QUEUE "
        "$MQW_GROUP $MQW_ATTEMPT $MQW_X_TRACE >env; mv json.new json",
        FAILS, "--", "sh", "-c", "echo no account >&2; exit 1");
    char want[256];

    id = ctl_good(harness_run("mqsend", "--print-id", "--group", "g",
                              "--header", "x-trace=abc", q, "hello"));
    harness_until(harness_exists("json"), SOON_MS);
    snprintf(want, sizeof want, "1 %.26s %s g 1 abc\n", id, q);
    cr_assert_str_eq(harness_read("env", NULL), want);
    show = ctl_good(dlq("show", "--json", q, "1"));
    cr_assert_str_eq(harness_read("json", NULL), show);
    cr_assert_not_null(strstr(show, "\"error_text\":\"no account\""));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = ctl_worker(q, "--on-dead", TELLS, FAILS, REJECT);
    harness_send_text(q, "x");
    harness_until_lines("told", 1, SOON_MS);
    cr_assert_eq(told("2"), 1, "only letter 2 was due");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(on_dead, one_runs_at_a_time_and_each_letter_once)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "4", "--on-dead",
        "cd $TEST_DIR; mkdir one || echo two >>both; sleep 0.05; rmdir one; "
        "echo letter $MQW_LETTER. >>told",
        FAILS, REJECT);
    char line[32];

    for (int i = 0; i < 9; i++)
        harness_send_text(q, "x");
    harness_until_lines("told", 9, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    for (int i = 1; i <= 9; i++) {
        snprintf(line, sizeof line, "letter %d.", i);
        cr_assert_eq(told(line), 1, "%s", line);
    }
    cr_assert_not(harness_exists("both"), "two ran at once");
}

Test(on_dead, a_hook_that_fails_is_tried_again_after_the_others)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--on-dead",
        TELLS "; [ $MQW_LETTER != 1 -o -e good ] || { echo smtp down >&2; "
              "exit 3; }",
        FAILS, REJECT);
    const char *line;
    char want[512];

    harness_send_text(q, "x");
    line = harness_wait_log(w, "event=on_dead_failed", SOON_MS);
    cr_assert_not_null(strstr(line, " letter=1 error=\"exit 3\" "
                                    "error_text=\"smtp down\" in=1s "),
                       "%s", line);
    harness_send_text(q, "x");
    harness_until(told("2") == 1, SOON_MS);
    harness_until(told("1") >= 2, SOON_MS);
    harness_until(ctl_number(q, "on_dead_waiting") == 1, SOON_MS);
    harness_until(ctl_number(q, "on_dead_failed") >= 2, SOON_MS);
    says(ctl_out("status", q), "failed for 1 dead letter; will run again");
    says(ctl("doctor", q).out, "--on-dead command failed for 1 dead letter,");
    snprintf(want, sizeof want,
             "\n      -> mqdlq show --json --state-dir %s %s 1 | MQW_LETTER=1 "
             "MQW_QUEUE=%s sh -c 'cd $TEST_DIR; ",
             harness_state_dir(), q, q);
    says(ctl("doctor", q).out, want);
    says(ctl("doctor", q).out, "mqdlq discard --state-dir /");
    says(ctl_out("metrics", NULL), "\nmqworker_on_dead_waiting{");
    says(ctl_out("metrics", NULL), "\nmqworker_on_dead_failed_total{");
    harness_write("good", "", 0);
    harness_until(told("1") >= 3, SOON_MS);
    harness_until(ctl_number(q, "on_dead_waiting") == 0, SOON_MS);
    cr_assert_null(strstr(ctl("doctor", q).out, "--on-dead command failed"));
    cr_assert_eq(told("2"), 1, "the other one was told again");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Later letters have their turn immediately while the first one waits. Their
 * success does not reset the backoff of the first one, so that its next wait is
 * 4 seconds and not 1. */
Test(on_dead, a_letter_that_always_fails_holds_up_no_other)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--on-dead",
                   "cd $TEST_DIR; echo letter $MQW_LETTER. >>told; [ "
                   "$MQW_LETTER != 1 ]",
                   FAILS, REJECT);
    char line[32];

    harness_send_text(q, "x");
    harness_wait_log(w, " letter=1 error=\"exit 1\" in=2s", SOON_MS);
    for (int i = 2; i <= 5; i++) {
        harness_send_text(q, "x");
        snprintf(line, sizeof line, "letter %d.", i);
        harness_until(told(line) == 1, SOON_MS);
    }
    harness_wait_log(w, " letter=1 error=\"exit 1\" in=4s", SOON_MS);
    cr_assert_eq(harness_log_count(w, " letter=1 error=\"exit 1\" in=1s"), 1);
    cr_assert_eq(dlq("discard", q, "1").status, 0);
    harness_until(ctl_number(q, "on_dead_waiting") == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return how many letters wait, from the counters' file: mqctl would ask the
 * worker and so wake it. */
static uint64_t waiting(const char *q)
{
    struct counters_header head;
    struct counters *c;
    struct problem p;

    cr_assert_eq(
        counters_attach(
            &c, harness_path("%s/counters", harness_runtime_folder(q)), &p),
        0);
    counters_header(c, &head);
    counters_close(&c);
    return head.gauges[COUNTERS_ON_DEAD];
}

/* No command runs for a removed letter: the idle worker must notice by itself
 * that none waits. */
Test(on_dead, an_idle_worker_shows_that_none_waits_any_more)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--on-dead", "exit 1", FAILS, REJECT);

    harness_send_text(q, "x");
    harness_wait_log(w, " letter=1 error=\"exit 1\" in=2s", SOON_MS);
    harness_until(waiting(q) == 1, SOON_MS);
    cr_assert_eq(dlq("discard", q, "1").status, 0);
    harness_until(waiting(q) == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The worker has one thread for handlers, which must not be blocked. */
Test(on_dead, a_hook_that_never_ends_is_ended_and_holds_up_nobody)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--timeout", "700ms", "--kill-after", "100ms",
        "--on-dead",
        "cd $TEST_DIR; trap '' TERM; echo $$ >>told; while :; do sleep 1; done",
        FAILS, "--", "sh", "-c",
        "read how; [ \"$how\" = good ] || exit 65; echo x >>runs");

    harness_send_text(q, "bad\n");
    harness_until_lines("told", 1, SOON_MS);
    for (int i = 0; i < 5; i++) /* with a longer limit than the hook */
        harness_send_text(q, "MQW/1\ntimeout: 60000\n\ngood\n");
    harness_until_lines("runs", 5, SOON_MS);
    cr_assert_not_null(strstr(
        harness_wait_log(w, "event=on_dead_failed", SOON_MS), "timeout 700ms"));
    harness_until(!harness_alive((pid_t)atoi(harness_read("told", NULL))),
                  SOON_MS);
    harness_until_lines("told", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The killed worker leaves its hook running. */
Test(on_dead, a_hook_that_a_kill_cut_off_runs_again_and_alone)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--on-dead", "cd $TEST_DIR; echo $$ >>told; exec sleep 1000", FAILS,
        REJECT);
    pid_t first;

    harness_send_text(q, "x");
    harness_until_lines("told", 1, SOON_MS);
    first = (pid_t)atoi(harness_read("told", NULL));
    harness_kill(w);
    cr_assert(harness_alive(first));
    w = ctl_worker(q, "--on-dead",
                   "cd $TEST_DIR; echo again $MQW_LETTER >>told", FAILS,
                   REJECT);
    harness_until(told("again 1") == 1, SOON_MS);
    cr_assert_not(harness_alive(first), "it ran beside the next one");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = ctl_worker(q, "--on-dead",
                   "cd $TEST_DIR; echo again $MQW_LETTER >>told", FAILS,
                   REJECT);
    harness_send_text(q, "y");
    harness_until(told("again 2") == 1, SOON_MS);
    cr_assert_eq(told("again 1"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(on_dead, a_stop_lets_it_finish_or_ends_it_and_it_runs_again)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--kill-after", "200ms", "--on-dead",
        "cd $TEST_DIR; echo one >>told; exec sleep 1000", FAILS, REJECT);

    harness_send_text(q, "x");
    harness_until_lines("told", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = ctl_worker(q, "--on-dead", "cd $TEST_DIR; echo two >>told", FAILS,
                   REJECT);
    harness_until_lines("told", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(on_dead, a_discarded_letter_has_no_hook_and_one_due_is_not_removed)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--max-dead", "1", "--on-dead",
        "cd $TEST_DIR; echo $MQW_LETTER >>told; while [ ! -e go ]; do sleep "
        "0.05; done",
        FAILS, REJECT);

    for (int i = 0; i < 4; i++)
        harness_send_text(q, "x");
    harness_until(ctl_number(q, "died") == 4, SOON_MS);
    harness_until_lines("told", 1, SOON_MS);
    cr_assert_eq(dlq("discard", q, "2").status, 0);
    cr_assert_eq(ctl_number(q, "removed"), 0, "removed before its hook");
    harness_write("go", "", 0);
    harness_until_lines("told", 3, SOON_MS);
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert_eq(told("2"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(on_dead, with_a_dead_letter_queue_a_letter_is_told_before_it_is_moved)
{
    const char *q = harness_queue(0, 0), *to = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--dead-letter-queue", to, "--on-dead",
        "cd $TEST_DIR; echo $MQW_LETTER >>told; while [ ! -e go ]; do sleep "
        "0.05; done",
        FAILS, REJECT);

    harness_send_text(q, "x");
    harness_until_lines("told", 1, SOON_MS);
    cr_assert_eq(harness_queue_length(to), 0);
    harness_write("go", "", 0);
    harness_until(harness_queue_length(to) == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(on_dead, a_start_without_it_forgets_what_was_due)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--on-dead", TELLS "; exit 1", FAILS, REJECT);

    harness_send_text(q, "x");
    harness_wait_log(w, "event=on_dead_failed", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = ctl_worker(q, FAILS, REJECT);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    harness_write("told", "", 0);
    w = ctl_worker(q, "--on-dead", TELLS, FAILS, REJECT);
    harness_send_text(q, "y");
    harness_until(told("2") == 1, SOON_MS);
    cr_assert_eq(told("1"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
