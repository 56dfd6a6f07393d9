/* test_mqctl_spool.c - mqctl: messages that wait in the spool (--spool) */
#include <signal.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/message/header.h"
#include "tests/e2e/tools/mqctl_fixture.h"
#include "tests/harness/disk.h"

TestSuite(mqctl_spool, .init = harness_init, .fini = harness_fini);

#define SPOOLED 20

/* Start a worker whose only handler keeps "first" until the file "open" exists,
 * with SPOOLED rows behind it, of priorities 0 and 1 in turn. */
#define spool_fill(q) spool_fill_most((q), "1000")

/* Start such a worker with --max-waiting `most`. */
static struct harness_process *spool_fill_most(const char *q, const char *most)
{
    struct harness_process *w = ctl_worker(
        q, "--spool", "-c", "1", "--max-waiting", most, "--", "sh", "-c",
        "read x; : >runs; while [ ! -e open ]; do sleep 0.01; done; "
        "echo $x >>out");
    char text[32];

    harness_send_text(q, "first\n");
    harness_until(harness_exists("runs"), SOON_MS);
    for (int i = 0; i < SPOOLED; i++) {
        sprintf(text, "number %d\n", i);
        harness_send(q, text, strlen(text), (unsigned)i % 2);
    }
    harness_until(ctl_number(q, "spooled") == SPOOLED, SOON_MS);
    return w;
}

/* Let handlers go on until they have run `n` messages, and stop the worker. */
static void run_all(struct harness_process *w, size_t n)
{
    harness_write("open", "", 0);
    harness_until_lines("out", n, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return a metric of the queue; -1: it is missing. */
static long metric(const char *q, const char *name)
{
    char want[300];
    const char *at;

    snprintf(want, sizeof want, "\n%s{queue=\"%s\",engine=\"mq\"} ", name, q);
    at = strstr(ctl_out("metrics", NULL), want);
    return at ? atol(at + strlen(want)) : -1;
}

/* Return true if the title, as ps(1) shows it, contains the text. */
static bool title_has(struct harness_process *w, const char *text)
{
    char title[512] = "";
    FILE *f;
    size_t n;

    snprintf(title, sizeof title, "/proc/%d/cmdline", (int)harness_pid(w));
    f = fopen(title, "r");
    cr_assert_not_null(f);
    n = fread(title, 1, sizeof title - 1, f);
    fclose(f);
    title[n] = '\0';
    return strstr(title, text) != NULL;
}

Test(mqctl_spool, all_that_count_what_waits_count_it)
{
    const char *q = harness_queue(10, 64), *out;
    struct harness_process *w = spool_fill(q);

    cr_assert_eq(ctl_number(q, "waiting"), 0);
    cr_assert_eq(ctl_number(q, "depth"), 0);
    cr_assert_eq(ctl_number(q, "held"), 0);
    cr_assert_eq(metric(q, "mqworker_spooled"), SPOOLED);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "20 waiting on disk, of at most 1000000"),
                       "%s", out);
    out = ctl_out("status", NULL);
    cr_assert_not_null(strstr(out, " 20 "), "not in WAITING: %s", out);
    out = ctl_out("top", "-n", "1", q);
    cr_assert_not_null(strstr(out, " 20 "), "not in WAIT: %s", out);
    harness_until(title_has(w, "[1 of 1 busy, 20 waiting, 0 dead]"), SOON_MS);
    run_all(w, SPOOLED + 1);
    cr_assert_eq(metric(q, "mqworker_spooled"), 0);
}

Test(mqctl_spool, a_worker_that_is_gone_does_not_hide_it)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = spool_fill(q);
    struct harness_result r;
    json_t *o;

    harness_kill(w);
    r = ctl("status", "--json", q);
    o = ctl_json(r.out);
    cr_assert_eq(json_integer_value(json_object_get(o, "spooled")), SPOOLED);
    cr_assert_eq(json_integer_value(json_object_get(o, "custody")), 1);
    json_decref(o);
    r = ctl("status", q);
    cr_assert_not_null(strstr(r.out, "they run when you start a worker"), "%s",
                       r.out);
    cr_assert_eq(metric(q, "mqworker_spooled"), SPOOLED);
}

