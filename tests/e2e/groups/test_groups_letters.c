/* test_groups_letters.c - mqworker: letters that hold their group
 * (--on-group-dead hold), in unusual orders */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(groups_letters, .init = harness_init, .fini = harness_fini);

#define HOLD "--on-group-dead", "hold", "--backoff", "20ms", "--jitter", "0"

/* Run mqdlq with the test's state directory; it must succeed. */
#define mqdlq(verb, ...)                                                     \
    do {                                                                     \
        struct harness_result r_ = harness_run(                              \
            "mqdlq", verb, "--state-dir", harness_state_dir(), __VA_ARGS__); \
        cr_assert_eq(r_.status, 0, "mqdlq %s: %s", verb, r_.err);            \
    } while (0)

/* Make letters "0.0" and "0.1" of group a without `hold`; return them, newest
 * first. */
static const struct harness_letter *two_letters(const char *q)
{
    struct harness_process *w = harness_worker(q, "-c", "1", "--", TURN);
    const struct harness_letter *l;

    turns_tell("dead", "0.0");
    turns_tell("dead", "0.1");
    turns_send(q, "a", 0, "0.0");
    turns_send(q, "a", 0, "0.1");
    l = harness_wait_letters(q, 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    turns_untell("dead", "0.0");
    turns_untell("dead", "0.1");
    return l;
}

/* Check that the group ran in this order and nothing is left. */
static void ends(struct harness_process *w, const char *q, const char *order)
{
    harness_until(strlen(turns_order("a")) >= strlen(order), 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(turns_order("a"), order);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* If the handler cannot be started, the letter returns to its group by its row,
 * which must not count as a replay. */
Test(groups_letters, one_that_could_not_be_started_leaves_the_other_to_wait_for)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = two_letters(q);
    struct harness_process *w;

    harness_script("run", "exec \"$1\"\n");
    w = harness_worker(q, "-c", "2", HOLD, "--breaker-pause", "50ms", "--",
                       harness_path("run"), TURN);
    turns_send(q, "a", 0, "0.2");
    turns_tell("fail", "0.0");
    turns_tell("gate", "0.0");
    mqdlq("replay", q, l[1].id);
    harness_until(harness_lines_with("turns", "0.0") == 3, 10000);
    cr_assert_eq(rename(harness_path("run"), harness_path("away")), 0);
    turns_untell("gate", "0.0");
    harness_wait_log(w, "event=retry ", 10000);
    harness_wait_log(w, "event=breaker_open", 10000);
    turns_untell("fail", "0.0");
    cr_assert_eq(rename(harness_path("away"), harness_path("run")), 0);
    harness_until(strstr(turns_order("a"), "0.0 "), 10000);
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "0.0 ", "it waits for no letter");
    mqdlq("replay", q, l[0].id);
    ends(w, q, "0.0 0.1 0.2 ");
}

/* Parked in the store, it would be no letter any more and lose its place. */
Test(groups_letters, one_behind_another_that_fails_keeps_its_place)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = two_letters(q);
    struct harness_process *w;

    w = harness_worker(q, "-c", "1", HOLD, "--lookahead", "2", "--max-attempts",
                       "1000", "--", TURN);
    turns_send(q, "a", 0, "0.2");
    turns_send(q, "a", 0, "0.3");
    turns_tell("fail", "0.0");
    mqdlq("replay", q, l[1].id);
    harness_wait_log(w, "event=retry ", 10000);
    mqdlq("replay", q, l[0].id);
    turns_passed(q);
    cr_assert_eq(turns_rows(q, "state = 4"), 1, "it is no letter any more");
    turns_untell("fail", "0.0");
    ends(w, q, "0.0 0.1 0.2 0.3 ");
}

/* The second letter can neither run nor be parked; the worker must not spin. */
Test(groups_letters, one_behind_another_that_fails_costs_no_processor)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = two_letters(q);
    struct harness_process *w;

    w = harness_worker(q, "-c", "1", "--on-group-dead", "hold", "--backoff",
                       "1000s", "--lookahead", "2", "--", TURN);
    turns_tell("fail", "0.0");
    mqdlq("replay", q, l[1].id);
    harness_wait_log(w, "event=retry ", 10000);
    mqdlq("replay", q, l[0].id);
    turns_passed(q);
    long before = harness_ticks(w);
    cr_assert_eq(harness_run("sleep", "1").status, 0);
    cr_assert_lt(harness_ticks(w) - before, 30);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* The letter holds its group from where it is, so mqctl has nothing to wait
 * for. */
