/* torture_test.h - run the torture program from tests
 *
 * WHAT   Starts the program, waits for it and shows its output; fails or skips
 *        the test.
 * WHO    Criterion tests with the harness.
 */
#ifndef TESTS_CRASH_TORTURE_TEST_H
#define TESTS_CRASH_TORTURE_TEST_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/harness/sweep.h"

#define TORTURE_LIMIT_MS 300000
#define TORTURE_REFUSED  77 /* exit status: ptrace(2) is not permitted */

/* Print NAME=value, for the environment. */
static inline const char *torture_variable(char *text, size_t size,
                                           const char *name, const char *value)
{
    snprintf(text, size, "%s=%s", name, value);
    return text;
}

/* Arguments for the part of a sweep that this run takes (sweep.h). */
struct torture_part {
    char stride[32], from[32], ends[32];
};

/* Take one position in `stride`, or in a multiple of `stride`. */
static inline struct torture_part torture_part(unsigned stride)
{
    struct torture_part part;

    snprintf(part.stride, sizeof part.stride, "--stride=%u",
             stride * sweep_step());
    snprintf(part.from, sizeof part.from, "--from=%u", stride * sweep_first());
    snprintf(part.ends, sizeof part.ends, "--ends=%d",
             sweep_step() == 1 ? 8 : 2);
    return part;
}

/* Run the program to its end; it must succeed. */
static inline void torture_runs(const char *const *argv)
{
    char points[4200], tmp[4200];
    struct harness_process *p;
    int status;

    /* A program that is killed during its leak check would complain. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    p = harness_start(&(struct harness_spec){
        .argv = argv,
        .env = HARNESS_LIST(
            torture_variable(points, sizeof points, "MQW_POINTS_BIN",
                             harness_handler("../../points/bin")),
            torture_variable(tmp, sizeof tmp, "TMPDIR", harness_dir()))});
    status = harness_wait(p, TORTURE_LIMIT_MS);
    fprintf(stderr, "%s", harness_stdout(p, NULL));
    cr_assert_eq(status, 0, "%s", harness_stderr(p, NULL));
}

/* Run the program, which traces, to its end and return its output. Skip the
 * test if tracing is not permitted. */
static inline const char *torture_traces(const char *const *argv)
{
    struct harness_process *p;
    int status;

    p = harness_start(&(struct harness_spec){.argv = argv});
    status = harness_wait(p, TORTURE_LIMIT_MS);
    fprintf(stderr, "%s", harness_stdout(p, NULL));
    if (status == TORTURE_REFUSED)
        cr_skip_test("nobody may trace a process here (ptrace(2))");
    cr_assert_eq(status, 0, "%s", harness_stderr(p, NULL));
    return harness_stdout(p, NULL);
}

#endif