/* Parse the n-th line of a list, from 0; the test frees it. */
static json_t *line_of(const char *text, size_t n)
{
    for (; n > 0; n--)
        text += strcspn(text, "\n") + 1;
    return ctl_json(text);
}

static const char *field(json_t *o, const char *name)
{
    const char *value = json_string_value(json_object_get(o, name));

    return value ? value : "";
}

static size_t lines_in(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Check that the bodies are those of spool_fill, with the odd ones, which have
 * the higher priority, first. */
static void order_is(const char *out, size_t from, size_t n)
{
    char want[32];

    cr_assert_eq(lines_in(out), n, "%s", out);
    for (size_t i = 0; i < n; i++) {
        json_t *o = line_of(out, i);
        size_t at = from + i;

        sprintf(want, "number %zu\n",
                at < SPOOLED / 2 ? 2 * at + 1 : 2 * at - SPOOLED);
        cr_assert_str_eq(field(o, "body"), want);
        cr_assert_str_eq(field(o, "state"), "spooled");
        cr_assert_eq(json_integer_value(json_object_get(o, "priority")),
                     at < SPOOLED / 2);
        json_decref(o);
    }
}

Test(mqctl_spool, list_has_it_in_the_order_in_which_it_runs)
{
    const char *q = harness_queue(10, 64), *out;
    struct harness_process *w = spool_fill(q);

    out = ctl_out("list", "--json", "--state", "spooled", q);
    order_is(out, 0, SPOOLED);
    out = ctl_out("list", "--json", q);
    cr_assert_eq(lines_in(out), SPOOLED + 1, "wrong number: %s", out);
    out = ctl_out("list", q);
    cr_assert_not_null(strstr(out, "spooled"), "%s", out);
    out = ctl_out("list", "--json", "--match", "number 7", q);
    cr_assert_eq(lines_in(out), 1, "%s", out);
    cr_assert_eq(lines_in(ctl_out("list", "--json", "--error", "*", q)), 0);
    cr_assert_eq(lines_in(ctl_out("list", "--json", "--state",
                                  "ready,delayed,retry,parked,held", q)),
                 0);
    harness_kill(w);
    out = ctl_out("list", "--json", "--state", "spooled", q);
    order_is(out, 0, SPOOLED);
}

Test(mqctl_spool, list_goes_on_in_the_middle_of_it)
{
    const char *q = harness_queue(10, 64), *out;
    struct harness_process *w = spool_fill(q);
    char cursor[700];
    json_t *o;

    out = ctl_out("list", "--json", "--limit", "8", q);
    cr_assert_eq(lines_in(out), 8);
    o = line_of(out, 7); /* the first is the running one */
    snprintf(cursor, sizeof cursor, "%s", field(o, "cursor"));
    json_decref(o);
    out = ctl_out("list", "--json", "--after", cursor, q);
    order_is(out, 7, SPOOLED - 7);
    cr_assert_eq(ctl("list", "--after", "spool-x", q).status, 64);
    run_all(w, SPOOLED + 1);
    cr_assert_eq(lines_in(ctl_out("list", "--json", q)), 0);
}

/* Return the body in the n-th line of a list. */
static const char *body_at(const char *text, size_t n)
{
    static char body[64];
    json_t *o = line_of(text, n);

    snprintf(body, sizeof body, "%s", field(o, "body"));
    json_decref(o);
    return body;
}

Test(mqctl_spool, list_has_what_is_due_before_it)
{
    const char *q = harness_queue(10, 256), *out;
    struct harness_process *w = spool_fill(q);
    char cursor[700];
    json_t *o;

    /* Both must be received before they are due: a message that is already due
     * goes to the end of the spool. */
    for (int i = 0; i < 2; i++)
        cr_assert_eq(
            harness_run("mqsend", "--delay", "15s", q, i ? "due 1" : "due 0")
                .status,
            0);
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", q, "late").status, 0);
    harness_until(lines_in(ctl_out("list", "--json", "--state", "ready", q)) ==
                          2 &&
                      lines_in(ctl_out("list", "--json", q)) == SPOOLED + 4,
                  15000 + SOON_MS);
    out = ctl_out("list", "--json", q);
    cr_assert_str_eq(body_at(out, 1), "due 0");
    cr_assert_str_eq(body_at(out, 2), "due 1");
    cr_assert_str_eq(body_at(out, 3), "number 1\n");
    cr_assert_str_eq(body_at(out, SPOOLED + 2), "number 18\n");
    cr_assert_str_eq(body_at(out, SPOOLED + 3), "late");

    out = ctl_out("list", "--json", "--limit", "2", q);
    o = line_of(out, 1);
    snprintf(cursor, sizeof cursor, "%s", field(o, "cursor"));
    json_decref(o);
    out = ctl_out("list", "--json", "--after", cursor, q);
    cr_assert_eq(lines_in(out), SPOOLED + 2, "%s", out);
    cr_assert_str_eq(body_at(out, 0), "due 1");
    cr_assert_str_eq(body_at(out, SPOOLED + 1), "late");
    o = line_of(out, 1);
    snprintf(cursor, sizeof cursor, "%s", field(o, "cursor"));
    json_decref(o);
    out = ctl_out("list", "--json", "--after", cursor, q);
    cr_assert_eq(lines_in(out), SPOOLED, "a due one is still there: %s", out);
    run_all(w, SPOOLED + 3);
}

Test(mqctl_spool, list_knows_ids_and_groups_of_what_has_not_run)
{
    const char *q = harness_queue(10, 256), *out;
    struct harness_process *w = spool_fill(q);
    json_t *o;

    ctl_good(harness_run("mqsend", "--group", "g", q, "in a group\n"));
    harness_until(ctl_number(q, "spooled") == SPOOLED + 1, SOON_MS);
    out = ctl_out("list", "--json", "--group", "g", q);
    cr_assert_eq(lines_in(out), 1, "%s", out);
    o = line_of(out, 0);
    cr_assert_str_eq(field(o, "body"), "in a group\n");
    cr_assert_str_eq(field(o, "group"), "g");
    cr_assert_eq(strlen(field(o, "id")), 26);
    json_decref(o);
    run_all(w, SPOOLED + 2);
}

Test(mqctl_spool, a_queue_is_not_removed_over_it_and_with_force_it_stays)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    harness_kill(w);
    r = ctl("remove", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "20 messages in its spool"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "--force"), "%s", r.err);
    cr_assert_geq(harness_queue_length(q), 0, "the queue was removed");
    r = ctl("remove", "--force", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "20 in the spool, 1 in flight"), "%s",
                       r.out);
    cr_assert_not_null(strstr(r.out, "kept"), "%s", r.out);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", "read x; echo $x >>out");
    run_all(w, SPOOLED + 1);
}

