/* test_clock_steps.c - mqworker: the clock is set while messages wait
 *
 * A delay keeps its length whatever happens to the wall clock; a message with
 * a time is due at that time. The clock is set only for the programs of one
 * test (tests/harness/plugins/clock_shift.c).
 */
#include "tests/e2e/tools/run_fixture.h"
#include "tests/harness/letters.h"
#include "tests/harness/preload.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define HOUR    3600
#define SOON_MS 10000
#define LATE_MS 3000 /* for a busy machine; a wrong step would be an hour */
#define NS_MS   UINT64_C(1000000)

static const long steps[] = {HOUR, -HOUR};

/* Shift the clock of the programs of this test by `seconds`. */
static void clock_set(long seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%ld\n", seconds);
    harness_write("clock.new", text, strlen(text));
    cr_assert_eq(rename(harness_path("clock.new"), harness_path("clock")), 0);
}

/* Give programs a clock that the test can shift. */
static void shifted_init(void)
{
    preload_init();
    clock_set(0);
}

TestSuite(clock_steps, .init = shifted_init, .fini = harness_fini);

/* Start a program with the clock of this test. */
static struct harness_process *shifted(const char *const *argv)
{
    char preload[PRELOAD_TEXT], file[1024];
    snprintf(file, sizeof file, "CLOCK_SHIFT=%s", harness_path("clock"));
    return harness_start(&(struct harness_spec){
        .argv = argv,
        .env = HARNESS_LIST(preload_text(preload, "clock_shift"), file)});
}

#define worker(q, ...)                                                        \
    shifted(HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), (q), \
                         "--jitter", "0", __VA_ARGS__))
#define send(...)                                                            \
    cr_assert_eq(                                                            \
        harness_wait(shifted(HARNESS_LIST("mqsend", __VA_ARGS__)), SOON_MS), \
        0)

/* Return the hour of the day of a log line. */
static int log_hour(const char *line)
{
    int hour = -1;
    cr_assert_eq(sscanf(line, "time=%*d-%*d-%*dT%d", &hour), 1, "%s", line);
    return hour;
}

/* Check that the second try of "x" came `want_ms` after the first one, by the
 * monotonic clock. */
static void wait_check(uint64_t want_ms)
{
    size_t n;
    uint64_t ended = 0, started = 0;
    const struct run_span *s = run_spans(&n);
    for (size_t i = 0; i < n; i++) {
        if (s[i].body[0] == 'x' && s[i].attempt == 1)
            ended = s[i].end_ns;
        if (s[i].body[0] == 'x' && s[i].attempt == 2)
            started = s[i].start_ns;
    }
    cr_assert(ended && started);
    uint64_t gap = started - ended;
    cr_assert_geq(gap, want_ms * NS_MS, "early: %" PRIu64 " ms", gap / NS_MS);
    cr_assert_leq(gap, (want_ms + run_slow(LATE_MS)) * NS_MS,
                  "late: %" PRIu64 " ms", gap / NS_MS);
}

Test(clock_steps, the_programs_see_the_step_and_nobody_else)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = worker(q, "--", SPAN, "0");
    int before = log_hour(harness_wait_log(w, "event=started", SOON_MS));
    clock_set(2 * HOUR);
    harness_signal(w, SIGUSR2);
    int after = log_hour(harness_wait_log(w, "event=paused", SOON_MS));
    int moved = (after - before + 24) % 24;
    cr_assert(moved == 2 || moved == 3, "%d", moved);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(clock_steps, a_retry_that_waits_comes_neither_early_nor_late)
{
    for (size_t i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        harness_send_text(q, "x");
        struct harness_process *w =
            worker(q, "--backoff", "1s", "--", SPAN, "0", "1");
        harness_wait_log(w, "event=retry", SOON_MS);
        clock_set(steps[i]);
        harness_until_lines("spans", 2, SOON_MS);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        wait_check(1000);
        clock_set(0);
        unlink(harness_path("spans"));
    }
}

