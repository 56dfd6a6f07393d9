/* test_faults_letters.c - mqworker: a write about letters fails once; no letter
 * is sent twice or forgotten */
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/letters.h"

TestSuite(faults_letters, .init = faults_init, .fini = harness_fini);

#define DIES "--", "sh", "-c", "exit 65"

/* Let one message die; return its queue. */
static const char *letter_made(const char *body)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, DIES);
    harness_send_text(q, body);
    harness_wait_letters(q, 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    return q;
}

/* Start a worker whose first write to the store fails. */
static struct harness_process *worker_start(const char *q, const char *dead)
{
    const char *const argv[] = {"mqworker",
                                "--state-dir",
                                harness_state_dir(),
                                "--dead-letter-queue",
                                dead,
                                q,
                                DIES,
                                NULL};
    return fault_start("pwrite@store.db-wal:1:5", "tally", argv);
}

/* Receive the next message of a queue and compare it. */
static void next_check(const char *queue, const char *body)
{
    char buf[256];
    harness_until(harness_queue_length(queue) > 0, 10000);
    ssize_t n = harness_receive(queue, buf, sizeof buf, NULL);
    cr_assert_eq(n, (ssize_t)strlen(body));
    cr_assert_arr_eq(buf, body, (size_t)n);
}

/* Wait until the store has `count` letters. */
static void letters_left(const char *q, size_t count)
{
    size_t n = SIZE_MAX;
    harness_until((harness_letters(q, &n), n == count), 10000);
}

Test(faults_letters, one_that_was_moved_and_not_removed_is_not_sent_again)
{
    const char *q = letter_made("one"), *dead = harness_queue(0, 0);
    struct harness_process *w = worker_start(q, dead);
    harness_wait_log(w, "event=dead_letter_not_moved", 10000);
    harness_send_text(q, "two");
    next_check(dead, "one");
    next_check(dead, "two");
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_queue_length(dead), 0);
}

Test(faults_letters, one_that_was_moved_is_removed_without_another_death)
{
    const char *q = letter_made("one"), *dead = harness_queue(0, 0);
    struct harness_process *w = worker_start(q, dead);
    harness_wait_log(w, "event=dead_letter_not_moved", 10000);
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
    next_check(dead, "one");
    cr_assert_eq(harness_queue_length(dead), 0);
}

Test(faults_letters, one_that_was_moved_is_removed_at_the_latest_by_the_stop)
{
    const char *q = letter_made("one"), *dead = harness_queue(0, 0);
    struct harness_process *w = worker_start(q, dead);
    harness_wait_log(w, "event=dead_letter_not_moved", 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    letters_left(q, 0);
    next_check(dead, "one");
    cr_assert_eq(harness_queue_length(dead), 0);
}

Test(faults_letters, those_on_their_way_when_the_machine_went_down_are_recalled)
{
    char buf[256];
    const char *q = letter_made("one"), *dead = harness_queue(0, 0);
    cr_assert_eq(harness_run("mqdlq", "replay", "--state-dir",
                             harness_state_dir(), "--all", q)
                     .status,
                 0);
    cr_assert_gt(harness_receive(q, buf, sizeof buf, NULL), 0);
    harness_sql(q, "UPDATE messages SET boot = 'another'");
    struct harness_process *w = worker_start(q, dead);
    harness_wait_log(w, "event=letters_not_recalled", 10000);
    harness_wait_log(w, "event=letters_recalled", 10000);
    next_check(dead, "one"); /* moved like any other letter */
    letters_left(q, 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
}
