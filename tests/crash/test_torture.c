/* test_torture.c - the short form of the torture program (torture.c): kills at
 * random moments with each kind of handler, and one at each named step
 *
 * make torture is the long form. KILLS=n for more kills than 30 at random.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/harness.h"

#define LIMIT_MS 300000
#define KILLS    "30"

TestSuite(torture, .init = harness_init, .fini = harness_fini, .timeout = 3600);

/* variable - NAME=value for the environment */
static const char *variable(char *text, size_t size, const char *name,
                            const char *value)
{
    snprintf(text, size, "%s=%s", name, value);
    return text;
}

/* tortured - a run to its end, which was possible; what it found is shown */
static void tortured(const char *const *argv)
{
    char points[4200], tmp[4200];
    struct harness_process *p;
    int status;

    /* A program killed while it is looked through for leaks would complain. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    p = harness_start(&(struct harness_spec){
        .argv = argv,
        .env =
            HARNESS_LIST(variable(points, sizeof points, "MQW_POINTS_BIN",
                                  harness_handler("../../points/bin")),
                         variable(tmp, sizeof tmp, "TMPDIR", harness_dir()))});
    status = harness_wait(p, LIMIT_MS);
    fprintf(stderr, "%s", harness_stdout(p, NULL));
    cr_assert_eq(status, 0, "%s", harness_stderr(p, NULL));
}

/* at_random - as many kills as $KILLS says */
static void at_random(const char *kind)
{
    const char *kills = getenv("KILLS");

    tortured(HARNESS_LIST(harness_handler("../crash/torture"), "--handler",
                          kind, "--failures", "5", "--kills",
                          kills ? kills : KILLS));
}

/* at_each_step - once */
static void at_each_step(const char *kind)
{
    tortured(HARNESS_LIST(harness_handler("../crash/torture"), "--handler",
                          kind, "--points", "--hits", "1"));
}

Test(torture, kills_at_random_lose_nothing_of_a_process_for_each_message)
{
    at_random("exec");
}

Test(torture, kills_at_random_lose_nothing_of_long_lived_children)
{
    at_random("stream");
}

Test(torture, kills_at_random_lose_nothing_of_a_plugin)
{
    at_random("plugin");
}

Test(torture, what_is_cancelled_or_due_now_in_a_spool_ends_once_under_kills)
{
    static const char *const kinds[] = {"exec", "stream", "plugin"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        tortured(HARNESS_LIST(harness_handler("../crash/torture"), "--handler",
                              kinds[i], "--spool", "waiting", "--steer",
                              "--failures", "5", "--kills", "10"));
}

Test(torture, kill_at_each_named_step_loses_nothing)
{
    at_each_step("plugin");
}

Test(torture, forget_killed_at_each_step_comes_to_its_end_at_the_next)
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
                variable(at, sizeof at, "MQW_KILL_AT", steps[i]))});
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

/* documented - the table in docs/reliability.md has each step of a program */
static void documented(const char *docs, const char *program)
{
    struct harness_result r = harness_run_spec(
        &(struct harness_spec){.argv = HARNESS_LIST(program, "--version"),
                               .env = HARNESS_LIST("MQW_KILL_LIST=1")});
    size_t steps = 0;
    char name[64], quoted[80];

    for (const char *at = r.err; sscanf(at, "%63s", name) == 1; steps++) {
        snprintf(quoted, sizeof quoted, "`%s`", name);
        cr_expect(strstr(docs, quoted), "docs/reliability.md: %s", name);
        at += strcspn(at, "\n") + 1; /* a name and a number in each line */
    }
    cr_assert_gt(steps, 10);
}

Test(torture, each_named_step_is_in_the_documentation)
{
    const char *folder = getenv("MQW_DOCS");
    char path[4096], page[4200];
    const char *docs;

    /* make runs tests in the source tree. */
    cr_assert_not_null(realpath(folder ? folder : "docs", path));
    snprintf(page, sizeof page, "%s/reliability.md", path);
    docs = harness_read(page, NULL);
    documented(docs, harness_handler("../../points/bin/mqworker"));
    documented(docs, harness_handler("../../points/bin/mqdlq"));
    documented(docs, harness_handler("../../points/bin/mqctl"));
}