Test(clock_steps, a_retry_that_begins_to_wait_after_it_is_on_time_as_well)
{
    for (size_t i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w =
            worker(q, "--backoff", "700ms", "--", SPAN, "0", "1");
        harness_wait_log(w, "event=started", SOON_MS);
        clock_set(steps[i]);
        harness_send_text(q, "x");
        harness_until_lines("spans", 2, SOON_MS);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        wait_check(700);
        clock_set(0);
        unlink(harness_path("spans"));
    }
}

Test(clock_steps, many_steps_back_and_forth_lose_and_delay_nothing)
{
    enum { MESSAGES = 10 };
    const char *q = harness_queue(0, 0);
    char body[2] = "a";
    for (int i = 0; i < MESSAGES; i++, body[0]++)
        harness_send_text(q, body);
    struct harness_process *w =
        worker(q, "-c", "2", "--max-attempts", "4", "--backoff", "300ms", "--",
               SPAN, "0", "1");
    uint64_t end = harness_deadline(20000);
    for (unsigned i = 0; harness_lines("spans") < 4 * MESSAGES; i++) {
        clock_set(steps[i % 2]);
        harness_nap(end, "all attempts");
    }
    size_t n;
    const struct run_span *s = run_spans(&n);
    harness_wait_letters(q, MESSAGES, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(n, 4 * MESSAGES);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            uint64_t gap = s[k].start_ns - s[i].end_ns;
            if (s[k].body[0] != s[i].body[0] ||
                s[k].attempt != s[i].attempt + 1)
                continue;
            cr_assert_geq(gap, 300 * NS_MS);
            cr_assert_leq(gap, (300 + run_slow(LATE_MS)) * NS_MS);
        }
}

