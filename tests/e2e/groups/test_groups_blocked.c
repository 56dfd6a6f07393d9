/* test_groups_blocked.c - mqworker: a blocked group hardly delays other groups
 *
 * MQW_TEST_FULL=1 takes as many groups and messages as the docs promise.
 */
#include "tests/harness/harness.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(groups_blocked, .init = harness_init, .fini = harness_fini,
          .timeout = 600);

#define FAILING "--max-attempts", "1000000", "--jitter", "0"

/* Return `full` if MQW_TEST_FULL is set, else `usual`. */
static unsigned scale(unsigned usual, unsigned full)
{
    const char *text = getenv("MQW_TEST_FULL");

    return text && text[0] && text[0] != '0' ? full : usual;
}

/* Send "0.0" of group a, which fails until turns_untell, and wait for its first
 * failure. */
static void head_fails(struct harness_process *w, const char *q)
{
    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    harness_wait_log(w, "event=retry ", 10000);
}

/* Send `count` messages of group a and wait until all were taken. */
static void behind(const char *q, unsigned count)
{
    for (unsigned i = 1; i <= count; i++)
        turns_send_number(q, "a", 0, 0, i);
    harness_until(harness_queue_length(q) == 0, 30000);
}

/* ---- one blocked group among healthy ones ---- */

enum { EACH = 10, BEHIND = 1000 };

/* Return the time that healthy groups take, in ms. With `blocked`, there is
 * also a group whose head fails, with 1000 messages behind it. */
static uint64_t pair_run(unsigned healthy, bool blocked)
{
    const struct turns_plan plan = {.producers = 1,
                                    .groups = healthy,
                                    .each = EACH,
                                    .block = healthy,
                                    .seed = 1};
    const char *q = harness_queue(0, 0);
    size_t want = turns_done() + (size_t)healthy * EACH;
    struct harness_process *w =
        harness_worker(q, "-q", "-c", "8", FAILING, "--", TURN, "1");
    uint64_t start;

    turns_tell("fail", "9.0");
    if (blocked)
        turns_send(q, "a", 0, "9.0");
    start = harness_now_ms();
    turns_produce(q, &plan);
    for (unsigned i = 1; blocked && i <= BEHIND; i++)
        turns_send_number(q, "a", 0, 9, i);
    harness_until(turns_done() >= want, 120000);
    start = harness_now_ms() - start;
    cr_assert_eq(turns_done(), want, "the blocked group ran");
    harness_until(turns_produced(), 10000);
    harness_kill(w);
    return start;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

Test(groups_blocked, a_failing_head_slows_healthy_groups_little)
{
    enum { PAIRS = 5 };
    uint64_t with[PAIRS], without[PAIRS];
    unsigned healthy = scale(99, 999);

    for (int i = 0; i < PAIRS; i++) {
        without[i] = pair_run(healthy, false);
        with[i] = pair_run(healthy, true);
        fprintf(stderr, "alone %lu ms, beside a blocked one %lu ms\n",
                (unsigned long)without[i], (unsigned long)with[i]);
    }
    qsort(with, PAIRS, sizeof *with, by_size);
    qsort(without, PAIRS, sizeof *without, by_size);
    uint64_t beside = with[PAIRS / 2], alone = without[PAIRS / 2];
    double ratio = (double)beside / (double)alone;
    fprintf(stderr, "%u healthy groups: ratio of the medians %.2f\n", healthy,
            ratio);
    cr_assert_lt(ratio, 3.0);
}

/* Check that 200 messages of group b run beside those of group a, long before
 * the head of a is tried again. */
static void never_stopped(const char *limit)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-q", "-c", "2", FAILING, "--backoff", "1000s", "--lookahead", "4",
        "--batch-time-limit", limit, "--", TURN);

    turns_tell("fail", "0.0");
    for (unsigned i = 0; i < 200; i++) {
        turns_send_number(q, "a", 0, 0, i);
        turns_send_number(q, "b", 0, 1, i);
    }
    for (size_t done = 20; done <= 200; done += 20)
        harness_until(turns_done() >= done, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 200);
    cr_assert_eq(turns_starts(&t, "a", 0, t.count), 1);
}

Test(groups_blocked, a_failing_head_never_stops_the_others)
{
    never_stopped("1s");
}

Test(groups_blocked, a_failing_head_never_stops_others_message_by_message)
{
    never_stopped("0");
}

/* ---- a backlog ---- */

/* Send one message of group b and wait until it starts. Return how many
 * messages of group a were started in between. */
