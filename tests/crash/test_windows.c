/* test_windows.c - kill at chosen moments that are too short to hit at random
 *
 * The custody file is copied while a handler runs, and put back after the
 * worker has been killed. The file then has the bytes that a kill right before
 * the freeing of the slot leaves, and everything before that has happened.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/custody_seal.h"
#include "tests/harness/harness.h"

#define LIMIT 10000

/* Offsets in the custody file (docs/formats/custody.md). */
#define AT_STRIDE 32
#define AT_SLOTS  56
#define AT_SLOT   4096
#define HELD      2
#define RUNNING   3

static const char *queue;

static void setup(void)
{
    harness_init();
    queue = harness_queue(10, 256);
}

TestSuite(windows, .init = setup, .fini = harness_fini);

/* The handler notes its attempt, waits for the file go-ATTEMPT and exits with
 * the status in that file. */
#define HANDLER                                             \
    "echo $MQW_ATTEMPT $MQW_REDELIVERED $(cat) >> runs\n"   \
    "while [ ! -s go-$MQW_ATTEMPT ]; do sleep 0.01; done\n" \
    "exit $(cat go-$MQW_ATTEMPT)"

static struct harness_process *worker(const char *backoff, const char *crashes)
{
    return harness_worker(queue, "-c", "2", "--backoff", backoff, "--jitter",
                          "0", "--max-crashes", crashes, "--max-attempts", "3",
                          "--", harness_script("handler", HANDLER));
}

static const char *custody(void)
{
    return harness_custody(queue);
}

/* Copy the custody file. */
static void snapshot(void)
{
    size_t size;
    const char *data = harness_read(custody(), &size);

    harness_write("snapshot", data, size);
}

/* Put the copy back, as if the worker had been killed when it was made. */
static void restore(void)
{
    size_t size;
    const char *data = harness_read("snapshot", &size);

    harness_write(custody(), data, size);
}

/* Return the offset of the only used slot, and its word; -1: none is used. */
static off_t busy_slot(uint64_t *word)
{
    int fd = open(custody(), O_RDONLY | O_CLOEXEC);
    uint64_t stride;
    uint32_t slots;
    off_t found = -1;

    cr_assert_eq(pread(fd, &stride, sizeof stride, AT_STRIDE), sizeof stride);
    cr_assert_eq(pread(fd, &slots, sizeof slots, AT_SLOTS), sizeof slots);
    for (uint32_t i = 0; i < slots; i++) {
        uint64_t w;
        off_t at = (off_t)(AT_SLOT + stride * i);

        cr_assert_eq(pread(fd, &w, sizeof w, at), sizeof w);
        if ((w & 0xff) == 0)
            continue;
        cr_assert_eq(found, -1, "more than one slot is in use");
        found = at;
        *word = w;
    }
    close(fd);
    return found;
}

static void patch(off_t at, const void *data, size_t size)
{
    int fd = open(custody(), O_WRONLY | O_CLOEXEC);

    cr_assert_eq(pwrite(fd, data, size, at), (ssize_t)size);
    close(fd);
}

#define ROWS    "SELECT count(*) FROM messages"
#define LETTERS "SELECT count(*) FROM messages WHERE state = 3"
#define WAITING "SELECT count(*) FROM messages WHERE state = 1"

/* Return true if no slot is in use. */
static bool none_in_flight(void)
{
    uint64_t word;

    return busy_slot(&word) < 0;
}

/* Start a worker over the restored file. It has recovered when it has logged
 * "started" and no slot is in use. */
static struct harness_process *worker_over_restored(const char *crashes)
{
    struct harness_process *w;

    restore();
    w = worker("1h", crashes);
    harness_wait_log(w, "event=started", LIMIT);
    return w;
}

/* Run a message up to this attempt, take a snapshot meanwhile, let the attempt
 * end with `status`, and kill the worker. */
static void run_to(int attempt, const char *status)
{
    struct harness_process *w = worker("1ms", "3");

    harness_send_text(queue, "message");
    for (int i = 1; i < attempt; i++)
        harness_write(harness_path("go-%d", i), "1", 1);
    harness_until_lines("runs", attempt, LIMIT);
    snapshot();
    harness_write(harness_path("go-%d", attempt), status, strlen(status));
    harness_until(none_in_flight(), LIMIT);
    harness_kill(w);
}

