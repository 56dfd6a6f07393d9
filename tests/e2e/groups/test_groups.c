/* test_groups.c - mqworker: messages of a group run one at a time and in order,
 * groups run side by side */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TestSuite(groups, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")

/* Send a head that runs until turns_untell("gate", body), and wait until it
 * runs. */
static void gated(const char *q, const char *group, const char *body)
{
    turns_tell("gate", body);
    turns_send(q, group, 0, body);
    harness_until(harness_lines_with("turns", body) == 1, 10000);
}

/* ---- order ---- */

Test(groups, run_in_order_one_at_a_time_and_beside_each_other)
{
    const struct turns_plan plan = {.producers = 4,
                                    .groups = 40,
                                    .each = 25,
                                    .block = 10,
                                    .high_in = 4,
                                    .seed = (unsigned)time(NULL)};
    size_t all = (size_t)plan.groups * plan.each;
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-q", "-c", "8", "--", TURN, "3");

    fprintf(stderr, "seed %u\n", plan.seed);
    turns_produce(q, &plan);
    harness_until(turns_done() >= all, 60000);
    harness_until(turns_produced(), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), all);
    cr_assert_eq(t.count, 2 * all, "one ran twice");
    cr_assert_leq(turns_most(&t), 8);
    cr_assert_gt(turns_most(&t), 4, "groups waited for others");
}

Test(groups, keep_their_order_when_deliveries_fail)
{
    const struct turns_plan plan = {.producers = 2,
                                    .groups = 20,
                                    .each = 20,
                                    .block = 5,
                                    .seed = (unsigned)time(NULL)};
    size_t all = (size_t)plan.groups * plan.each;
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-q", "-c", "4", "--max-attempts", "1000", "--backoff", "5ms,20ms",
        "--lookahead", "16", "--", TURN, "1", "25");

    fprintf(stderr, "seed %u\n", plan.seed);
    turns_produce(q, &plan);
    harness_until(turns_done() >= all, 60000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), all);
    cr_assert_gt(t.count, 2 * all, "no delivery failed");
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

Test(groups, a_lone_group_runs_in_order_with_many_threads)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-q", "-c", "8", "--", TURN, "1");

    for (unsigned i = 0; i < 200; i++)
        turns_send_number(q, "only", 0, 0, i);
    harness_until(turns_done() >= 200, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 200);
    cr_assert_eq(turns_most(&t), 1);
}

Test(groups, messages_without_a_group_do_not_wait_for_one)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", "--", TURN);

    gated(q, "a", "0.0");
    for (unsigned i = 1; i <= 5; i++)
        turns_send_number(q, "a", 0, 0, i);
    for (unsigned i = 0; i < 20; i++)
        turns_send_number(q, NULL, 0, 1, i);
    harness_until(turns_done() == 20, 10000);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("gate", "0.0");
    harness_until(turns_done() == 26, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.0 0.1 0.2 0.3 0.4 0.5 ");
}

/* ---- priority ---- */

Test(groups, high_priority_overtakes_in_its_group_but_not_what_runs)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", "--", TURN);

    gated(q, "a", "0.0");
    turns_send(q, "a", 0, "0.1");
    turns_send(q, "a", 0, "0.2");
    turns_send(q, "a", 7, "0.3");
    turns_send(q, "a", 9, "0.4");
    turns_send(q, "a", 7, "0.5");
    turns_send(q, NULL, 0, "1.0"); /* the last message to leave the queue */
    harness_until(turns_done() == 1, 10000);
    turns_untell("gate", "0.0");
    harness_until(turns_done() == 7, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.0 0.4 0.3 0.5 0.1 0.2 ");
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 7);
}

Test(groups, high_priority_never_overtakes_a_head_that_waits)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--max-attempts", "1000", "--backoff",
                       "30ms", "--jitter", "0", "--", TURN);

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    harness_until(harness_log_count(w, "event=retry ") >= 1, 10000);
    turns_send(q, "a", 0, "0.1");
    turns_send(q, "a", 9, "0.2");
    harness_until(harness_log_count(w, "event=retry ") >= 4, 10000);
    cr_assert_eq(turns_done(), 0);
    turns_untell("fail", "0.0");
    harness_until(turns_done() == 3, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.0 0.2 0.1 ");
}