Test(mqctl_spool, purge_of_all_letters_leaves_it)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = spool_fill(q);
    struct harness_result r = harness_run(
        "mqdlq", "purge", "--all", "--state-dir", harness_state_dir(), q);

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(ctl_number(q, "spooled"), SPOOLED);
    r = harness_run("mqdlq", "discard", "--all", "--state-dir",
                    harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(ctl_number(q, "spooled"), SPOOLED);
    run_all(w, SPOOLED + 1);
}

Test(mqctl_spool, doctor_tells_of_it_with_and_without_a_worker)
{
    const char *q = harness_queue(10, 64);
    struct harness_process *w = spool_fill(q);
    struct harness_result r = ctl("doctor", q);

    cr_assert_not_null(strstr(r.out, "20 messages are waiting there: senders "
                                     "are faster"),
                       "%s", r.out);
    ctl_out("set", q, "spool=5");
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, "--spool allows 5"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "spool=N"), "%s", r.out);
    harness_signal(w, SIGTERM);
    harness_write("open", "", 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, " in the spool"), "%s", r.out);
}

/* Return a number from a JSON answer. */
static json_int_t number_of(const char *text, const char *name)
{
    json_t *o = ctl_json(text);
    json_int_t n = json_integer_value(json_object_get(o, name));

    json_decref(o);
    return n;
}