Test(groups_letters, one_behind_another_is_not_cancelled_which_is_said_at_once)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = two_letters(q);
    struct harness_process *w;
    struct harness_result r;
    uint64_t began, took = UINT64_MAX;

    w = harness_worker(q, "-c", "1", "--on-group-dead", "hold", "--backoff",
                       "1000s", "--", TURN);
    turns_tell("fail", "0.0");
    mqdlq("replay", q, l[1].id);
    harness_wait_log(w, "event=retry ", 10000);
    mqdlq("replay", q, l[0].id);
    turns_passed(q);
    /* An mqctl that waits takes 3 s, and on a busy machine any may. */
    for (int i = 0; i < 5 && took >= 3000; i++) {
        began = harness_now_ms();
        r = harness_run("mqctl", "cancel", "--state-dir", harness_state_dir(),
                        q, l[0].id);
        took = harness_now_ms() - began;
        cr_assert_eq(r.status, 75, "%s", r.err);
        cr_assert(strstr(r.err, "cancel with mqdlq discard"), "%s", r.err);
    }
    cr_assert_lt(took, 3000, "it has waited");
    mqdlq("discard", q, l[0].id);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(turns_rows(q, "state >= 3"), 0);
}

/* Without `hold`, a blocked group uses no slots of other groups, whatever waits
 * behind its head. */
Test(groups_letters, without_hold_they_are_parked_as_others_are)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = two_letters(q);
    struct harness_process *w;

    w = harness_worker(q, "-c", "1", "--max-attempts", "1000", "--backoff",
                       "20ms", "--lookahead", "1", "--", TURN);
    turns_tell("fail", "0.0");
    mqdlq("replay", q, l[1].id);
    harness_wait_log(w, "event=retry ", 10000);
    mqdlq("replay", q, l[0].id);
    turns_passed(q);
    turns_untell("fail", "0.0");
    ends(w, q, "0.0 0.1 ");
}

/* ---- a message that dies without a run ---- */

/* Store a message of 150 bytes of group a that is due in some seconds. Then
 * recreate the queue for messages of at most 120 bytes and start a worker for
 * it. */
static struct harness_process *shrunk(const char *q)
{
    char large[256];
    struct harness_process *w = harness_worker(q, HOLD, "--", TURN);

    memset(large, 'l', 150);
    large[150] = '\0';
    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(
        harness_run("mqsend", "--group", "a", "--delay", "8s", q, large).status,
        0);
    harness_until(turns_rows(q, TURNS_WAITING) == 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(mq_unlink(q), 0);
    w = harness_worker(q, "--queue-depth", "4", "--message-size", "120", HOLD,
                       "--", TURN);
    harness_wait_log(w, "event=started", 5000);
    return w;
}

/* Check that messages behind the letter run only after it was discarded. */
static void waits(struct harness_process *w, const char *q, const char *before,
                  const char *after)
{
    harness_wait_log(w, "event=group_held", 15000);
    turns_send(q, "a", 0, "0.7");
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), before);
    mqdlq("discard", "--all", q);
    ends(w, q, after);
}

Test(groups_letters, a_delayed_one_that_is_too_large_now_holds_its_group)
{
    const char *q = harness_queue(4, 320);
    struct harness_process *w = shrunk(q);

    waits(w, q, "", "0.7 ");
}

Test(groups_letters, a_delayed_one_that_dies_while_another_runs_holds_its_group)
{
    const char *q = harness_queue(4, 320);
    struct harness_process *w = shrunk(q);

    turns_tell("gate", "0.5");
    turns_send(q, "a", 0, "0.5");
    turns_send(q, "a", 0, "0.6");
    harness_wait_log(w, "event=dead ", 15000);
    turns_untell("gate", "0.5");
    waits(w, q, "0.5 ", "0.5 0.6 0.7 ");
}

/* ---- a message that expires before it is due ---- */

/* While the store is locked, the message cannot die, and no message of its
 * group may pass it. None of our programs sends such a header. */
Test(groups_letters, one_that_expired_before_it_is_due_holds_its_group)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", HOLD, "--", TURN);
    char text[128];
    struct sqlite3 *db;

    harness_wait_log(w, "event=started", 5000);
    db = disk_lock(q);
    snprintf(text, sizeof text,
             "MQW/1\ngroup: a\nnot-before: %lld000000000\nexpires: 1\n\n0.0",
             (long long)time(NULL) + 3600);
    harness_send_text(q, text);
    turns_send(q, "a", 0, "0.1");
    turns_passed(q);
    cr_assert_str_eq(turns_order("a"), "", "one has passed it");
    disk_unlock(db);
    cr_assert_str_eq(harness_wait_letters(q, 1, 10000)->reason, "expired");
    waits(w, q, "", "0.1 0.7 ");
}
