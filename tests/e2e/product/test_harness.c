/* test_harness.c - the harness of the end-to-end tests */
#include "tests/harness/harness.h"
#include "tests/harness/internal.h"
#include "tests/harness/sweep.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(harness, .init = harness_init, .fini = harness_fini);

Test(harness, run_tells_status_and_output)
{
    struct harness_result r =
        harness_run("sh", "-c", "cat; echo out; echo err >&2; exit 7");
    cr_assert_eq(r.status, 7);
    cr_assert_str_eq(r.out, "out\n");
    cr_assert_str_eq(r.err, "err\n");
}

Test(harness, death_by_a_signal_is_a_negative_status)
{
    cr_assert_eq(harness_run("sh", "-c", "kill -9 $$").status, -SIGKILL);
}

Test(harness, input_arrives_byte_for_byte)
{
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("cat"), .input = "a\0b", .input_size = 3});
    cr_assert_eq(r.out_size, 3);
    cr_assert_arr_eq(r.out, "a\0b", 3);
}

Test(harness, environment_is_added_and_removed)
{
    setenv("HERE", "inherited", 1);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-c", "echo $A ${HERE-none}; pwd"),
        .env = HARNESS_LIST("A=1", "HERE")});
    char want[512];
    snprintf(want, sizeof want, "1 none\n%s\n", harness_dir());
    cr_assert_str_eq(r.out, want);
}

Test(harness, log_is_waited_for_by_whole_lines)
{
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-c",
                             "printf 'event=re' >&2; printf 'ady x=1\\n' >&2;"
                             "while [ ! -e go ]; do sleep 0.01; done")});
    cr_assert_str_eq(harness_wait_log(p, "event=ready", 5000),
                     "event=ready x=1");
    cr_assert(harness_running(p));
    harness_write("go", "", 0);
    cr_assert_eq(harness_wait(p, 5000), 0);
    cr_assert_eq(harness_wait(p, 0), 0, "a second wait differs");
    cr_assert_not(harness_alive(harness_pid(p)));
}

Test(harness, queue_keeps_bytes_order_and_priority)
{
    char buf[256];
    unsigned priority;
    const char *q = harness_queue(3, 64);
    harness_send(q, "lo\0w", 4, 1);
    harness_send(q, "high", 4, 9);
    harness_send(q, "", 0, 0);
    cr_assert_not(harness_try_send(q, "full", 4, 0));
    cr_assert_eq(harness_queue_length(q), 3);
    cr_assert_eq(harness_receive(q, buf, sizeof buf, &priority), 4);
    cr_assert_eq(priority, 9);
    cr_assert_eq(harness_receive(q, buf, sizeof buf, &priority), 4);
    cr_assert_arr_eq(buf, "lo\0w", 4);
    cr_assert_eq(harness_receive(q, buf, sizeof buf, NULL), 0);
    cr_assert_eq(harness_receive(q, buf, sizeof buf, NULL), -1);
}

Test(harness, lines_count_only_whole_ones)
{
    cr_assert_eq(harness_lines("f"), 0);
    harness_write("f", "one\ntwo\nthr", 11);
    cr_assert_eq(harness_lines("f"), 2);
    cr_assert_eq(harness_lines_with("f", "tw"), 1);
    cr_assert_eq(harness_lines_with("f", "thr"), 0);
}

Test(harness, record_handler_notes_its_run)
{
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("record"), "75"),
        .env = HARNESS_LIST("MQW_ID=x", "MQW_ATTEMPT=2", "MQW_PRIORITY=5",
                            "MQW_REDELIVERED=1", "MQW_GROUP="),
        .input = "b\ny",
        .input_size = 3});
    cr_assert_eq(r.status, 75);
    cr_assert_str_eq(harness_read("runs", NULL), "x 2 1 5 - b?y\n");
}

/* Name in a file what the next test leaves behind, for its parent. */
static void litter(const char *note)
{
    char text[512];
    harness_init();
    const char *q = harness_queue(1, 16);
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-c",
                             "setsid sleep 1000 & echo $! >pid; wait")});
    /* Criterion does not know this process, so assertions do not work here. */
    uint64_t end = harness_now_ms() + 5000;
    while (harness_lines("pid") == 0 && harness_now_ms() < end)
        harness_nap(UINT64_MAX, "");
    int size =
        snprintf(text, sizeof text, "%s %d %s %s", q, (int)harness_pid(p),
                 harness_dir(), harness_read("pid", NULL));
    FILE *f = fopen(note, "we");
    if (!f || fwrite(text, 1, (size_t)size, f) != (size_t)size || fclose(f))
        _exit(1);
    raise(SIGKILL);
}

Test(harness, janitor_cleans_up_after_a_test_that_is_killed)
{
    char queue[64], dir[256];
    int child, orphan, status;
    const char *note = harness_path("note");
    pid_t test = fork();
    if (test == 0)
        litter(note);
    cr_assert_eq(waitpid(test, &status, 0), test);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_assert_eq(sscanf(harness_read("note", NULL), "%63s %d %255s %d", queue,
                        &child, dir, &orphan),
                 4);
    harness_until(!harness_exists(dir), 10000);
    cr_assert_eq(harness_queue_length(queue), -1);
    harness_until(!harness_alive(child) && !harness_alive(orphan), 10000);
}

/* The report of a sanitizer must be found where the programs write it. */
Test(harness, a_sanitizer_report_is_found)
{
    cr_assert_null(processes_report());
    harness_run("sh", "-c",
                "case $TSAN_OPTIONS in *log_path=$TEST_DIR/sanitizer*) "
                "echo 'WARNING: ThreadSanitizer: data race' "
                ">$TEST_DIR/sanitizer.1; esac");
    cr_assert_not_null(processes_report());
    unlink(harness_path("sanitizer.1"));
    harness_run("sh", "-c", "echo 'a.c:1: runtime error: overflow' >&2");
    cr_assert_not_null(processes_report());
    harness_run("sh", "-c", "rm $TEST_DIR/sh.*.err");
}

Test(harness, a_sweep_takes_one_position_in_seven_or_all)
{
    unsigned taken = 0;

    /* scripts/run-tests counts what sweeps print. */
    cr_assert_not_null(freopen("/dev/null", "w", stderr));
    unsetenv("MQW_TEST_WHOLE");
    for (int i = 0; i < 3 * SWEEP_DAYS; i++)
        taken += sweep_takes();
    cr_assert_eq(taken, 3);
    sweep_end("positions");
    cr_assert_eq(sweep_share("tries", 100), 14);
    cr_assert_eq(sweep_share("tries", 3), 1);
    setenv("MQW_TEST_WHOLE", "1", 1);
    for (int i = 0; i < 3 * SWEEP_DAYS; i++)
        cr_assert(sweep_takes());
    sweep_end("positions");
    cr_assert_eq(sweep_share("tries", 100), 100);
}
