/* test_demo.c - scripts/demo, the first thing that a newcomer runs */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(demo, .init = harness_init, .fini = harness_fini);

/* Start the demo with all its files in the scratch directory. */
static struct harness_process *demo_start(const char *bin)
{
    char tmp[512], programs[512];
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", harness_dir());
    snprintf(programs, sizeof programs, "MQW_BIN=%s", bin);
    char *demo = realpath("scripts/demo", NULL);
    cr_assert_not_null(demo, "run from the top of the tree");
    struct harness_process *p = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(demo),
        .env = HARNESS_LIST(tmp, programs, "STATE_DIRECTORY")});
    free(demo);
    return p;
}

/* Return the number of messages in the demo's queue; -1: there is no queue. */
static long demo_queue_length(const struct harness_process *p)
{
    char queue[64];

    snprintf(queue, sizeof queue, "/mqw-demo-%d", (int)harness_pid(p));
    return harness_queue_length(queue);
}

/* Find files that the demo has left. */
static struct harness_result leavings(void)
{
    return harness_run("find", ".", harness_runtime_dir(), "-name", "tmp.*",
                       "-o", "-name", "mqw-demo-*");
}

Test(demo, happens_as_told_and_leaves_nothing)
{
    struct harness_process *p = demo_start(harness_bin("."));
    int status = harness_wait(p, 60000);
    cr_assert_eq(status, 0, "%s%s", harness_stdout(p, NULL),
                 harness_stderr(p, NULL));
    cr_assert(strstr(harness_stdout(p, NULL), "none lost"));
    cr_assert_str_eq(harness_stderr(p, NULL), "");
    cr_assert_str_eq(leavings().out, "");
}

Test(demo, stopped_half_way_it_leaves_nothing)
{
    struct harness_process *p = demo_start(harness_bin("."));
    harness_until(strstr(harness_stdout(p, NULL), "2. "), 30000);
    cr_assert_eq(harness_stop(p, 20000), 128 + SIGTERM);
    cr_assert_str_eq(leavings().out, "");
    /* The brackets keep grep from finding itself. */
    struct harness_result r = harness_run(
        "sh", "-c", "grep -ls \"$TEST_DIR/tm[p]\" /proc/[0-9]*/cmdline");
    cr_assert_str_eq(r.out, "", "a process of it is left");
    cr_assert_eq(demo_queue_length(p), -1, "its queue is left");
}

/* A worker takes status 65 for success, so order 13 does not die. */
Test(demo, fails_when_something_does_not_happen_as_told)
{
    char wrapper[1024];
    snprintf(wrapper, sizeof wrapper, "exec %s --on-exit 65=done,1=dead \"$@\"",
             harness_bin("mqworker"));
    cr_assert_eq(symlink(harness_bin("mqsend"), harness_path("mqsend")), 0);
    cr_assert_eq(symlink(harness_bin("mqdlq"), harness_path("mqdlq")), 0);
    cr_assert_eq(symlink(harness_bin("mqctl"), harness_path("mqctl")), 0);
    harness_script("mqworker", wrapper);
    struct harness_process *p = demo_start(harness_dir());
    cr_assert_eq(harness_wait(p, 60000), 1);
    cr_assert(strstr(harness_stderr(p, NULL), "in vain"));
    cr_assert_eq(demo_queue_length(p), -1, "its queue is left");
}
