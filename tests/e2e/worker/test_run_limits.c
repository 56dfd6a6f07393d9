/* test_run_limits.c - mqworker: runs that end by themselves */
#include "tests/e2e/tools/run_fixture.h"
#include "tests/harness/disk.h"
#include "tests/harness/letters.h"

#include <mqueue.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* The last log line has the duration of the run, with opening and closing the
 * worker's files. On a tmpfs, other programs that write to the disk do not make
 * it longer. */
static void bounds_init(void)
{
    harness_init();
    harness_state_on_tmpfs();
}

TestSuite(bounds, .init = bounds_init, .fini = harness_fini);

#define SOON_MS 5000
/* Limit for a run that nothing delays. One of RUNS runs must keep it, because
 * the machine may be busy. */
#define QUICK_US (run_slow(1000) * 1000)
#define RUNS     3

/* A handler that runs until the test creates the file "go". */
#define UNTIL_GO "until [ -e go ]; do sleep 0.02; done"

/* Send messages for as long as there is room. */
static struct harness_process *endless(const char *q, const char *count)
{
    return harness_program("mqsend", "--repeat", count, q, "x");
}

/* ---- --run-for ---- */

/* Run with 300 ms a message and a queue that never becomes empty; return the
 * last line. */
static struct run_summary run_for(const char *cap, const char *span)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    struct run_summary s;

    endless(q, "1000000");
    w = harness_worker(q, "-c", cap, "--run-for", span, "--estimated-duration",
                       "100ms", "--tolerance-factor", "2", "--", SPAN, "300");
    s = run_end(w, 10000);
    cr_assert_str_eq(s.why, "run-for");
    return s;
}

/* Return the time from the first start to the last end of all handlers whose
 * spans were written after the first "before" ones. */
static uint64_t handlers_us(size_t before)
{
    size_t count;
    const struct run_span *spans = run_spans(&count);
    uint64_t start = UINT64_MAX, end = 0;

    for (size_t i = before; i < count; i++) {
        start = spans[i].start_ns < start ? spans[i].start_ns : start;
        end = spans[i].end_ns > end ? spans[i].end_ns : end;
    }
    return end > start ? (end - start) / 1000 : 0;
}

/* Run up to RUNS times, until a run uses its span but not more. A run takes no
 * message in its last two mean durations. A mean is at most the longest
 * duration, so the run must not end earlier than twice that. A handler ends
 * late only if it took over two means, which are at least 600 ms. */
static void run_for_keeps(const char *cap, const char *span, uint64_t span_us)
{
    struct run_summary s;
    uint64_t handlers;
    size_t before = 0;
    int runs = 0;
    bool missed;

    do {
        s = run_for(cap, span);
        cr_assert_gt(s.deliveries, 0);
        cr_assert_eq(s.done, s.deliveries, "not all runs were done");
        cr_assert_eq(before + (size_t)s.done, harness_lines("spans"));
        cr_assert_geq(s.mean_us, 300000);
        cr_assert_geq(s.longest_us, s.mean_us);
        handlers = handlers_us(before);
        before += (size_t)s.done;
        missed = s.ran_us + 2 * s.longest_us < span_us ||
                 (handlers > span_us && s.longest_us <= 600000);
    } while (missed && ++runs < RUNS);
    cr_assert(!missed,
              "ran %" PRIu64 " us, handlers %" PRIu64 ", the longest %" PRIu64,
              s.ran_us, handlers, s.longest_us);
}

Test(bounds, run_for_5s_with_an_endless_queue_ends_before_5_s)
{
    run_for_keeps("1", "5s", 5000000);
}

Test(bounds, run_for_with_8_at_once_ends_in_time_as_well)
{
    run_for_keeps("8", "3s", 3000000);
}

