/* test_retry_for.c - mqworker: --retry-for gives up messages by their age */
#include "tests/e2e/tools/run_fixture.h"
#include "tests/harness/letters.h"

#include <unistd.h>

TestSuite(retry_for, .init = harness_init, .fini = harness_fini);

#define SOON_MS 5000
#define NS_MS   UINT64_C(1000000)

Test(retry_for, the_first_failure_after_that_time_is_the_last)
{
    enum { LIMIT_MS = 3000, RUNS = 3 };
    const struct run_span *s;
    uint64_t sent_ms, dead_ms;
    size_t n;
    int runs = 0;
    /* If the machine stood still, the first try may have been the last. */
    do {
        const char *q = harness_queue(0, 0);
        (void)unlink(harness_path("spans"));
        struct harness_process *w = harness_worker(
            q, "--retry-for", "3s", "--max-attempts", "1000", "--backoff",
            "500ms", "--jitter", "0", "--", SPAN, "0", "1");
        harness_wait_log(w, "event=started", SOON_MS);
        sent_ms = harness_now_ms();
        harness_send_text(q, "x");
        harness_wait_log(w, "event=dead", 2 * SOON_MS);
        dead_ms = harness_now_ms();
        const struct harness_letter *l = harness_wait_letters(q, 1, SOON_MS);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        s = run_spans(&n);
        cr_assert_str_eq(l->reason, "exhausted");
        cr_assert_str_eq(l->error, "exit 1");
        cr_assert_eq((size_t)l->attempts, n);
        cr_assert_eq(l->history, n);
    } while (n < 2 && ++runs < RUNS);
    cr_assert_geq(n, 2);
    cr_assert_leq(n, 7, "%zu tries, one each 500 ms, in 3 s", n);
    /* The age begins at receipt, before the first start, and is checked at the
     * end of each try. */
    cr_assert_lt(s[n - 2].end_ns - s[0].start_ns, LIMIT_MS * NS_MS,
                 "a try after the limit");
    cr_assert_geq(dead_ms - sent_ms, LIMIT_MS, "given up early");
}

Test(retry_for, the_number_of_attempts_counts_as_well)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--retry-for", "1h", "--max-attempts", "2",
                       "--backoff", "1ms", "--", SPAN, "0", "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(l->attempts, 2);
    cr_assert_str_eq(l->reason, "exhausted");
}

Test(retry_for, an_old_message_still_runs_and_may_end_well)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--retry-for", "1h", "--backoff", "1ms",
                       "--max-deliveries", "1", "--", SPAN, "0", "1");
    cr_assert_eq(run_end(w, SOON_MS).retried, 1);
    w = harness_worker(q, "--retry-for", "1ms", "--max-deliveries", "1", "--",
                       SPAN, "0");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_eq(s.done, 1);
    cr_assert_eq(s.dead, 0);
}

Test(retry_for, the_age_goes_on_while_no_worker_runs)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--retry-for", "1h", "--backoff", "1ms",
                       "--max-deliveries", "1", "--", SPAN, "0", "1");
    cr_assert_eq(run_end(w, SOON_MS).retried, 1);
    run_nap(1100);
    w = harness_worker(q, "--retry-for", "1s", "--max-deliveries", "1", "--",
                       SPAN, "0", "1");
    struct run_summary s = run_end(w, SOON_MS);
    cr_assert_eq(s.deliveries, 1);
    cr_assert_eq(s.retried, 0);
    cr_assert_eq(s.dead, 1);
    size_t letters;
    cr_assert_str_eq(harness_letters(q, &letters)->reason, "exhausted");
}

Test(retry_for, without_it_age_does_not_matter)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--backoff", "1ms", "--max-attempts", "30",
                       "--max-deliveries", "29", "--", SPAN, "10", "1");
    struct run_summary s = run_end(w, 20000);
    cr_assert_eq(s.retried, 29);
    cr_assert_eq(s.dead, 0);
}

Test(retry_for, the_age_of_a_replayed_letter_starts_anew)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--retry-for", "2s", "--max-attempts", "1000",
                       "--backoff", "100ms", "--", SPAN, "0", "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, SOON_MS);
    size_t letters, before;
    int runs = 0;
    /* If the machine stood still, the first try may have been the last. */
    do {
        before = l->history;
        cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                                 harness_state_dir(), q, "--all")
                         .status,
                     0);
        harness_until((l = harness_letters(q, &letters), letters == 1) &&
                          l->history > before,
                      2 * SOON_MS);
        cr_assert_eq(l->history, before + (size_t)l->attempts);
    } while (l->attempts < 2 && ++runs < 3);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_geq(l->attempts, 2, "no retry after the replay");
}

Test(retry_for, none_takes_the_limit_away_while_the_worker_runs)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--retry-for", "1ms", "--max-attempts", "3",
                       "--backoff", "1ms", "--", SPAN, "10", "1");
    harness_wait_log(w, "event=started", SOON_MS);
    struct harness_result r =
        harness_run("mqctl", "set", "--state-dir", harness_state_dir(), q,
                    "retry-for=none");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "retry-for 1ms -> none"), "%s", r.out);
    harness_send_text(q, "x");
    cr_assert_eq(harness_wait_letters(q, 1, SOON_MS)->attempts, 3);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(retry_for, none_may_be_said_as_a_flag_and_is_what_the_status_shows)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--retry-for", "none", "--max-attempts", "2",
                       "--backoff", "1ms", "--", SPAN, "0", "1");
    harness_wait_log(w, "event=started", SOON_MS);
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);
    cr_assert_not_null(strstr(r.out, "retry-for=none"), "%s%s", r.out, r.err);
    harness_send_text(q, "x");
    cr_assert_eq(harness_wait_letters(q, 1, SOON_MS)->attempts, 2);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(retry_for, nothing_is_no_time)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--retry-for", "0", "--", SPAN, "0");
    cr_assert_eq(harness_wait(w, SOON_MS), 64);
    cr_assert_not_null(strstr(harness_stderr(w, NULL), "--retry-for"));
    cr_assert_not_null(strstr(harness_stderr(w, NULL), "or none"));
}
