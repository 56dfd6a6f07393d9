/* mqctl: what it says of messages that were received and are not finished */
#include <signal.h>

#include "tests/e2e/mqctl_fixture.h"

TestSuite(mqctl_custody, .init = harness_init, .fini = harness_fini,
          .timeout = 120);

#define GATE "echo x >>started; while [ ! -e open ]; do sleep 0.02; done"

/* told - what explain says of a message, a sentence */
static const char *told(const char *q, const char *id)
{
    return ctl_good(ctl("explain", q, id));
}

/* interrupted - whether it says that it ran, and will again */
static bool interrupted(const char *q, const char *id)
{
    const char *text = told(q, id);

    return strstr(text, "it was started") && strstr(text, "as attempt 1") &&
           strstr(text, "interrupted") && strstr(text, "marked redelivered") &&
           !strstr(text, "not started yet");
}

/* ---- explain ---- */

Test(mqctl_custody, explain_of_a_message_that_a_stop_interrupted)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--grace", "0s", "--", "sh", "-c", GATE);
    const char *id = ctl_send(q, "x");

    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert(interrupted(q, id), "%s", told(q, id));
}

Test(mqctl_custody, explain_of_a_message_that_quit_interrupted)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE);
    const char *id = ctl_send(q, "x");

    harness_until_lines("started", 1, SOON_MS);
    ctl_out("quit", q);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert(interrupted(q, id), "%s", told(q, id));
}

/* The worker that comes after has one thread, and another message in it. */
Test(mqctl_custody,
     explain_counts_the_crashes_of_a_message_that_is_to_run_again)
{
    const char *q = harness_queue(0, 0), *text;
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--", "sh", "-c", GATE);
    const char *first = ctl_send(q, "x"), *second = ctl_send(q, "y");

    harness_until_lines("started", 2, SOON_MS);
    harness_kill(w);
    text = told(q, second);
    cr_assert(strstr(text, "died while attempt 1 ran") &&
                  strstr(text, "marked redelivered"),
              "%s", text);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE);
    harness_until_lines("started", 3, SOON_MS);
    text = told(q, first);
    if (strstr(text, "in flight"))
        text = told(q, second);
    cr_assert(strstr(text, "the worker died under it, 1 time so far; it runs "
                           "again, marked redelivered"),
              "%s", text);
    harness_write("open", "", 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_custody, explain_of_a_number_speaks_of_a_letter)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r = ctl("explain", q, "1");

    cr_assert_eq(r.status, 66);
    cr_assert_not_null(strstr(r.err, "no letter of that number"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "26 characters"), "%s", r.err);
    cr_assert_null(strstr(r.err, "never sent"), "%s", r.err);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
