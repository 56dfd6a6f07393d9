/* test_mqctl_running.c - mqctl cancel --running: handlers are ended, their
 * messages discarded */
#include "tests/e2e/tools/mqctl_fixture.h"

#include <signal.h>

TestSuite(mqctl_running, .init = harness_init, .fini = harness_fini);

/* Handlers that note that they began, and never end by themselves; the second
 * also not by SIGTERM, and neither does what it left in the background. */
#define ENDLESS "echo x >>started; exec sleep 600"
#define STUBBORN                                                         \
    "trap '' TERM; setsid sleep 600 & echo $! >left; echo x >>started; " \
    "while :; do sleep 600; done"

/* where - what explain says of a message */
static bool where(const char *q, const char *id, const char *place)
{
    struct harness_result r = ctl("explain", "--json", q, id);
    json_t *o = ctl_json(r.out);
    bool is =
        strcmp(json_string_value(json_object_get(o, "where")), place) == 0;

    json_decref(o);
    return is;
}

/* cancelled - with what is in flight; the number of those that are done */
static long cancelled(const char *q, const char *flag, const char *value)
{
    json_t *o =
        ctl_json(ctl_out("cancel", "--running", "--json", flag, value, q));
    long n = (long)json_integer_value(json_object_get(o, "done"));

    json_decref(o);
    return n;
}

Test(mqctl_running, its_handler_is_ended_and_the_message_discarded)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--max-attempts", "1",
                                           "--", "sh", "-c", ENDLESS);
    const char *id = ctl_send(q, "x");
    struct harness_result r;

    harness_until_lines("started", 1, SOON_MS);
    r = ctl("cancel", q, id);
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "--running"), "%s", r.err);
    r = ctl("cancel", "--dry-run", "--running", q, id);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "1 of 1 message would be"), "%s", r.out);
    cr_assert_eq(ctl_number(q, "discarded"), 0);

    r = ctl("cancel", "--running", q, id);
    cr_assert_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_not_null(strstr(r.out, "1 of 1 message cancelled"), "%s", r.out);
    cr_assert(where(q, id, "discarded"), "the journal has it when it is told");
    harness_until(ctl_number(q, "discarded") == 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "dead") + ctl_number(q, "waiting"), 0);
    harness_wait_log(w, "event=handler_cancelled", SOON_MS);
    harness_wait_log(w, "error=cancelled", SOON_MS);
    cr_assert_eq(ctl("cancel", "--running", q, id).status, 66, "it is gone");
    ctl_send(q, "next");
    harness_until_lines("started", 2, SOON_MS);
    cr_assert_eq(cancelled(q, "--state", "running"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_running, nothing_is_left_of_one_that_ignores_sigterm)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--kill-after",
                                           "100ms", "--", "sh", "-c", STUBBORN);
    const char *id = ctl_send(q, "x");

    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(ctl("cancel", "--running", q, id).status, 0);
    cr_assert_not(harness_alive((pid_t)atol(harness_read("left", NULL))),
                  "it left its group, and is found all the same");
    cr_assert(where(q, id, "discarded"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* One that is ended for its time limit, and cancelled meanwhile, is not run
 * again. */
Test(mqctl_running, one_that_is_late_can_be_cancelled)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--timeout", "3s", "--kill-after", "6s", "--",
                   "sh", "-c", STUBBORN);
    const char *id = ctl_send(q, "x");

    harness_wait_log(w, "event=handler_timeout", SOON_MS);
    cr_assert_eq(ctl("cancel", "--running", q, id).status, 0);
    cr_assert(where(q, id, "discarded"));
    cr_assert_eq(harness_lines("started"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_running, a_filter_takes_what_runs_and_what_waits)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--", "sh", "-c", ENDLESS);

    cr_assert_eq(harness_run("mqsend", "--delay", "1h", q, "later").status, 0);
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    ctl_send(q, "one");
    ctl_send(q, "two");
    harness_until_lines("started", 2, SOON_MS);
    cr_assert_eq(cancelled(q, "--match", "two"), 1);
    cr_assert_eq(cancelled(q, "--match", "e"), 2, "it runs, the other waits");
    harness_until(ctl_number(q, "discarded") == 3, SOON_MS);
    cr_assert_eq(ctl("cancel", "--state", "running", q).status, 64);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_running, a_group_goes_on_without_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--", "sh", "-c",
                   "read b; echo \"$b\" >>started; [ \"$b\" = last ] || "
                   "exec sleep 600");

    harness_run("mqsend", "--group", "g", q, "first\n");
    harness_run("mqsend", "--group", "g", q, "last\n");
    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(cancelled(q, "--match", "first"), 1);
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(harness_lines("started"), 2);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Its child has another one open, which comes again as after a time limit. */
Test(mqctl_running, of_a_stream_its_child_is_ended)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--stream", "--window", "2", "--backoff", "1ms", "--",
        harness_script("two",
                       "while read -r msg id size rest; do read -r body\n"
                       "echo \"$body\" >>started\n"
                       "[ -e open ] && echo \"OK $id\"; done\n"));
    const char *id = ctl_send(q, "stuck");

    harness_until_lines("started", 1, SOON_MS);
    ctl_send(q, "beside");
    harness_until_lines("started", 2, SOON_MS);
    harness_write("open", "", 0);
    cr_assert_eq(ctl("cancel", "--running", q, id).status, 0);
    cr_assert(where(q, id, "discarded"));
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    cr_assert_eq(harness_lines_with("started", "stuck"), 1);
    cr_assert_eq(harness_log_count(w, "error=\"ended for another message that "
                                      "was cancelled\""),
                 1);
    cr_assert_eq(ctl_number(q, "discarded"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_running, a_function_cannot_be_ended_and_that_is_said)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--plugin", harness_plugin("act"), "--timeout", "4s");
    const char *id = ctl_send(q, "wait");
    struct harness_result r;

    harness_until(ctl_number(q, "in_flight") == 1, SOON_MS);
    r = ctl("cancel", "--running", q, id);
    cr_assert_eq(r.status, 69, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_not_null(strstr(r.err, "C function"), "%s", r.err);
    cr_assert_eq(ctl_number(q, "discarded"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The worker is killed when it has the order and the handler has not ended:
 * nobody was told that it was cancelled, and it runs again. */
Test(mqctl_running, a_kill_before_its_end_has_it_run_again)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--kill-after", "1h",
                                           "--", "sh", "-c", STUBBORN);
    const char *id = ctl_send(q, "x");
    struct harness_process *order;

    harness_until_lines("started", 1, SOON_MS);
    order = harness_program("mqctl", "cancel", "--running", "--state-dir",
                            harness_state_dir(), q, id);
    harness_wait_log(w, "event=handler_cancelled", SOON_MS);
    harness_kill(w);
    cr_assert_neq(harness_wait(order, SOON_MS), 0, "it was not cancelled");
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c",
                   "echo $MQW_REDELIVERED >>again");
    harness_until(where(q, id, "done"), SOON_MS);
    cr_assert_eq(harness_lines_with("again", "1"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