Test(mqctl_spool, cancel_ends_rows_as_discarded_in_their_turn)
{
    const char *q = harness_queue(10, 256), *id;
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    id = ctl_send(q, "named\n");
    harness_until(ctl_number(q, "spooled") == SPOOLED + 1, SOON_MS);
    r = ctl("cancel", "--json", "--match", "number 1", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(number_of(r.out, "done"), 11, "not 1, 10 to 19: %s", r.out);
    cr_assert_eq(ctl("cancel", q, id).status, 0);
    cr_assert_eq(lines_in(ctl_out("list", "--json", "--state", "spooled", q)),
                 9, "a cancelled one is listed");
    r = ctl("cancel", q, id);
    cr_assert_eq(r.status, 66, "cancelled once more: %s", r.err);
    r = ctl("explain", q, id);
    cr_assert_not_null(strstr(r.out, "cancelled"), "%s", r.out);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "discarded") == 12, SOON_MS);
    harness_wait_log(w, "error=cancelled", SOON_MS);
    run_all(w, 10);
    cr_assert_eq(harness_lines_with("out", "number 1"), 0);
    cr_assert_eq(harness_lines_with("out", "named"), 0);
    r = ctl("explain", q, id);
    cr_assert_not_null(strstr(r.out, ": discarded at"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "ago: an operator cancelled it"), "%s",
                       r.out);
    cr_assert_eq(harness_lines("out"), 10, "not first and nine rows");
}

/* A header with only a group is parsed by a shorter path. */
Test(mqctl_spool, cancel_of_messages_of_a_group_runs_none_of_them)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    for (int i = 0; i < 3; i++)
        harness_send_text(q, HEADER_MAGIC "group: a\n\nof a group\n");
    harness_until(ctl_number(q, "spooled") == SPOOLED + 3, SOON_MS);
    r = ctl("cancel", "--json", "--group", "a", q);
    cr_assert_eq(number_of(r.out, "done"), 3, "%s%s", r.out, r.err);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "discarded") == 3, SOON_MS);
    run_all(w, SPOOLED + 1);
    cr_assert_eq(harness_lines_with("out", "of a group"), 0);
    cr_assert_eq(harness_lines("out"), SPOOLED + 1);
}

Test(mqctl_spool, cancel_takes_the_key_that_list_has_and_all_of_it)
{
    const char *q = harness_queue(10, 256), *out;
    struct harness_process *w = spool_fill(q);
    char key[64];
    json_t *o = ctl_json(out = ctl_out("list", "--json", "--state", "spooled",
                                       "--limit", "1", q));
    struct harness_result r;

    snprintf(key, sizeof key, "%s", field(o, "cursor"));
    json_decref(o);
    cr_assert_eq(ctl("cancel", q, key).status, 0, "%s", key);
    r = ctl("cancel", q, key);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "already"), "%s", r.err);
    cr_assert_eq(ctl("cancel", q, "spool-7").status, 66);
    cr_assert_eq(ctl("cancel", q, "spool-x").status, 64);
    r = ctl("cancel", "--json", "--state", "spooled", q);
    cr_assert_eq(number_of(r.out, "done"), SPOOLED - 1, "%s", r.out);
    r = ctl("cancel", "--json", "--all", q);
    cr_assert_eq(number_of(r.out, "chosen"), 0, "one waits: %s", r.out);
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "discarded") == SPOOLED, SOON_MS);
    harness_until(ctl_number(q, "spooled") == 0, SOON_MS);
    run_all(w, 1);
    cr_assert_eq(harness_lines("out"), 1);
}