Test(bounds, only_handlers_that_have_ended_count_for_the_mean)
{
    static const char *const bodies[] = {"2.2\n", "2.5\n", "2.5\n",
                                         "2.5\n", "2.2\n", "2.2\n"};
    struct run_summary s;
    int runs = 0;
    /* When the first of four handlers ends after 2.2 s, the mean must be 2.2 s
     * and not a quarter of it. The 2.3 s that are left are too little for a
     * fifth. On a busy machine fewer than four may have started by then. */
    do {
        const char *q = harness_queue(0, 0);
        for (size_t i = 0; i < 6; i++)
            harness_send_text(q, bodies[i]);
        s = run_end(harness_worker(q, "-c", "4", "--run-for", "4500ms",
                                   "--estimated-duration", "50ms",
                                   "--tolerance-factor", "2", "--", "sh", "-c",
                                   "read b; sleep $b"),
                    10000);
        cr_assert_str_eq(s.why, "run-for");
        cr_assert_leq(s.deliveries, 4);
    } while (s.deliveries < 4 && ++runs < RUNS);
    cr_assert_eq(s.deliveries, 4);
    cr_assert_eq(s.in_queue, 2);
}

Test(bounds, run_for_with_an_empty_queue_waits)
{
    const char *q = harness_queue(0, 0);
    struct run_summary s;
    int runs = 0;
    do {
        s = run_end(harness_worker(q, "-c", "4", "--run-for", "2s",
                                   "--estimated-duration", "100ms",
                                   "--tolerance-factor", "2", "--", SPAN, "0"),
                    2 * SOON_MS);
        cr_assert_str_eq(s.why, "run-for");
        cr_assert_geq(s.ran_us, 1800000, "2 s less 2 x 100 ms");
        cr_assert_eq(s.deliveries, 0);
    } while (s.ran_us > 2000000 + run_slow(300) * 1000 && ++runs < RUNS);
    cr_assert_leq(s.ran_us, 2000000 + run_slow(300) * 1000);
}

