/* test_worker_dead_queue.c - mqworker --dead-letter-queue: letters move when
 * the queue has room */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(worker_dead_queue, .init = harness_init, .fini = harness_fini);

#define DIES "--", "sh", "-c", "exit 65"

/* Wait for the next message of the queue and compare it. */
static void next_check(const char *queue, const char *body, unsigned priority)
{
    char buf[256];
    unsigned got_priority;
    harness_until(harness_queue_length(queue) > 0, 5000);
    ssize_t n = harness_receive(queue, buf, sizeof buf, &got_priority);
    cr_assert_eq(n, (ssize_t)strlen(body));
    cr_assert_arr_eq(buf, body, strlen(body));
    cr_assert_eq(got_priority, priority);
}

/* Wait until the store has `count` letters. */
static void letters_left(const char *q, size_t count)
{
    size_t n = SIZE_MAX;
    harness_until((harness_letters(q, &n), n == count), 5000);
}

Test(worker_dead_queue, letters_move_in_order_as_room_comes)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(2, 256);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--dead-letter-queue", dead, DIES);
    for (int i = 0; i < 6; i++) {
        char body[16];
        snprintf(body, sizeof body, "m%d", i);
        harness_send_text(q, body);
    }
    harness_until(harness_queue_length(dead) == 2, 5000);
    letters_left(q, 4); /* the others wait in the store */
    for (int i = 0; i < 6; i++) {
        char body[16];
        snprintf(body, sizeof body, "m%d", i);
        next_check(dead, body, 0);
    }
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_dead_queue, bytes_priority_and_header_are_as_they_were)
{
    static const char message[] = "MQW/1\nx-a: b\n\nbody";
    const char *q = harness_queue(0, 0), *dead = harness_queue(0, 256);
    struct harness_process *w =
        harness_worker(q, "--dead-letter-queue", dead, DIES);
    harness_send(q, message, strlen(message), 31);
    next_check(dead, message, 31);
    harness_send(q, "", 0, 2);
    next_check(dead, "", 2);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_dead_queue, it_is_created_when_missing)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue_name();
    struct harness_process *w =
        harness_worker(q, "--dead-letter-queue", dead + 1, DIES);
    harness_send_text(q, "x");
    next_check(dead, "x", 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_dead_queue, letters_from_before_move_at_the_start)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(0, 256);
    struct harness_process *w = harness_worker(q, "-c", "1", DIES);
    harness_send_text(q, "first");
    harness_send_text(q, "second");
    harness_wait_letters(q, 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    w = harness_worker(q, "--dead-letter-queue", dead, DIES);
    next_check(dead, "first", 0);
    next_check(dead, "second", 0);
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* A queue whose name was removed would still accept messages, which nobody
 * could receive. */
Test(worker_dead_queue, one_that_was_removed_is_made_again)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(3, 100);
    struct harness_process *w =
        harness_worker(q, "--dead-letter-queue", dead, DIES);
    harness_send_text(q, "one");
    next_check(dead, "one", 0);
    cr_assert_eq(mq_unlink(dead), 0);
    harness_send_text(q, "two");
    harness_wait_log(w, "event=dead_letter_queue_opened_again", 5000);
    next_check(dead, "two", 0);
    letters_left(q, 0);
    for (int i = 0; i < 5; i++)
        harness_send_text(q, "more");
    letters_left(q, 2); /* it was created again with room for three */
    for (int i = 0; i < 5; i++)
        next_check(dead, "more", 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Return true if a process waits in epoll for room to write: the line "events:
 * 4000001c" is EPOLLOUT, once. */
static bool waits_for_room(pid_t pid)
{
    char cmd[128];
    snprintf(cmd, sizeof cmd, "grep -qs 'events: 4000001c ' /proc/%d/fdinfo/*",
             (int)pid);
    return harness_run("sh", "-c", cmd).status == 0;
}

/* Nobody can make room in a queue without a name. */
Test(worker_dead_queue, a_full_one_that_was_removed_is_made_again)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(1, 100);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--dead-letter-queue", dead, DIES);
    harness_send_text(q, "one");
    harness_until(harness_queue_length(dead) == 1, 5000);
    harness_send_text(q, "two");
    harness_until(waits_for_room(harness_pid(w)), 5000);
    cr_assert_eq(mq_unlink(dead), 0);
    harness_wait_log(w, "event=dead_letter_queue_opened_again", 5000);
    next_check(dead, "two", 0);
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* The last try to write a verdict is made when the threads have ended. */
Test(worker_dead_queue,
     a_letter_written_at_the_very_end_moves_at_the_next_start)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--dead-letter-queue", dead, DIES);
    harness_wait_log(w, "event=started", 5000);
    struct sqlite3 *db = disk_lock(q);
    harness_send_text(q, "x");
    harness_wait_log(w, "event=store_cannot_write", 15000);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 5000);
    disk_unlock(db);
    cr_assert_eq(harness_wait(w, 15000), 0);
    w = harness_worker(q, "--dead-letter-queue", dead, DIES);
    next_check(dead, "x", 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_dead_queue, a_full_one_stops_neither_the_worker_nor_its_end)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(1, 256);
    harness_send_text(dead, "there already");
    struct harness_process *w =
        harness_worker(q, "--dead-letter-queue", dead, "--", "sh", "-c",
                       "read b; echo >>runs; [ $b = good ] || exit 65");
    harness_send_text(q, "bad\n");
    for (int i = 0; i < 5; i++)
        harness_send_text(q, "good\n");
    harness_until_lines("runs", 6, 5000);
    harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    w = harness_worker(q, "--dead-letter-queue", dead, DIES);
    next_check(dead, "there already", 0);
    next_check(dead, "bad\n", 0);
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_dead_queue, a_letter_too_large_for_it_stays_and_others_pass)
{
    char large[200];
    memset(large, 'l', sizeof large);
    const char *q = harness_queue(0, 256), *dead = harness_queue(4, 100);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--dead-letter-queue", dead, DIES);
    harness_send(q, large, sizeof large, 0);
    harness_send_text(q, "small");
    next_check(dead, "small", 0);
    letters_left(q, 1);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(l->body_size, sizeof large);
    const char *line = harness_wait_log(w, "event=dead_letter_too_large", 5000);
    cr_assert(strstr(line, l->id) && strstr(line, "200") && strstr(line, "100"),
              "%s", line);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Send a message of group g. */
static void group_send(const char *q, const char *body)
{
    char text[64];
    snprintf(text, sizeof text, "MQW/1\ngroup: g\n\n%s", body);
    harness_send_text(q, text);
}

/* Kill a worker while a message of group g runs and a replayed letter of that
 * group waits behind it. Then recall the letter, as a start with another queue
 * does. */
static void slot_letter(const char *q)
{
    struct harness_process *w = harness_worker(
        q, "-v", "-c", "2", "--",
        harness_script("first", "b=$(cat); [ $b != letter ] || exit 65\n"
                                "echo $b >>runs; [ $b != head ] || "
                                "exec sleep 60"));
    group_send(q, "letter");
    harness_wait_letters(q, 1, 5000);
    group_send(q, "head");
    harness_until_lines("runs", 1, 10000);
    struct harness_result r = harness_run("mqdlq", "replay", "--state-dir",
                                          harness_state_dir(), "--all", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_send_text(q, "last"); /* received after the letter */
    harness_wait_log(w, "event=done", 10000);
    harness_kill(w);
    harness_sql(q, "UPDATE messages SET state = 3 WHERE state = 4");
}

/* The head was running alone, so one crash makes it dead at the start. Letters
 * are moved in the order of their deaths: when the head has moved, the letter
 * in the slot was passed over. */
Test(worker_dead_queue, a_letter_in_a_slot_is_not_moved_by_the_recovery)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(0, 256);
    slot_letter(q);
    struct harness_process *w = harness_worker(
        q, "--max-crashes", "1", "--dead-letter-queue", dead, "--", "sh", "-c",
        "until [ -e go ]; do sleep 0.02; done; echo $(cat) >>ran");
    next_check(dead, "MQW/1\ngroup: g\n\nhead", 0);
    cr_assert_eq(harness_queue_length(dead), 0);
    harness_write("go", "", 0);
    harness_until_lines("ran", 1, 5000);
    cr_assert_str_eq(harness_read("ran", NULL), "letter\n");
    letters_left(q, 0);
    cr_assert_eq(harness_queue_length(dead), 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_dead_queue, a_kill_repeats_at_most_and_loses_none)
{
    const char *q = harness_queue(0, 0), *dead = harness_queue(1, 256);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--dead-letter-queue", dead, DIES);
    for (int i = 0; i < 3; i++) {
        char body[16];
        snprintf(body, sizeof body, "m%d", i);
        harness_send_text(q, body);
    }
    harness_wait_log(w, "event=dead_letter_moved", 5000);
    letters_left(q, 2);
    harness_kill(w);
    w = harness_worker(q, "-c", "1", "--dead-letter-queue", dead, DIES);
    next_check(dead, "m0", 0);
    next_check(dead, "m1", 0);
    next_check(dead, "m2", 0);
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}