static size_t waits(const char *q, unsigned number)
{
    char body[32];
    struct turns t;
    size_t from, at;
    uint64_t deadline = harness_deadline(20000);

    snprintf(body, sizeof body, "1.%u", number);
    turns_send(q, "b", 0, body);
    from = harness_lines("turns");
    for (;;) {
        t = turns_read();
        at = turns_start(&t, body);
        if (at != (size_t)-1)
            return turns_starts(&t, "a", from, at);
        harness_nap(deadline, body);
    }
}

/* Check how long group b waits beside a backlog of 10,000 messages of group a.
 * Three sources of work take turns, so its message leaves the queue after each
 * handler has taken at most three others. Then it waits at most a quantum for
 * each handler. */
static void backlog_check(unsigned handlers)
{
    enum { BACKLOG = 10000, PROBES = 10, QUANTUM = 10, SOURCES = 3 };
    char cap[16];
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    size_t most = 0;

    snprintf(cap, sizeof cap, "%u", handlers);
    w = harness_worker(q, "-q", "-c", cap, FAILING, "--backoff", "200ms",
                       "--group-quantum", "10", "--", TURN);
    head_fails(w, q);
    behind(q, BACKLOG);
    harness_until(turns_rows(q, TURNS_PARKED) >= BACKLOG - 64, 10000);
    turns_untell("fail", "0.0");
    harness_until(turns_done() >= 20, 10000);
    for (unsigned i = 0; i < PROBES; i++) {
        size_t n = waits(q, i);

        most = n > most ? n : most;
    }
    fprintf(stderr, "-c %u: the other group waited for %zu deliveries\n",
            handlers, most);
    cr_assert_leq(most, handlers * (QUANTUM + SOURCES));
    cr_assert_lt(turns_done(), (size_t)BACKLOG / 2, "no backlog was left");
    harness_kill(w);
    struct turns t = turns_read();
    turns_check(&t);
}

Test(groups_blocked, a_backlog_makes_others_wait_a_quantum_with_one_handler)
{
    backlog_check(1);
}

Test(groups_blocked, a_backlog_makes_others_wait_a_quantum_with_two_handlers)
{
    backlog_check(2);
}

/* ---- the bound ---- */

/* Send one more message behind the head if the queue has room. */
static bool try_behind(const char *q, unsigned number)
{
    char message[64];
    int size =
        snprintf(message, sizeof message, "MQW/1\ngroup: a\n\n0.%u", number);

    return harness_try_send(q, message, (size_t)size, 0);
}

Test(groups_blocked, at_the_bound_nothing_is_received_and_the_log_says_why)
{
    enum { PARKED = 20, LOOKAHEAD = 8, SENT = 80 };
    const char *q = harness_queue(0, 0);
    unsigned sent = 0;
    struct harness_process *w =
        harness_worker(q, "-c", "2", FAILING, "--backoff", "20ms",
                       "--max-parked", "20", "--lookahead", "8", "--", TURN);

    head_fails(w, q);
    harness_until((sent += try_behind(q, sent + 1),
                   harness_log_count(w, "event=parked_full") == 1),
                  10000);
    const char *line = harness_wait_log(w, "event=parked_full", 1000);
    cr_assert(strstr(line, "level=warn"), "%s", line);
    cr_assert(strstr(line, "--max-parked"), "%s", line);
    while (try_behind(q, sent + 1))
        sent++;
    size_t retries = harness_log_count(w, "event=retry ");
    harness_until(harness_log_count(w, "event=retry ") > retries + 2, 10000);
    cr_assert_eq(harness_queue_length(q), 10, "messages left the queue");
    cr_assert_leq(turns_rows(q, TURNS_PARKED), PARKED + LOOKAHEAD);
    cr_assert_leq(sent, PARKED + 2 * LOOKAHEAD + 10);
    cr_assert_eq(harness_log_count(w, "event=parked_full"), 1, "not once");
    turns_untell("fail", "0.0");
    for (unsigned i = sent + 1; i <= SENT; i++)
        turns_send_number(q, "a", 0, 0, i);
    harness_until(turns_done() == SENT + 1, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), SENT + 1);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

Test(groups_blocked, a_worker_that_starts_at_the_bound_goes_on_too)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "2", FAILING, "--backoff", "20ms",
                       "--lookahead", "8", "--", TURN);

    head_fails(w, q);
    behind(q, 43); /* some stay in slots */
    cr_assert_eq(harness_stop(w, 10000), 0);
    turns_send_number(q, "a", 0, 0, 44);
    w = harness_worker(q, "-c", "2", FAILING, "--backoff", "20ms",
                       "--lookahead", "1", "--max-parked", "10", "--", TURN);
    harness_wait_log(w, "event=parked_full", 10000);
    cr_assert_eq(harness_queue_length(q), 1);
    turns_untell("fail", "0.0");
    harness_until(turns_done() == 45, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 45);
}

/* ---- another worker ---- */