Test(bounds, run_for_with_an_empty_queue_wakes_nobody)
{
    long settled;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "4", "--run-for", "1h", "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    settled = harness_settled(w, 20000);
    if (settled < 0)
        cr_skip_test("the thread sanitizer's own thread never sleeps");
    run_nap(1200);
    cr_assert_leq(harness_switches(w) - settled, 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(bounds, a_message_that_comes_while_run_for_waits_is_run)
{
    const char *q = harness_queue(0, 0);
    struct run_summary s;
    char late[8192];
    int runs = 0;
    /* A run that started slowly may end before the message is sent. Receive the
     * message then, so that the next run gets its own while it waits. */
    do {
        struct harness_process *w =
            harness_worker(q, "--run-for", "3s", "--estimated-duration",
                           "100ms", "--tolerance-factor", "2", "--", SPAN, "0");
        harness_wait_log(w, "event=started", SOON_MS);
        run_nap(300);
        harness_send_text(q, "x");
        s = run_end(w, SOON_MS);
    } while (s.done != 1 && ++runs < RUNS &&
             harness_receive(q, late, sizeof late, NULL) >= 0);
    cr_assert_eq(s.done, 1);
    cr_assert_geq(s.ran_us + 2 * s.mean_us + 200000, 3000000,
                  "the run ended before its margin");
}

Test(bounds, an_empty_queue_is_waited_on_until_the_margin_of_the_mean)
{
    const char *q = harness_queue(0, 0);
    struct run_summary s;
    char late[8192];
    int runs = 0;
    /* The run must end at 3 s: 6 s minus 2 x 1.5 s. With the estimate as the
     * mean it would end at 5.9 s. A run that started slowly may take
     * nothing. */
    do {
        harness_send_text(q, "x");
        s = run_end(harness_worker(
                        q, "-c", "1", "--run-for", "6s", "--estimated-duration",
                        "50ms", "--tolerance-factor", "2", "--", SPAN, "1500"),
                    10000);
        cr_assert_str_eq(s.why, "run-for");
        if (s.done == 0)
            cr_assert_geq(harness_receive(q, late, sizeof late, NULL), 0);
        else
            cr_assert_geq(s.ran_us + 2 * s.mean_us + 10000, 6000000, "early");
    } while ((s.done == 0 || s.ran_us > 5500000) && ++runs < RUNS);
    cr_assert_eq(s.done, 1);
    cr_assert_leq(s.ran_us, 5500000);
}

/* Such a run would never take a message. */
Test(bounds, a_run_shorter_than_its_margin_is_refused_with_the_arithmetic)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-q", "--run-for", "8s", "--", SPAN, "0");
    cr_assert_eq(harness_wait(w, SOON_MS), 64);
    cr_assert_str_eq(harness_stderr(w, NULL),
                     "mqworker: --run-for 8s is shorter than 5 x "
                     "--estimated-duration 2s = 10s: nothing would be taken; "
                     "give a longer --run-for, or --estimated-duration\n");
    w = harness_worker(q, "--run-for", "1m", "--tolerance-factor", "3",
                       "--estimated-duration", "20s", "--", SPAN, "0");
    cr_assert_eq(harness_wait(w, SOON_MS), 64);
    cr_assert_not_null(strstr(harness_stderr(w, NULL),
                              "--run-for 1m is no longer than 3 x "
                              "--estimated-duration 20s = 1m: "));
    w = harness_worker(q, "--run-for", "100000d", "--tolerance-factor", "1000",
                       "--estimated-duration", "100000d", "--", SPAN, "0");
    cr_assert_eq(harness_wait(w, SOON_MS), 64, "the product overflows");
    cr_assert_eq(harness_queue_length(q), 1);
    w = harness_worker(q, "--run-for", "30s", "--exit-when-idle", "--", SPAN,
                       "0");
    cr_assert_eq(run_end(w, SOON_MS).done, 1, "30 s are more than the margin");
}

Test(bounds, a_handler_that_takes_longer_than_thought_is_waited_for)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    harness_send_text(q, "y");
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--run-for", "5s", "--estimated-duration",
                       "10ms", "--tolerance-factor", "1", "--", SPAN, "5500");
    struct run_summary s = run_end(w, 3 * SOON_MS);
    cr_assert_str_eq(s.why, "run-for");
    cr_assert_geq(s.ran_us, 5500000);
    cr_assert_eq(s.deliveries, 1);
    cr_assert_eq(s.done, 1);
    cr_assert_eq(s.in_queue, 1);
}

Test(bounds, run_for_ends_under_an_open_breaker_and_keeps_the_message)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w;
    struct run_summary s;
    int runs = 0;
    do {
        w = harness_worker(q, "--run-for", "600ms", "--estimated-duration",
                           "10ms", "--", harness_path("handler"));
        s = run_end(w, SOON_MS);
        cr_assert_str_eq(s.why, "run-for");
        cr_assert_eq(s.deliveries, 0, "a missing command was counted");
    } while (s.ran_us > 600000 + QUICK_US && ++runs < RUNS);
    cr_assert_leq(s.ran_us, 600000 + QUICK_US);
    w = harness_worker(q, "--exit-when-idle", "--", RECORD);
    cr_assert_eq(run_end(w, SOON_MS).done, 1);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - x"), 1);
}

Test(bounds, a_run_that_finds_another_worker_is_69_at_once)
{
    char pid[32];
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "--run-for", "60s", "--estimated-duration", "1s", "--", RECORD);
    harness_wait_log(w, "event=started", SOON_MS);
    snprintf(pid, sizeof pid, "pid %d", (int)harness_pid(w));
    uint64_t took_ms;
    int runs = 0;
    do {
        uint64_t before = harness_now_ms();
        struct harness_process *second =
            harness_worker(q, "--run-for", "30s", "--", RECORD);
        cr_assert_eq(harness_wait(second, SOON_MS), 69);
        took_ms = harness_now_ms() - before;
        cr_assert_not_null(strstr(harness_stderr(second, NULL), pid));
    } while (took_ms > run_slow(1500) && ++runs < RUNS);
    cr_assert_leq(took_ms, run_slow(1500));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- the last line ---- */