Test(mqctl_spool, run_now_says_that_it_is_due)
{
    const char *q = harness_queue(10, 256), *id;
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    id = ctl_send(q, "named\n");
    harness_until(ctl_number(q, "spooled") == SPOOLED + 1, SOON_MS);
    r = ctl("run-now", q, id);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.err, "each runs in its turn"), "%s", r.err);
    r = ctl("run-now", "--state", "retry,spooled", q);
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "due already"), "%s", r.err);
    run_all(w, SPOOLED + 2);
}

/* A cancelled message never runs, whenever the worker is killed. A message that
 * a killed worker may have run is not cancelled. */
Test(mqctl_spool, a_kill_leaves_what_was_cancelled_so)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    struct harness_result r = ctl("cancel", "--json", "--match", "number 1", q);

    cr_assert_eq(number_of(r.out, "done"), 11, "%s", r.out);
    harness_kill(w);
    r = ctl("cancel", "--json", "--state", "spooled", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(number_of(r.out, "done"), 9, "%s", r.out);
    cr_assert_eq(number_of(r.out, "spooled"), 0, "%s", r.out);
    cr_assert_eq(number_of(r.out, "in_flight"), 0, "%s", r.out);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", "read x; echo $x >>out");
    run_all(w, 1);
    cr_assert_eq(harness_lines_with("out", "number"), 0);
    cr_assert_eq(harness_lines("out"), 1, "not what ran at the kill");
}

/* Rows of done messages are deleted later. Here they remain when the worker is
 * killed, because the store is locked. */
Test(mqctl_spool, what_a_killed_worker_was_done_with_is_not_cancelled)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    struct sqlite3 *lock = disk_lock(q);
    struct harness_result r;

    harness_write("open", "", 0);
    harness_until_lines("out", 3, SOON_MS);
    harness_kill(w);
    disk_unlock(lock);
    size_t ran = harness_lines("out");
    /* A child that has not called exec yet still holds the worker's lock. */
    harness_until((r = ctl("cancel", "--json", "--state", "spooled", q),
                   !strstr(r.err, "nobody listens")),
                  SOON_MS);
    cr_assert_leq(number_of(r.out, "done") + (long)ran, SPOOLED + 1, "%s",
                  r.out);
    cr_assert_gt(number_of(r.out, "gone"), 0, "%s%s", r.out, r.err);
    long done = number_of(r.out, "done");
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", "read x; echo $x >>again");
    harness_until(
        ctl_number(q, "discarded") == done && ctl_number(q, "spooled") == 0 &&
            ctl_number(q, "in_flight") == 0 && harness_queue_length(q) == 0,
        SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* It is unknown what the killed worker had run, so everything is left. */
Test(mqctl_spool, without_the_file_of_ends_nothing_is_cancelled)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    char path[512];
    struct harness_result r;

    harness_kill(w);
    snprintf(path, sizeof path, "%s", harness_custody(q));
    snprintf(strrchr(path, '/'), 8, "/ends");
    cr_assert_eq(unlink(path), 0, "%s", path);
    r = ctl("cancel", "--json", "--state", "spooled", q);
    cr_assert_eq(number_of(r.out, "done"), 0, "%s", r.out);
    cr_assert_eq(number_of(r.out, "spooled"), SPOOLED, "%s", r.out);
    r = ctl("cancel", "--state", "spooled", q);
    cr_assert_not_null(strstr(r.err, "start a worker, then"), "%s", r.err);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", "read x; echo $x >>out");
    run_all(w, SPOOLED + 1);
}

