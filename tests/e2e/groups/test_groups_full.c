/* test_groups_full.c - mqworker: groups whose messages leave no slot free
 *
 * Messages behind a blocked head need the store, and the head needs a slot.
 * Both are missing here and become available again.
 */
#include "common/custody/custody.h"
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(groups_full, .init = harness_init, .fini = harness_fini);

/* ---- a full disk ---- */

/* Send 0.1 to 0.`count` of group a with the same delay. */
static void send_delayed(const char *q, unsigned count, const char *delay)
{
    char input[2048];
    size_t size = 0;

    for (unsigned i = 1; i <= count; i++)
        size +=
            (size_t)snprintf(input + size, sizeof input - size, "0.%u\n", i);
    struct harness_result r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST("mqsend", "--lines", "--group", "a", "--delay",
                             delay, q),
        .input = input,
        .input_size = size});
    cr_assert_eq(r.status, 0, "%s", r.err);
}

/* Due messages must not take a slot each, although their group has no room for
 * them and the store can record nothing. */
Test(groups_full, more_are_due_than_there_are_slots_while_the_disk_is_full)
{
    enum { DELAYED = 60 };
    disk_mount("16m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--lookahead", "4", "--max-attempts",
                       "1000", "--backoff", "14s", "--", TURN);

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    send_delayed(q, DELAYED, "8s");
    harness_until(turns_rows(q, TURNS_WAITING) == DELAYED + 1, 7500);
    disk_fill();
    /* With the second try, all of them are due. */
    harness_wait_log(w, "again_in=2s", 20000);
    turns_untell("fail", "0.0");
    cr_assert_eq(harness_run("sleep", "0.2").status, 0);
    disk_free();
    harness_until(turns_done() == DELAYED + 1, 40000);
    cr_assert_leq(harness_log_count(w, "event=trouble"), 8, "it spins");
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), DELAYED + 1);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* ---- a store that takes long ---- */

/* Count the messages in slots that have not been started. */
static unsigned in_line(const char *q)
{
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);
    const char *at = strstr(r.out, "with a handler, ");
    unsigned n = 0;

    if (at)
        sscanf(at, "with a handler, %u received", &n);
    return n;
}

#define LINE                                                                   \
    "-c", "2", "--lookahead", "64", "--max-attempts", "1000", "--jitter", "0", \
        "--backoff", "1h", "--", TURN

/* While 32 messages are on their way to the store, 64 more enter their group,
 * so that the next start finds a message in each slot. */
Test(groups_full, one_that_starts_without_a_free_slot_goes_on)
{
    enum { SLOTS = 2 * 2 + 64 + 16 };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, LINE);
    unsigned sent = 0;

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    harness_wait_log(w, "event=retry ", 10000);
    struct sqlite3 *db = disk_lock(q);
    uint64_t end = harness_patience(20000);
    for (unsigned n = 0; n < SLOTS;) {
        char body[64];
        int size =
            snprintf(body, sizeof body, "MQW/1\ngroup: a\n\n0.%u", sent + 1);

        if (harness_try_send(q, body, (size_t)size, 0)) {
            sent++;
        } else {
            harness_nap(end, "a message in each slot");
            n = in_line(q);
        }
        cr_assert_lt(sent, 2 * SLOTS);
    }
    harness_kill(w);
    disk_unlock(db);
    turns_untell("fail", "0.0");
    w = harness_worker(q, LINE);
    harness_wait_log(w, "event=recovered", 5000);
    cr_assert_eq(harness_run("mqctl", "run-now", "--state-dir",
                             harness_state_dir(), q, "--all")
                     .status,
                 0);
    harness_until(turns_done() == sent + 1, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), sent + 1);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* ---- more slots in the file than the worker asks for ---- */

#define BODY_BYTES 256
/* 32 slots of 384 bytes are 3 pages: the file ends with a full page. */
enum { WHOLE_PAGES = 66 * 32 };

/* Make the custody file of a killed worker with a message in each slot: these
 * headers, and the number of the message as the body. */