/* Handlers that exit as the body says. */
#define BY_BODY                                                             \
    "--", "sh", "-c",                                                       \
        "read b; echo $b >>runs; case $b in bad) exit 1;; dead) exit 65;; " \
        "drop) exit 3;; slow) sleep 0.2;; esac"

Test(bounds, the_last_line_counts_what_came_of_each_delivery)
{
    static const char *const bodies[] = {"good\n", "bad\n",  "good\n", "dead\n",
                                         "drop\n", "slow\n", "good\n"};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        harness_send_text(q, bodies[i]);
    harness_send_text(q, "MQW/1\nbroken\n\n"); /* dies without a delivery */
    struct harness_process *w =
        harness_worker(q, "--backoff", "1h", "--on-exit", "3=discard",
                       "--exit-when-idle", BY_BODY);
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.deliveries, 7);
    cr_assert_eq(s.done, 4);
    cr_assert_eq(s.retried, 1);
    cr_assert_eq(s.dead, 2);
    cr_assert_eq(s.discarded, 1);
    cr_assert_eq(s.in_queue, 0);
    cr_assert_geq(s.longest_us, 200000);
    cr_assert_leq(s.longest_us, s.ran_us);
    cr_assert_geq(s.mean_us, 200000 / 7);
    cr_assert_lt(s.mean_us, s.longest_us);
    cr_assert_eq(harness_lines("runs"), 7);
}

/* ---- --exit-when-idle ---- */

Test(bounds, an_idle_run_on_an_empty_queue_ends_at_once)
{
    const char *q = harness_queue(0, 0);
    struct run_summary s;
    int runs = 0;
    do {
        s = run_end(harness_worker(q, "--exit-when-idle", "--", RECORD),
                    SOON_MS);
        cr_assert_str_eq(s.why, "idle");
        cr_assert_eq(s.deliveries, 0);
    } while (s.ran_us > QUICK_US && ++runs < RUNS);
    cr_assert_leq(s.ran_us, QUICK_US);
}

Test(bounds, an_idle_run_takes_all_there_is_and_waits_for_what_runs)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 6; i++)
        harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--exit-when-idle", "--", SPAN, "300");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.done, 6);
    cr_assert_geq(s.ran_us, 900000);
    cr_assert_eq(s.in_queue, 0);
}

Test(bounds, idle_for_300_ms_is_waited_for_and_not_much_longer)
{
    const char *q = harness_queue(0, 0);
    struct run_summary s;
    int runs = 0;
    do {
        s = run_end(harness_worker(q, "--exit-when-idle=300ms", "--", RECORD),
                    SOON_MS);
        cr_assert_str_eq(s.why, "idle");
        cr_assert_geq(s.ran_us, 300000);
    } while (s.ran_us > 300000 + run_slow(400) * 1000 && ++runs < RUNS);
    cr_assert_leq(s.ran_us, 300000 + run_slow(400) * 1000);
}

Test(bounds, a_message_within_the_idle_time_starts_the_count_anew)
{
    struct run_summary s;
    uint64_t sent_ms, ended_ms;
    int runs = 0;
    /* If the machine stood still for 1.8 s, the run was idle for 2.5 s. */
    do {
        const char *q = harness_queue(0, 0);
        struct harness_process *w =
            harness_worker(q, "--exit-when-idle=2500ms", "--", SPAN, "0");
        harness_wait_log(w, "event=started", SOON_MS);
        for (int i = 0; i < 4; i++) {
            run_nap(650);
            sent_ms = harness_now_ms();
            harness_send_text(q, "x");
        }
        s = run_end(w, SOON_MS);
        ended_ms = harness_now_ms();
        cr_assert_str_eq(s.why, "idle");
    } while (s.done != 4 && ++runs < RUNS);
    cr_assert_eq(s.done, 4);
    cr_assert_geq(ended_ms - sent_ms, 2500);
    cr_assert_geq(s.ran_us, 4 * 650000 + 2500000);
}

