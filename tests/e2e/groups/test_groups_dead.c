/* test_groups_dead.c - mqworker: what an ordered group does when its head
 * dies */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(groups_dead, .init = harness_init, .fini = harness_fini);

/* Run mqdlq with the test's state directory; it must succeed. */
#define mqdlq(verb, ...)                                                     \
    do {                                                                     \
        struct harness_result r_ = harness_run(                              \
            "mqdlq", verb, "--state-dir", harness_state_dir(), __VA_ARGS__); \
        cr_assert_eq(r_.status, 0, "mqdlq %s: %s", verb, r_.err);            \
    } while (0)

static struct harness_process *holding_worker(const char *q)
{
    return harness_worker(q, "-c", "2", "--on-group-dead", "hold",
                          "--max-attempts", "2", "--backoff", "5ms", "--jitter",
                          "0", "--", TURN);
}

/* Send `count` messages of a group, numbered from `first`. */
static void group_send(const char *q, const char *group, unsigned first,
                       unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        turns_send_number(q, group, 0, 0, i);
}

/* Let "0.0" of group a die, with "0.1" to "0.3" behind it. */
static const struct harness_letter *dead_head(const char *q)
{
    const struct harness_letter *l;

    turns_tell("dead", "0.0");
    group_send(q, "a", 0, 4);
    l = harness_wait_letters(q, 1, 10000);
    cr_assert_str_eq(l->group, "a");
    turns_passed(q);
    return l;
}

/* Check that the whole group ran, head first. */
static void ends_in_order(struct harness_process *w, const char *q)
{
    harness_until(strstr(turns_order("a"), "0.3 "), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.0 0.1 0.2 0.3 ");
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* ---- continue ---- */

Test(groups_dead, the_next_one_goes_on_by_default)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--max-attempts", "3", "--backoff", "5ms", "--", TURN);

    turns_tell("fail", "0.0"); /* dead after three failures */
    turns_tell("dead", "0.2"); /* dead at its first run */
    group_send(q, "a", 0, 5);
    harness_until(turns_done() == 3, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.1 0.3 0.4 ");
    struct turns t = turns_read();
    turns_check(&t);
    cr_assert_eq(turns_starts(&t, "a", 0, turns_start(&t, "0.1")), 3,
                 "it ran before the head died");
    size_t n;
    const struct harness_letter *l = harness_letters(q, &n);
    cr_assert_eq(n, 2);
    cr_assert_str_eq(l[0].body, "0.2");
    cr_assert_str_eq(l[0].reason, "rejected");
    cr_assert_str_eq(l[1].body, "0.0");
    cr_assert_str_eq(l[1].reason, "exhausted");
}

Test(groups_dead, a_replayed_letter_runs_in_its_group_by_default)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", "--", TURN);

    turns_tell("dead", "0.0");
    group_send(q, "a", 0, 2);
    harness_wait_letters(q, 1, 10000);
    harness_until(turns_done() == 1, 10000);
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    harness_until(turns_done() == 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.1 0.0 ");
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* ---- hold ---- */

Test(groups_dead, a_held_group_waits_while_others_run)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    for (unsigned i = 0; i < 20; i++)
        turns_send_number(q, "b", 0, 1, i);
    harness_until(strstr(turns_order("b"), "1.19 "), 10000);
    const char *line = harness_wait_log(w, "event=group_held", 5000);
    cr_assert(strstr(line, "group=a"), "%s", line);
    cr_assert(strstr(line, "mqdlq") && strstr(line, "KEY release"), "%s", line);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "");
    struct turns t = turns_read();
    cr_assert_eq(turns_starts(&t, "a", 0, t.count), 1, "not only the head");
}

Test(groups_dead, a_held_group_goes_on_when_its_head_was_replayed)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    ends_in_order(w, q);
}

Test(groups_dead, a_held_group_goes_on_when_its_head_was_discarded)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    mqdlq("discard", "--all", q);
    harness_until(strstr(turns_order("a"), "0.3 "), 10000);
    harness_wait_log(w, "event=group_released", 5000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.1 0.2 0.3 ");
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* Discard all letters by an mqdlq that kills itself at the step `point`. */
static void discard_until(const char *q, const char *point)
{
    const char *program = harness_handler("../../points/bin/mqdlq");
    char at[64];

    if (access(program, X_OK) != 0)
        cr_skip_test("%s: make points", program);
    snprintf(at, sizeof at, "MQW_KILL_AT=%s", point);
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(program, "discard", "--state-dir",
                             harness_state_dir(), "--all", q),
        .env = HARNESS_LIST(at)});
    cr_assert_eq(harness_wait(p, 10000), -SIGKILL, "%s",
                 harness_stderr(p, NULL));
}

