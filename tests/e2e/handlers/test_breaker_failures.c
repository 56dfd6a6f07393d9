/* test_breaker_failures.c - mqworker: --breaker-failures, for failures that no
 * message causes */
#include "tests/e2e/tools/run_fixture.h"
#include "tests/harness/letters.h"

#include <signal.h>
#include <unistd.h>

TestSuite(breaker_failures, .init = harness_init, .fini = harness_fini);

#define SOON_MS 5000
/* A handler that fails until the file "good" exists. */
#define HANDLER harness_path("handler")

static void handler_write(void)
{
    harness_script("handler",
                   "echo $MQW_ATTEMPT >>tries; [ -e good ] || exit 7; "
                   "echo >>done");
}

static struct harness_process *send_many(const char *q, const char *count)
{
    return harness_program("mqsend", "--repeat", count, q, "x");
}

/* Return the title of the process, as ps(1) shows it. */
static const char *title(const struct harness_process *w)
{
    return harness_read(harness_path("/proc/%d/cmdline", harness_pid(w)), NULL);
}

/* Send 1000 messages. Few may be tried while all fail, and all must be done
 * once the handler works. */
static void thousand(const char *pause, unsigned fails_ms, unsigned most)
{
    const char *q = harness_queue(0, 0);
    handler_write();
    struct harness_process *sender = send_many(q, "1000");
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--breaker-failures", "5", "--breaker-pause", pause,
        "--backoff", "100ms", "--", HANDLER);
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    run_nap(fails_ms);
    size_t tries = harness_lines("tries");
    cr_assert_geq(tries, 5);
    cr_assert_lt(tries, most, "%zu tries", tries);
    cr_assert(harness_running(sender), "messages were taken while all fail");
    harness_write("good", "", 0);
    harness_until_lines("done", 1000, 40000);
    cr_assert_eq(harness_wait(sender, SOON_MS), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_geq(harness_log_count(w, "event=breaker_closed"), 1);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 0);
    /* A message that was not tried while the breaker was open has lost no
     * attempt: each has run as attempt 1. */
    cr_assert_geq(harness_lines_with("tries", "1"), 1000);
    cr_assert_lt(harness_lines("tries"), 1000 + most + 5);
}

Test(breaker_failures, a_thousand_messages_cost_under_20_tries_in_10_s)
{
    thousand("10s", 10000, 20);
}

Test(breaker_failures, with_a_pause_of_100_ms_they_cost_few_tries_as_well)
{
    /* Five failures open the breaker, two handlers may run beside them, four
     * probes follow (at 0.1, 0.3, 0.7 and 1.5 s), and two tries are spare. */
    thousand("100ms", 2500, 5 + 2 + 4 + 2);
}

Test(breaker_failures, pauses_double_up_to_16_times_the_first)
{
    static const char *const pauses[] = {"pause=40ms", "pause=80ms",
                                         "pause=160ms", "pause=320ms"};
    const char *q = harness_queue(0, 0);
    handler_write();
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--breaker-failures", "2", "--breaker-pause", "40ms",
        "--backoff", "1h", "--", HANDLER);
    harness_until(harness_log_count(w, "pause=640ms") >= 3, SOON_MS);
    for (size_t i = 0; i < 4; i++)
        cr_assert_eq(harness_log_count(w, pauses[i]), 1, "%s", pauses[i]);
    /* The first opening takes two tries, each failed probe one more. */
    harness_until(harness_lines("tries") ==
                      harness_log_count(w, "event=breaker_open") + 1,
                  SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0, "a stop waits for the breaker");
}