Test(groups, high_priority_overtakes_parked_messages)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--max-attempts", "1000", "--backoff",
                       "30ms", "--lookahead", "2", "--", TURN);

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    harness_wait_log(w, "event=retry ", 10000);
    for (unsigned i = 1; i <= 4; i++)
        turns_send_number(q, "a", i == 3 ? 2 : 0, 0, i);
    harness_until(turns_rows(q, TURNS_PARKED) == 4, 10000);
    turns_tell("gate", "0.3");
    turns_untell("fail", "0.0");
    harness_until(harness_lines_with("turns", "0.3") == 1, 10000);
    turns_send(q, "a", 9, "0.5"); /* arrives while a parked message runs */
    turns_passed(q);
    turns_untell("gate", "0.3");
    harness_until(turns_done() == 7, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.0 0.3 0.5 0.1 0.2 0.4 ");
}

/* Check that of 8 messages in a row at least one has normal priority, while
 * there are any. */
static void eighth_check(const char *order, unsigned low)
{
    unsigned high_row = 0, seen = 0;

    for (const char *at = order; *at; at = strchr(at, ' ') + 1) {
        bool normal = at[0] == '0';

        seen += normal;
        high_row = normal ? 0 : high_row + 1;
        cr_assert(high_row <= 7 || seen == low,
                  "%u of high priority in a row: %s", high_row, order);
    }
    cr_assert_eq(seen, low);
}

/* Send 5 normal messages, wait until they were taken, so that the queue cannot
 * reorder them, and send 40 of high priority. */
static void lows_then_highs(const char *q)
{
    for (unsigned i = 1; i <= 5; i++)
        turns_send_number(q, "a", 0, 0, i);
    harness_until(harness_queue_length(q) == 0, 10000);
    for (unsigned i = 0; i < 40; i++)
        turns_send_number(q, "a", 5, 1, i);
}

Test(groups, of_eight_in_a_row_one_is_of_normal_priority)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-q", "-c", "2", "--", TURN);

    gated(q, "a", "0.0");
    lows_then_highs(q);
    turns_send(q, NULL, 0, "2.0");
    harness_until(turns_done() == 1, 10000);
    turns_untell("gate", "0.0");
    harness_until(turns_done() == 47, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 47);
    eighth_check(turns_order("a"), 6);
}

Test(groups, of_eight_parked_in_a_row_one_is_of_normal_priority)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-q", "-c", "2", "--max-attempts", "1000",
                       "--backoff", "50ms", "--lookahead", "4", "--", TURN);

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    harness_wait_log(w, "event=retry ", 10000);
    lows_then_highs(q);
    harness_until(turns_rows(q, TURNS_PARKED) >= 42, 10000);
    turns_untell("fail", "0.0");
    harness_until(turns_done() == 46, 20000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 46);
    eighth_check(turns_order("a"), 6);
}

/* ---- the key ---- */

Test(groups, the_handler_is_told_the_group)
{
    const char *q = harness_queue(0, 0);
    const char *handler = harness_script(
        "h", "echo \"$(cat) ${MQW_GROUP-unset}\" >>\"$TEST_DIR/told\"");
    struct harness_process *w = harness_worker(q, "-c", "1", "--", handler);

    turns_send(q, "account 7 \xC3\xA4", 0, "a");
    cr_assert_eq(harness_run("mqsend", "--group", "k", q, "b").status, 0);
    turns_send(q, NULL, 0, "c");
    harness_until_lines("told", 3, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("told", "a account 7 \xC3\xA4"), 1);
    cr_assert_eq(harness_lines_with("told", "b k"), 1);
    cr_assert_eq(harness_lines_with("told", "c unset"), 1, "%s",
                 harness_read("told", NULL));
}

Test(groups, a_key_as_long_as_allowed_is_told_whole)
{
    char key[257];
    const char *q = harness_queue(2, 600);
    struct harness_process *w = harness_worker(q, "--", RECORD);

    memset(key, 'k', 256);
    key[256] = '\0';
    turns_send(q, key, 0, "x");
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert(strstr(harness_read("runs", NULL), key));
}

