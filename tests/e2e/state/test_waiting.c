/* test_waiting.c - mqworker --max-waiting: how much may wait in the store */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(waiting, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")
#define LIMIT  10000

static struct harness_result mqctl(const char *verb, const char *q,
                                   const char *word)
{
    return word ? harness_run("mqctl", verb, "--state-dir", harness_state_dir(),
                              q, word)
                : harness_run("mqctl", verb, "--state-dir", harness_state_dir(),
                              q);
}

/* Return a number of rows, by its name in mqctl status. */
static long rows(const char *q, const char *name)
{
    char key[32];
    struct harness_result r = harness_run(
        "mqctl", "status", "--json", "--state-dir", harness_state_dir(), q);
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(r.out, key);
    cr_assert(at, "%s %s", r.out, r.err);
    return atol(at + strlen(key));
}

static long waits(const char *q)
{
    return rows(q, "waiting") + rows(q, "parked");
}

/* Send a message that is due in `s` seconds. */
static void delayed(const char *q, long s)
{
    char text[96];
    snprintf(text, sizeof text, "MQW/1\nnot-before: %lld000000000\n\nlater",
             (long long)time(NULL) + s);
    harness_send_text(q, text);
}

static void set(const char *q, const char *word)
{
    struct harness_result r = mqctl("set", q, word);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

Test(waiting, delayed_messages_are_taken_up_to_the_bound_and_no_further)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 10; i++)
        delayed(q, 3600);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--max-waiting", "4", "--", RECORD);
    const char *line = harness_wait_log(w, "event=waiting_full", LIMIT);
    cr_assert(strstr(line, "level=warn"), "%s", line);
    cr_assert(strstr(line, "waiting=4 max_waiting=4"), "%s", line);
    harness_send_text(q, "not even this");
    cr_assert_eq(waits(q), 4);
    cr_assert_eq(harness_queue_length(q), 7);

    struct harness_result r = mqctl("status", q, NULL);
    cr_assert(strstr(r.out, "full: as many messages wait as --max-waiting"),
              "%s", r.out);
    r = mqctl("doctor", q, NULL);
    cr_assert_eq(r.status, 1, "%s", r.out);
    cr_assert(strstr(r.out, "4 messages are waiting in the store, and "
                            "--max-waiting allows 4: the worker takes no "
                            "more messages"),
              "%s", r.out);
    r = mqctl("explain", q, "01JD3Z6Q9V0X8N5T2K7B4M1C3F");
    cr_assert(
        strstr(r.err, "is taking no messages now: --max-waiting is reached"),
        "%s", r.err);

    set(q, "max-waiting=8");
    harness_until(waits(q) == 8, LIMIT);
    cr_assert_eq(harness_queue_length(q), 3);
    set(q, "max-waiting=1000000");
    harness_until_lines("runs", 1, LIMIT);
    cr_assert_eq(harness_lines_with("runs", "not even this"), 1);
    harness_until(waits(q) == 10, LIMIT);
    cr_assert_eq(harness_log_count(w, "event=waiting_room"), 2);
    cr_assert_eq(harness_log_count(w, "event=waiting_full"), 2);
    set(q, "max-waiting=1"); /* less than the number of rows */
    harness_until(harness_log_count(w, "event=waiting_full") >= 3, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(waits(q), 10);
}

Test(waiting, what_is_due_runs_at_the_bound_and_the_queue_goes_on_by_itself)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-waiting", "3", "--backoff", "300ms", "--jitter",
        "0", "--", "sh", "-c", "echo >>runs; [ $MQW_ATTEMPT -gt 1 ]");
    for (int i = 0; i < 20; i++)
        harness_send_text(q, "fails once");
    harness_until_lines("runs", 40, 30000);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    const char *stopped = harness_wait_log(w, "event=stopped", 0);
    cr_assert(strstr(stopped, "done=20 retried=20 dead=0"), "%s", stopped);
    /* Each waiting_full, except perhaps the last, has its waiting_room. */
    size_t full = harness_log_count(w, "event=waiting_full");
    cr_assert_geq(full, 1);
    cr_assert_leq(full - harness_log_count(w, "event=waiting_room"), 1);
    cr_assert_eq(waits(q), 0);
}

Test(waiting, children_that_last_are_given_no_more_either)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "--stream", "--window", "2", "-c", "1", "--max-waiting", "3",
        "--backoff", "300ms", "--jitter", "0", "--",
        harness_script("each", "while read -r msg id size rest; do read -r b\n"
                               "echo >>runs\ncase $rest in attempt=1*) echo "
                               "RETRY $id;; *) echo OK $id;; esac; done\n"));
    for (int i = 0; i < 12; i++)
        harness_send_text(q, "fails once");
    harness_until_lines("runs", 24, 30000);
    harness_until(waits(q) == 0, LIMIT);
    cr_assert_geq(harness_log_count(w, "event=waiting_full"), 1);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(waiting, all_that_is_in_hand_is_stored_beyond_the_bound)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "4", "--max-waiting", "1", "--backoff", "1h", "--", "sh", "-c",
        "echo >>began; until [ -e go ]; do sleep 0.02; done; exit 1");
    for (int i = 0; i < 8; i++)
        harness_send_text(q, "x");
    harness_until_lines("began", 4, LIMIT);
    harness_write("go", "", 0);
    harness_until(waits(q) == 4, LIMIT);
    harness_wait_log(w, "event=waiting_full", LIMIT);
    cr_assert_eq(harness_queue_length(q), 4);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_lines("began"), 4);
    cr_assert_eq(waits(q), 4);
}