Test(breaker_failures, after_it_closed_the_first_pause_is_short_again)
{
    const char *q = harness_queue(0, 0);
    handler_write();
    for (int i = 0; i < 4; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--breaker-failures", "2", "--breaker-pause", "50ms",
        "--backoff", "1h", "--", HANDLER);
    harness_wait_log(w, "pause=200ms", SOON_MS);
    harness_write("good", "", 0);
    harness_send_text(q, "x"); /* the others wait for an hour */
    harness_wait_log(w, "event=breaker_closed", SOON_MS);
    harness_run("rm", "good");
    for (int i = 0; i < 2; i++)
        harness_send_text(q, "x");
    harness_until(harness_log_count(w, "event=breaker_open") >= 4, SOON_MS);
    cr_assert_eq(harness_log_count(w, "pause=50ms"), 2);
    cr_assert_eq(harness_lines("done"), 1);
    /* One try for each opening, one more for the two that no probe caused, and
     * the successful probe. */
    harness_until(harness_lines("tries") ==
                      harness_log_count(w, "event=breaker_open") + 3,
                  SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(breaker_failures, the_state_and_its_reason_are_in_log_and_title)
{
    const char *q = harness_queue(0, 0);
    handler_write();
    for (int i = 0; i < 4; i++)
        harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--breaker-failures", "3",
                       "--breaker-pause", "100ms", "--", HANDLER);
    const char *line = harness_wait_log(w, "event=breaker_open", SOON_MS);
    cr_assert_not_null(strstr(line, "reason=\"exit 7\""), "%s", line);
    cr_assert_not_null(strstr(line, "pause=100ms"), "%s", line);
    cr_assert_not_null(strstr(line, q), "%s", line);
    harness_until(strstr(title(w), "[breaker open: exit 7]"), SOON_MS);
    cr_assert_not_null(strstr(title(w), q), "%s", title(w));
    /* While probes fail, the title must show the breaker as open. */
    harness_wait_log(w, "pause=200ms", SOON_MS);
    cr_assert_not_null(strstr(title(w), "[breaker open: exit 7]"), "%s",
                       title(w));
    harness_write("good", "", 0);
    harness_wait_log(w, "event=breaker_closed", SOON_MS);
    harness_until(!strstr(title(w), "breaker"), SOON_MS);
    cr_assert_not_null(strstr(title(w), q), "%s", title(w));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(breaker_failures, a_run_that_ends_well_starts_the_count_anew)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--breaker-failures", "3",
                       "--max-attempts", "1", "--on-exit", "3=discard", "--",
                       "sh", "-c", "read b; echo >>runs; exit $b");
    /* Two failures, followed by an outcome that is no failure of the
     * handler. */
    static const char *const ends[] = {"0\n", "3\n", "65\n"};
    for (size_t i = 0; i < 3; i++) {
        harness_send_text(q, "1\n");
        harness_send_text(q, "1\n");
        harness_send_text(q, ends[i]);
    }
    harness_until_lines("runs", 9, SOON_MS);
    harness_wait_letters(q, 7, SOON_MS);
    cr_assert_eq(harness_log_count(w, "event=breaker_open"), 0);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "1\n");
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(breaker_failures, time_limits_and_signals_are_failures)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--breaker-failures", "4", "--breaker-pause", "1h",
        "--timeout", "100ms", "--backoff", "1h", "--", "sh", "-c",
        "read b; case $b in slow) sleep 9;; *) kill -9 $$;; esac");
    for (int i = 0; i < 2; i++) {
        harness_send_text(q, "slow\n");
        harness_send_text(q, "MQW/1\ntimeout: 60000\n\nshot\n");
    }
    const char *line = harness_wait_log(w, "event=breaker_open", SOON_MS);
    cr_assert_not_null(strstr(line, "signal 9"), "%s", line);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "kept\n");
    harness_signal(w, SIGTTIN); /* when it is logged, the worker has looked for
                                 * work */
    harness_wait_log(w, "event=max_concurrency", SOON_MS);
    cr_assert_eq(harness_queue_length(q), 3, "one was taken");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(breaker_failures, one_probe_at_a_time)
{
    const char *q = harness_queue(0, 0);
    handler_write();
    for (int i = 0; i < 8; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "4", "--breaker-failures", "2", "--breaker-pause", "1s",
        "--backoff", "1h", "--", HANDLER);
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    /* Wait for the handlers that ran beside the second failure. */
    harness_until(harness_log_count(w, "event=retry") +
                          (size_t)harness_queue_length(q) ==
                      8,
                  SOON_MS);
    harness_script("slow", "echo >>probes; "
                           "while [ ! -e go ]; do sleep 0.01; done");
    cr_assert_eq(rename(harness_path("slow"), HANDLER), 0);
    harness_until_lines("probes", 1, SOON_MS);
    harness_signal(w, SIGTTIN);
    harness_wait_log(w, "event=max_concurrency", SOON_MS);
    cr_assert_eq(harness_lines("probes"), 1);
    harness_write("go", "", 0);
    harness_wait_log(w, "event=breaker_closed", SOON_MS);
    harness_until(harness_lines("probes") + harness_lines("tries") >= 8,
                  SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
