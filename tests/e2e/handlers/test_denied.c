/* test_denied.c - mqworker: under a filter of system calls
 *
 * The worker does its work, or says at the start which call it lacks. A
 * handler's work is never counted as failed because of the filter.
 */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(denied, .init = harness_init, .fini = harness_fini);

#define STREAM                                                            \
    "while read -r _ id size _; do head -c $size >/dev/null; read -r _\n" \
    "echo OK $id; done"

/* Run a worker in which system call `call` fails with `err`, until its message
 * is done. */
static struct harness_result run(const char *q, const char *call, int err,
                                 const char *const *handler)
{
    char rule[64];
    const char *argv[20] = {harness_handler("denied"),
                            rule,
                            harness_bin("mqworker"),
                            "--state-dir",
                            harness_state_dir(),
                            "--exit-when-idle",
                            q};

    snprintf(rule, sizeof rule, "%s=%d", call, err);
    for (size_t n = 7; *handler; n++)
        argv[n] = *handler++;

    struct harness_result r =
        harness_run_spec(&(struct harness_spec){.argv = argv});

    if (r.status == 77)
        cr_skip_test("no filter of system calls here: %s", r.err);
    return r;
}

/* Check that the worker refuses to start before it takes anything, with a line
 * that names the call and the filter. */
static void refused(const char *call, const char *const *handler)
{
    static const int errs[] = {EPERM, ENOSYS, EACCES};

    for (size_t i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        const char *q = harness_queue(0, 0);
        char text[128];

        harness_send_text(q, "x");
        struct harness_result r = run(q, call, errs[i], handler);
        snprintf(text, sizeof text, "%s(2): %s; a filter of system calls", call,
                 strerror(errs[i]));
        cr_expect(r.status == 71 && strstr(r.err, text), "%s: %d: %s", text,
                  r.status, r.err);
        cr_expect_eq(harness_queue_length(q), 1, "the message was taken");
    }
}

static void done(const char *call, int err, const char *const *handler)
{
    const char *q = harness_queue(0, 0);

    harness_send_text(q, "x");
    struct harness_result r = run(q, call, err, handler);
    cr_expect(r.status == 0 && strstr(r.err, " done=1 retried=0 "), "%d: %s",
              r.status, r.err);
}

#define EXEC   HARNESS_LIST("--", "true")
#define CHILD  HARNESS_LIST("--stream", "--", harness_script("stream", STREAM))
#define PLUGIN HARNESS_LIST("--plugin", harness_plugin("done"))

Test(denied, without_waitid_nobody_could_tell_how_a_handler_ended)
{
    refused("waitid", EXEC);
    refused("waitid", CHILD);
    done("waitid", EPERM, PLUGIN);
}

Test(denied, without_pidfd_open_threads_see_it_end)
{
    done("pidfd_open", EPERM, EXEC);
    done("pidfd_open", EPERM, CHILD);
}

Test(denied, calls_of_linux_4_18_suffice)
{
    done("LINUX_4_18", ENOSYS, EXEC);
    done("LINUX_4_18", ENOSYS, CHILD);
    done("LINUX_4_18", ENOSYS, PLUGIN);
    done("LINUX_5_4", ENOSYS, EXEC);
}

/* The handler leaves a process in another session. */
Test(denied, without_pidfds_a_time_limit_ends_all_that_a_handler_started)
{
    const char *q = harness_queue(0, 0), *file = harness_path("pid");
    char script[512];

    snprintf(script, sizeof script,
             "setsid sh -c 'echo $$ >%s; exec sleep 999' & "
             "while [ ! -s %s ]; do :; done; exec sleep 999",
             file, file);
    harness_send_text(q, "x");
    struct harness_result r =
        run(q, "LINUX_4_18", ENOSYS,
            HARNESS_LIST("--timeout", "1s", "--kill-after", "100ms",
                         "--max-attempts", "1", "--", "sh", "-c", script));

    cr_assert(r.status == 0 && strstr(r.err, " dead=1"), "%d: %s", r.status,
              r.err);
    pid_t pid = (pid_t)strtol(harness_read(file, NULL), NULL, 10);
    cr_assert(pid > 0 && kill(pid, 0) < 0 && errno == ESRCH, "%d", (int)pid);
}

Test(denied, without_memfd_create_a_command_has_no_stdin)
{
    refused("memfd_create", EXEC);
    done("memfd_create", EPERM, CHILD);
    done("memfd_create", EPERM, PLUGIN);
}