Test(groups, broken_and_over_long_keys_are_dead_and_never_run)
{
    static const char *const keys[] = {"", "a\tb", "\xFF", "a\rb", "\xC3"};
    const size_t n = sizeof keys / sizeof *keys;
    char longer[258];
    const char *q = harness_queue(2, 600);
    struct harness_process *w = harness_worker(q, "--", RECORD);

    memset(longer, 'k', 257);
    longer[257] = '\0';
    turns_send(q, longer, 0, "x");
    for (size_t i = 0; i < n; i++)
        turns_send(q, keys[i], 0, "x");
    harness_send_text(q, "MQW/1\ngroup: a\ngroup: b\n\nx"); /* two groups */
    const struct harness_letter *l = harness_wait_letters(q, n + 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (size_t i = 0; i < n + 2; i++) {
        cr_assert_str_eq(l[i].reason, "bad-header");
        cr_assert_null(l[i].group, "%s", l[i].group);
    }
    cr_assert_eq(harness_lines("runs"), 0);
}

Test(groups, a_separator_names_the_group_of_a_raw_body)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--group-separator", ":", "--", RECORD);

    harness_send_text(q, "a:1");
    harness_send_text(q, "b:2:3");
    harness_send_text(q, "none");
    turns_send(q, "h", 0, "c:4");
    turns_send(q, NULL, 0, "d:5");
    harness_until_lines("runs", 5, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", " a a:1\n"), 1, "no whole body");
    cr_assert_eq(harness_lines_with("runs", " b b:2:3\n"), 1);
    cr_assert_eq(harness_lines_with("runs", " - none\n"), 1);
    cr_assert_eq(harness_lines_with("runs", " h c:4\n"), 1, "header ignored");
    cr_assert_eq(harness_lines_with("runs", " - d:5\n"), 1,
                 "a header without a group got one");
}

Test(groups, raw_bodies_of_a_group_run_in_order)
{
    char body[32];
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-q", "-c", "4", "--group-separator", "-", "--max-attempts", "1000",
        "--backoff", "5ms", "--", TURN, "1", "20");

    /* The number of the producer must stand before the separator as well. */
    for (unsigned i = 0; i < 100; i++) {
        snprintf(body, sizeof body, "%u-.%u", i % 4, i);
        harness_send_text(q, body);
    }
    harness_until(turns_done() >= 100, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 100);
    cr_assert_eq(turns_starts(&t, "-", 0, t.count), 0, "one has no group");
}

Test(groups, a_key_before_the_separator_that_no_header_could_have_is_dead)
{
    char longer[300];
    const char *q = harness_queue(2, 600);
    struct harness_process *w =
        harness_worker(q, "--group-separator", ":", "--", RECORD);

    memset(longer, 'k', sizeof longer);
    longer[257] = ':';
    harness_send(q, longer, sizeof longer, 0);
    harness_send_text(q, ":x");
    harness_send_text(q, "a\nb:x");
    harness_send_text(q, "\xFF:x");
    const struct harness_letter *l = harness_wait_letters(q, 4, 10000);
    longer[256] = ':';
    harness_send(q, longer, sizeof longer, 0);
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    for (size_t i = 0; i < 4; i++)
        cr_assert_str_eq(l[i].reason, "bad-header");
    cr_assert_eq(harness_lines("runs"), 1, "a key of 256 bytes was refused");
}

Test(groups, a_delayed_message_gets_in_line_when_its_time_has_come)
{
    static const char *const groups[] = {"a", "b", "c"};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", "--", TURN);
    struct harness_result r;
    uint64_t due_ms;
    size_t i = 0;

    /* If the second message ends after the first is due, try with another
     * group. */
    do {
        due_ms = harness_now_ms() + 6000;
        r = harness_run("mqsend", "--group", groups[i], "--delay", "6s", q,
                        "0.0");
        cr_assert_eq(r.status, 0, "%s", r.err);
        turns_send(q, groups[i], 0, "0.1");
        harness_until(turns_done() > 2 * i, 10000);
    } while (harness_now_ms() >= due_ms && ++i < 3);
    cr_assert_lt(i, 3, "a message took 6 s in each of three tries");
    harness_until(turns_done() == 2 * (i + 1), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order(groups[i]), "0.1 0.0 ", "its group waited");
}

Test(groups, a_handler_that_cannot_start_changes_no_order)
{
    const char *q = harness_queue(0, 0);
    const char *path = harness_path("later");
    struct harness_process *w =
        harness_worker(q, "-c", "4", "--breaker-pause", "20ms", "--", path);

    for (unsigned i = 0; i < 8; i++)
        turns_send_number(q, "a", 0, 0, i);
    harness_wait_log(w, "event=breaker_open", 10000);
    cr_assert_eq(symlink(TURN, path), 0);
    harness_until(turns_done() == 8, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), 8);
    cr_assert_eq(t.count, 16, "one ran twice");
    cr_assert_str_eq(turns_order("a"), "0.0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 ");
}