Test(waiting, messages_behind_a_blocked_head_count_as_the_head_does)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-waiting", "5", "--lookahead", "1", "--backoff",
        "1h", "--", "sh", "-c", "read b; echo $b >>runs; [ $b = other ]");
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "MQW/1\ngroup: g\n\na");
    harness_wait_log(w, "event=waiting_full", LIMIT);
    harness_send_text(q, "other");
    harness_until(waits(q) >= 5, LIMIT);
    cr_assert_eq(rows(q, "waiting"), 1);
    cr_assert_leq(waits(q), 6, "more than one in hand");
    cr_assert_geq(harness_queue_length(q), 4);
    cr_assert_eq(harness_lines("runs"), 1);
    set(q, "max-waiting=100");
    harness_until_lines("runs", 2, LIMIT);
    cr_assert_eq(harness_lines_with("runs", "other"), 1);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(waiting, letters_do_not_count)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--max-waiting", "2", "--", "sh", "-c", "exit 65");
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "x");
    harness_wait_letters(q, 10, LIMIT);
    cr_assert_eq(harness_run("mqdlq", "discard", "--all", "--state-dir",
                             harness_state_dir(), q)
                     .status,
                 0);
    harness_send_text(q, "x");
    harness_wait_letters(q, 1, LIMIT);
    cr_assert_eq(harness_run("mqdlq", "replay", "--all", "--state-dir",
                             harness_state_dir(), q)
                     .status,
                 0);
    harness_wait_letters(q, 1, LIMIT);
    delayed(q, 3600);
    delayed(q, 3600);
    harness_wait_log(w, "waiting=2 max_waiting=2", LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=waiting_full"), 1);
}

Test(waiting, a_replay_that_fails_waits_as_others_do_and_done_makes_room)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-waiting", "1", "--backoff", "100ms",
        "--max-attempts", "1000", "--", "sh", "-c",
        "echo $MQW_ATTEMPT >>runs; [ -e good ] && exit 0; [ -e bad ] && "
        "exit 1; exit 65");
    harness_wait_letters(q, 1, LIMIT);
    harness_write("bad", "", 0);
    cr_assert_eq(harness_run("mqdlq", "replay", "--all", "--state-dir",
                             harness_state_dir(), q)
                     .status,
                 0);
    harness_wait_log(w, "event=waiting_full", LIMIT);
    harness_send_text(q, "next");
    harness_write("good", "", 0);
    harness_wait_log(w, "event=waiting_room", LIMIT);
    harness_until(harness_queue_length(q) == 0 && waits(q) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert(strstr(harness_wait_log(w, "event=stopped", 0), "done=2"));
}

/* Let a worker that is killed or stopped leave 4 waiting rows. The next worker
 * with that bound must take nothing, one with a higher bound the rest. */
static void left(bool killed)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 10; i++)
        delayed(q, 3600);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--max-waiting", "4", "--", RECORD);
    harness_wait_log(w, "event=waiting_full", LIMIT);
    if (killed)
        harness_kill(w);
    else
        cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(waits(q), 4);
    w = harness_worker(q, "-c", "1", "--max-waiting", "4", "--", RECORD);
    harness_wait_log(w, "event=waiting_full", LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(waits(q), 4);
    cr_assert_eq(harness_queue_length(q), 6);
    w = harness_worker(q, "-c", "1", "--", RECORD);
    harness_until(harness_queue_length(q) == 0 && waits(q) == 10, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=waiting_full"), 0);
}

Test(waiting, a_restart_knows_what_waits)
{
    left(false);
}

Test(waiting, a_start_after_a_kill_knows_what_waits)
{
    left(true);
}

/* Start a worker whose handler fails once for each message. */
static struct harness_process *once(const char *q)
{
    return harness_worker(q, "-c", "2", "--max-waiting", "4", "--max-crashes",
                          "1000", "--backoff", "50ms", "--", "sh", "-c",
                          "read b; echo \"$b.\" >>runs; "
                          "[ $MQW_ATTEMPT -gt 1 ] && echo \"$b.\" >>done");
}

#define MANY 60

Test(waiting, nothing_is_lost_when_the_worker_is_killed_at_the_bound)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = once(q);
    char text[16];
    size_t kills = 0;
    for (int i = 0; i < MANY; i++) {
        int size = snprintf(text, sizeof text, "m%d", i);
        while (!harness_try_send(q, text, (size_t)size, 0)) {
            size_t seen = harness_lines("runs");
            harness_until_lines("runs", seen + 3, LIMIT);
            harness_kill(w);
            kills++;
            cr_assert_leq(waits(q), 4 + 2, "more than 4 and 2 in hand");
            w = once(q);
        }
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(text, sizeof text, "m%d.", i);
        harness_until(harness_lines_with("done", text) > 0, 30000);
    }
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(waits(q), 0);
    cr_assert_gt(kills, 2);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 0);
}
