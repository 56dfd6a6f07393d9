/* test_kept.c - mqworker: a stop moves messages in flight to the store
 *
 * The custody file is removed between the two workers, as happens with a
 * container, so the next worker gets everything from the store.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#define LIMIT  10000
#define RECORD harness_handler("record")

static const char *queue;

static void setup(void)
{
    harness_init();
    queue = harness_queue(10, 256);
}

TestSuite(kept, .init = setup, .fini = harness_fini);

/* Run mqdlq with the test's state directory; it must succeed. */
#define mqdlq(verb, ...)                                                     \
    do {                                                                     \
        struct harness_result r_ = harness_run(                              \
            "mqdlq", verb, "--state-dir", harness_state_dir(), __VA_ARGS__); \
        cr_assert_eq(r_.status, 0, "mqdlq %s: %s", verb, r_.err);            \
    } while (0)

static const char *custody(void)
{
    return harness_custody(queue);
}

/* Check that the worker exits with 0 and logs that it kept `kept` messages, and
 * that custody is empty; then remove custody. */
static void stops_with_kept(struct harness_process *w, unsigned kept)
{
    char want[64];

    cr_assert_eq(harness_wait(w, LIMIT), 0, "%s", harness_stderr(w, NULL));
    snprintf(want, sizeof want, "event=kept queue=%s count=%u ", queue, kept);
    cr_assert_eq(harness_log_count(w, "event=kept"), kept > 0, "%s",
                 harness_stderr(w, NULL));
    cr_assert(!kept || harness_log_count(w, want) == 1, "%s",
              harness_stderr(w, NULL));
    cr_assert_eq(harness_log_count(w, "event=unfinished"), kept);
    cr_assert_eq(harness_busy_slots(queue), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(unlink(custody()), 0);
}

/* Run one message at a time until all are done. */
static void run_alone(void)
{
    struct harness_process *w =
        harness_worker(queue, "-c", "1", "--exit-when-idle=50ms",
                       "--max-crashes", "1", "--", RECORD);

    cr_assert_eq(harness_wait(w, LIMIT), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_log_count(w, "event=custody_"), 0,
                 "custody is missed: %s", harness_stderr(w, NULL));
    cr_assert_eq(turns_rows(queue, TURNS_ANY), 0, "%s",
                 harness_stderr(w, NULL));
    cr_assert_eq(harness_busy_slots(queue), 0);
}

/* Check body, attempt and mark of each run, in order: "a/1/0 b/2/1 ". */
static void runs_check(const char *want)
{
    char got[1024] = "", body[64];
    const char *runs = harness_read("runs", NULL);
    unsigned attempt, again;

    for (const char *at = runs; *at; at = strchr(at, '\n') + 1) {
        size_t n = strlen(got);

        cr_assert_eq(
            sscanf(at, "%*s %u %u %*s %*s %63s", &attempt, &again, body), 3,
            "%s", runs);
        snprintf(got + n, sizeof got - n, "%s/%u/%u ", body, attempt, again);
    }
    cr_assert_str_eq(got, want);
}

static void send_all(const char *bodies)
{
    char body[2] = "";

    for (; *bodies; bodies++) {
        body[0] = *bodies;
        harness_send_text(queue, body);
    }
}

/* ---- kinds of handlers ---- */

Test(kept, processes_that_were_ended_run_again_before_what_is_in_the_queue)
{
    send_all("abc");
    struct harness_process *w =
        harness_worker(queue, "-c", "3", "--grace", "10ms", "--", "sh", "-c",
                       "echo >>started; exec sleep 1000");
    harness_until_lines("started", 3, LIMIT);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", LIMIT);
    send_all("de");
    stops_with_kept(w, 3);
    cr_assert_eq(harness_log_count(w, "may_have_run=3"), 1);
    run_alone();
    runs_check("a/1/1 b/1/1 c/1/1 d/1/0 e/1/0 ");
}

Test(kept, a_second_signal_and_a_quit_keep_as_well)
{
    send_all("a");
    struct harness_process *w =
        harness_worker(queue, "--grace", "1h", "--", "sh", "-c",
                       "echo >>started; exec sleep 1000");
    harness_until_lines("started", 1, LIMIT);
    harness_signal(w, SIGINT);
    harness_wait_log(w, "event=stopping", LIMIT);
    harness_signal(w, SIGINT);
    stops_with_kept(w, 1);
    w = harness_worker(queue, "--", "sh", "-c",
                       "trap '' TERM; echo >>started; sleep 1000");
    harness_until_lines("started", 2, LIMIT);
    harness_signal(w, SIGQUIT);
    stops_with_kept(w, 1);
    run_alone();
    runs_check("a/1/1 ");
}

Test(kept, what_a_child_had_open_comes_in_its_order)
{
    send_all("abcd");
    struct harness_process *w = harness_worker(
        queue, "--stream", "--window", "4", "-c", "1", "--grace", "10ms", "--",
        "sh", "-c", "while read -r a b; do echo >>started; done; sleep 1000");
    harness_until_lines("started", 4, LIMIT);
    harness_until(harness_queue_length(queue) == 0, LIMIT);
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 4);
    run_alone();
    runs_check("a/1/1 b/1/1 c/1/1 d/1/1 ");
}