Test(windows, failure_that_is_stored_is_not_run_again_from_its_slot)
{
    struct harness_process *w = worker("1h", "3");

    harness_send_text(queue, "message");
    harness_until_lines("runs", 1, LIMIT);
    snapshot();
    harness_write("go-1", "1", 1);
    harness_until(none_in_flight(), LIMIT);
    harness_kill(w);
    w = worker_over_restored("3");
    harness_until(none_in_flight(), LIMIT);
    cr_assert_eq(harness_sql(queue, WAITING), 1);
    cr_assert_eq(
        harness_sql(queue, "SELECT attempts * 10 + crashes FROM messages"), 10);
    harness_stop(w, LIMIT);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(windows, message_that_died_is_one_letter)
{
    struct harness_process *w;

    run_to(1, "65");
    w = worker_over_restored("3");
    harness_until(none_in_flight(), LIMIT);
    cr_assert_eq(harness_sql(queue, ROWS), 1);
    cr_assert_eq(harness_sql(queue, LETTERS), 1);
    harness_stop(w, LIMIT);
    cr_assert_eq(harness_lines("runs"), 1);
}

Test(windows, retry_that_was_done_is_not_run_again)
{
    struct harness_process *w;

    run_to(2, "0");
    w = worker_over_restored("3");
    harness_until(none_in_flight(), LIMIT);
    cr_assert_eq(harness_sql(queue, ROWS), 0);
    harness_stop(w, LIMIT);
    cr_assert_eq(harness_lines("runs"), 2);
}

Test(windows, retry_that_failed_again_counts_once)
{
    struct harness_process *w;

    run_to(3, "1"); /* the last of three attempts */
    w = worker_over_restored("3");
    harness_until(none_in_flight(), LIMIT);
    cr_assert_eq(harness_sql(queue, LETTERS), 1);
    cr_assert_eq(harness_sql(queue, "SELECT attempts FROM messages"), 3);
    cr_assert_eq(harness_sql(queue, "SELECT count(*) FROM attempts"), 3);
    harness_stop(w, LIMIT);
    cr_assert_eq(harness_lines("runs"), 3);
}

Test(windows, message_that_was_done_is_repeated_and_says_so)
{
    struct harness_process *w;

    run_to(1, "0");
    w = worker_over_restored("3");
    harness_until_lines("runs", 2, LIMIT);
    harness_until(none_in_flight(), LIMIT);
    harness_stop(w, LIMIT);
    cr_assert_str_eq(harness_read("runs", NULL), "1 0 message\n1 1 message\n");
    cr_assert_eq(harness_sql(queue, ROWS), 0);
}

Test(windows, recovery_killed_before_the_burial_does_not_run_it_once_more)
{
    struct harness_process *w;
    uint64_t word;
    off_t at;

    run_to(1, "0");
    restore();
    at = busy_slot(&word);
    cr_assert_eq(word & 0xff, RUNNING);
    /* HELD, redelivered, 2 crashes: what slot_crashed has written by then. */
    word = (word & ~UINT64_C(0xffffffff)) | 2 << 16 | 1 << 8 | HELD;
    patch(at, &word, sizeof word);
    w = worker("1h", "2");
    harness_wait_log(w, "event=started", LIMIT);
    harness_until(none_in_flight(), LIMIT);
    harness_stop(w, LIMIT);
    cr_assert_eq(harness_sql(queue, LETTERS), 1);
    cr_assert_eq(harness_lines("runs"), 1);
}

static void power_cut(void)
{
    int fd;

    restore();
    fd = open(harness_custody(queue), O_RDWR | O_CLOEXEC);
    cr_assert(custody_seal(fd, CUSTODY_OTHER_RUN));
    close(fd);
}

Test(windows, power_cut_makes_a_letter_of_what_was_in_flight)
{
    struct harness_process *w;

    run_to(1, "0");
    power_cut();
    w = worker("1h", "3");
    harness_wait_log(w, "event=started", LIMIT);
    harness_until(none_in_flight(), LIMIT);
    harness_stop(w, LIMIT);
    cr_assert_eq(harness_sql(queue, LETTERS), 1);
    cr_assert_eq(harness_lines("runs"), 1,
                 "it may be damaged: it does not run");
}

Test(windows, power_cut_does_not_bury_a_retry_that_is_in_the_store)
{
    struct harness_process *w = worker("1ms", "3");

    harness_send_text(queue, "message");
    harness_write("go-1", "1", 1);
    harness_until_lines("runs", 2, LIMIT);
    snapshot();
    harness_kill(w);
    power_cut();
    harness_write("go-2", "0", 1);
    w = worker("1ms", "3");
    harness_until_lines("runs", 3, LIMIT);
    harness_until(none_in_flight() && harness_sql(queue, ROWS) == 0, LIMIT);
    harness_stop(w, LIMIT);
    cr_assert(strstr(harness_read("runs", NULL), "\n2 1 message\n"));
}

/* Return true if the process that a handler left in its own session is
 * alive. */
static bool leftover_runs(void)
{
    return harness_alive((pid_t)atoi(harness_read("left", NULL)));
}

Test(windows, what_a_stopped_handler_left_is_gone_before_its_message_runs_again)
{
    const char *script = harness_script(
        "leaver", "if [ -e left ]; then\n"
                  "  kill -0 $(cat left) 2>/dev/null && echo beside >> runs\n"
                  "  echo again >> runs; exit 0\n"
                  "fi\n"
                  "setsid sh -c 'echo $$ > left; exec sleep 600' &\n"
                  "while [ ! -s left ]; do sleep 0.01; done\n"
                  "echo first >> runs; sleep 600");
    struct harness_process *w = harness_worker(queue, "-c", "1", "--", script);

    harness_send_text(queue, "message");
    harness_until_lines("runs", 1, LIMIT);
    cr_assert(leftover_runs());
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, LIMIT), 0);
    w = harness_worker(queue, "-c", "1", "--", script);
    harness_until_lines("runs", 2, LIMIT);
    harness_stop(w, LIMIT);
    cr_assert_str_eq(harness_read("runs", NULL), "first\nagain\n");
    cr_assert_not(leftover_runs());
}