Test(bounds, a_long_handler_is_not_idle_time)
{
    size_t n;
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--exit-when-idle=300ms", "--", SPAN, "700");
    run_end(w, SOON_MS);
    uint64_t ended_ms = harness_now_ms();
    const struct run_span *spans = run_spans(&n);
    cr_assert_eq(n, 1);
    cr_assert_geq(ended_ms - spans[0].end_ns / 1000000, 300);
}

/* Make all waiting messages due. */
static void all_due(const char *q)
{
    harness_sql(q, "UPDATE messages SET due_ns = 1 WHERE state = 1");
}

Test(bounds, retries_that_wait_are_left_to_the_next_run)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--backoff", "1h", "--jitter", "0",
                       "--exit-when-idle", "--", SPAN, "0", "1");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_eq(s.retried, 1);
    /* It is not due yet, so this run leaves it as well. */
    w = harness_worker(q, "--exit-when-idle", "--", SPAN, "0");
    s = run_end(w, SOON_MS);
    cr_assert_eq(s.deliveries, 0);
    all_due(q);
    /* It is due: a run takes it although the queue is empty. */
    w = harness_worker(q, "--exit-when-idle", "--", SPAN, "0");
    s = run_end(w, SOON_MS);
    cr_assert_eq(s.done, 1);
    cr_assert_eq(harness_lines_with("spans", " 2 x"), 1);
}

Test(bounds, a_retry_that_is_due_within_the_idle_time_is_taken)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--backoff", "300ms", "--jitter", "0", "--exit-when-idle=900ms",
        "--", "sh", "-c", "echo $MQW_ATTEMPT >>runs; [ $MQW_ATTEMPT = 2 ]");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_eq(s.deliveries, 2);
    cr_assert_eq(s.done, 1);
    cr_assert_geq(s.ran_us, 1200000);
}

/* Run five messages of a group whose head fails, and one of another group. The
 * run must end although four messages still wait behind the head. */
static void parked_run(const char *q, const char *lookahead)
{
    static const char *const bodies[] = {"a1", "a2", "a3", "a4", "a5"};
    harness_script("handler", "read b; echo $b >>runs; [ -e good ] || "
                              "[ $b = other ]");
    for (size_t i = 0; i < 5; i++)
        cr_assert_eq(harness_run("mqsend", "--group", "g", q, bodies[i]).status,
                     0);
    cr_assert_eq(harness_run("mqsend", "--group", "h", q, "other").status, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--backoff", "1h", "--jitter", "0", "--lookahead",
        lookahead, "--exit-when-idle", "--", harness_path("handler"));
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.deliveries, 2);
    cr_assert_eq(s.retried, 1);
    cr_assert_eq(s.done, 1);
    cr_assert_eq(s.in_queue, 0);
}

/* Check that the next run takes the group in order. */
static void parked_rest(const char *q)
{
    harness_write("good", "", 0);
    all_due(q);
    struct harness_process *w = harness_worker(q, "-c", "2", "--exit-when-idle",
                                               "--", harness_path("handler"));
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_eq(s.done, 5);
    cr_assert_not_null(
        strstr(harness_read("runs", NULL), "\na1\na2\na3\na4\na5\n"), "%s",
        harness_read("runs", NULL));
}

Test(bounds, messages_that_wait_behind_a_head_do_not_keep_a_run_alive)
{
    const char *q = harness_queue(0, 0);
    parked_run(q, "64");
    parked_rest(q);
}

Test(bounds, messages_parked_in_the_store_do_not_keep_a_run_alive)
{
    const char *q = harness_queue(0, 0);
    parked_run(q, "3");
    parked_rest(q);
}

Test(bounds, a_message_whose_command_cannot_be_started_is_not_idle)
{
    const char *q = harness_queue(0, 0);
    char text[1024];
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--breaker-pause", "50ms", "--exit-when-idle", "--",
                       harness_path("handler"));
    harness_until(harness_log_count(w, "event=breaker_open") >= 3, SOON_MS);
    cr_assert(harness_running(w));
    snprintf(text, sizeof text, "exec %s", RECORD);
    harness_script("handler", text);
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.done, 1);
}

