/* test_worker_idle.c - mqworker: an idle worker sleeps */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(worker_idle, .init = harness_init, .fini = harness_fini);

enum { IDLE_S = 10 };

/* Let strace count the system calls that return within IDLE_S seconds. Return
 * -1 if the worker cannot be traced. */
static long calls_returned(const struct harness_process *w)
{
    char pid[16], seconds[16];
    if (!harness_has("strace"))
        return -1;
    snprintf(pid, sizeof pid, "%d", (int)harness_pid(w));
    snprintf(seconds, sizeof seconds, "%d", IDLE_S);
    struct harness_process *s = harness_program(
        "strace", "-f", "-qq", "-o", harness_path("trace"), "-p", pid);
    /* When strace attaches, it writes the call in which each thread waits. */
    harness_until(!harness_running(s) || harness_exists("trace"), 5000);
    if (!harness_running(s))
        return -1;
    harness_run("sleep", seconds);
    harness_signal(s, SIGINT);
    harness_wait(s, 5000);
    return (long)(harness_lines_with("trace", " = ") -
                  harness_lines_with("trace", "ERESTART"));
}

Test(worker_idle, ten_seconds_of_nothing_wake_it_once_at_most)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "4", "--backoff", "1h", "--", "sh", "-c",
                       "read b; echo >>runs; [ $b = good ]");
    /* The worker has worked, its threads sleep, and a retry waits for an
     * hour. */
    harness_send_text(q, "bad\n");
    for (int i = 0; i < 9; i++)
        harness_send_text(q, "good\n");
    harness_until_lines("runs", 10, 5000);
    harness_wait_log(w, "event=retry", 5000);
    if (harness_settled(w, 10000) < 0)
        cr_skip_test("the thread sanitizer's own thread never sleeps");
    long calls = calls_returned(w);
    if (calls < 0) {
        char seconds[16];
        long before = harness_switches(w);
        snprintf(seconds, sizeof seconds, "%d", IDLE_S);
        harness_run("sleep", seconds);
        calls = harness_switches(w) - before;
    }
    cr_assert_leq(calls, 1, "%ld in %d s:\n%s", calls, IDLE_S,
                  harness_read("trace", NULL));
    harness_send_text(q, "good\n");
    harness_until_lines("runs", 11, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* RssAnon counts private memory, without custody and libraries. */
Test(worker_idle, it_has_less_than_a_mebibyte_of_its_own)
{
    struct harness_process *w =
        harness_worker(harness_queue(0, 0), "-c", "64", "--", "true");
    const char *status, *at;

    if (getenv("MQW_SANITIZED"))
        cr_skip_test("a sanitizer takes memory of its own");
#ifndef MQW_OPTIMIZED
    cr_skip_test("the coverage takes memory of its own");
#endif
    harness_wait_log(w, "event=started", 5000);
    cr_assert_geq(harness_settled(w, 10000), 0);
    status = harness_read(harness_path("/proc/%d/status", (int)harness_pid(w)),
                          NULL);
    at = strstr(status, "\nRssAnon:");
    cr_assert_not_null(at);
    cr_assert_lt(atol(at + strlen("\nRssAnon:")), 1024, "%s", status);
}