static void all_taken(const char *q, unsigned slots, const char *headers)
{
    const char *path = harness_custody(q);
    const struct custody_spec spec = {
        .body_bytes = BODY_BYTES, .slots = slots, .slots_max = slots};
    struct problem p = {0};
    struct custody *c;
    struct slot *slot;
    size_t size;

    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(custody_open(&c, path, &spec, &p), 0, "%s", p.text);
    cr_assert_eq(custody_recover(c, &p), 0, "%s", p.text);
    custody_seq_raise(c, 1000); /* numbers in the store are smaller */
    while ((slot = custody_acquire(c)) != NULL) {
        slot_arm(slot, custody_fill(c), custody_seq_next(c));
        slot->priority = 0;
        slot_taken(slot,
                   (uint32_t)snprintf((char *)slot->body, BODY_BYTES,
                                      "MQW/1\n%s\n%llu", headers,
                                      (unsigned long long)slot->seq),
                   1);
        custody_seq_used(c);
    }
    const char *killed = harness_read(path, &size);
    custody_close(&c);
    harness_write(path, killed, size);
}

/* As if the worker before had a larger --lookahead, every slot is taken by a
 * message that waits for its group. The worker must make room; a due message is
 * loaded into it and goes back to the store. */
static void starts_with_all_taken(unsigned slots)
{
    const char *q = harness_queue(0, BODY_BYTES);
    struct harness_process *w = harness_worker(q, "--", "true");

    cr_assert_eq(
        harness_run("mqsend", "--group", "b", "--delay", "1h", q, "due").status,
        0);
    harness_until(turns_rows(q, TURNS_WAITING) == 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_run("mqctl", "run-now", "--state-dir",
                             harness_state_dir(), q, "--all")
                     .status,
                 0);
    all_taken(q, slots, "group: a\n");
    w = harness_worker(q, "-c", "2", "--lookahead", "4", "--plugin",
                       harness_plugin("done"));
    harness_wait_log(w, "event=recovered", 10000);
    harness_until_lines("done", slots + 1, 20000);
    cr_assert_eq(harness_lines_with("done", "due"), 1);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines("done"), slots + 1);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

Test(groups_full, more_slots_than_it_asks_for_are_taken_and_it_goes_on)
{
    starts_with_all_taken(WHOLE_PAGES + 1);
}

Test(groups_full, more_slots_than_it_asks_for_up_to_the_last_page_as_well)
{
    starts_with_all_taken(WHOLE_PAGES);
}

/* Start a worker whose slots are all taken and that cannot get more. */
static struct harness_process *slots_refused(const char *q, const char *headers)
{
    struct harness_process *w = harness_worker(q, "--", "true");

    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    all_taken(q, 100, headers);
    return fault_start("pwrite@custody:1:28:0", "tally", /* ENOSPC */
                       HARNESS_LIST("mqworker", "--state-dir",
                                    harness_state_dir(), "-c", "2", q,
                                    "--plugin", harness_plugin("done")));
}

/* Slots become free when handlers end. */
Test(groups_full, a_start_that_gets_no_slots_runs_what_has_no_group,
     .init = faults_init)
{
    const char *q = harness_queue(0, BODY_BYTES);
    struct harness_process *w = slots_refused(q, "");
    uint64_t seen, failed;

    harness_until_lines("done", 100, 10000);
    harness_send_text(q, "one more");
    harness_until_lines("done", 101, 10000);
    harness_wait_log(w, "event=slots_full", 5000);
    fault_tally("tally", &seen, &failed);
    cr_assert_eq(failed, 1);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* A message of a group needs a free slot to be taken, and none would ever
 * become free. */
Test(groups_full, a_start_that_gets_no_slots_and_needs_one_says_so,
     .init = faults_init)
{
    const char *q = harness_queue(0, BODY_BYTES);
    struct harness_process *w = slots_refused(q, "group: a\n");

    cr_assert_eq(harness_wait(w, 10000), 73);
    cr_assert(fault_said(w, "mqworker", "free some space"), "%s",
              harness_stderr(w, NULL));
    cr_assert_eq(harness_lines("done"), 0);
    w = harness_worker(q, "--plugin", harness_plugin("done"));
    harness_until_lines("done", 100, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}
