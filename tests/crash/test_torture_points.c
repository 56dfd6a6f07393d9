/* test_torture_points.c - kill the programs that `make points` builds once at
 * each named step
 *
 * make torture TORTURE_FLAGS=--points is the long form.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/crash/torture_test.h"

TestSuite(torture_points, .init = harness_init, .fini = harness_fini,
          .timeout = 3600);

Test(torture_points, kill_at_each_named_step_loses_nothing)
{
    torture_runs(HARNESS_LIST(harness_handler("../crash/torture"), "--handler",
                              "plugin", "--points", "--hits", "1"));
}

Test(torture_points, forget_killed_at_each_step_comes_to_its_end_at_the_next)
{
    static const char *const steps[] = {"state_forget_before_rename:1",
                                        "state_forget_renamed:1",
                                        "state_forget_runtime_gone:1"};
    const char *dir = harness_state_dir();

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *q = harness_queue(0, 0);
        char at[80], folder[4200];
        struct harness_result r;

        harness_send_text(q, "x");
        r = harness_run("mqworker", "-q", "--exit-when-idle", "--max-attempts",
                        "1", "--state-dir", dir, q, "--", "false");
        r = harness_run("mqctl", "remove", "-q", "--state-dir", dir, q);
        cr_assert_eq(r.status, 0, "%s", r.err);
        r = harness_run_spec(&(struct harness_spec){
            .argv = HARNESS_LIST(harness_handler("../../points/bin/mqctl"),
                                 "forget", "-f", "--state-dir", dir, q),
            .env = HARNESS_LIST(
                torture_variable(at, sizeof at, "MQW_KILL_AT", steps[i]))});
        cr_assert_eq(r.status, -SIGKILL, "%s: %d %s", steps[i], r.status,
                     r.err);
        snprintf(folder, sizeof folder, "%s%s", dir, q);
        cr_assert_eq(access(folder, F_OK) == 0, i == 0, "%s", steps[i]);
        r = harness_run("mqctl", "forget", "-f", "--state-dir", dir, q);
        cr_assert_eq(r.status, 0, "%s: %s", steps[i], r.err);
        snprintf(folder, sizeof folder, "%s/.forgotten", dir);
        cr_assert_neq(access(folder, F_OK), 0, "%s", steps[i]);
        r = harness_run("mqctl", "forget", "-f", "--state-dir", dir, q);
        cr_assert_eq(r.status, 66, "%s", steps[i]);
    }
}

/* The message "retry" fails once. After that, and for other messages, the
 * handler hangs until the file `ok` exists. */
#define HANGS                                                             \
    "--max-concurrency", "2", "--backoff", "1ms", "--", "sh", "-c",       \
        "read m; echo $m $MQW_ATTEMPT $MQW_REDELIVERED >>runs; [ -e ok ]" \
        " && exit 0; [ $m:$MQW_ATTEMPT = retry:1 ] && exit 1; exec sleep 60"

/* Start the program that kills itself at a step. */
static struct harness_process *worker_killed_at(const char *q, const char *step)
{
    char at[80];

    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("../../points/bin/mqworker"),
                             "--state-dir", harness_state_dir(), q, HANGS),
        .env = HARNESS_LIST(
            torture_variable(at, sizeof at, "MQW_KILL_AT", step))});
}

/* Run all messages to their end. Check that both in-flight messages ran again,
 * marked, and no other message ran. */
static void finish_all(const char *q, const char *step)
{
    struct harness_result r;

    harness_write(harness_path("ok"), "", 0);
    r = harness_run("mqworker", "--exit-when-idle", "--state-dir",
                    harness_state_dir(), q, HANGS);
    cr_assert_eq(r.status, 0, "%s: %s", step, r.err);
    cr_assert_eq(harness_lines("runs"), 5, "%s: %s", step,
                 harness_read("runs", NULL));
    cr_assert_eq(harness_lines_with("runs", "retry 2 1"), 1, "%s", step);
    cr_assert_eq(harness_lines_with("runs", "fresh 1 1"), 1, "%s", step);
    cr_assert_eq(unlink(harness_path("ok")), 0);
    cr_assert_eq(unlink(harness_path("runs")), 0);
}

static void send_and_run_both(const char *q)
{
    harness_send_text(q, "retry");
    harness_until(harness_lines_with("runs", "retry 2 0") == 1, 10000);
    harness_send_text(q, "fresh");
    harness_until(harness_lines_with("runs", "fresh 1 0") == 1, 10000);
}

Test(torture_points, custody_of_another_store_survives_a_kill_at_each_step)
{
    static const char *const steps[] = {
        "custody_tie_before_doubt:1", "custody_tie_after_doubt:1",
        "custody_bind_before_number:1", "custody_bind_after_number:1"};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w = harness_worker(q, HANGS);
        struct harness_result r;

        send_and_run_both(q);
        harness_kill(w);
        r = harness_run("rm", "-r", harness_state_dir());
        cr_assert_eq(r.status, 0, "%s", r.err);
        w = worker_killed_at(q, steps[i]);
        cr_assert_eq(harness_wait(w, 10000), -SIGKILL, "%s: %s", steps[i],
                     harness_stderr(w, NULL));
        cr_assert_eq(harness_lines("runs"), 3, "%s", steps[i]);
        finish_all(q, steps[i]);
    }
}

Test(torture_points, a_restart_in_place_survives_a_kill_beside_its_note)
{
    static const char *const steps[] = {"restart_note_before:1",
                                        "restart_note_after:1"};

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w = worker_killed_at(q, steps[i]);

        send_and_run_both(q);
        cr_assert_eq(
            unlink(harness_path("%s%s/runtime", harness_state_dir(), q)), 0);
        cr_assert_eq(harness_wait(w, 20000), -SIGKILL, "%s: %s", steps[i],
                     harness_stderr(w, NULL));
        finish_all(q, steps[i]);
    }
}

/* Check that tests/crash/README.md lists each step of a program. */
static void steps_are_documented(const char *docs, const char *program)
{
    struct harness_result r = harness_run_spec(
        &(struct harness_spec){.argv = HARNESS_LIST(program, "--version"),
                               .env = HARNESS_LIST("MQW_KILL_LIST=1")});
    size_t steps = 0;
    char name[64], quoted[80];

    for (const char *at = r.err; sscanf(at, "%63s", name) == 1; steps++) {
        snprintf(quoted, sizeof quoted, "`%s`", name);
        cr_expect(strstr(docs, quoted), "tests/crash/README.md: %s", name);
        at += strcspn(at, "\n") + 1; /* each line has a name and a number */
    }
    cr_assert_gt(steps, 10);
}

Test(torture_points, each_named_step_is_in_the_documentation)
{
    const char *folder = getenv("MQW_DOCS");
    char path[4096], page[4200];
    const char *docs;

    /* make runs tests in the source tree. */
    cr_assert_not_null(realpath(folder ? folder : "docs", path));
    snprintf(page, sizeof page, "%s/../tests/crash/README.md", path);
    docs = harness_read(page, NULL);
    steps_are_documented(docs, harness_handler("../../points/bin/mqworker"));
    steps_are_documented(docs, harness_handler("../../points/bin/mqdlq"));
    steps_are_documented(docs, harness_handler("../../points/bin/mqctl"));
}
