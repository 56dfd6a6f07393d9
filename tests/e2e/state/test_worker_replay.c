/* test_worker_replay.c - mqworker, mqdlq: replay dead letters through the
 * queue */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

TestSuite(worker_replay, .init = harness_init, .fini = harness_fini);

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define RECORD       harness_handler("record")

/* Run mqdlq with the test's state directory. */
#define mqdlq(verb, ...) \
    harness_run("mqdlq", verb, "--state-dir", harness_state_dir(), __VA_ARGS__)

/* Count the letters marked as sent. */
static int replayed(const char *q)
{
    struct harness_result r = mqdlq("list", "--replayed", "--count", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    return atoi(r.out);
}

/* Let one message die; return its letter. */
static const struct harness_letter *letter_made(const char *q,
                                                const char *message)
{
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "2", "--backoff", "1ms", "--", "sh",
                       "-c", "echo first life >&2; exit 1");
    harness_send(q, message, strlen(message), 6);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    return l;
}

/* Make one more letter. */
static void letter_add(const char *q, const char *body)
{
    size_t n;
    harness_letters(q, &n);
    struct harness_process *w = harness_worker(q, "--", "sh", "-c", "exit 65");
    harness_send_text(q, body);
    harness_wait_letters(q, n + 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_replay, one_that_ends_done_removes_the_letter)
{
    char want[128];
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = letter_made(q, "MQW/1\nx-a: b\n\nbody");
    struct harness_result r = mqdlq("replay", "--all", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    size_t n;
    harness_letters(q, &n);
    cr_assert_eq(n, 0);
    cr_assert_eq(replayed(q), 1, "it was not kept");
    struct harness_process *w = harness_worker(
        q, "--", "sh", "-c", "echo \"$MQW_X_A\" >x; exec \"$0\"", RECORD);
    harness_until(replayed(q) == 0, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    harness_letters(q, &n);
    cr_assert_eq(n, 0);
    snprintf(want, sizeof want, "%s 1 0 6 - body\n", l->id);
    cr_assert_str_eq(harness_read("runs", NULL), want,
                     "another message, or not attempt 1");
    cr_assert_str_eq(harness_read("x", NULL), "b\n");
}

Test(worker_replay, one_that_dies_again_is_the_same_letter_with_more_history)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *first = letter_made(q, "body");
    cr_assert_eq(first->history, 2);
    struct harness_process *w = harness_worker(
        q, "--max-attempts", "3", "--backoff", "1ms", "--", "sh", "-c",
        "echo $MQW_ATTEMPT >>attempts; echo second life >&2; exit 2");
    cr_assert_eq(mqdlq("replay", "--all", q).status, 0);
    harness_until_lines("attempts", 3, 5000);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(harness_read("attempts", NULL), "1\n2\n3\n");
    cr_assert_eq(l->row, first->row);
    cr_assert_str_eq(l->id, first->id);
    cr_assert_eq(l->history, 5);
    cr_assert_str_eq(l->errors[1], "exit 1");
    cr_assert_str_eq(l->errors[4], "exit 2");
    cr_assert_str_eq(l->error, "exit 2");
    cr_assert_str_eq(l->reason, "exhausted");
    cr_assert_eq(l->attempts, 3, "not of this life");
    cr_assert_str_eq(l->body, "body");
    cr_assert_str_eq(l->said, "second life\n");
    cr_assert_eq(replayed(q), 0);
}

Test(worker_replay, a_third_life_goes_on_as_well)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = letter_made(q, "body");
    long long row = l->row;
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", RECORD, "3");
    for (int life = 2; life <= 3; life++) {
        cr_assert_eq(mqdlq("replay", "--all", q).status, 0);
        harness_until_lines("runs", life - 1, 5000);
        l = harness_wait_letters(q, 1, 5000);
        cr_assert_eq(l->row, row);
        cr_assert_eq(l->history, (size_t)life + 1);
    }
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 0 6 - body"), 2);
}

Test(worker_replay, a_retry_of_a_replay_waits_through_a_restart)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = letter_made(q, "body");
    cr_assert_eq(mqdlq("replay", "--all", q).status, 0);
    struct harness_process *w =
        harness_worker(q, "--backoff", "4s", "--", RECORD, "1");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    w = harness_worker(q, "--max-attempts", "2", "--", RECORD, "4");
    const struct harness_letter *again = harness_wait_letters(q, 1, 15000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(again->row, l->row);
    cr_assert_eq(again->history, 4);
    cr_assert_eq(harness_lines_with("runs", " 2 0 6 - body"), 1);
}

Test(worker_replay, a_kill_under_a_replay_keeps_the_letter)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = letter_made(q, "body");
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c", "echo >>started; exec sleep 1000");
    cr_assert_eq(mqdlq("replay", "--all", q).status, 0);
    harness_until_lines("started", 1, 5000);
    harness_kill(w);
    w = harness_worker(q, "--max-attempts", "1", "--", RECORD, "1");
    const struct harness_letter *again = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(again->row, l->row);
    cr_assert_eq(again->history, 3);
    cr_assert(again->redelivered);
    cr_assert_eq(harness_lines_with("runs", " 1 1 6 - body"), 1);
}

/* Check the body of the next letter in a dead-letter queue. */
static void next_dead(const char *dead, const char *body)
{
    char buf[256];
    harness_until(harness_queue_length(dead) > 0, 5000);
    ssize_t n = harness_receive(dead, buf, sizeof buf, NULL);
    cr_assert_eq(n, (ssize_t)strlen(body), "%.*s", (int)n, buf);
    cr_assert_arr_eq(buf, body, (size_t)n);
}