Test(mqctl_spool, cancel_without_a_worker_after_its_orderly_end)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", SOON_MS);
    harness_write("open", "", 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    r = ctl("cancel", "--json", "--state", "spooled", q);
    cr_assert_geq(number_of(r.out, "done"), SPOOLED - 1, "%s", r.out);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", "read x; echo $x >>out2");
    harness_until(ctl_number(q, "spooled") == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert(!harness_exists("out2"), "one of them ran");
}

Test(mqctl_spool, explain_finds_it_and_says_how_many_come_before_it)
{
    const char *q = harness_queue(10, 256), *id;
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    id = ctl_send(q, "named\n");
    harness_until(ctl_number(q, "spooled") == SPOOLED + 1, SOON_MS);
    r = ctl("explain", q, id);
    cr_assert_eq(r.status, 0, "%s", r.err);
    /* No number is checked: one of the messages may have been taken. */
    cr_assert_not_null(strstr(r.out, " messages of the spool come before it"),
                       "%s", r.out);
    cr_assert_eq(ctl("explain", q, "01ARZ3NDEKTSV4RRFFQ69G5FAV").status, 66);
    harness_kill(w);
    r = ctl("explain", q, id);
    cr_assert_not_null(strstr(r.out, "start one: mqworker"), "%s", r.out);
    w = ctl_worker(q, "-c", "1", "--", "sh", "-c", "read x; echo $x >>out");
    run_all(w, SPOOLED + 2);
    r = ctl("explain", q, id);
    cr_assert_not_null(strstr(r.out, ": done at"), "%s%s", r.out, r.err);
}

/* Send a message behind those of the spool, delayed by an hour; return its
 * id. */
static const char *delayed(const char *q, const char *body)
{
    static char id[64];
    struct harness_result r =
        harness_run("mqsend", "--print-id", "--delay", "1h", q, body);

    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(id, sizeof id, "%.*s", (int)strcspn(r.out, "\n"), r.out);
    harness_until(ctl_number(q, "waiting") > 0, SOON_MS);
    return id;
}

Test(mqctl_spool, a_delayed_one_waits_for_its_time_and_not_in_the_spool)
{
    const char *q = harness_queue(10, 256), *out;
    struct harness_process *w = spool_fill(q);
    const char *id = delayed(q, "later\n");
    json_t *o;

    cr_assert_eq(ctl_number(q, "spooled"), SPOOLED);
    out = ctl_out("list", "--json", "--state", "delayed", q);
    cr_assert_eq(lines_in(out), 1, "%s", out);
    o = line_of(out, 0);
    cr_assert_str_eq(field(o, "id"), id);
    cr_assert_str_eq(field(o, "body"), "later\n");
    cr_assert_gt(json_integer_value(json_object_get(o, "due_at_ns")), 0);
    json_decref(o);
    out = ctl_out("list", "--state", "delayed", q);
    cr_assert_not_null(strstr(out, "in 59m"), "not in DUE: %s", out);
    order_is(ctl_out("list", "--json", "--state", "spooled", q), 0, SPOOLED);
    cr_assert_eq(harness_lines("out"), 0, "the first one ended");
    harness_write("open", "", 0);
    harness_until_lines("out", SPOOLED + 1, SOON_MS);
    cr_assert_eq(harness_lines_with("out", "later"), 0);
    cr_assert_eq(ctl("run-now", q, id).status, 0);
    run_all(w, SPOOLED + 2);
    cr_assert_eq(harness_lines_with("out", "later"), 1);
}

Test(mqctl_spool, run_now_makes_a_delayed_one_due_beside_the_spool)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    const char *id = delayed(q, "later\n");
    struct harness_result r = ctl("run-now", q, id);

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.err, "");
    cr_assert_not_null(strstr(r.out, "1 of 1 message due now"), "%s", r.out);
    cr_assert_eq(lines_in(ctl_out("list", "--json", "--state", "delayed", q)),
                 0);
    run_all(w, SPOOLED + 2);
    cr_assert_eq(harness_lines_with("out", "later"), 1);
}

Test(mqctl_spool, without_a_worker_a_delayed_one_is_steered_just_so)
{
    const char *q = harness_queue(10, 256), *id;
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    id = delayed(q, "later\n");
    harness_kill(w);
    harness_until((r = ctl("run-now", q, id), !strstr(r.err, "nobody listens")),
                  SOON_MS);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "1 of 1 message due now"), "%s", r.out);
    w = ctl_worker(q, "--spool", "-c", "1", "--", "sh", "-c",
                   "read x; echo $x >>out");
    run_all(w, SPOOLED + 2);
    cr_assert_eq(harness_lines_with("out", "later"), 1);
}