/* The worker watches the store for writes: one writer dies before its write,
 * the other after it but before it closes the file. */
Test(groups_dead, a_writer_that_is_killed_keeps_no_group_held)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);
    size_t letters;

    dead_head(q);
    harness_wait_log(w, "event=group_held", 5000);
    discard_until(q, "letters_discard_before");
    harness_letters(q, &letters);
    cr_assert_eq(letters, 1);
    cr_assert_str_eq(turns_order("a"), "");
    discard_until(q, "letters_discard_after");
    harness_until(strstr(turns_order("a"), "0.3 "), 10000);
    harness_wait_log(w, "event=group_released", 5000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.1 0.2 0.3 ");
}

Test(groups_dead, a_head_out_of_attempts_holds_its_group_too)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    turns_tell("fail", "0.0");
    group_send(q, "a", 0, 4);
    cr_assert_str_eq(harness_wait_letters(q, 1, 10000)->reason, "exhausted");
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("fail", "0.0");
    mqdlq("replay", "--all", q);
    ends_in_order(w, q);
}

Test(groups_dead, a_head_that_expired_holds_its_group_too)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);
    static const char late[] = "MQW/1\ngroup: a\nexpires: 1\n\n0.0";

    harness_send(q, late, sizeof late - 1, 0);
    group_send(q, "a", 1, 3);
    cr_assert_str_eq(harness_wait_letters(q, 1, 10000)->reason, "expired");
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    mqdlq("replay", "--all", "--reset-expiry", q);
    ends_in_order(w, q);
}

Test(groups_dead, a_replayed_head_that_dies_again_holds_on)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    mqdlq("replay", "--all", q);
    harness_until(harness_log_count(w, "event=dead ") >= 2, 10000);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    ends_in_order(w, q);
}

Test(groups_dead, a_replayed_head_that_fails_is_tried_again_first)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--on-group-dead", "hold", "--max-attempts", "1000000",
        "--backoff", "20ms", "--jitter", "0", "--", TURN);

    dead_head(q);
    turns_tell("fail", "0.0");
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    harness_until(harness_log_count(w, "event=retry ") >= 3, 10000);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("fail", "0.0");
    ends_in_order(w, q);
}

Test(groups_dead, each_of_two_dead_in_a_row_holds_its_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    turns_tell("dead", "0.1");
    dead_head(q);
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    harness_until(strcmp(turns_order("a"), "0.0 ") == 0, 10000);
    harness_wait_letters(q, 1, 10000);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "0.0 ");
    turns_untell("dead", "0.1");
    mqdlq("replay", "--all", q);
    ends_in_order(w, q);
}

Test(groups_dead, two_held_groups_are_released_each_for_itself)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    turns_tell("dead", "1.0");
    turns_send(q, "b", 0, "1.0");
    turns_send(q, "b", 0, "1.1");
    harness_wait_letters(q, 2, 10000);
    turns_passed(q);
    mqdlq("discard", "--group", "b", q);
    harness_until(strcmp(turns_order("b"), "1.1 ") == 0, 10000);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("dead", "0.0");
    mqdlq("replay", "--group", "a", q);
    ends_in_order(w, q);
}

/* ---- hold, and another worker ---- */

Test(groups_dead, a_held_group_is_still_held_after_a_restart)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    cr_assert_eq(harness_stop(w, 10000), 0);
    w = holding_worker(q);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    ends_in_order(w, q);
}

Test(groups_dead, a_head_discarded_while_no_worker_runs_releases_its_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    harness_kill(w);
    mqdlq("discard", "--all", q);
    w = holding_worker(q);
    harness_until(strstr(turns_order("a"), "0.3 "), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.1 0.2 0.3 ");
}

Test(groups_dead, a_head_discarded_after_a_restart_releases_its_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    cr_assert_eq(harness_stop(w, 10000), 0);
    w = holding_worker(q);
    turns_passed(q);
    mqdlq("discard", "--all", q);
    harness_until(strstr(turns_order("a"), "0.3 "), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), "0.1 0.2 0.3 ");
}

