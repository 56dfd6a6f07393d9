/* mqworker: groups whose messages wait in so many places that no slot is left
 *
 * What is behind a blocked head needs the store, and its head needs a slot.
 * Both are missing here, and come back.
 */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(groups_full, .init = harness_init, .fini = harness_fini,
          .timeout = 120);

/* ---- a full disk ---- */

/* send_delayed - 0.1 to 0.`count` of group a, all due after the same time */
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

/* They would take a slot each, as their line has no room and the store cannot
 * be told that they are in it. */
Test(groups_full, more_are_due_than_there_are_slots_while_the_disk_is_full)
{
    enum { DELAYED = 60 };
    disk_mount("16m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--lookahead", "4", "--max-attempts",
                       "1000", "--backoff", "8s", "--", TURN);

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    send_delayed(q, DELAYED, "3s");
    harness_until(turns_rows(q, TURNS_WAITING) == DELAYED + 1, 2500);
    disk_fill();
    /* The second time, all of them are due. */
    harness_wait_log(w, "again_in=2s", 10000);
    turns_untell("fail", "0.0");
    cr_assert_eq(harness_run("sleep", "0.2").status, 0);
    disk_free();
    harness_until(turns_done() == DELAYED + 1, 40000);
    cr_assert_leq(harness_log_count(w, "event=trouble"), 8, "no spin");
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), DELAYED + 1);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}

/* ---- a store that takes long ---- */

/* store_lock - from here on the worker's writes wait */
static sqlite3 *store_lock(const char *q)
{
    const char *path = harness_path("%s%s/store.db", harness_state_dir(), q);
    sqlite3 *db;

    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL),
                 SQLITE_OK);
    return db;
}

/* in_line - messages that the worker has in slots and has not started */
static unsigned in_line(const char *q)
{
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);
    const char *at = strstr(r.out, "in flight, ");
    unsigned n = 0;

    if (at)
        sscanf(at, "in flight, %u received", &n);
    return n;
}

#define LINE                                                                   \
    "-c", "2", "--lookahead", "64", "--max-attempts", "1000", "--jitter", "0", \
        "--backoff", "3s", "--", TURN

/* While 32 of them are on their way to the store, 64 more get in line, and the
 * next start finds one in each slot. */
Test(groups_full, one_that_starts_without_a_free_slot_goes_on)
{
    enum { SLOTS = 2 * 2 + 64 + 16 };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, LINE);
    unsigned sent = 0;

    turns_tell("fail", "0.0");
    turns_send(q, "a", 0, "0.0");
    harness_wait_log(w, "event=retry ", 10000);
    sqlite3 *db = store_lock(q);
    for (unsigned n = 0; n < SLOTS;) {
        char body[64];
        int size =
            snprintf(body, sizeof body, "MQW/1\ngroup: a\n\n0.%u", sent + 1);

        if (harness_try_send(q, body, (size_t)size, 0)) {
            sent++;
        } else {
            n = in_line(q);
        }
        cr_assert_lt(sent, 2 * SLOTS);
    }
    harness_kill(w);
    sqlite3_close(db);
    turns_untell("fail", "0.0");
    w = harness_worker(q, LINE);
    harness_wait_log(w, "event=recovered", 5000);
    harness_until(turns_done() == sent + 1, 30000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    struct turns t = turns_read();
    cr_assert_eq(turns_check(&t), sent + 1);
    cr_assert_eq(turns_rows(q, TURNS_ANY), 0);
}
