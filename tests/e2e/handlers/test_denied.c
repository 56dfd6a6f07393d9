/* test_denied.c - mqworker: under a filter of system calls it does its work,
 * or says at the start which call it misses; what a handler did is never a
 * failure for that */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(denied, .init = harness_init, .fini = harness_fini);

#define STREAM                                                            \
    "while read -r _ id size _; do head -c $size >/dev/null; read -r _\n" \
    "echo OK $id; done"

/* run - a worker under the filter, until the one message is done */
static struct harness_result run(const char *q, const char *call, int err,
                                 const char *const *handler)
{
    char rule[64];
    const char *argv[16] = {harness_handler("denied"),
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

/* refused - before it took anything, in one line that names call and filter */
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
        cr_expect_eq(strstr(r.err, "the kernel is older") != NULL,
                     errs[i] == ENOSYS, "%s", r.err);
        cr_expect_eq(harness_queue_length(q), 1, "nothing was taken");
    }
}

static void done(const char *call, const char *const *handler)
{
    const char *q = harness_queue(0, 0);

    harness_send_text(q, "x");
    struct harness_result r = run(q, call, EPERM, handler);
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
    done("waitid", PLUGIN);
}

Test(denied, without_pidfd_open_nobody_could_see_it_end)
{
    refused("pidfd_open", EXEC);
    refused("pidfd_open", CHILD);
    done("pidfd_open", PLUGIN);
}

Test(denied, without_memfd_create_a_command_has_no_stdin)
{
    refused("memfd_create", EXEC);
    done("memfd_create", CHILD);
    done("memfd_create", PLUGIN);
}
