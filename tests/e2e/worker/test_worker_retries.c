/* test_worker_retries.c - mqworker: when a failed message runs again, and
 * how often */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(worker_retries, .init = harness_init, .fini = harness_fini);

#define SPAN   harness_handler("span")
#define RECORD harness_handler("record")

/* Allowed delay on a busy machine; on an idle one, 50 ms are promised. */
#define LATE_MS 400
#define RUNS    3 /* tries; one must be on time */

/* Read `n` start times (monotonic ns) behind the first `skip`. */
static void starts_read(uint64_t *start, size_t skip, size_t n)
{
    const char *at = harness_read("spans", NULL);
    while (skip-- > 0)
        at = strchr(at, '\n') + 1;
    for (size_t i = 0; i < n; i++, at = strchr(at, '\n') + 1) {
        start[i] = strtoull(at, NULL, 10);
        cr_assert_neq(start[i], 0);
    }
}

/* Check that no try started too early. Return true if one was much too late. */
static bool gaps_late(const uint64_t *start, const uint64_t *want_ms, size_t n)
{
    uint64_t late_ms = harness_deadline(LATE_MS) - harness_now_ms();
    bool late = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t gap_us = (start[i + 1] - start[i]) / 1000;
        cr_assert_geq(gap_us, want_ms[i] * 1000,
                      "try %zu came after %" PRIu64 " us", i + 2, gap_us);
        late |= gap_us > (want_ms[i] + late_ms) * 1000;
    }
    return late;
}

/* Send messages that fail `n` + 1 times, and check the gaps between their
 * tries. No try may be early, and the tries of one of three messages must not
 * be late; a busy machine may delay the others. Return how many messages were
 * sent. */
static size_t gaps_check(const char *q, const uint64_t *want_ms, size_t n)
{
    size_t messages = 0;
    uint64_t start[8];
    do {
        harness_send_text(q, "x");
        messages++;
        harness_until_lines("spans", messages * (n + 1), 10000);
        starts_read(start, messages * (n + 1) - (n + 1), n + 1);
    } while (gaps_late(start, want_ms, n) && messages < RUNS);
    cr_assert(!gaps_late(start, want_ms, n), "late three times:\n%s",
              harness_read("spans", NULL));
    return messages;
}

Test(worker_retries, tries_are_200_and_400_ms_apart_never_early)
{
    static const uint64_t want_ms[] = {200, 400};
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "3", "--backoff", "200ms,400ms",
                       "--jitter", "0", "--", SPAN, "0", "1");
    size_t messages = gaps_check(q, want_ms, 2);
    const struct harness_letter *l = harness_wait_letters(q, messages, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("spans"), 3 * messages);
    cr_assert_str_eq(l->reason, "exhausted");
    cr_assert_str_eq(l->error, "exit 1");
    cr_assert_eq(l->attempts, 3);
    cr_assert_eq(l->history, 3);
}

Test(worker_retries, the_backoff_counts_from_the_end_of_the_handler)
{
    static const uint64_t want_ms[] = {250};
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "2", "--backoff", "100ms",
                       "--jitter", "0", "--", SPAN, "150", "1");
    gaps_check(q, want_ms, 1);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_retries, the_last_entry_of_a_list_repeats)
{
    static const uint64_t want_ms[] = {0, 50, 50};
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "4", "--backoff", "0,50ms",
                       "--jitter", "0", "--", SPAN, "0", "1");
    gaps_check(q, want_ms, 3);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_retries, an_exponential_backoff_doubles_up_to_its_maximum)
{
    static const uint64_t want_ms[] = {40, 80, 100, 100};
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "5", "--backoff", "exp:40ms,100ms",
                       "--jitter", "0", "--", SPAN, "0", "1");
    gaps_check(q, want_ms, 4);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Return when a try of message `number` started, in monotonic ns. */
static uint64_t start_of(int number, int attempt)
{
    char want[32];
    snprintf(want, sizeof want, " %d m%d\n", attempt, number);
    const char *line = harness_read("spans", NULL), *end;
    while ((end = strchr(line, '\n'))) {
        const char *at = strstr(line, want);
        if (at && at < end)
            return strtoull(line, NULL, 10);
        line = end + 1;
    }
    cr_assert_fail("try %d of m%d is missing", attempt, number);
    return 0;
}

