/* test_mqctl_running.c - mqctl cancel --running: handlers are ended, their
 * messages discarded */
#include "tests/e2e/tools/mqctl_fixture.h"

#include <signal.h>

TestSuite(mqctl_running, .init = harness_init, .fini = harness_fini);

/* Handlers that note their start and never exit by themselves. STUBBORN and its
 * process in the background also ignore SIGTERM. */
#define ENDLESS "echo x >>started; exec sleep 600"
#define STUBBORN                                                         \
    "trap '' TERM; setsid sleep 600 & echo $! >left; echo x >>started; " \
    "while :; do sleep 600; done"

/* Return whether explain places a message there. */
static bool where(const char *q, const char *id, const char *place)
{
    struct harness_result r = ctl("explain", "--json", q, id);
    json_t *o = ctl_json(r.out);
    bool is =
        strcmp(json_string_value(json_object_get(o, "where")), place) == 0;

    json_decref(o);
    return is;
}

/* Cancel by a filter, with --running; return how many were cancelled. */
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
    r = ctl("cancel", "--all", q);
    cr_assert_not_null(strstr(r.out, "0 of 0 messages cancelled"), "%s", r.out);
    cr_assert_not_null(strstr(r.err, "1 running, left alone; --running "
                                     "terminates the handler"),
                       "%s", r.err);
    r = ctl("cancel", "--dry-run", "--running", q, id);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "1 of 1 message would be"), "%s", r.out);
    cr_assert_eq(ctl_number(q, "discarded"), 0);

    r = ctl("cancel", "--running", q, id);
    cr_assert_eq(r.status, 0, "%d: %s%s", r.status, r.out, r.err);
    cr_assert_not_null(strstr(r.out, "1 of 1 message cancelled"), "%s", r.out);
    cr_assert(where(q, id, "discarded"), "cancel was too early");
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
                  "the background process was not killed");
    cr_assert(where(q, id, "discarded"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A handler that is cancelled while it is being ended for its time limit is not
 * run again. */
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
    cr_assert_eq(cancelled(q, "--match", "e"), 2, "one of two left");
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

/* The child has a second message, which is retried as after a time limit. */
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

/* The worker is killed after it has the order and before the handler has
 * exited. Nobody was told that the message is cancelled, so it runs again. */
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
    cr_assert_neq(harness_wait(order, SOON_MS), 0, "reported as done");
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c",
                   "echo $MQW_REDELIVERED >>again");
    harness_until(where(q, id, "done"), SOON_MS);
    cr_assert_eq(harness_lines_with("again", "1"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return last_stderr of a message as list has it; "-" for null. */
static const char *last_stderr(const char *q, const char *id)
{
    static char text[256];
    char *line = strdup(ctl_out("list", "--json", q)), *more;

    text[0] = '\0';
    for (char *at = strtok_r(line, "\n", &more); at;
         at = strtok_r(NULL, "\n", &more)) {
        json_t *o = ctl_json(at), *last = json_object_get(o, "last_stderr");

        if (strcmp(json_string_value(json_object_get(o, "id")), id) == 0) {
            cr_assert(json_is_string(last) || json_is_null(last));
            snprintf(text, sizeof text, "%s",
                     json_is_null(last) ? "-" : json_string_value(last));
        }
        json_decref(o);
    }
    free(line);
    return text;
}

/* A terminal gets no control character, and JSON no byte that is not UTF-8. */
Test(mqctl_running, list_has_the_last_line_of_stderr_of_what_runs)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "2", "--backoff", "1h", "--",
        harness_script("says",
                       "read b; echo x >>started\n"
                       "if [ $b = says ]; then echo first >&2\n"
                       "printf '\\033[31m40 %%\\007\\377\\n\\n' >&2; fi\n"
                       "until [ -e open ]; do sleep 0.01; done; exit 3"));
    const char *id = ctl_send(q, "says\n"), *silent = ctl_send(q, "silent\n");
    json_t *o;

    harness_until_lines("started", 2, SOON_MS);
    harness_until(strcmp(last_stderr(q, id), "40 %\\x07\\xff") == 0, SOON_MS);
    cr_assert_str_eq(last_stderr(q, silent), "-");
    cr_assert(strstr(ctl_out("list", q), "  40 %\\x07\\xff  "), "not listed");
    o = ctl_json(ctl_out("explain", "--json", q, id));
    cr_assert_str_eq(json_string_value(json_object_get(o, "last_stderr")),
                     "40 %\\x07\\xff");
    json_decref(o);
    cr_assert(
        strstr(ctl_out("explain", q, id), "; its last line of stderr: 40 %"),
        "%s", ctl_out("explain", q, id));
    cr_assert_null(strstr(ctl_out("explain", q, silent), "stderr"));
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "waiting") == 2, SOON_MS);
    cr_assert_str_eq(last_stderr(q, id), "-");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A line of a child belongs to a message only while the child has no other. */
Test(mqctl_running, list_has_the_last_line_of_a_stream_that_has_one_message)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--stream", "--window", "2", "--",
        harness_script("each", "while read -r msg id rest; do read -r body\n"
                               "echo \"on $body\" >&2; echo x >>started\n"
                               "done\n"));
    const char *first = ctl_send(q, "a"), *second;

    harness_until(strcmp(last_stderr(q, first), "on a") == 0, SOON_MS);
    second = ctl_send(q, "b");
    harness_until_lines("started", 2, SOON_MS);
    harness_until(strcmp(last_stderr(q, first), "-") == 0, SOON_MS);
    cr_assert_str_eq(last_stderr(q, second), "-");
    harness_kill(w);
}

/* "old", the last line of the first attempt's child, is still its last. */
Test(mqctl_running, list_has_no_line_of_an_earlier_attempt_in_another_child)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "2", "--stream", "--window", "1", "--backoff", "2s",
        "--jitter", "0", "--",
        harness_script(
            "each", "while read -r msg id size attempt rest; do read -r body\n"
                    "case $body$attempt in\n"
                    "keeps*) echo x >>began\n"
                    "until [ -e open ]; do sleep 0.01; done; echo OK $id ;;\n"
                    "*=1) echo old >&2; echo RETRY $id ;;\n"
                    "*) echo x >>started; sleep 999 ;;\n"
                    "esac; done\n"));
    const char *fails;

    (void)ctl_send(q, "keeps\n");
    harness_until_lines("began", 1, SOON_MS);
    fails = ctl_send(q, "fails\n");
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    harness_write("open", "", 0);
    harness_until_lines("started", 1, SOON_MS);
    cr_assert_str_eq(last_stderr(q, fails), "-");
    harness_kill(w);
}