Test(bounds, a_run_with_nothing_to_do_ends_though_its_child_cannot_be_started)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 5; i++) {
        struct harness_process *w =
            harness_worker(q, "-c", "1", "--stream", "--exit-when-idle", "--",
                           harness_path("handler"));
        struct run_summary s = run_end(w, SOON_MS);
        cr_assert_str_eq(s.why, "idle");
        cr_assert_eq(s.deliveries, 0);
    }
}

Test(bounds, a_due_retry_whose_child_cannot_be_started_is_not_idle)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--backoff", "1ms", "--jitter", "0",
                       "--max-deliveries", "1", "--", "false");
    cr_assert_eq(run_end(w, SOON_MS).retried, 1);
    w = harness_worker(q, "-c", "1", "--stream", "--breaker-pause", "50ms",
                       "--exit-when-idle", "--", harness_path("handler"));
    harness_until(harness_log_count(w, "event=breaker_open") >= 3, SOON_MS);
    cr_assert(harness_running(w));
    harness_script("handler", "while read -r msg id rest; do read -r body; "
                              "echo OK $id; done");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.done, 1);
}

Test(bounds, a_verdict_that_cannot_be_written_is_not_idle_and_then_it_ends)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--exit-when-idle=500ms", "--",
                       "sh", "-c", "echo >>runs; " UNTIL_GO "; exit 1");
    harness_until_lines("runs", 1, SOON_MS);
    disk_fill();
    harness_write("go", "", 0);
    harness_wait_log(w, "event=store_cannot_write", SOON_MS);
    run_nap(700); /* longer than the idle time */
    cr_assert(harness_running(w), "it left before its verdict was on disk");
    disk_free();
    struct run_summary s = run_end(w, 15000);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.dead, 1);
}

/* ---- --max-deliveries ---- */

/* Run at most `most` of 40 messages, `at_once` at a time, and leave the rest to
 * the next run. */
static void exactly(const char *at_once, const char *most)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *sender = endless(q, "40");
    struct harness_process *w = harness_worker(
        q, "-c", at_once, "--max-deliveries", most, "--", SPAN, "5");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "max-deliveries");
    cr_assert_eq(s.deliveries, atol(most), "%ld", s.deliveries);
    cr_assert_eq(harness_lines("spans"), (size_t)atol(most));
    w = harness_worker(q, "--", SPAN, "0");
    cr_assert_eq(harness_wait(sender, SOON_MS), 0);
    harness_until_lines("spans", 40, SOON_MS);
    harness_signal(w, SIGTERM);
    s = run_end(w, SOON_MS);
    cr_assert_eq(s.done, 40 - atol(most), "%ld", s.done);
}

Test(bounds, max_deliveries_is_exact_one_at_a_time)
{
    exactly("1", "7");
}

Test(bounds, max_deliveries_is_exact_with_8_at_once)
{
    exactly("8", "21");
}

Test(bounds, max_deliveries_below_the_number_of_threads_is_exact)
{
    exactly("8", "3");
}

Test(bounds, one_delivery_is_enough_if_told_so)
{
    exactly("8", "1");
}

Test(bounds, retries_are_deliveries)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "8", "--backoff", "1ms", "--max-attempts", "9",
                       "--max-deliveries", "3", "--", SPAN, "0", "1");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "max-deliveries");
    cr_assert_eq(s.deliveries, 3);
    cr_assert_eq(s.retried, 3);
    cr_assert_eq(harness_lines("spans"), 3);
}