/* Check a message with a delay of 3 s that waits when the clock is set. */
static void delayed_check(long seconds)
{
    size_t n;
    const char *q = harness_queue(0, 0);
    struct harness_process *w = worker(q, "-v", "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    uint64_t before_ms = harness_now_ms();
    send("--delay", "3s", q, "x");
    uint64_t sent_ms = harness_now_ms();
    harness_until(harness_log_count(w, "event=delayed") > 0 ||
                      harness_lines("spans") > 0,
                  SOON_MS);
    clock_set(seconds);
    harness_until_lines("spans", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    uint64_t ran_ms = run_spans(&n)[0].start_ns / NS_MS;
    cr_assert_geq(ran_ms - before_ms, 3000);
    cr_assert_leq(ran_ms, sent_ms + 3000 + run_slow(LATE_MS));
    clock_set(0);
    unlink(harness_path("spans"));
}

Test(clock_steps, a_delayed_message_that_waits_is_on_time)
{
    delayed_check(HOUR);
    delayed_check(-HOUR);
}

Test(clock_steps, a_delay_that_is_given_after_the_step_is_kept)
{
    for (size_t i = 0; i < 2; i++) {
        size_t n;
        const char *q = harness_queue(0, 0);
        struct harness_process *w = worker(q, "--", SPAN, "0");
        harness_wait_log(w, "event=started", SOON_MS);
        clock_set(steps[i]);
        uint64_t before_ms = harness_now_ms();
        send("--delay", "500ms", q, "x");
        uint64_t sent_ms = harness_now_ms();
        harness_until_lines("spans", 1, SOON_MS);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        uint64_t ran_ms = run_spans(&n)[0].start_ns / NS_MS;
        cr_assert_geq(ran_ms - before_ms, 500);
        cr_assert_leq(ran_ms, sent_ms + 500 + run_slow(LATE_MS));
        clock_set(0);
        unlink(harness_path("spans"));
    }
}

/* ---- an instant of the wall clock ---- */

/* Send `n` messages that are due in `seconds`, by a clock that is `shift`
 * seconds ahead. */
static const char *sent_at(const char *q, long seconds, long shift, int n)
{
    static const char *const names = "abcdefgh";
    char at[32], body[2] = "";
    snprintf(at, sizeof at, "@%ld", (long)time(NULL) + shift + seconds);
    for (int i = 0; i < n; i++) {
        body[0] = names[i];
        send("--at", at, "--group", "g", q, body);
    }
    return q;
}

Test(clock_steps, what_has_a_time_runs_when_the_clock_is_set_past_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = worker(q, "-v", "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    sent_at(q, HOUR / 2, 0, 3);
    uint64_t end = harness_deadline(SOON_MS);
    while (harness_log_count(w, "event=delayed") < 3)
        harness_nap(end, "all wait");
    clock_set(HOUR);
    harness_until_lines("spans", 3, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    size_t n;
    const struct run_span *s = run_spans(&n);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(s[i].body[0], (char)('a' + i), "not as they were sent");
}

Test(clock_steps, what_has_a_time_waits_for_it_when_the_clock_is_set_back)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = worker(q, "-v", "--", SPAN, "0");
    int runs = 0;
    harness_wait_log(w, "event=started", SOON_MS);
    /* On a busy machine "a" may be due before the clock is set back. */
    do {
        (void)unlink(harness_path("spans"));
        size_t delayed = harness_log_count(w, "event=delayed");
        clock_set(HOUR);
        sent_at(q, 3, HOUR, 1);
        harness_until(harness_log_count(w, "event=delayed") > delayed ||
                          harness_lines("spans") > 0,
                      SOON_MS);
        clock_set(0); /* now it is due in an hour */
    } while (harness_lines("spans") > 0 && ++runs < 3);
    /* The delay of 4 s ends after the time at which "a" would have been due. */
    send("--delay", "4s", q, "z");
    harness_until_lines("spans", 1, SOON_MS);
    cr_assert_eq(harness_lines_with("spans", " z"), 1, "not z alone");
    clock_set(HOUR);
    harness_until_lines("spans", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(clock_steps, what_has_a_time_is_due_by_the_clock_of_the_next_worker)
{
    const char *q = harness_queue(0, 0);
    sent_at(q, HOUR / 2, 0, 1);
    struct harness_process *w = worker(q, "--exit-when-idle", "--", SPAN, "0");
    cr_assert_eq(run_end(w, SOON_MS).deliveries, 0, "it ran too early");
    clock_set(HOUR);
    w = worker(q, "--exit-when-idle", "--", SPAN, "0");
    cr_assert_eq(run_end(w, SOON_MS).done, 1);
}

/* ---- across a restart ---- */

/* Leave a retry in the store that is due in `backoff`; its worker has
 * exited. */
static const char *waits(const char *backoff)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = worker(
        q, "--backoff", backoff, "--max-deliveries", "1", "--", SPAN, "0", "1");
    cr_assert_eq(run_end(w, SOON_MS).retried, 1);
    return q;
}

Test(clock_steps, a_delay_is_not_shorter_when_the_clock_is_set_between_two_runs)
{
    const char *q = waits("30m");
    clock_set(HOUR);
    struct harness_process *w = worker(q, "--exit-when-idle", "--", SPAN, "0");
    cr_assert_eq(run_end(w, SOON_MS).deliveries, 0, "it ran too early");
}

Test(clock_steps, a_delay_is_not_longer_when_the_clock_is_set_between_two_runs)
{
    const char *q = waits("2s");
    clock_set(-HOUR);
    struct harness_process *w = worker(q, "-c", "1", "--", SPAN, "0");
    harness_until_lines("spans", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    wait_check(2000);
}

/* Change the store as if another boot of the machine had left it. */
static void another_boot(const char *q)
{
    harness_sql(q, "UPDATE clock SET boot = 'another'");
}

Test(clock_steps, after_a_restart_of_the_machine_nothing_waits_past_its_delay)
{
    const char *q = waits("2s");
    another_boot(q);
    clock_set(-HOUR);
    struct harness_process *w = worker(q, "-c", "1", "--", SPAN, "0");
    harness_until_lines("spans", 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(clock_steps,
     after_a_restart_of_the_machine_the_time_counts_that_has_passed)
{
    const char *q = waits("30m");
    another_boot(q);
    clock_set(HOUR);
    struct harness_process *w = worker(q, "--exit-when-idle", "--", SPAN, "0");
    cr_assert_eq(run_end(w, SOON_MS).done, 1);
}

Test(clock_steps,
     a_retry_is_on_time_through_a_restart_of_a_worker_that_saw_none)
{
    const char *q = waits("4s");
    struct harness_process *w = worker(q, "-c", "1", "--", SPAN, "0");
    /* The worker has read the clock once it has run a message. */
    harness_send_text(q, "y");
    harness_until_lines("spans", 2, SOON_MS);
    clock_set(-HOUR); /* it must not matter any more */
    harness_until_lines("spans", 3, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    wait_check(4000);
}

/* ---- a pause ---- */

Test(clock_steps, a_pause_is_as_long_as_it_was_also_through_a_restart)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = worker(q, "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(
        harness_wait(shifted(HARNESS_LIST("mqctl", "pause", "--state-dir",
                                          harness_state_dir(), q, "1h")),
                     SOON_MS),
        0);
    const char *note = harness_path("%s%s/pause", harness_state_dir(), q);
    char *before = strdup(harness_read(note, NULL));
    clock_set(2 * HOUR);
    harness_until(strcmp(before, harness_read(note, NULL)) != 0, SOON_MS);
    free(before);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = worker(q, "--", SPAN, "0");
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(harness_log_count(w, "event=paused"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- what has nothing to do with the wall clock ---- */

Test(clock_steps, a_time_limit_of_a_handler_is_kept)
{
    for (size_t i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w =
            worker(q, "--timeout", "2s", "--max-attempts", "1", "--", "sh",
                   "-c", "echo >>started; sleep 20");
        harness_wait_log(w, "event=started", SOON_MS);
        uint64_t before_ms = harness_now_ms();
        harness_send_text(q, "x");
        harness_until_lines("started", (int)i + 1, SOON_MS);
        uint64_t since_ms = harness_now_ms();
        clock_set(steps[i]);
        const struct harness_letter *l = harness_wait_letters(q, 1, SOON_MS);
        uint64_t now_ms = harness_now_ms();
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        cr_assert_str_eq(l->error, "timeout 2s");
        cr_assert_geq(now_ms - before_ms, 2000);
        cr_assert_leq(now_ms - since_ms, 2000 + run_slow(LATE_MS));
        clock_set(0);
    }
}

Test(clock_steps, an_open_breaker_keeps_its_times)
{
    for (size_t i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        harness_send_text(q, "x");
        uint64_t before_ms = harness_now_ms();
        struct harness_process *w = worker(q, "--breaker-pause", "1s", "--",
                                           harness_path("no-such-handler"));
        harness_wait_log(w, "event=breaker_open", SOON_MS);
        clock_set(steps[i]);
        harness_until(harness_log_count(w, "event=breaker_open") >= 3, SOON_MS);
        cr_assert_geq(harness_now_ms() - before_ms, 3000, "not at 0, 1, 3 s");
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        clock_set(0);
    }
}

Test(clock_steps, a_bounded_run_keeps_its_time)
{
    for (size_t i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w = worker(
            q, "--run-for", "2s", "--estimated-duration", "1ms", "--", "true");
        harness_wait_log(w, "event=started", SOON_MS);
        clock_set(steps[i]);
        struct run_summary s = run_end(w, SOON_MS);
        cr_assert_str_eq(s.why, "run-for");
        cr_assert_geq(s.ran_us, 1900000);
        clock_set(0);
    }
}