Test(worker_retries, jitter_is_added_on_top_and_never_taken_off)
{
    enum { MESSAGES = 10 };
    uint64_t least = UINT64_MAX, most = 0;
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < MESSAGES; i++) {
        char body[16];
        snprintf(body, sizeof body, "m%d", i);
        harness_send_text(q, body);
    }
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--max-attempts", "2", "--backoff",
                       "200ms", "--jitter", "100", "--", SPAN, "0", "1");
    harness_until_lines("spans", 2 * MESSAGES, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    for (int i = 0; i < MESSAGES; i++) {
        uint64_t gap = start_of(i, 2) - start_of(i, 1);
        cr_assert_geq(gap, UINT64_C(200000000));
        least = gap < least ? gap : least;
        most = gap > most ? gap : most;
    }
    /* Ten draws from 0 to 200 ms lie within 20 ms once in 10^8 times. */
    cr_assert_gt(most - least, UINT64_C(20000000), "no jitter at all?");
}

Test(worker_retries, the_attempt_number_and_the_id_stay_with_the_message)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--max-attempts", "3", "--backoff", "1ms", "--", RECORD, "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    for (int attempt = 1; attempt <= 3; attempt++) {
        char want[128];
        snprintf(want, sizeof want, "%s %d 0 0 - x\n", l->id, attempt);
        cr_assert_not_null(strstr(harness_read("runs", NULL), want), "%s",
                           want);
    }
    cr_assert_eq(harness_lines("runs"), 3);
}

Test(worker_retries, a_message_that_ends_well_at_the_second_try_leaves_nothing)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "2", "--backoff", "1ms", "--", "sh",
                       "-c", "echo >>runs; exit $((2 - MQW_ATTEMPT))");
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 0);
    w = harness_worker(q, "--", RECORD);
    harness_send_text(q, "next");
    harness_until_lines("runs", 3, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 3, "it ran again");
}

Test(worker_retries, one_attempt_means_no_retry)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", RECORD, "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(l->attempts, 1);
    cr_assert_str_eq(l->reason, "exhausted");
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(worker_retries, a_retry_waits_through_a_restart_and_keeps_its_time)
{
    static const uint64_t want_ms[] = {4000};
    uint64_t start[2];
    size_t runs = 0;
    bool late;
    const char *q = harness_queue(0, 0);
    do {
        harness_send_text(q, "x");
        struct harness_process *w = harness_worker(
            q, "--backoff", "4s", "--jitter", "0", "--", SPAN, "0", "1");
        harness_wait_log(w, "event=retry", 5000);
        cr_assert_eq(harness_stop(w, 5000), 0);
        w = harness_worker(q, "--", SPAN, "0");
        runs++;
        harness_until_lines("spans", runs * 2, 10000);
        cr_assert_eq(harness_stop(w, 5000), 0);
        starts_read(start, runs * 2 - 2, 2);
        late = gaps_late(start, want_ms, 1);
        cr_assert_eq(harness_lines_with("spans", " 2 x"), runs, "no attempt 2");
    } while (late && runs < RUNS);
    cr_assert(!late, "late three times:\n%s", harness_read("spans", NULL));
}

Test(worker_retries, a_retry_waits_through_a_kill)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--backoff", "20s", "--jitter", "0", "--",
                       SPAN, "0", "1");
    harness_wait_log(w, "event=retry", 5000);
    /* The retry is logged before it is stored. When a later message has been
     * logged on the only thread, the first one is stored. */
    harness_send_text(q, "y");
    harness_until(harness_log_count(w, "event=retry") >= 2, 5000);
    harness_kill(w);
    w = harness_worker(q, "--", RECORD);
    harness_until(harness_lines_with("runs", " x") == 1, 40000);
    harness_until(harness_lines_with("runs", " y") == 1, 40000);
    cr_assert_eq(harness_lines_with("runs", " 2 0 0 - x"), 1,
                 "the kill was counted against a waiting message:\n%s",
                 harness_read("runs", NULL));
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_retries, fresh_messages_and_due_retries_take_turns)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-attempts", "1000000", "--backoff", "0", "--", "sh",
        "-c", "read b; echo $b >>runs; [ $b != bad ]");
    harness_send_text(q, "bad\n");
    harness_until_lines("runs", 2, 5000);
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "good\n");
    harness_until(harness_lines_with("runs", "good") == 10, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    /* Retries must have run between the first and the last of the new
     * messages. */
    const char *text = harness_read("runs", NULL);
    const char *first = strstr(text, "good"), *last = first;
    for (const char *at = first; at; at = strstr(at + 1, "good"))
        last = at;
    size_t bad = 0;
    for (const char *at = first; (at = strstr(at, "bad")) && at < last; at++)
        bad++;
    cr_assert_geq(bad, 5, "%zu retries ran beside ten fresh ones", bad);
}