/* The threads of "hang" never return. */
Test(kept, a_plugin_that_does_not_return_is_left_behind)
{
    const char *act = harness_plugin("act");

    for (int i = 0; i < 3; i++)
        harness_send_text(queue, "hang");
    struct harness_process *w =
        harness_worker(queue, "--plugin", act, "-c", "3", "--grace", "10ms",
                       "--kill-after", "50ms");
    harness_until_lines("runs", 3, LIMIT);
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 3);
    cr_assert_eq(unlink(harness_path("runs")), 0);
    run_alone();
    runs_check("hang/1/1 hang/1/1 hang/1/1 ");
}

/* ---- what has a row, and what has none ---- */

Test(kept, a_retry_keeps_its_attempts)
{
    send_all("a");
    struct harness_process *w = harness_worker(
        queue, "--backoff", "10ms", "--grace", "10ms", "--", "sh", "-c",
        "[ $MQW_ATTEMPT = 1 ] && exit 1; echo >>second; exec sleep 1000");
    harness_until_lines("second", 1, LIMIT);
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 1);
    cr_assert_eq(turns_rows(queue, "state = 1 AND attempts = 1"), 1);
    run_alone();
    runs_check("a/2/1 ");
}

Test(kept, a_letter_that_was_discarded_under_its_handler_stays_away)
{
    send_all("a");
    struct harness_process *w = harness_worker(
        queue, "--grace", "10ms", "--", "sh", "-c",
        "echo >>started; [ -e again ] || exit 65; exec sleep 1000");
    harness_wait_letters(queue, 1, LIMIT);
    harness_write("again", "", 0);
    mqdlq("replay", "--all", queue);
    harness_until_lines("started", 2, LIMIT);
    mqdlq("discard", "--all", "--replayed", queue);
    cr_assert_eq(turns_rows(queue, TURNS_ANY), 0);
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 1);
    run_alone();
    runs_check("");
}

Test(kept, what_waits_for_its_time_goes_on_waiting)
{
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", queue, "x").status, 0);
    struct harness_process *w = harness_worker(queue, "--", RECORD);
    harness_until(turns_rows(queue, TURNS_WAITING) == 1, LIMIT);
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 0);
    cr_assert_eq(turns_rows(queue, TURNS_WAITING), 1);
}

/* ---- groups ---- */

/* Start a worker in which 0.0 of group a runs until its gate opens, with 0.1 to
 * 0.3 behind it. */
static struct harness_process *gated_worker(const char *mode)
{
    struct harness_process *w =
        harness_worker(queue, "-c", "2", "--on-group-dead", mode, "--grace",
                       "10ms", "--", TURN);

    turns_tell("gate", "0.0");
    for (unsigned i = 0; i < 4; i++)
        turns_send_number(queue, "a", 0, 0, i);
    harness_until_lines("turns", 1, LIMIT);
    harness_until(harness_queue_length(queue) == 0, LIMIT);
    return w;
}

