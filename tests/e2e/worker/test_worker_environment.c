/* test_worker_environment.c - mqworker: start with an empty environment
 *
 * setproctitle(3bsd) leaves environ as NULL instead of an empty list if there
 * is no variable.
 */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(worker_environment, .init = harness_init, .fini = harness_fini);

#define ANSWER                                                            \
    "while read -r _ id size _; do head -c $size >/dev/null; read -r _\n" \
    "echo $id >>done; echo OK $id; done"

/* Run a worker whose environment has only the variable `only` (NULL: none),
 * until its one message is done. */
static void emptied(const char *only, const char *const *handler)
{
    const char *argv[16] = {"env", "-i"}, *q = harness_queue(0, 0);
    size_t n = 2;

    harness_send_text(q, "x");
    if (only)
        argv[n++] = only;
    argv[n++] = harness_bin("mqworker");
    argv[n++] = "--state-dir";
    argv[n++] = harness_state_dir();
    argv[n++] = "--exit-when-idle";
    argv[n++] = q;
    while (*handler)
        argv[n++] = *handler++;

    struct harness_result r =
        harness_run_spec(&(struct harness_spec){.argv = argv});

    cr_assert_eq(r.status, 0, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, " done=1 "), "%s", r.err);
}

/* Run a worker with no variable, and one with a variable. */
static void both(const char *const *handler)
{
    emptied(NULL, handler);
    emptied("TZ=UTC", handler);
}

Test(worker_environment, a_command_starts_without_any_variable)
{
    const char *env;
    size_t size;

    emptied(NULL, HARNESS_LIST("--", "/bin/sh", "-c",
                               "/bin/cat /proc/self/environ >env"));
    env = harness_read("env", &size);
    cr_assert(memmem(env, size, "MQW_QUEUE=/", 11), "%.*s", (int)size, env);
    both(HARNESS_LIST("--", "/bin/cat"));
}

Test(worker_environment, a_stream_starts_without_any_variable)
{
    both(HARNESS_LIST("--stream", "--", harness_script("stream", ANSWER)));
    cr_assert_eq(harness_lines("done"), 2);
}

Test(worker_environment, a_plugin_starts_without_any_variable)
{
    both(HARNESS_LIST("--plugin", harness_plugin("done")));
}

Test(worker_environment, a_limit_on_memory_is_named)
{
    if (getenv("MQW_SANITIZED"))
        cr_skip_test("a sanitizer needs more memory");
    const char *q = harness_queue(0, 0);
    const char *limited = harness_script("limited", "ulimit -v 40000\n"
                                                    "exec \"$@\"");
    struct harness_result r =
        harness_run(limited, harness_bin("mqworker"), "--state-dir",
                    harness_state_dir(), q, "--", "cat");

    cr_assert_eq(r.status, 71, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "memory; RLIMIT_AS allows 40000 KiB"), "%s", r.err);
}