Test(bounds, what_dies_or_waits_without_a_run_is_no_delivery)
{
    char later[64];
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "8", "--max-deliveries", "12", "--", RECORD);
    snprintf(later, sizeof later, "MQW/1\nnot-before: %lld000000000\n\nx",
             (long long)time(NULL) + 3600);
    for (int i = 0; i < 10; i++) {
        harness_send_text(q, "MQW/1\nbroken\n\nx");
        harness_send_text(q, "MQW/1\nexpires: 1\n\nx");
        harness_send_text(q, later);
        harness_send_text(q, "good");
    }
    harness_until_lines("runs", 10, SOON_MS);
    harness_wait_letters(q, 20, SOON_MS);
    cr_assert(harness_running(w), "it ended before 12 runs");
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "good");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "max-deliveries");
    cr_assert_eq(s.deliveries, 12);
    cr_assert_eq(s.dead, 20);
    cr_assert_eq(harness_lines("runs"), 12);
    cr_assert_eq(harness_queue_length(q), 1);
}

Test(bounds, a_command_that_cannot_be_started_is_no_delivery)
{
    char text[1024];
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 6; i++)
        harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "4", "--max-deliveries", "4", "--breaker-pause",
                       "30ms", "--", harness_path("handler"));
    harness_until(harness_log_count(w, "event=breaker_open") >= 3, SOON_MS);
    snprintf(text, sizeof text, "exec %s", RECORD);
    harness_script("handler", text);
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "max-deliveries");
    cr_assert_eq(s.deliveries, 4);
    cr_assert_eq(harness_lines("runs"), 4);
    w = harness_worker(q, "--exit-when-idle", "--", RECORD);
    cr_assert_eq(run_end(w, SOON_MS).done, 2);
}

/* ---- all together ---- */

Test(bounds, the_bound_that_is_reached_first_ends_the_run)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--run-for", "60s", "--exit-when-idle=30s",
                       "--max-deliveries", "1", "--", SPAN, "0");
    cr_assert_str_eq(run_end(w, SOON_MS).why, "max-deliveries");
    w = harness_worker(q, "--run-for", "60s", "--exit-when-idle",
                       "--max-deliveries", "9", "--", SPAN, "0");
    cr_assert_str_eq(run_end(w, SOON_MS).why, "idle");
    w = harness_worker(q, "--run-for", "600ms", "--estimated-duration", "10ms",
                       "--exit-when-idle=30s", "--max-deliveries", "9", "--",
                       SPAN, "0");
    cr_assert_str_eq(run_end(w, SOON_MS).why, "run-for");
}

Test(bounds, a_signal_ends_a_bounded_run_before_its_time)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "--run-for", "60s", "--exit-when-idle=30s", "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    harness_signal(w, SIGTERM);
    cr_assert_str_eq(run_end(w, SOON_MS).why, "signal");
}

/* While the worker looks for its queue, it takes nothing, but handlers end. */
Test(bounds, a_handler_that_ends_while_the_queue_is_missing_is_not_idle_time)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--no-create", "--exit-when-idle=1500ms",
                       "--", "sh", "-c", "echo >>runs; " UNTIL_GO);
    harness_until_lines("runs", 1, SOON_MS);
    run_nap(1600); /* longer than the idle time */
    mq_unlink(q);
    /* The worker looks for its queue again after a second. */
    harness_wait_log(w, "event=trouble", SOON_MS);
    uint64_t ends_ms = harness_now_ms();
    harness_write("go", "", 0);
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    cr_assert_eq(s.done, 1);
    cr_assert_geq(harness_now_ms() - ends_ms, 1500);
}

/* The worker looks for its queue again after 1 s, 2 s and so on. */
Test(bounds, a_queue_that_is_missing_does_not_keep_a_run_alive)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--no-create", "--exit-when-idle=5s", "--", "true");
    harness_wait_log(w, "event=started", SOON_MS);
    mq_unlink(q);
    harness_wait_log(w, "event=queue_not_opened", SOON_MS);
    struct run_summary s = run_end(w, 3 * SOON_MS);
    cr_assert_str_eq(s.why, "idle");
    /* Tries come at 0, 1 and 3 s. If a try restarted the idle time, there would
     * be another one at 7 s. */
    cr_assert_leq(harness_log_count(w, "event=queue_not_opened"), 3);
}
