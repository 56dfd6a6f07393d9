/* test_mqctl_custody.c - mqctl: what it says about messages that were received
 * and are not finished */
#include <time.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_custody, .init = harness_init, .fini = harness_fini);

#define GATE "echo x >>started; while [ ! -e open ]; do sleep 0.02; done"

/* Return the sentence of explain about a message. */
static const char *told(const char *q, const char *id)
{
    return ctl_good(ctl("explain", q, id));
}

/* Return whether explain says that the message ran and will run again. */
static bool interrupted(const char *q, const char *id)
{
    const char *text = told(q, id);

    return strstr(text, "in the store and due") &&
           strstr(text, "started and did not finish") &&
           strstr(text, "marked redelivered") &&
           strstr(text, "no worker is running");
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

/* The next worker has one handler, so one of the two messages waits. */
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
    cr_assert(strstr(text, "died during attempt 1") &&
                  strstr(text, "marked redelivered"),
              "%s", text);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE);
    harness_until_lines("started", 3, SOON_MS);
    text = told(q, first);
    if (strstr(text, "in flight"))
        text = told(q, second);
    cr_assert(strstr(text,
                     "the worker died while running it, 1 time so far; it runs "
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
    cr_assert_not_null(strstr(r.err, "no dead letter has that number"), "%s",
                       r.err);
    cr_assert_not_null(strstr(r.err, "26 characters"), "%s", r.err);
    cr_assert_null(strstr(r.err, "never sent"), "%s", r.err);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The message may still be in the queue, so "never sent" comes last. */
Test(mqctl_custody, explain_of_an_unknown_id_speaks_of_the_queue_first)
{
    const char *q = harness_queue(0, 0), *id, *text;
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;
    char says[128];

    cr_assert_eq(ctl("pause", q).status, 0);
    id = ctl_send(q, "x");
    r = ctl("explain", q, id);
    cr_assert_eq(r.status, 66);
    snprintf(says, sizeof says,
             "%s: probably not received yet: %s holds 1 message, which", id, q);
    text = strstr(r.err, says);
    cr_assert_not_null(text, "%s", r.err);
    cr_assert_not_null(strstr(text, "taking no messages now: "), "%s", r.err);
    cr_assert_not_null(strstr(text, "try again. Otherwise "), "%s", r.err);
    cr_assert_not_null(strstr(text, "it was never sent"), "%s", r.err);
    cr_assert_eq(ctl("resume", q).status, 0);
    harness_until(harness_queue_length(q) == 0, SOON_MS);
    r = ctl("explain", q, "01JD3Z6K9Q2W5E8R1T4Y7P0ABC");
    cr_assert_eq(r.status, 66);
    cr_assert_not_null(strstr(r.err, ": no trace of it: it was never sent"),
                       "%s", r.err);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- status, doctor, metrics ---- */

/* Return whether a field, which must exist, is null. */
static bool is_null(const json_t *o, const char *field)
{
    const json_t *value = json_object_get(o, field);

    cr_assert_not_null(value, "%s is missing", field);
    return json_is_null(value);
}

/* Return the value of a gauge of a queue, or -1 if it is not printed. */
static double labelled(const char *q, const char *name, const char *labels)
{
    char want[300];
    const char *at;

    snprintf(want, sizeof want, "\n%s{queue=\"%s\",engine=\"mq\"%s} ", name, q,
             labels);
    at = strstr(ctl_good(ctl("metrics", NULL)), want);
    return at ? atof(at + strlen(want)) : -1;
}

static double metric(const char *q, const char *name)
{
    return labelled(q, name, "");
}

static double oldest(const char *q, const char *state)
{
    char label[32];

    snprintf(label, sizeof label, ",state=\"%s\"", state);
    return labelled(q, "mqworker_oldest_seconds", label);
}

Test(mqctl_custody, when_the_last_message_was_received_outlives_the_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    double before = (double)time(NULL), at;

    cr_assert_eq(metric(q, "mqworker_last_received_seconds"), -1);
    harness_send_text(q, "x");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    at = metric(q, "mqworker_last_received_seconds");
    cr_assert(at >= before && at <= (double)time(NULL) + 1, "%f", at);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = ctl_worker(q, "--", "true");
    cr_assert_eq(metric(q, "mqworker_last_received_seconds"), at);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Send a message of a group. */
static void send_group(const char *q, const char *group, const char *body)
{
    cr_assert_eq(harness_run("mqsend", "--group", group, q, body).status, 0);
}

Test(mqctl_custody, status_counts_what_waits_in_slots_behind_a_failed_head)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--backoff", "1h", "--", "false");
    double age;

    send_group(q, "g", "1");
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    send_group(q, "g", "2");
    send_group(q, "g", "3");
    harness_until(ctl_number(q, "held") == 2, SOON_MS);
    cr_assert_eq(ctl_number(q, "custody"), 2);
    cr_assert_eq(ctl_number(q, "in_flight"), 0);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "2 received and waiting, 2 of them in "
                                   "ordered groups"),
                       "%s", out);
    cr_assert_eq(metric(q, "mqworker_held"), 2);
    cr_assert_eq(metric(q, "mqworker_custody"), 2);
    age = oldest(q, "held");
    cr_assert_geq(age, 0);
    cr_assert_geq(oldest(q, "waiting"), age, "it is the older one");
    cr_assert_eq(oldest(q, "parked"), -1, "no message is parked");
    cr_assert(strstr(out, "oldest           waiting received ") &&
                  strstr(out, ", received and waiting for "),
              "%s", out);
    cr_assert_not_null(strstr(ctl_out("status", NULL), " 3 "),
                       "the table adds them to what waits: %s",
                       ctl_out("status", NULL));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Make all waiting messages due ten minutes earlier. */
static void make_older(const char *q)
{
    sqlite3 *db;
    int err = sqlite3_open(
        harness_path("%s%s/store.db", harness_state_dir(), q), &db);

    if (!err)
        err = sqlite3_busy_timeout(db, SOON_MS);
    if (!err)
        err = sqlite3_exec(db,
                           "UPDATE messages SET due_ns = due_ns - 600000000000"
                           " WHERE state = 1",
                           NULL, NULL, NULL);
    cr_assert_eq(err, SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* A running retry is still in the store with a due time in the past, but is not
 * overdue. */
Test(mqctl_custody, overdue_is_what_is_due_and_has_no_handler)
{
    const char *q = harness_queue(0, 0), *out;
    char late[27];
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--backoff", "20ms", "--", "sh", "-c",
                   "[ -e failed ] || { touch failed; exit 1; };" GATE);
    struct harness_result r;

    r = harness_run("mqsend", "--delay", "1h", "--print-id", q, "late");
    cr_assert_eq(r.status, 0);
    snprintf(late, sizeof late, "%.26s", r.out);
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(oldest(q, "overdue"), -1, "its retry is running");
    cr_assert_null(strstr(ctl_out("status", q), ", due "));
    ctl_out("run-now", q, late);
    harness_until(oldest(q, "overdue") >= 0, SOON_MS);
    r = ctl("doctor", q);
    cr_assert_null(strstr(r.out, "overdue"), "%s", r.out);
    make_older(q);
    cr_assert_geq(oldest(q, "overdue"), 600);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, ", due 10m"), "%s", out);
    r = ctl("doctor", q);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, "has been due for 10m") &&
                  strstr(r.out, "; 1 of at most 1 messages are in flight"),
              "%s", r.out);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "done") == 2, SOON_MS);
    cr_assert_eq(oldest(q, "overdue"), -1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

static double wall_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

Test(mqctl_custody, the_kernel_queue_is_as_old_as_the_last_message_was)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--", "sh", "-c",
        "read -r x; echo x >>started; while [ ! -e $x ]; do sleep 0.02; done");
    double before, sent, after, age;

    cr_assert_eq(oldest(q, "queue"), -1, "it is empty");
    ctl_send(q, "first");
    harness_until_lines("started", 1, SOON_MS);
    before = wall_now();
    ctl_send(q, "second");
    sent = wall_now();
    ctl_send(q, "third");
    after = wall_now();
    harness_write("first", "", 0);
    harness_until_lines("started", 2, SOON_MS);
    age = oldest(q, "queue");
    cr_assert(age >= after - sent && age <= wall_now() - before, "%f", age);
    cr_assert_not_null(strstr(ctl_out("status", q), "in the queue for about"));
    harness_write("second", "", 0);
    harness_until_lines("started", 3, SOON_MS);
    cr_assert_eq(oldest(q, "queue"), -1, "it is empty again");
    harness_write("third", "", 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_custody, status_and_doctor_count_what_a_killed_worker_left)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "4", "--", "sh", "-c", GATE);
    struct harness_result r;
    json_t *o;

    for (int i = 0; i < 4; i++)
        harness_send_text(q, "x");
    harness_until_lines("started", 4, SOON_MS);
    harness_until(ctl_number(q, "custody") == 4, SOON_MS);
    cr_assert_eq(ctl_number(q, "held"), 0);
    harness_kill(w);
    r = ctl("status", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.out, "4 unfinished; they run when you start a "
                                     "worker"),
                       "%s", r.out);
    cr_assert_not_null(strstr(r.err, "4 messages are in custody"), "%s", r.err);
    r = ctl("status", "--json", q);
    o = ctl_json(r.out);
    cr_assert_eq(json_integer_value(json_object_get(o, "custody")), 4);
    cr_assert_eq(json_integer_value(json_object_get(o, "held")), 4);
    json_decref(o);
    r = ctl("doctor", q);
    cr_assert_eq(r.status, 1);
    cr_assert_not_null(strstr(r.out, "4 unfinished messages are waiting in"),
                       "%s", r.out);
    cr_assert_eq(metric(q, "mqworker_held"), 4);
}

