/* test_groups_delayed.c - mqworker: delayed messages of groups */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(groups_delayed, .init = harness_init, .fini = harness_fini);

#define RUNS "sleep 0.01; echo $MQW_REDELIVERED >>runs"

/* Send messages of group "a" with the same delay. */
static void send_delayed(const char *q, unsigned count, const char *delay)
{
    char input[2048];
    size_t size = 0;
    for (unsigned i = 0; i < count; i++)
        size += (size_t)snprintf(input + size, sizeof input - size, "m%u\n", i);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--lines", "--group", "a", "--delay",
                             delay, q),
        .input = input,
        .input_size = size});
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Only --lookahead of the due messages may wait in slots; otherwise no slot
 * would be left to run one. */
Test(groups_delayed, more_are_due_at_once_than_there_are_slots)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", "--lookahead", "4",
                                               "--", "sh", "-c", RUNS);
    send_delayed(q, 120, "2s");
    harness_until_lines("runs", 120, 40000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 120);
}

/* A worker that cannot take more must not spin. */
Test(groups_delayed, a_full_lookahead_and_a_deleted_queue_cost_no_processor)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--lookahead", "1", "--", "sh", "-c",
                       "echo x >>runs; while [ ! -e go ]; do sleep 0.1; done");
    for (int i = 0; i < 4; i++)
        cr_assert_eq(harness_run("mqsend", "--group", "a", q, "x").status, 0);
    harness_until_lines("runs", 1, 5000);
    harness_until(harness_queue_length(q) == 2, 5000);
    cr_assert_eq(mq_unlink(q), 0);
    harness_wait_log(w, "event=queue_deleted", 5000);
    long before = harness_ticks(w);
    cr_assert_eq(harness_run("sleep", "1").status, 0);
    cr_assert_lt(harness_ticks(w) - before, 30);
    harness_write("go", "", 0);
    harness_until_lines("runs", 4, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* A delayed message that is still in a slot has no place in its group yet. */
Test(groups_delayed, a_kill_before_they_are_stored_does_not_stop_their_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "sh", "-c", RUNS);
    harness_wait_log(w, "event=started", 5000);
    struct sqlite3 *db = disk_lock(q);
    send_delayed(q, 2, "20s");
    harness_until(harness_queue_length(q) == 0, 5000);
    harness_kill(w);
    disk_unlock(db);
    w = harness_worker(q, "--", "sh", "-c", "read b; echo $b >>runs");
    harness_wait_log(w, "event=recovered", 5000);
    cr_assert_eq(harness_run("mqsend", "--group", "a", q, "x").status, 0);
    harness_until_lines("runs", 3, 30000);
    cr_assert_eq(strncmp(harness_read("runs", NULL), "x\n", 2), 0,
                 "a delayed message ran first");
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 3);
}

/* A head that fits into no slot any more must not block its group. */
Test(groups_delayed, a_head_too_large_for_a_smaller_queue_lets_its_group_go_on)
{
    char large[101] = "";
    const char *q = harness_queue(4, 256);
    struct harness_process *w =
        harness_worker(q, "--backoff", "2s", "--", "sh", "-c", "exit 1");
    cr_assert_eq(harness_run("mqsend", "--raw", q, "warm").status, 0);
    memset(large, 'l', 100);
    cr_assert_eq(harness_run("mqsend", "--group", "a", q, large).status, 0);
    harness_until(harness_log_count(w, "event=retry") >= 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(mq_unlink(q), 0);
    w = harness_worker(q, "--queue-depth", "4", "--message-size", "120",
                       "--backoff", "2s", "--", "sh", "-c", RUNS);
    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_run("mqsend", "--group", "a", q, "small").status, 0);
    const char *line = harness_wait_log(w, "event=dead", 10000);
    cr_assert_not_null(strstr(line, "larger than the queue takes"), "%s", line);
    harness_until_lines("runs", 2, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}