Test(groups_blocked, order_survives_a_restart_with_parked_messages)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-q", "-c", "2", FAILING, "--backoff", "20ms",
                       "--lookahead", "8", "--", TURN);

    head_fails(w, q);
    behind(q, 100);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_geq(turns_rows(q, TURNS_PARKED), 90);
    w = harness_worker(q, "-q", "-c", "2", FAILING, "--backoff", "20ms", "--",
                       TURN);
    for (unsigned i = 101; i <= 120; i++)
        turns_send_number(q, "a", 0, 0, i);
    for (unsigned i = 0; i < 10; i++)
        turns_send_number(q, "b", 0, 1, i);
    harness_until(turns_done() == 10, 10000);
    cr_assert_str_eq(turns_order("a"), "", "one ran before its head");
    turns_untell("fail", "0.0");
    harness_until(turns_done() == 131, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 131);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

Test(groups_blocked, what_was_stopped_in_the_middle_goes_first_again)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", "--", TURN);

    turns_tell("gate", "0.0");
    for (unsigned i = 0; i < 8; i++)
        turns_send_number(q, "a", 0, 0, i);
    harness_until(harness_lines("turns") == 1, 10000);
    harness_until(harness_queue_length(q) == 0, 10000);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, 10000), 0);
    turns_untell("gate", "0.0");
    w = harness_worker(q, "-c", "2", "--", TURN, "0", "0", "1");
    harness_until(turns_done() == 8, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 8);
    cr_assert_str_eq(turns_order("a"), "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 ");
}

/* ---- memory ---- */

/* Return true if a sanitizer is in use, which keeps freed memory. */
static bool sanitized(void)
{
    return getenv("MQW_SANITIZED") != NULL;
}

/* Return the resident memory of the worker. */
static long resident_kib(const struct harness_process *w)
{
    const char *text = harness_read(
        harness_path("/proc/%d/status", (int)harness_pid(w)), NULL);
    const char *at = strstr(text, "VmRSS:");

    cr_assert_not_null(at);
    return strtol(at + 6, NULL, 10);
}

/* Return a key of 200 bytes for a number. */
static const char *long_key(unsigned number)
{
    static char key[201];

    snprintf(key, sizeof key, "%0200u", number);
    return key;
}

Test(groups_blocked, memory_returns_after_groups_of_one_message)
{
    unsigned groups = sanitized() ? 500 : scale(5000, 100000);
    const char *q = harness_queue(0, 300);
    struct harness_process *w =
        harness_worker(q, "-q", "-c", "2", "--", "true");
    unsigned i = 0;

    for (; i < 200; i++) /* memory that any working worker needs */
        turns_send(q, long_key(i), 0, "x");
    harness_until(harness_queue_length(q) == 0, 10000);
    long before = resident_kib(w);
    for (; i < groups; i++)
        turns_send(q, long_key(i), 0, "x");
    harness_until(harness_queue_length(q) == 0, 10000);
    long after = resident_kib(w);
    fprintf(stderr, "%u groups: %ld KiB before, %ld KiB after, ratio %.2f\n",
            groups, before, after, (double)after / (double)before);
    if (!sanitized())
        cr_assert_lt(after, before + 512, "%u groups left memory behind",
                     groups);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* Block `groups` groups by a failing head each, then let them all finish. */
static void block_many(const char *q, unsigned from, unsigned groups)
{
    turns_tell("fail", "x");
    for (unsigned i = from; i < from + groups; i++)
        turns_send(q, long_key(i), 0, "x");
    harness_until(turns_rows(q, "attempts > 0") == groups, 60000);
    turns_untell("fail", "x");
    harness_until(turns_rows(q, TURNS_ANY) == 0, 60000);
}

Test(groups_blocked, memory_returns_after_many_groups_were_blocked_at_once)
{
    unsigned groups = sanitized() ? 200 : 2000;
    const char *q = harness_queue(0, 300);
    struct harness_process *w = harness_worker(q, "-q", "-c", "2", FAILING,
                                               "--backoff", "3s", "--", TURN);

    /* Caches and thread arenas also grow, but not in each round. Leaked groups
     * would add 400 KB in each round, by their keys alone. */
    block_many(q, 0, groups);
    long before, after = resident_kib(w);
    unsigned more = 1;
    do {
        before = after;
        block_many(q, more * groups, groups);
        after = resident_kib(w);
        fprintf(stderr,
                "%u groups blocked at once: %ld KiB, %ld KiB after more\n",
                groups, before, after);
    } while (!sanitized() && after >= before + 300 && ++more < 4);
    cr_assert(sanitized() || after < before + 300,
              "memory grows in each round");
    cr_assert_eq(harness_stop(w, 10000), 0);
}