Test(mqctl_custody, doctor_does_not_call_it_nothing_what_a_stop_left)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--grace", "0s", "--", "sh", "-c", GATE);
    struct harness_result r;

    harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, "0 in custody, 1 in the store"), "%s",
                       r.out);
    cr_assert_null(strstr(r.out, "no messages are waiting"), "%s", r.out);
}

/* Its row is the oldest in the store. */
Test(mqctl_custody, a_retry_that_runs_is_in_flight_and_does_not_wait)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--backoff", "10ms", "--", "sh", "-c",
                   "[ $MQW_ATTEMPT = 2 ] || exit 1; " GATE);

    harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "in_flight"), 1);
    cr_assert_eq(ctl_number(q, "waiting"), 0);
    cr_assert_eq(ctl_number(q, "custody"), 1);
    cr_assert_eq(metric(q, "mqworker_waiting"), 0);
    cr_assert_eq(oldest(q, "waiting"), -1);
    cr_assert_null(strstr(ctl_out("status", q), "waiting received"));
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", q, "late").status, 0);
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    cr_assert_geq(oldest(q, "waiting"), 0);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    harness_until(ctl_number(q, "custody") == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The child takes three messages and answers them when the file "open"
 * exists. */
Test(mqctl_custody, capacity_is_concurrency_times_window)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w = ctl_worker(
        q, "-c", "1", "--window", "3", "--stream", "--", "sh", "-c",
        "while read m id n x; do read b; echo x >>started; ids=\"$ids $id\";"
        " [ $(wc -l <started) = 3 ] || continue;"
        " while [ ! -e open ]; do sleep 0.02; done;"
        " for i in $ids; do echo OK $i; done; done");

    cr_assert_eq(ctl_number(q, "window"), 3);
    cr_assert_eq(ctl_number(q, "capacity"), 3);
    cr_assert_eq(ctl_number(q, "max_concurrency"), 1);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "x");
    harness_until_lines("started", 3, SOON_MS);
    harness_until(ctl_number(q, "in_flight") == 3, SOON_MS);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "3 of 3: 1 handler at most, each with up "
                                   "to 3 (--window)"),
                       "%s", out);
    cr_assert_eq(metric(q, "mqworker_in_flight"), 3);
    cr_assert_eq(metric(q, "mqworker_capacity"), 3);
    cr_assert_eq(metric(q, "mqworker_window"), 3);
    cr_assert_eq(metric(q, "mqworker_max_concurrency"), 1);
    cr_assert_not_null(strstr(ctl_out("top", "-n", "1", q), " 3/3 "));
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "done") == 3, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_custody, a_group_that_a_letter_holds_is_told_with_what_releases_it)
{
    const char *q = harness_queue(0, 0), *out;
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--max-attempts", "1", "--on-group-dead",
                   "hold", "--", "false");

    send_group(q, "g", "1");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    harness_until(ctl_number(q, "groups_held") == 1, SOON_MS);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "1 held by a dead letter: mqdlq list --by "
                                   "group --state-dir /"),
                       "%s", out);
    harness_until(metric(q, "mqworker_groups_held") == 1, SOON_MS);
    out = ctl("doctor", q).out;
    cr_assert_not_null(strstr(out, "groups: 1 group is held"), "%s", out);
    cr_assert_not_null(strstr(out, "mqdlq discard --group KEY"), "%s", out);
    cr_assert_not_null(strstr(out, " KEY release"), "%s", out);
    cr_assert_eq(harness_run("mqdlq", "discard", "--state-dir",
                             harness_state_dir(), "--group", "g", q)
                     .status,
                 0);
    harness_until(ctl_number(q, "groups_held") == 0, SOON_MS);
    cr_assert_null(strstr(ctl("doctor", q).out, "group is held"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl_custody, what_is_not_known_without_a_worker_is_null_not_missing)
{
    static const char *const live[] = {
        "pid",    "max_concurrency", "window",   "capacity",
        "groups", "groups_held",     "settings", "paused_for_ns",
    };
    static const char *const counted[] = {
        "deliveries", "done",    "retried",    "died",          "discarded",
        "expired",    "crashes", "last_error", "last_error_at",
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;
    json_t *o;

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = ctl("status", "--json", q);
    o = ctl_json(r.out);
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        cr_assert(is_null(o, live[i]), "%s: %s", live[i], r.out);
    cr_assert_eq(json_integer_value(json_object_get(o, "custody")), 0);
    json_decref(o);
    r = ctl("status", "--json", harness_queue(0, 0));
    o = ctl_json(r.out);
    for (size_t i = 0; i < sizeof live / sizeof *live; i++)
        cr_assert(is_null(o, live[i]), "%s: %s", live[i], r.out);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        cr_assert(is_null(o, counted[i]), "%s: %s", counted[i], r.out);
    cr_assert(is_null(o, "custody") && is_null(o, "held"), "%s", r.out);
    json_decref(o);
}

/* status --json has every field of the man page, also where nothing is
 * known. */
Test(mqctl_custody, json_has_every_field_that_the_page_names)
{
    const char *q = harness_queue(0, 0);
    char page[PATH_MAX];

    cr_assert_not_null(realpath("docs/mqctl.1", page));
    struct harness_result r = harness_run(
        "sh", "-c",
        "sed -n '/^.Ss JSON/,/^.Sh/p' \"$1\" | sed -n 's/^.Ql //p' |"
        "sed 's/[ ,;.]*$//' | sort | tee named | wc -l;"
        "\"$2\" status --json --state-dir \"$3\" \"$4\" >said;"
        "while read -r f; do grep -q \"\\\"$f\\\":\" said || echo missing $f;"
        "done <named",
        "sh", page, harness_bin("mqctl"), harness_state_dir(), q);

    cr_assert_geq(atoi(r.out), 30, "%s%s", r.out, r.err);
    cr_assert_null(strstr(r.out, "missing"), "%s", r.out);
}

/* Return a number over all runs of the worker, as status --json has it. */
static long total(const char *q, const char *name)
{
    json_t *o = ctl_status(q);
    long n = (long)json_integer_value(
        json_object_get(json_object_get(o, "totals"), name));

    json_decref(o);
    return n;
}

/* A Prometheus counter must not begin at 0 with each run. */
Test(mqctl_custody, counters_go_on_over_kills_and_restarts)
{
    const char *q = harness_queue(0, 0);

    for (int run = 1; run <= 3; run++) {
        struct harness_process *w = ctl_worker(q, "--", "true");

        harness_send_text(q, "x");
        harness_until(ctl_number(q, "done") == 1, SOON_MS);
        cr_assert_eq(metric(q, "mqworker_done_total"), run);
        cr_assert_eq(metric(q, "mqworker_deliveries_total"), run);
        cr_assert_eq(metric(q, "mqworker_handler_seconds_count"), run);
        cr_assert_eq(total(q, "done"), run);
        if (run == 1)
            harness_kill(w);
        else
            cr_assert_eq(harness_stop(w, SOON_MS), 0);
    }
    cr_assert_eq(metric(q, "mqworker_done_total"), 3);
    /* As after a reboot: the runtime directory was in memory. */
    cr_assert_eq(harness_run("rm", "-r", harness_runtime_dir()).status, 0);
    cr_assert_eq(metric(q, "mqworker_done_total"), 3);
    cr_assert_eq(harness_stop(ctl_worker(q, "--", "true"), SOON_MS), 0);
    cr_assert_eq(metric(q, "mqworker_done_total"), 3);
}