/* Kill a worker while a letter is in a slot, then change the letter's row. The
 * letter must run from the slot and must not move to the dead-letter queue
 * before one that died later. */
static void in_flight_check(const char *change)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(0, 0);
    letter_add(q, "first");
    letter_add(q, "later");
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c", "echo >>started; exec sleep 1000");
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    harness_until_lines("started", 1, 5000);
    harness_kill(w);
    harness_sql(q, change);
    w = harness_worker(
        q, "--dead-letter-queue", dead, "--", "sh", "-c",
        "echo >>started; until [ -e go ]; do sleep 0.01; done; cat >>done");
    harness_until_lines("started", 2, 5000);
    next_dead(dead, "later");
    cr_assert_eq(harness_queue_length(dead), 0);
    harness_write("go", "", 0);
    harness_until(replayed(q) == 0, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t n;
    harness_letters(q, &n);
    cr_assert_eq(n, 0, "a letter is left");
    cr_assert_eq(harness_queue_length(dead), 0);
    cr_assert_str_eq(harness_read("done", NULL), "first");
    cr_assert_eq(harness_log_count(w, "event=letters_recalled"), 0);
}

/* As if the container was recreated: the same boot, but new queues. */
Test(worker_replay, one_in_flight_is_not_recalled)
{
    in_flight_check("UPDATE messages SET boot = 'another' WHERE state = 4");
}

Test(worker_replay, one_in_flight_is_not_moved)
{
    in_flight_check("UPDATE messages SET state = 3 WHERE state = 4");
}

Test(worker_replay, a_letter_number_with_another_id_is_any_message)
{
    char message[128];
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = letter_made(q, "body");
    snprintf(message, sizeof message,
             "MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\nletter: %lld\n\nother",
             l->row);
    harness_send_text(q, message);
    snprintf(message, sizeof message, "MQW/1\nletter: %lld\n\nno id", l->row);
    harness_send_text(q, message);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t n;
    const struct harness_letter *same = harness_letters(q, &n);
    cr_assert_eq(n, 1);
    cr_assert_eq(same->row, l->row);
    cr_assert_eq(same->history, 2);
}

Test(worker_replay, discarding_it_on_its_way_discards_the_message)
{
    const char *q = harness_queue(0, 0);
    const struct harness_letter *l = letter_made(q, "body");
    char row[24];
    size_t n;
    snprintf(row, sizeof row, "%lld", l->row);
    cr_assert_eq(mqdlq("replay", q, row).status, 0);
    cr_assert_eq(mqdlq("discard", "--replayed", "--all", q).status, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", RECORD, "1");
    harness_until(harness_log_count(w, "event=duplicate_letter") >= 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    harness_letters(q, &n);
    cr_assert_eq(n, 0);
    cr_assert_eq(harness_lines("runs"), 0);
}

Test(worker_replay, binary_bodies_come_again_byte_for_byte)
{
    char body[100];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 7 - 3);
    const char *q = harness_queue(0, 256);
    harness_send(q, body, sizeof body, 0);
    struct harness_process *w = harness_worker(q, "--", "sh", "-c", "exit 65");
    harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(mqdlq("replay", "--all", q).status, 0);
    w = harness_worker(q, "--", harness_handler("keep"));
    harness_until_lines("kept", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t size;
    const char *got = harness_read("body.0", &size);
    cr_assert_eq(size, sizeof body);
    cr_assert_arr_eq(got, body, sizeof body);
}

Test(worker_replay, more_letters_than_the_queue_holds_all_come_through)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--", "sh", "-c",
        "if [ -e fixed ]; then exec \"$0\"; fi; exit 65", RECORD);
    for (int i = 0; i < 25; i++)
        harness_send_text(q, "x");
    harness_wait_letters(q, 25, 10000);
    harness_write("fixed", "", 0);
    struct harness_result r = mqdlq("replay", "--all", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_until_lines("runs", 25, 10000);
    harness_until(replayed(q) == 0, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 25);
    size_t n;
    harness_letters(q, &n);
    cr_assert_eq(n, 0);
}

/* Mount another boot id, as container managers do, in a mount namespace that
 * ends with the test. Return false if mounts are not permitted. */
static bool boot_id_cover(void)
{
    static const char id[] = "f92ae3b0-0000-4000-8000-000000000002\n";

    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    harness_write("boot_id", id, sizeof id - 1);
    return mount(harness_path("%s/boot_id", harness_dir()), BOOT_ID_FILE, NULL,
                 MS_BIND, NULL) == 0;
}

/* mqdlq sees the other boot id. The worker sees the kernel's, as a service with
 * ProtectKernelTunables= does. */
Test(worker_replay, two_boot_ids_in_one_run_of_the_machine_recall_nothing)
{
    const char *q = harness_queue(0, 0);
    size_t n;

    letter_made(q, "body");
    if (!boot_id_cover())
        cr_skip_test("no permission to mount");
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    cr_assert_eq(umount(BOOT_ID_FILE), 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_until(replayed(q) == 0, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    harness_letters(q, &n);
    cr_assert_eq(n, 0);
    cr_assert_eq(harness_lines("runs"), 1);
    cr_assert_eq(harness_log_count(w, "event=letters_recalled"), 0);
}