/* Check that a worker finishes all of group a in this order. */
static void ends_in_order(const char *mode, const char *last, const char *order)
{
    struct harness_process *w =
        harness_worker(queue, "-c", "2", "--on-group-dead", mode, "--", TURN);
    struct turns t;

    harness_until(strstr(turns_order("a"), last), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(turns_order("a"), order);
    cr_assert_eq(turns_rows(queue, TURNS_ANY), 0);
    t = turns_read();
    for (size_t i = 0; i < t.count; i++)
        if (t.at[i].what == 'S' && strcmp(t.at[i].body, "0.0") != 0)
            cr_assert_not(t.at[i].redelivered, "%s had not run", t.at[i].body);
}

Test(kept, a_group_goes_on_in_order_before_what_comes_after_it)
{
    struct harness_process *w = gated_worker("continue");

    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", LIMIT);
    turns_send_number(queue, "a", 0, 0, 4);
    stops_with_kept(w, 4);
    cr_assert_eq(harness_log_count(w, "may_have_run=1"), 1);
    cr_assert_eq(turns_rows(queue, TURNS_PARKED), 4);
    turns_untell("gate", "0.0");
    ends_in_order("continue", "0.4 ", "0.0 0.1 0.2 0.3 0.4 ");
    struct turns t = turns_read();
    cr_assert(t.at[t.count - 10].redelivered, "0.0 is not marked");
}

Test(kept, what_waits_behind_a_bounded_run_is_kept)
{
    for (unsigned i = 0; i < 4; i++)
        turns_send_number(queue, "a", 0, 0, i);
    struct harness_process *w =
        harness_worker(queue, "-c", "1", "--max-deliveries", "1", "--", TURN);
    cr_assert_eq(harness_wait(w, LIMIT), 0);
    cr_assert_eq(harness_busy_slots(queue), 0);
    cr_assert_eq(unlink(custody()), 0);
    ends_in_order("continue", "0.3 ", "0.0 0.1 0.2 0.3 ");
}

/* If its place were not kept, a letter would go behind the messages that wait
 * for it. */
Test(kept, a_letter_on_its_way_is_still_the_first_of_its_held_group)
{
    struct harness_process *w;

    turns_tell("dead", "0.0");
    w = gated_worker("hold");
    turns_untell("gate", "0.0");
    harness_wait_letters(queue, 1, LIMIT);
    turns_untell("dead", "0.0");
    turns_tell("gate", "0.0");
    mqdlq("replay", "--all", queue);
    harness_until_lines("turns", 3, LIMIT); /* the letter runs again */
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 4);
    turns_untell("gate", "0.0");
    ends_in_order("hold", "0.3 ", "0.0 0.1 0.2 0.3 ");
}

Test(kept, of_two_letters_on_their_way_both_go_first)
{
    struct harness_process *w = harness_worker(queue, "-c", "1", "--", TURN);

    for (unsigned i = 0; i < 2; i++) {
        turns_tell("dead", i ? "0.1" : "0.0");
        turns_send_number(queue, "a", 0, 0, i);
    }
    harness_wait_letters(queue, 2, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    w = harness_worker(queue, "-c", "2", "--on-group-dead", "hold", "--grace",
                       "10ms", "--", TURN);
    turns_send_number(queue, "a", 9, 0, 2);
    turns_passed(queue); /* it waits for the letters */
    turns_tell("gate", "0.0");
    turns_tell("gate", "0.1");
    turns_untell("dead", "0.0");
    turns_untell("dead", "0.1");
    mqdlq("replay", "--all", queue);
    harness_until(harness_queue_length(queue) == 0, LIMIT);
    harness_until(turns_rows(queue, "state = 4") == 2, LIMIT);
    harness_until_lines("turns", 7, LIMIT); /* both letters: 4, turns_passed: 2,
                                             * one runs again: 1 */
    harness_signal(w, SIGTERM);
    stops_with_kept(w, 3);
    cr_assert_eq(turns_rows(queue, "state = 1 AND flags & 4"), 2);
    turns_untell("gate", "0.0");
    turns_untell("gate", "0.1");
    ends_in_order("hold", "0.2 ", "0.0 0.1 0.2 ");
}

/* ---- trouble ---- */

Test(kept, a_full_disk_leaves_them_in_custody_and_says_so)
{
    disk_mount("1m");
    send_all("ab");
    struct harness_process *w =
        harness_worker(queue, "-c", "2", "--grace", "10ms", "--", "sh", "-c",
                       "echo >>started; exec sleep 1000");
    harness_until_lines("started", 2, LIMIT);
    disk_fill();
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    const char *line = harness_wait_log(w, "event=not_kept", 0);
    cr_assert(strstr(line, "count=2"), "%s", line);
    cr_assert(strstr(line, "free some space"), "%s", line);
    cr_assert_eq(harness_log_count(w, "event=kept"), 0);
    cr_assert_eq(harness_busy_slots(queue), 2);
    disk_free();
    run_alone();
    runs_check("a/1/1 b/1/1 ");
}

/* Let a worker kill itself at a step after it has terminated two handlers. */
static void killed_at(const char *point)
{
    char at[64];
    const char *program = harness_handler("../../points/bin/mqworker");

    if (access(program, X_OK) != 0)
        cr_skip_test("%s: make points", program);
    snprintf(at, sizeof at, "MQW_KILL_AT=%s", point);
    send_all("ab");
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(program, "--state-dir", harness_state_dir(), "-c",
                             "2", "--grace", "10ms", queue, "--", "sh", "-c",
                             "echo >>started; exec sleep 1000"),
        .env = HARNESS_LIST(at)});
    harness_until_lines("started", 2, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), -SIGKILL, "%s",
                 harness_stderr(w, NULL));
    run_alone();
    runs_check("a/1/1 b/1/1 ");
}

Test(kept, a_kill_before_the_commit_leaves_each_in_its_slot)
{
    killed_at("keep_before_put");
}

Test(kept, a_kill_after_the_commit_runs_each_once)
{
    killed_at("keep_after_put");
}