/* A delayed message keeps its time through a stop, and its unique key as long
 * as asked. */
Test(mqctl_spool, a_stop_and_a_key_keep_a_delayed_one)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    struct harness_result r;

    for (int i = 0; i < 2; i++)
        ctl_good(harness_run("mqsend", "--unique", "k", "--delay", "1h", q,
                             "once\n"));
    harness_until(ctl_number(q, "duplicates") == 1, SOON_MS);
    cr_assert_eq(ctl_number(q, "waiting"), 1);
    harness_signal(w, SIGTERM);
    harness_write("open", "", 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    r = ctl("list", "--json", "--state", "delayed", q);
    cr_assert_eq(lines_in(r.out), 1, "%s%s", r.out, r.err);
    r = ctl("run-now", "--json", "--all", q);
    cr_assert_eq(number_of(r.out, "done"), 1, "%s%s", r.out, r.err);
    w = ctl_worker(q, "--spool", "-c", "1", "--", "sh", "-c",
                   "read x; echo $x >>out");
    harness_until(harness_lines_with("out", "once") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines_with("out", "once"), 1);
}

/* Send two messages of a group, the second one delayed, which move to the end
 * of the spool; return the second id. */
static const char *group_send(const char *q, const char *delay)
{
    static char id[64];

    ctl_good(harness_run("mqsend", "--group", "a", q, "m0\n"));
    snprintf(id, sizeof id, "%.26s",
             ctl_good(harness_run("mqsend", "--print-id", "--group", "a",
                                  "--delay", delay, q, "m1\n")));
    harness_until(ctl_number(q, "spooled") == SPOOLED + 2, SOON_MS);
    cr_assert_eq(ctl_number(q, "waiting"), 0);
    return id;
}

/* Check that m0 ran before m1. */
static void in_order(void)
{
    const char *out = harness_read("out", NULL), *m0 = strstr(out, "m0");

    cr_assert(m0 && strstr(m0, "m1"), "%s", out);
}

/* Its delay is over long before the message in front of it runs. */
Test(mqctl_spool, a_delayed_one_of_a_group_passes_none_of_it_in_the_spool)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    uint64_t due;

    (void)group_send(q, "2s");
    due = clock_wall_ns() + 2 * NS_PER_S;
    harness_until(clock_wall_ns() > due, SOON_MS);
    run_all(w, SPOOLED + 3);
    in_order();
}

Test(mqctl_spool, run_now_lets_a_delayed_one_pass_none_of_its_group)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill(q);
    const char *id = group_send(q, "1h");

    cr_assert_not_null(strstr(ctl_out("run-now", q, id), "0 of 1 message"));
    harness_write("open", "", 0);
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    harness_until_lines("out", SPOOLED + 2, SOON_MS);
    cr_assert_eq(harness_lines_with("out", "m1"), 0);
    cr_assert_eq(ctl("run-now", q, id).status, 0);
    run_all(w, SPOOLED + 3);
    in_order();
}

/* At --max-waiting nothing is taken from the spool, but messages that only wait
 * for their time must not count for that. */
Test(mqctl_spool, delayed_ones_hold_up_no_row_of_the_spool)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w = spool_fill_most(q, "8");

    for (int i = 0; i < 7; i++)
        ctl_good(harness_run("mqsend", "--delay", "1h", q, "later\n"));
    harness_until(ctl_number(q, "waiting") == 4, SOON_MS);
    harness_until(ctl_number(q, "spooled") == SPOOLED + 3, SOON_MS);
    harness_write("open", "", 0);
    harness_until_lines("out", SPOOLED + 1, SOON_MS);
    harness_until(ctl_number(q, "waiting") == 7, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines_with("out", "later"), 0);
}
