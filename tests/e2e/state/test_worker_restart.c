/* test_worker_restart.c - mqworker: files are removed at random moments while
 * it works */
#include "tests/harness/harness.h"
#include "tests/harness/sweep.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

TestSuite(worker_restart, .init = harness_init, .fini = harness_fini,
          .timeout = 900);

enum { ROUNDS = 50, BATCH = 8, GRACE_MS = 10000 };

/* A handler that fails odd messages once, and writes a line to `runs` for each
 * success. */
#define HANDLER                                                           \
    "--", "sh", "-c",                                                     \
        "read n kind; sleep 0.0$((n % 8)); "                              \
        "if [ $kind = retry ] && [ $MQW_ATTEMPT = 1 ]; then exit 1; fi; " \
        "echo \"$n end redelivered=$MQW_REDELIVERED.\" >>runs"

static const char *const removals[] = {
    "rm -f $S/store.db*",
    "rm -rf $R",
    "rm -f $S/store.db*; rm -rf $R",
    "rm -f $R/custody $S/store.db-wal",
    "rm -rf $S $R",
};

static unsigned random_below(unsigned most)
{
    unsigned n = 0;

    cr_assert_eq(getrandom(&n, sizeof n, 0), sizeof n);
    return n % most;
}

static void removal_run(const char *q, const char *command)
{
    char state[256], runtime[300];

    snprintf(state, sizeof state, "S=%s%s", harness_state_dir(), q);
    snprintf(runtime, sizeof runtime, "R=%s", harness_runtime_folder(q));

    struct harness_result r = harness_run_spec(
        &(struct harness_spec){.argv = HARNESS_LIST("sh", "-c", command),
                               .env = HARNESS_LIST(state, runtime)});

    cr_assert_eq(r.status, 0, "%s: %s", command, r.err);
}

static void batch_send(const char *q, unsigned first)
{
    char text[64];

    for (unsigned n = first; n < first + BATCH; n++) {
        if (n % 4 == 2)
            snprintf(text, sizeof text, "MQW/1\ndelay: 300\n\n%u plain\n", n);
        else
            snprintf(text, sizeof text, "%u %s\n", n,
                     n % 2 ? "retry" : "plain");
        harness_send_text(q, text);
    }
}

static bool all_ended(unsigned sent)
{
    return harness_lines("runs") >= sent;
}

/* Check that each message succeeded and that a second success is marked as
 * redelivered. */
static void runs_audit(unsigned sent)
{
    unsigned *unmarked = calloc(sent, sizeof *unmarked);
    unsigned *ends = calloc(sent, sizeof *ends);
    const char *at = harness_read("runs", NULL);

    cr_assert(unmarked && ends);
    for (; *at; at += strcspn(at, "\n") + 1) {
        unsigned n = (unsigned)strtoul(at, NULL, 10);

        cr_assert_lt(n, sent, "%.40s", at);
        ends[n]++;
        unmarked[n] +=
            strncmp(strstr(at, "redelivered="), "redelivered=0", 13) == 0;
    }
    for (unsigned n = 0; n < sent; n++) {
        cr_assert_geq(ends[n], 1, "message %u was lost", n);
        cr_assert_leq(unmarked[n], 1, "message %u ended twice, unmarked", n);
    }
    free(unmarked);
    free(ends);
}

Test(worker_restart, removals_lose_nothing_and_stop_it_for_seconds)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "4", "--backoff", "50ms", "--grace", "10s", HANDLER);
    unsigned sent = 0, rounds = sweep_share("removals", ROUNDS);
    char text[32];

    harness_wait_log(w, "event=started", 10000);
    for (size_t round = 1; round <= rounds; round++) {
        const char *command = removals[random_below(5)];
        size_t starts = harness_log_count(w, "event=started queue=");

        batch_send(q, sent);
        sent += BATCH;
        snprintf(text, sizeof text, "0.%03u", random_below(400));
        harness_run("sleep", text);
        removal_run(q, command);
        snprintf(text, sizeof text, "%u plain\n", sent++);
        harness_send_text(q, text);
        harness_until(harness_log_count(w, "event=started queue=") > starts,
                      GRACE_MS);
        harness_until(harness_queue_length(q) == 0, GRACE_MS);
        cr_assert(harness_running(w), "%zu: %s: %s", round, command,
                  harness_stderr(w, NULL));
    }
    harness_until(all_ended(sent), 30000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    runs_audit(sent);
}

Test(worker_restart, a_drain_while_it_stops_to_start_again_ends_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c",
                       "echo >>runs; until [ -e go ]; do sleep 0.05; done");
    struct harness_result r;

    harness_send_text(q, "one");
    harness_until_lines("runs", 1, 10000);
    removal_run(q, "rm -rf $R");
    harness_wait_log(w, "why=file_gone", 10000);
    r = harness_run("mqctl", "drain", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_write(harness_path("go"), "", 0);
    cr_assert_eq(harness_wait(w, 20000), 0);
    cr_assert_eq(harness_log_count(w, "event=started queue="), 1);
}

/* If the worker is killed before it restarts, the next one needs the file
 * `runtime` to find the messages in flight. */
Test(worker_restart, the_note_of_the_folder_is_back_before_the_stop)
{
    const char *q = harness_queue(0, 0);
    const char *note = harness_path("%s%s/runtime", harness_state_dir(), q);
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c",
                       "echo >>runs; until [ -e go ]; do sleep 0.05; done");

    harness_send_text(q, "one");
    harness_until_lines("runs", 1, 10000);
    removal_run(q, "rm $S/runtime");
    harness_wait_log(w, "why=file_gone", 10000);
    cr_assert(harness_exists(note));
    harness_write(harness_path("go"), "", 0);
    harness_until(harness_log_count(w, "event=started queue=") == 2, 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    cr_assert_eq(harness_lines("runs"), 1);
}

/* Here the state folder is the runtime folder as well. */
Test(worker_restart, the_totals_go_on_although_their_only_file_was_removed)
{
    const char *q = harness_queue(0, 0), *dir = harness_state_dir();
    struct harness_process *w =
        harness_worker(q, "--runtime-dir", dir, "--allow-disk-custody", "--",
                       "sh", "-c", "echo >>runs");
    const char *out;

    harness_send_text(q, "one");
    harness_send_text(q, "two");
    harness_until_lines("runs", 2, 10000);
    removal_run(q, "rm -rf $S");
    harness_until(harness_log_count(w, "event=started queue=") == 2, 20000);
    harness_send_text(q, "three");
    harness_until_lines("runs", 3, 10000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    out = harness_run("mqctl", "status", "--state-dir", dir, q, "--json").out;
    out = strstr(out, "\"totals\":{");
    cr_assert_not_null(out);
    cr_assert_not_null(strstr(out, "\"done\":3"), "%s", out);
}