Test(groups_dead, a_head_replayed_while_no_worker_runs_goes_first)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    cr_assert_eq(harness_stop(w, 10000), 0);
    turns_untell("dead", "0.0");
    mqdlq("replay", "--all", q);
    ends_in_order(holding_worker(q), q);
}

Test(groups_dead, a_replayed_head_goes_first_although_the_worker_was_killed)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    turns_untell("dead", "0.0");
    turns_tell("gate", "0.0");
    mqdlq("replay", "--all", q);
    harness_until(harness_lines_with("turns", "0.0") == 3, 10000);
    harness_kill(w);
    w = holding_worker(q);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("gate", "0.0");
    ends_in_order(w, q);
}

Test(groups_dead, a_replayed_head_that_was_interrupted_goes_first)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = holding_worker(q);

    dead_head(q);
    turns_untell("dead", "0.0");
    turns_tell("gate", "0.0");
    mqdlq("replay", "--all", q);
    harness_until(harness_lines_with("turns", "0.0") == 3, 10000);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, 10000), 0);
    w = holding_worker(q);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "");
    turns_untell("gate", "0.0");
    ends_in_order(w, q);
}

Test(groups_dead, a_group_waits_for_the_last_of_its_letters)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", TURN);

    turns_tell("dead", "0.0");
    turns_tell("dead", "0.1");
    group_send(q, "a", 0, 2);
    const struct harness_letter *l = harness_wait_letters(q, 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    w = harness_worker(q, "-c", "2", "--on-group-dead", "hold",
                       "--max-attempts", "1000000", "--backoff", "20ms", "--",
                       TURN);
    group_send(q, "a", 2, 2);
    turns_untell("dead", "0.0");
    turns_untell("dead", "0.1");
    turns_tell("fail", "0.0");
    mqdlq("replay", q, l[1].id); /* the older letter, which fails at first */
    harness_wait_log(w, "event=retry ", 10000);
    turns_untell("fail", "0.0");
    harness_until(strstr(turns_order("a"), "0.0 "), 10000);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "0.0 ", "it waits for no letter");
    mqdlq("replay", q, l[0].id);
    ends_in_order(w, q);
}

/* Send one more message of group a if there is room; return how many were
 * sent. */
static unsigned try_behind(const char *q, unsigned number)
{
    char body[64];
    int size = snprintf(body, sizeof body, "MQW/1\ngroup: a\n\n0.%u", number);

    return harness_try_send(q, body, (size_t)size, 0);
}

/* Return the text of a fix of mqctl doctor, from `what` on. */
static const char *doctor_fix(const char *q, const char *what)
{
    struct harness_result r =
        harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(), q);
    const char *at = strstr(r.out, what);

    cr_assert_not_null(at, "no '%s' in: %s", what, r.out);
    return at;
}

/* The queue is full and no more messages may be parked, so a letter cannot be
 * sent. */
Test(groups_dead, doctor_names_the_way_for_a_letter_past_max_parked)
{
    const char *q = harness_queue(4, 256);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--on-group-dead", "hold", "--max-attempts", "1",
        "--lookahead", "2", "--max-parked", "2", "--", TURN);
    struct harness_process *replay;
    unsigned sent = 0;
    char most[64];

    turns_tell("dead", "0.0");
    group_send(q, "a", 0, 1);
    harness_wait_letters(q, 1, 10000);
    turns_untell("dead", "0.0");
    harness_until((sent += try_behind(q, sent + 1),
                   harness_log_count(w, "event=parked_full") > 0 &&
                       harness_queue_length(q) == 4),
                  10000);
    replay = harness_program("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), "--group", "a", q);
    harness_until(harness_log_count(replay, "waiting for room") > 0 ||
                      !harness_running(replay),
                  10000);
    harness_kill(replay);
    /* If the replay had to wait, the letter is marked but in no queue. */
    doctor_fix(q, "mqdlq replay --replayed --again --group KEY --state-dir");
    snprintf(most, sizeof most, "%.*s",
             (int)strcspn(doctor_fix(q, "max-parked="), "; "),
             doctor_fix(q, "max-parked="));
    cr_assert_eq(
        harness_run("mqctl", "set", "--state-dir", harness_state_dir(), q, most)
            .status,
        0, "%s", most);
    mqdlq("replay", "--replayed", "--again", "--group", "a", q);
    harness_until(turns_rows(q, TURNS_ANY) == 0 && harness_queue_length(q) == 0,
                  10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}
