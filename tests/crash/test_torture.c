/* test_torture.c - the short form of the torture program (torture.c): kills at
 * random moments with each kind of handler, and one at each named step
 *
 * make torture is the long form. KILLS=n for more kills than 30 at random.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

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

/* tortured - a run to its end; what it found is shown */
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
                          kind, "--kills", kills ? kills : KILLS));
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

Test(torture, kill_at_each_named_step_loses_nothing)
{
    at_each_step("plugin");
}
