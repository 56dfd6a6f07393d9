/* test_bench.c - the benchmark: its output is valid and adds up, and it leaves
 * nothing behind */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(bench, .init = harness_init, .fini = harness_fini);

/* Return TMPDIR=... for the environment. */
static const char *scratch(void)
{
    static char text[4096];

    snprintf(text, sizeof text, "TMPDIR=%s", harness_dir());
    return text;
}

/* Start the benchmark with its files in the scratch directory. */
static struct harness_process *bench_start(const char *only, const char *runs)
{
    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("../bench/bench"), "--quick",
                             "--json", "--only", only, "--runs", runs),
        .env = HARNESS_LIST(scratch())});
}

/* Return a number that must be in the row. */
static double real(const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    cr_assert(json_is_number(value), "%s", key);
    return json_number_value(value);
}

static const char *text(const json_t *row, const char *key)
{
    const char *value = json_string_value(json_object_get(row, key));

    return value ? value : "";
}

/* Return the bound that the row's ratio, rounded to three digits, reaches. */
static const char *met(const json_t *row)
{
    double ratio = real(row, "ratio") + 0.0005;

    return ratio >= real(row, "aim")    ? "aim"
           : ratio >= real(row, "must") ? "must"
                                        : "no";
}

/* Return the files and directories that a benchmark has left. */
static const char *files_left(void)
{
    return harness_run("find", ".", "-name", "mqw-bench*").out;
}

Test(bench, a_row_is_one_json_object_whose_numbers_fit)
{
    struct harness_process *p = bench_start("depth10", "3");
    cr_assert_eq(harness_wait(p, 60000), 0, "%s", harness_stderr(p, NULL));
    json_error_t error;
    json_t *row = json_loads(harness_stdout(p, NULL), 0, &error);
    cr_assert_not_null(row, "%s in\n%s", error.text, harness_stdout(p, NULL));
    cr_assert_str_eq(text(row, "row"), "depth10");
    cr_assert_str_eq(text(row, "section"), "queue");
    cr_assert_str_eq(text(row, "state"), "measured");
    cr_assert_str_eq(text(row, "unit"), "/s");
    cr_assert_str_eq(text(row, "better"), "more");
    cr_assert_eq(real(row, "pairs"), 3);
    cr_assert_gt(real(row, "ours"), 0);
    cr_assert_gt(real(row, "rival"), 0);
    cr_assert_leq(real(row, "least"), real(row, "ratio"));
    cr_assert_leq(real(row, "ratio"), real(row, "most"));
    cr_assert_leq(real(row, "mad"), real(row, "most") - real(row, "least"));
    cr_assert_eq(real(row, "must"), 1.0);
    cr_assert_eq(real(row, "aim"), 2.0);
    cr_assert_str_eq(text(row, "met"), met(row));
    json_decref(row);
    cr_assert_str_eq(files_left(), "");
}

Test(bench, only_the_rows_that_were_named_are_measured)
{
    struct harness_process *p =
        bench_start("memory-private,wheel-1k-churn", "1");
    cr_assert_eq(harness_wait(p, 60000), 0, "%s", harness_stderr(p, NULL));
    const char *out = harness_stdout(p, NULL);
    cr_assert(strstr(out, "\"memory-private\""), "%s", out);
    cr_assert(strstr(out, "\"wheel-1k-churn\""), "%s", out);
    const char *second = strchr(out, '\n');
    cr_assert_not_null(second);
    cr_assert_eq(strchr(second + 1, '\n'), out + strlen(out) - 1, "%s", out);
}

Test(bench, interrupted_it_leaves_neither_queue_nor_files)
{
    struct harness_process *p = bench_start("depth10", "101");
    char queue[64];
    snprintf(queue, sizeof queue, "/mqw-bench-%d", (int)harness_pid(p));
    harness_until(*files_left(), 30000);
    harness_signal(p, SIGINT);
    cr_assert_eq(harness_wait(p, 30000), -SIGINT);
    /* This cannot fail if the benchmark made an IPC namespace of its own. */
    cr_assert_eq(harness_queue_length(queue), -1);
    cr_assert_str_eq(files_left(), "");
    /* The brackets keep grep from finding itself. */
    struct harness_result r = harness_run(
        "sh", "-c", "grep -ls \"$TEST_DIR/mqw-benc[h]\" /proc/[0-9]*/cmdline");
    cr_assert_str_eq(r.out, "", "a process of the benchmark is left");
}

Test(bench, a_row_that_there_is_not_is_refused)
{
    struct harness_result r =
        harness_run(harness_handler("../bench/bench"), "--only", "no-such-row");
    cr_assert_eq(r.status, 64);
    cr_assert(strstr(r.err, "\"no-such-row\""), "%s", r.err);
    cr_assert(strstr(r.err, "--list"), "%s", r.err);
    cr_assert_str_eq(r.out, "");
}
