/* test_mqctl.c - mqctl: status, pause, resume, set, drain, stop, quit
 * against a real worker */
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl, .init = harness_init, .fini = harness_fini);

#define GATE "echo x >>started; while [ ! -e open ]; do sleep 0.02; done"

/* Let the handlers that wait in GATE exit. */
static void open_gate(void)
{
    harness_write("open", "", 0);
}

/* ---- status ---- */

Test(mqctl, status_as_json_has_what_scripts_rely_on)
{
    static const char *const fields[] = {
        "pid",  "queue",           "depth",  "in_flight", "waiting",
        "dead", "max_concurrency", "paused", "breaker",
    };
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--max-attempts", "1", "--", "false");
    json_t *o;

    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    o = ctl_status(q);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        cr_assert_not_null(json_object_get(o, fields[i]), "%s", fields[i]);
    cr_assert_str_eq(json_string_value(json_object_get(o, "queue")), q);
    cr_assert_str_eq(json_string_value(json_object_get(o, "breaker")),
                     "closed");
    cr_assert_str_eq(json_string_value(json_object_get(o, "last_error")),
                     "exit 1");
    cr_assert(json_is_false(json_object_get(o, "paused")));
    json_decref(o);
    cr_assert_eq(ctl_number(q, "pid"), harness_pid(w));
    cr_assert_eq(ctl_number(q, "max_concurrency"), 2);
    cr_assert_eq(ctl_number(q, "deliveries"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, status_counts_what_runs_and_what_waits)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--backoff", "1h", "--", "sh", "-c",
                   "read b; [ $b = good ] || exit 1; " GATE);

    harness_send_text(q, "bad\n");
    harness_until(ctl_number(q, "waiting") == 1, SOON_MS);
    harness_send_text(q, "good\n");
    harness_send_text(q, "good\n");
    harness_until_lines("started", 2, SOON_MS);
    harness_send_text(q, "good\n");
    harness_until(ctl_number(q, "in_flight") == 2, SOON_MS);
    cr_assert_eq(ctl_number(q, "depth"), 1);
    open_gate();
    harness_until(ctl_number(q, "done") == 3, SOON_MS);
    harness_until(ctl_number(q, "in_flight") == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, status_without_a_name_lists_every_worker)
{
    const char *a = harness_queue(0, 0), *b = harness_queue(0, 0);
    struct harness_process *x = ctl_worker(a, "--", "true");
    struct harness_process *y = ctl_worker(b, "--", "true");
    struct harness_result r = ctl("status", "--json");

    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, a) && strstr(r.out, b), "%s", r.out);
    cr_assert_eq(harness_stop(x, SOON_MS), 0);
    r = ctl("status", NULL);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "not running") && strstr(r.out, "running"), "%s",
              r.out);
    cr_assert_eq(harness_stop(y, SOON_MS), 0);
}

Test(mqctl, status_lists_queues_by_their_names)
{
    static const char *const folders[] = {"mqw-c", "mqw-a", "mqw-d", "mqw-b"};
    const char *at = "";
    char path[4096];
    struct harness_result r;

    cr_assert_eq(mkdir(harness_state_dir(), 0700), 0);
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", harness_state_dir(), folders[i]);
        cr_assert_eq(mkdir(path, 0700), 0);
    }
    r = ctl("status", NULL);
    at = r.out;
    for (int c = 'a'; c <= 'd'; c++) {
        snprintf(path, sizeof path, "/mqw-%c ", c);
        at = strstr(at, path);
        cr_assert_not_null(at, "no %s in its place: %s", path, r.out);
    }
}

Test(mqctl, times_are_null_until_a_message_has_run)
{
    static const char *const times[] = {"handler_p50_ns", "handler_p99_ns",
                                        "handler_max_ns", "latency_p50_ns",
                                        "latency_p99_ns"};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    json_t *o = ctl_status(q);

    for (size_t i = 0; i < 5; i++)
        cr_assert(json_is_null(json_object_get(o, times[i])), "%s", times[i]);
    json_decref(o);
    harness_send_text(q, "x");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    for (size_t i = 0; i < 5; i++)
        cr_assert_gt(ctl_number(q, times[i]), 0, "%s", times[i]);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, status_of_a_queue_without_a_worker_is_69_and_says_what_was)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = ctl("status", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "ended at"), "%s", r.err);
    w = ctl_worker(q, "--", "true");
    harness_kill(w);
    r = ctl("status", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "was killed"), "%s", r.err);
    r = ctl("status", "--json", q);
    cr_assert_not_null(strstr(r.out, "\"pid\":null"), "%s", r.out);
    cr_assert_not_null(strstr(r.out, "\"state\":\"killed\""), "%s", r.out);
}

Test(mqctl, no_state_directory_is_73_and_named)
{
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", "/nonexistent/mqw");

    cr_assert_eq(r.status, 73);
    cr_assert_not_null(strstr(r.err, "/nonexistent/mqw"), "%s", r.err);
}

/* Run mqctl VERB --state-dir ... QUEUE as another user. */
static struct harness_result foreign(const char *verb, const char *q)
{
    return harness_run("setpriv", "--reuid=65534", "--clear-groups",
                       harness_bin("mqctl"), verb, "--state-dir",
                       harness_state_dir(), q);
}

Test(mqctl, a_folder_of_somebody_else_is_77_and_nothing_is_said_of_chown)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    struct harness_result r;

    if (geteuid() != 0 ||
        harness_run("setpriv", "--reuid=65534", "--clear-groups",
                    harness_bin("mqctl"), "--version")
                .status != 0)
        cr_skip_test("nobody else can be asked here");
    w = ctl_worker(q, "--", "true");
    cr_assert_eq(chmod(harness_dir(), 0755), 0);
    cr_assert_eq(chmod(harness_state_dir(), 0755), 0);
    r = foreign("status", q);
    cr_assert_eq(r.status, 77, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "belongs to root"), "%s", r.err);
    cr_assert_null(strstr(r.err, "chown"), "%s", r.err);
    cr_assert_eq(foreign("pause", q).status, 77);
    cr_assert_eq(foreign("metrics", NULL).status, 77);
    cr_assert_eq(foreign("remove", q).status, 77);
    cr_assert_eq(foreign("doctor", q).status, 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The user nobody cannot open the state directory. Root can, but a worker of
 * root would be refused there, so doctor must name the owner's command. */
Test(mqctl, doctor_says_whose_a_shut_state_directory_is)
{
    const char *q = harness_queue(0, 0);
    char want[4352];
    struct harness_process *w;
    struct harness_result r;

    if (geteuid() != 0 ||
        harness_run("setpriv", "--reuid=65534", "--clear-groups",
                    harness_bin("mqctl"), "--version")
                .status != 0)
        cr_skip_test("nobody else can be asked here");
    w = ctl_worker(q, "--", "true");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    ctl_send(q, "waits");
    cr_assert_eq(chmod(harness_dir(), 0755), 0);
    r = foreign("doctor", q);
    cr_assert(strstr(r.out, "belongs to root"), "%s", r.out);
    cr_assert(strstr(r.out, "sudo -u root mqctl"), "%s", r.out);
    r = foreign("queues", NULL);
    cr_assert(strstr(r.err, "sudo -u root mqctl"), "%s", r.err);
    cr_assert_eq(
        harness_run("chown", "-R", "34567", harness_state_dir()).status, 0);
    snprintf(want, sizeof want,
             "sudo -u '#34567' mqworker --state-dir %s %s -- COMMAND",
             harness_state_dir(), q);
    r = ctl("doctor", q);
    cr_assert(strstr(r.out, want), "%s", r.out);
}

Test(mqctl, counters_of_another_version_are_told_and_the_worker_is_seen)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *path = harness_path("%s/counters", harness_runtime_folder(q));
    struct harness_result r;
    FILE *f = fopen(path, "r+");

    cr_assert_not_null(f);
    cr_assert_eq(fseek(f, 8, SEEK_SET), 0);
    fputc(99, f);
    fclose(f);
    r = ctl("status", "--json", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "\"state\":\"running\""), "%s", r.out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = ctl("status", q);
    cr_assert_eq(r.status, 78, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "version"), "%s", r.err);
}

/* A start that finds too little memory leaves such an empty file. */
Test(mqctl, empty_counters_are_not_called_somebody_else_s)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    (void)mkdir(harness_runtime_folder(q), 0700);
    harness_write(harness_path("%s/counters", harness_runtime_folder(q)), "",
                  0);
    struct harness_result r = ctl("doctor", q);
    cr_assert(strstr(r.out, "no worker has written it yet"), "%s", r.out);
    cr_assert_null(strstr(r.out, "run as the owner"), "%s", r.out);
}

/* The message that a stop interrupted has no group, so no group blocks it. */
Test(mqctl, status_says_what_waits_in_the_store_for_what)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--grace", "1ms", "--", "sh",
                                           "-c", "echo >>runs; sleep 60");
    struct harness_result r;

    harness_send_text(q, "kept");
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = ctl("status", q);
    cr_assert(strstr(r.out, "1 waiting (delayed, retrying or interrupted)"),
              "%s", r.out);
    cr_assert(strstr(r.out, "0 blocked by their group"), "%s", r.out);
}

Test(mqctl, the_breaker_and_its_reason_are_shown)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--breaker-pause", "1h", "--", "/nonexistent/handler");

    harness_send_text(q, "x");
    harness_until(ctl_is(q, "breaker", "open"), SOON_MS);
    cr_assert_not_null(strstr(ctl_out("status", q), "/nonexistent/handler"),
                       "%s", ctl_out("status", q));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, what_systemd_does_is_named)
{
    struct harness_result r = harness_run("mqctl", "restart", "/orders");

    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "systemctl restart mqworker@orders"), "%s",
                       r.err);
    r = harness_run("mqctl", "logs", "orders");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "journalctl -u mqworker@orders"), "%s",
                       r.err);
}

Test(mqctl, help_that_cannot_be_written_is_a_failure)
{
    static const char *const programs[] = {"mqctl", "mqdlq", "mqsend",
                                           "mqworker"};

    for (size_t i = 0; i < 4; i++)
        for (int version = 0; version < 2; version++) {
            struct harness_result r = harness_run(
                "sh", "-c", "exec \"$0\" \"$1\" >/dev/full",
                harness_bin(programs[i]), version ? "--version" : "--help");

            cr_assert_eq(r.status, 74, "%s: %d", programs[i], r.status);
            cr_assert_not_null(strstr(r.err, "cannot write the output"), "%s",
                               r.err);
        }
}

/* ---- pause and resume ---- */

/* Return whether status says that the worker is paused. */
static bool paused(const char *q)
{
    json_t *o = ctl_status(q);
    bool is = json_is_true(json_object_get(o, "paused"));

    json_decref(o);
    return is;
}

Test(mqctl, pause_keeps_messages_in_the_queue_until_resume)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "sh", "-c", "echo >>runs");

    cr_assert_not_null(strstr(ctl_out("pause", q), "paused"));
    cr_assert(paused(q));
    cr_assert_not_null(strstr(ctl_out("status", q), "paused; mqctl"));
    harness_send_text(q, "x");
    cr_assert_eq(ctl_number(q, "depth"), 1);
    cr_assert_not_null(strstr(ctl_out("resume", q), "resumed"));
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_not(paused(q));
    cr_assert_null(strstr(ctl_out("status", q), "paused; mqctl"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_pause_with_a_duration_ends_by_itself_and_the_last_one_counts)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "sh", "-c", "echo >>runs");

    ctl_out("pause", q, "1h");
    harness_send_text(q, "x");
    ctl_out("pause", q, "50ms");
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_not(paused(q));
    cr_assert_eq(ctl("pause", q, "soon").status, 64);
    cr_assert_eq(ctl("pause", q, "").status, 64);
    cr_assert_eq(ctl("pause", q, "10/m").status, 64);
    cr_assert_eq(ctl("pause", q, "m10/").status, 64);
    cr_assert(strstr(ctl_out("resume", q), ": was not paused\n"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, one_order_for_several_workers_and_for_all)
{
    const char *a = harness_queue(0, 0), *b = harness_queue(0, 0);
    const char *idle = harness_queue(0, 0);
    struct harness_process *one = ctl_worker(a, "--", "true");
    struct harness_process *two = ctl_worker(b, "--", "true");
    struct harness_result r;
    char text[256];

    cr_assert_eq(harness_run("mqworker", "--state-dir", harness_state_dir(),
                             "--exit-when-idle", idle, "--", "true")
                     .status,
                 0);
    snprintf(text, sizeof text, "%s: paused for 1h\n%s: paused for 1h\n", a, b);
    cr_assert_str_eq(ctl_out("pause", a + 1, b + 1, "1h"), text);
    cr_assert(paused(a) && paused(b));
    snprintf(text, sizeof text, "%s: resumed\n", a);
    cr_assert_str_eq(ctl_out("resume", a), text);
    r = ctl("resume", "--all");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, a) && strstr(r.out, b) && !strstr(r.out, idle),
              "%s", r.out);
    cr_assert_not(paused(b));
    /* A name that may be a mistyped duration pauses no queue. */
    cr_assert_eq(ctl("pause", a, "10mins").status, 64);
    cr_assert_eq(ctl("pause", "10m", a).status, 64);
    cr_assert_eq(ctl("pause", a, "10m", b).status, 64);
    cr_assert_eq(ctl("pause", a, "soon").status, 64);
    cr_assert_eq(ctl("pause", "--all", a).status, 64);
    cr_assert_eq(ctl("pause", NULL).status, 64);
    cr_assert_not(paused(a));
    r = ctl("pause", a, idle); /* the highest status counts; `a` is paused all
                                * the same */
    cr_assert_eq(r.status, 69, "%s", r.err);
    cr_assert_not_null(strstr(r.err, idle), "%s", r.err);
    cr_assert(paused(a));
    cr_assert_eq(ctl("drain", "--all", "--wait").status, 0);
    cr_assert_eq(harness_wait(one, SOON_MS), 0);
    cr_assert_eq(harness_wait(two, SOON_MS), 0);
    cr_assert_eq(ctl("stop", "--all").status, 69);
}

Test(mqctl, each_change_of_a_pause_is_one_line_of_the_log)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");

    ctl_out("pause", q);
    ctl_out("pause", q); /* no change */
    ctl_out("pause", q, "1h");
    ctl_out("pause", q, "2h");
    ctl_out("pause", q);
    ctl_out("resume", q);
    ctl_out("resume", q); /* no change */
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "event=paused"), 4);
    cr_assert_eq(harness_log_count(w, "for=1h"), 1);
    cr_assert_eq(harness_log_count(w, "for=2h"), 1);
    cr_assert_eq(harness_log_count(w, "event=resumed"), 1);
    cr_assert_eq(harness_log_count(w, "event=control"), 0);
}

Test(mqctl, a_signal_does_not_end_a_pause_of_mqctl_and_resume_ends_both)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--", "true");

    ctl_out("pause", q);
    harness_signal(w, SIGUSR2);
    harness_signal(w, SIGCONT);
    /* The worker obeys CONT before TTIN, which it got later. */
    harness_signal(w, SIGTTIN);
    harness_until(ctl_number(q, "max_concurrency") == 2, SOON_MS);
    cr_assert(paused(q));
    harness_signal(w, SIGUSR2);
    harness_signal(w, SIGTTOU);
    harness_until(ctl_number(q, "max_concurrency") == 1, SOON_MS);
    ctl_out("resume", q);
    cr_assert_not(paused(q));
    cr_assert_eq(harness_log_count(w, "event=resumed"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_pause_outlives_a_kill_and_a_stop_until_resume)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *line;

    ctl_out("pause", q);
    harness_kill(w);
    harness_send_text(q, "x");
    w = ctl_worker(q, "--", "sh", "-c", "echo >>runs");
    line = harness_wait_log(w, "event=paused", SOON_MS);
    cr_assert(strstr(line, "since=") && strstr(line, "by="), "%s", line);
    cr_assert(paused(q));
    cr_assert_not_null(strstr(ctl_out("status", q), "\npaused  "));
    ctl_out("pause", q, "1h");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_not_null(strstr(ctl("status", q).out, "next worker starts paus"));
    w = ctl_worker(q, "--", "sh", "-c", "echo >>runs");
    harness_wait_log(w, "until=", SOON_MS);
    cr_assert(paused(q));
    cr_assert_eq(ctl_number(q, "depth"), 1);
    ctl_out("resume", q);
    harness_until_lines("runs", 1, SOON_MS);
    harness_kill(w);
    w = ctl_worker(q, "--", "true");
    cr_assert_not(paused(q));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return the path of the file that notes a pause, in the folder of a queue. */
static const char *pause_file(const char *q)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s%s/pause", harness_state_dir(), q);
    return path;
}

/* Each change in the folder makes the worker check its files, the pause file
 * too. */
Test(mqctl, a_pause_is_written_once_and_again_only_if_it_is_gone)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *store = harness_path("%s%s/store.db", harness_state_dir(), q);
    const char *away = harness_path("%s%s/away", harness_state_dir(), q);
    struct stat before, after;

    ctl_out("pause", q);
    cr_assert_eq(stat(pause_file(q), &before), 0);
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(rename(store, away), 0);
        harness_until(harness_log_count(w, "event=file_gone") > i, SOON_MS);
        cr_assert_eq(rename(away, store), 0);
        harness_until(harness_log_count(w, "event=file_back queue=") > i,
                      SOON_MS);
    }
    cr_assert_eq(stat(pause_file(q), &after), 0);
    cr_assert(before.st_ino == after.st_ino &&
              before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
              before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    cr_assert_eq(unlink(pause_file(q)), 0);
    harness_until(harness_exists(pause_file(q)), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_pause_without_a_worker_ends_at_its_time_or_by_resume)
{
    static const char past[] = "since 1000000000\nuntil 2000000000\nby me\n";
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");

    ctl_out("pause", q);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert(harness_exists(pause_file(q)));
    cr_assert_not_null(strstr(ctl_out("resume", q), "no worker is running"));
    cr_assert(!harness_exists(pause_file(q)));
    cr_assert_eq(ctl("resume", q).status, 69);
    harness_write(pause_file(q), past, sizeof past - 1);
    w = ctl_worker(q, "--", "true");
    cr_assert_not(paused(q));
    harness_until(!harness_exists(pause_file(q)), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_pause_whose_note_was_damaged_is_still_a_pause)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    harness_write(pause_file(q), "", 0);
    w = ctl_worker(q, "--", "true");
    cr_assert(paused(q));
    ctl_out("resume", q);
    cr_assert(!harness_exists(pause_file(q)));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- set ---- */

Test(mqctl, set_tells_old_and_new_and_changes_all_or_nothing)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--", "true");
    struct harness_result r;
    const char *out;

    out =
        ctl_out("set", q, "max-concurrency=3", "timeout=30s", "backoff=1s,5s");
    cr_assert_not_null(strstr(out, "max-concurrency 1 -> 3"), "%s", out);
    cr_assert_not_null(strstr(out, "timeout none -> 30s"), "%s", out);
    cr_assert_not_null(strstr(out, "backoff exp:1s,5m -> 1s,5s"), "%s", out);
    r = ctl("set", q, "max-concurrency=5", "timeout=never");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "never"), "%s", r.err);
    cr_assert_eq(ctl_number(q, "max_concurrency"), 3);
    r = ctl("set", q, "lookahead=5");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(
        strstr(r.err, "restart the worker with another --lookahead"), "%s",
        r.err);
    r = ctl("set", q, "queue-depth=100");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "is fixed when the queue is created; "
                                     "recreate it"),
                       "%s", r.err);
    r = ctl("set", q, "mode=0644");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "chmod in /dev/mqueue"), "%s", r.err);
    cr_assert_eq(ctl("set", q, "max-concurrency=0").status, 64);
    cr_assert_eq(ctl("set", q, "max-concurrency").status, 64);
    cr_assert_eq(ctl("set", q, "nothing=5").status, 64);
    out = ctl_out("set", "--json", q, "grace=1m");
    cr_assert_not_null(strstr(out, "\"old\":\"30s\",\"new\":\"1m\""), "%s",
                       out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl,
     a_changed_setting_is_shown_with_that_of_the_start_and_how_to_keep_it)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "4", "--timeout", "9s", "--", "true");
    json_t *o, *one;
    const char *out;

    out = ctl_out("status", q);
    cr_assert_null(strstr(out, "started with"), "%s", out);
    out = ctl_out("set", q, "max-concurrency=8", "backoff=1s,5s");
    cr_assert_not_null(strstr(out, "until the worker stops"), "%s", out);
    cr_assert_not_null(
        strstr(out, "--max-concurrency=8 --backoff=1s,5s, or with"), "%s", out);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "max-concurrency=8 (set 2"), "%s", out);
    cr_assert_not_null(strstr(out, "; started with 4)"), "%s", out);
    cr_assert_not_null(strstr(out, "--max-concurrency=4 --timeout=9s"), "%s",
                       out);
    o = ctl_status(q);
    one = json_object_get(json_object_get(o, "settings_changed"),
                          "max-concurrency");
    cr_assert_eq(json_integer_value(json_object_get(one, "started")), 4);
    cr_assert(json_is_string(json_object_get(one, "set_at")));
    json_decref(o);
    out = ctl_out("set", q, "max-concurrency=4", "backoff=exp:1s,5m");
    cr_assert_null(strstr(out, "to keep it"), "%s", out);
    harness_signal(w, SIGTTIN);
    harness_until(ctl_number(q, "max_concurrency") == 5, SOON_MS);
    out = ctl_out("status", q);
    cr_assert_not_null(strstr(out, "max-concurrency=5 (set 2"), "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Only the worker knows what can be set. */
Test(mqctl, set_without_a_worker_says_that_there_is_none)
{
    const char *q = harness_queue(10, 64);
    struct harness_result r = ctl("set", q, "nothing=5");

    cr_assert_eq(r.status, 69, "%s", r.err);
    cr_assert_eq(ctl("set", q, "timeout=5s").status, 69);
    cr_assert_eq(ctl("set", q).status, 69);
}

Test(mqctl, set_without_a_setting_lists_them_as_they_are_set)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "3", "--", "true");
    const char *out;
    json_t *all;

    ctl_out("set", q, "timeout=9s");
    out = ctl_out("set", q);
    cr_assert(strstr(out, "max-concurrency=3\n"), "%s", out);
    cr_assert(strstr(out, "\ntimeout=9s\n"), "%s", out);
    cr_assert(strstr(out, "\nbackoff=exp:1s,5m\n"), "%s", out);
    cr_assert_null(strstr(out, "lookahead"), "%s", out);
    all = json_loads(ctl_out("set", "--json", q), 0, NULL);
    cr_assert_str_eq(json_string_value(json_object_get(
                         json_object_get(all, "settings"), "timeout")),
                     "9s");
    cr_assert_str_eq(json_string_value(json_object_get(all, "queue")), q);
    json_decref(all);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, settings_that_are_numbers_are_numbers_in_json)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "2", "--", "true");
    json_t *o = ctl_status(q), *all = json_object_get(o, "settings");

    cr_assert_eq(json_integer_value(json_object_get(all, "jitter")), 20);
    cr_assert_eq(json_integer_value(json_object_get(all, "max-concurrency")),
                 2);
    cr_assert_str_eq(json_string_value(json_object_get(all, "grace")), "30s");
    cr_assert_str_eq(json_string_value(json_object_get(all, "timeout")),
                     "none");
    json_decref(o);
    const char *out = ctl_out("set", "--json", q, "jitter=30%");
    cr_assert(strstr(out, "\"old\":20,\"new\":30"), "%s", out);
    out = ctl_out("set", q, "jitter=40");
    cr_assert(strstr(out, ": jitter 30 -> 40\n"), "%s", out);
    out = ctl_out("status", q);
    cr_assert(strstr(out, " jitter=40 (set "), "%s", out);
    cr_assert(strstr(out, " grace=30s\n"), "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, resume_says_so_if_nothing_was_paused)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *out = ctl_out("resume", q);

    cr_assert(strstr(out, ": was not paused\n"), "%s", out);
    ctl_out("pause", q);
    out = ctl_out("resume", q);
    cr_assert(strstr(out, ": resumed\n"), "%s", out);
    out = ctl_out("resume", "--json", q);
    cr_assert(strstr(out, "\"was_paused\":false"), "%s", out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* 66 means that there is no such queue, 69 that a queue has no worker. */
Test(mqctl, a_mistyped_queue_is_66_and_the_one_that_is_meant_is_named)
{
    const char *q = harness_queue(2, 64);
    struct harness_process *w = ctl_worker(q, "--", "true");
    char typed[300], hint[320];
    const struct {
        const char *verb, *one, *two;
    } all[] = {{"pause", NULL, NULL},     {"resume", NULL, NULL},
               {"set", "rate=1/s", NULL}, {"drain", NULL, NULL},
               {"stop", NULL, NULL},      {"quit", NULL, NULL},
               {"keys", NULL, NULL},      {"group", "g", "close"},
               {"group", "g", "release"}, {"list", NULL, NULL},
               {"run-now", "--all", NULL}};

    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    snprintf(typed, sizeof typed, "%sx", q);
    snprintf(hint, sizeof hint, "did you mean %s?", q);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct harness_result r =
            ctl(all[i].verb, typed, all[i].one, all[i].two);

        cr_assert_eq(r.status, 66, "%s: %d %s", all[i].verb, r.status, r.err);
        cr_assert_not_null(strstr(r.err, hint), "%s", r.err);
    }
    cr_assert_eq(ctl("pause", q).status, 69);
}

Test(mqctl, status_of_a_queue_that_is_nowhere_is_one_line)
{
    struct harness_result r = ctl("status", "/mqwt-no-such-queue");

    cr_assert_eq(r.status, 66);
    cr_assert_str_empty(r.out);
    cr_assert_not_null(strstr(r.err, "no queue /mqwt-no-such-queue"), "%s",
                       r.err);
    cr_assert_eq(strchr(r.err, '\n'), r.err + strlen(r.err) - 1, "%s", r.err);
}

Test(mqctl, an_id_that_is_empty_is_64_and_says_what_is_allowed)
{
    struct harness_result r = ctl("explain", "");

    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "\"\" is not an id; give the 26"), "%s",
                       r.err);
    cr_assert_eq(ctl("explain", "/mqwt-no-such-queue", "").status, 64);
    r = ctl("run-now", harness_queue(0, 0), "ABC");
    cr_assert_eq(r.status, 64);
    cr_assert_not_null(strstr(r.err, "cursor from list --json"), "%s", r.err);
}

Test(mqctl, an_id_that_is_wrong_is_64_and_says_in_what)
{
    static const struct {
        const char *text, *says;
    } all[] = {
        {"01JD3Z6K9Q2W5E8R1T4Y7P0AB", "is not an id: it has 25 characters;"},
        {"01JD3Z6K9Q2W5E8R1T4Y7P0ABCD", "is not an id: it has 27 characters;"},
        {"01JD3Z6K9Q2W5E8R1T4Y7P0ABU", "is not an id: U is not in an id;"},
        {"01JD3Z6K9Q2W5E8R1T4Y7P0A-C", "is not an id: - is not in an id;"},
        {"01JD3Z6K9Q2W5E8R1T4Y7P0A\xc3\x9f", "is not an id: it has more than"},
        {"81JD3Z6K9Q2W5E8R1T4Y7P0ABC", "is not an id: an id begins with 0"},
        {"E", "is not an id: it has 1 character;"},
        {"EFOO", "\"EFOO\" is no error that is known here; give "},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct harness_result r = ctl("explain", all[i].text);

        cr_assert_eq(r.status, 64, "%s", all[i].text);
        cr_assert_not_null(strstr(r.err, all[i].says), "%s", r.err);
    }
}

/* All names of one letter differ by one change, so none is a likely guess. */
Test(mqctl, no_queue_is_guessed_for_a_name_of_one_letter)
{
    char path[PATH_MAX];
    struct harness_result r;

    (void)mkdir(harness_state_dir(), 0700);
    snprintf(path, sizeof path, "%s/b", harness_state_dir());
    cr_assert_eq(mkdir(path, 0700), 0);
    r = ctl("pause", "/q");
    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert_null(strstr(r.err, "did you mean"), "%s", r.err);
}

Test(mqctl, set_names_all_that_the_worker_can_change)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r = ctl("set", q, "nothing=5");
    char listed[1024] = "";
    const char *out;

    cr_assert_eq(r.status, 64, "%s", r.err);
    out = ctl_out("set", q);
    for (const char *at = out; *at; at += strcspn(at, "\n") + 1)
        snprintf(listed + strlen(listed), sizeof listed - strlen(listed),
                 "%s%.*s", *listed ? ", " : "", (int)strcspn(at, "="), at);
    cr_assert(strstr(r.err, "there is no such setting; give "), "%s", r.err);
    cr_assert(strstr(r.err, listed), "%s: %s", r.err, listed);
    r = ctl("set", q, "max_concurrency=3");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "setting; did you mean max-concurrency?\n"), "%s",
              r.err);
    r = ctl("set", q, "timeout", "5s");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "timeout: no value is given; give timeout=VALUE"),
              "%s", r.err);
    r = ctl("set", q, "--timeout=3s");
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "give timeout=VALUE"), "%s", r.err);
    cr_assert_str_eq(ctl_out("set", "-q", q, "timeout=3s"), "");
    cr_assert_str_eq(ctl_out("pause", "--quiet", q), "");
    cr_assert_neq(ctl("resume", "--quiet", q, "now").status, 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_higher_cap_starts_handlers_at_once_and_a_lower_one_ends_none)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE "; echo >>ended");

    for (int i = 0; i < 8; i++)
        harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    ctl_out("set", q, "max-concurrency=4");
    harness_until_lines("started", 4, SOON_MS);
    ctl_out("set", q, "max-concurrency=1");
    cr_assert_eq(ctl_number(q, "in_flight"), 4);
    open_gate();
    harness_until_lines("ended", 8, SOON_MS);
    cr_assert_eq(harness_lines("started"), 8, "one ran twice");
    harness_until(ctl_number(q, "done") == 8, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_cap_that_goes_up_and_down_under_load_loses_nothing)
{
    const char *q = harness_queue(10, 256);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", "read b; echo $b >>runs");
    char numbers[300 * 5] = "";

    for (int i = 1; i <= 300; i++)
        sprintf(numbers + strlen(numbers), "%d\n", i);
    struct harness_process *sender = harness_start(
        &(struct harness_spec){.argv = HARNESS_LIST("mqsend", "--lines", q),
                               .input = numbers,
                               .input_size = strlen(numbers)});

    for (int i = 0; i < 10; i++) {
        ctl_out("set", q, "max-concurrency=16");
        ctl_out("set", q, "max-concurrency=1");
    }
    cr_assert_eq(harness_wait(sender, 60000), 0, "%s",
                 harness_stderr(sender, NULL));
    harness_until_lines("runs", 300, 60000);
    harness_until(ctl_number(q, "done") == 300, SOON_MS);
    cr_assert_str_eq(
        harness_run("sh", "-c", "sort -un runs | wc -l | tr -d ' \\n'").out,
        "300");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_new_time_limit_is_that_of_the_next_handler)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--max-attempts", "1", "--", "sleep", "3600");

    ctl_out("set", q, "timeout=50ms", "kill-after=50ms");
    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert(ctl_is(q, "last_error", "timeout 50ms"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, new_attempts_and_backoff_are_those_of_the_next_failure)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--backoff", "1h", "--", "sh", "-c",
                   "echo $MQW_MAX_ATTEMPTS >>runs; exit 1");

    ctl_out("set", q, "backoff=1ms", "jitter=0", "max-attempts=2");
    harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == 1, SOON_MS);
    cr_assert_str_eq(harness_read("runs", NULL), "2\n2\n");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_breaker_that_is_turned_on_opens)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--", "false");

    ctl_out("set", q, "breaker-failures=2", "breaker-pause=1h");
    harness_send_text(q, "x");
    harness_send_text(q, "y");
    harness_until(ctl_is(q, "breaker", "open"), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- the ways to end ---- */

Test(mqctl, drain_finishes_what_runs_and_takes_no_more)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--grace", "10ms", "--", "sh", "-c",
                   GATE "; echo >>ended");

    harness_send_text(q, "x");
    harness_send_text(q, "y");
    harness_until_lines("started", 1, SOON_MS);
    ctl_out("drain", q);
    harness_until(ctl_is(q, "state", "stopping"), SOON_MS);
    open_gate();
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("ended"), 1);
    cr_assert_eq(harness_queue_length(q), 1);
    cr_assert_not_null(harness_wait_log(w, "why=drain", 0));
}

Test(mqctl, status_tells_where_a_relative_command_is)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    json_t *o;

    harness_script("handler", "true");
    w = ctl_worker(q, "--", "./handler");
    o = ctl_status(q);
    cr_assert_str_eq(json_string_value(json_object_get(o, "path")),
                     harness_path("handler"));
    json_decref(o);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, status_tells_what_runs)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "7", "--", "sh", "-c", "exit 0", "a b");
    json_t *o = ctl_status(q), *command = json_object_get(o, "command"),
           *flags = json_object_get(o, "flags");
    const char *text;

    cr_assert_eq(json_array_size(command), 4);
    cr_assert_str_eq(json_string_value(json_array_get(command, 3)), "a b");
    text = json_string_value(json_object_get(o, "path"));
    cr_assert(text && text[0] == '/' && strstr(text, "/sh"), "%s", text);
    cr_assert_str_eq(json_string_value(json_object_get(flags, "max-attempts")),
                     "7");
    cr_assert_null(json_object_get(flags, "jitter"), "a default is listed");
    cr_assert_str_eq(json_string_value(json_object_get(o, "handler")), "exec");
    cr_assert_not_null(json_string_value(json_object_get(o, "version")));
    cr_assert_not_null(json_string_value(json_object_get(o, "user")));
    json_decref(o);
    ctl_out("set", q, "jitter=0");
    o = ctl_status(q);
    flags = json_object_get(o, "flags");
    cr_assert_null(json_object_get(flags, "jitter"), "set later, not a flag");
    json_decref(o);
    cr_assert_not_null(strstr(ctl_out("status", q), "--max-attempts=7"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    o = ctl_json(ctl("status", "--json", q).out);
    cr_assert(json_is_null(json_object_get(o, "command")), "no worker runs");
    text = json_string_value(json_object_get(o, "state_dir"));
    cr_assert(text && strstr(text, harness_state_dir()) == text, "%s", text);
    json_decref(o);
}

Test(mqctl, wait_comes_back_when_the_worker_has_gone_and_not_before)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--", "sh", "-c", GATE "; echo >>ended");
    struct harness_process *waits;
    struct harness_result r;

    harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    /* A value that is not joined is no queue: nothing is drained. */
    for (size_t i = 0; i < 2; i++) {
        r = ctl("drain", "--wait", i ? "forever" : "5s", q);
        cr_assert_eq(r.status, 64, "%d: %s", r.status, r.err);
        cr_assert_not_null(
            strstr(r.err, i ? "like --wait=forever" : "like --wait=5s"), "%s",
            r.err);
    }
    cr_assert(ctl_is(q, "state", "running"));
    r = ctl("drain", "--wait=50ms", q);
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "has not exited after 50ms"), "%s", r.err);
    waits = harness_program("mqctl", "drain", "--wait", "--state-dir",
                            harness_state_dir(), q);
    harness_until(strstr(harness_stdout(waits, NULL), "draining"), SOON_MS);
    open_gate();
    cr_assert_eq(harness_wait(waits, SOON_MS), 0);
    cr_assert_eq(harness_lines("ended"), 1, "--wait returned early");
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_eq(ctl("stop", "--wait", q).status, 69);
}

Test(mqctl, wait_is_over_when_the_worker_was_killed_or_another_one_runs)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "1", "--grace", "1h", "--", "sh", "-c", GATE);
    struct harness_process *waits;

    harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    waits = harness_program("mqctl", "stop", "--wait", "--state-dir",
                            harness_state_dir(), q);
    harness_until(ctl_is(q, "state", "stopping"), SOON_MS);
    harness_kill(w);
    open_gate();
    w = ctl_worker(q, "-c", "1", "--", "true");
    cr_assert_eq(harness_wait(waits, SOON_MS), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, stop_gives_the_grace_and_quit_gives_none)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "-c", "1", "--grace", "1h", "--",
                                           "sh", "-c", GATE "; echo >>ended");

    harness_send_text(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    ctl_out("stop", q);
    cr_assert(harness_running(w));
    ctl_out("quit", q);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_not_null(harness_wait_log(w, "event=unfinished", 0));
    cr_assert_eq(harness_lines("ended"), 0);
}

/* ---- the socket ---- */

/* Connect to the worker's socket as any program could. */
static int dial(const char *q)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof to.sun_path, "%s%s/control",
             harness_state_dir(), q);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

Test(mqctl, the_socket_is_for_its_owner_and_goes_with_the_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *path = harness_path("%s%s/control", harness_state_dir(), q);
    struct stat st;

    cr_assert_eq(lstat(path, &st), 0);
    cr_assert(S_ISSOCK(st.st_mode));
    cr_assert_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_neq(lstat(path, &st), 0);
    cr_assert_eq(ctl("pause", q).status, 69);
}

/* Send a request as a raw client; return the worker's answer. */
static const char *answer_to(int fd, const char *request)
{
    static char answer[4096];
    ssize_t n;

    cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    n = read(fd, answer, sizeof answer - 1);
    cr_assert_gt(n, 0);
    answer[n] = '\0';
    return answer;
}

Test(mqctl, an_order_that_comes_too_late_is_not_carried_out)
{
    const char *q = harness_queue(0, 0), *answer;
    struct harness_process *w = ctl_worker(q, "-c", "1", "--", "true");
    int fd = dial(q);

    answer = answer_to(fd, "before 1 pause\n");
    cr_assert(strstr(answer, "\"status\":75"), "%s", answer);
    cr_assert(strstr(answer, "too late"), "%s", answer);
    answer = answer_to(fd, "before 1 set max-concurrency=9\n");
    cr_assert(strstr(answer, "too late"), "%s", answer);
    cr_assert_not(paused(q));
    cr_assert_eq(ctl_number(q, "max_concurrency"), 1);
    answer = answer_to(fd, "before 9000000000000000000 pause\n");
    cr_assert(strstr(answer, "\"ok\":true"), "%s", answer);
    cr_assert(paused(q));
    close(fd);
    cr_assert_eq(harness_log_count(w, "event=paused"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Return how many entries a folder of /proc/PID has. */
static size_t entries(const struct harness_process *w, const char *name)
{
    char path[64];
    size_t n = 0;
    DIR *dir;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)harness_pid(w), name);
    dir = opendir(path);
    cr_assert_not_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* Return whether the worker has no child, of any of its threads. */
static bool childless(const struct harness_process *w)
{
    char pid[16];

    snprintf(pid, sizeof pid, "%d", (int)harness_pid(w));
    return !harness_run("sh", "-c", "cat /proc/$1/task/*/children", "sh", pid)
                .out[0];
}

/* Let clients leave in the middle of a request, and handlers hang with a
 * process in the background. Wait until there are `dead` letters in all. */
static void abandon(const char *q, long dead)
{
    static const char *const requests[] = {"status\n", "sta",       "running\n",
                                           "list\n",   "closing\n", ""};

    for (int i = 0; i < 60; i++) {
        int fd = dial(q);

        cr_assert_geq(write(fd, requests[i % 6], strlen(requests[i % 6])), 0);
        close(fd);
    }
    for (int i = 0; i < 4; i++)
        harness_send_text(q, "x");
    harness_until(ctl_number(q, "dead") == dead, SOON_MS);
}

Test(mqctl, nothing_is_kept_of_requests_and_handlers_that_were_abandoned)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "2", "--max-attempts", "1", "--timeout", "200ms",
                   "--kill-after", "50ms", "--", "sh", "-c",
                   "setsid sleep 1000 & exec sleep 1000");
    size_t open;

    abandon(q, 4);
    harness_until(childless(w), SOON_MS);
    (void)harness_settled(w, SOON_MS);
    open = entries(w, "fd");
    abandon(q, 8);
    harness_until(childless(w), SOON_MS);
    harness_until(entries(w, "fd") <= open, SOON_MS);
    cr_assert_eq(ctl_number(q, "waiting"), 0);
    cr_assert_eq(ctl_number(q, "in_flight"), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, another_user_is_refused)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    char line[256] = "";
    int fd;

    if (geteuid() != 0)
        cr_skip_test("only root can become another user");
    w = ctl_worker(q, "--", "true");
    const char *path = harness_path("%s%s", harness_state_dir(), q);
    /* Open folder and socket to all, so that the worker itself has to
     * refuse. */
    cr_assert_eq(chmod(harness_state_dir(), 0777), 0);
    cr_assert_eq(chmod(harness_dir(), 0777), 0);
    cr_assert_eq(chmod(path, 0711), 0);
    cr_assert_eq(chmod(harness_path("%s/control", path), 0666), 0);
    cr_assert_eq(seteuid(65534), 0);
    fd = dial(q);
    cr_assert_eq(seteuid(0), 0);
    cr_assert_gt(read(fd, line, sizeof line - 1), 0);
    cr_assert_not_null(strstr(line, "\"ok\":false"), "%s", line);
    cr_assert_eq(read(fd, line, sizeof line), 0, "it is not closed");
    close(fd);
    harness_wait_log(w, "event=control_refused", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, clients_that_are_stuck_hurt_nobody)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "sh", "-c", "echo >>runs");
    int mute[20], deaf = dial(q);
    char junk[4096];

    for (size_t i = 0; i < 20; i++)
        mute[i] = dial(q); /* and say nothing */
    /* A client that asks and never reads, until the worker drops it. */
    memset(junk, 'x', sizeof junk);
    for (size_t i = 0; i < sizeof junk; i += 7)
        memcpy(junk + i, "status\n",
               i + 7 <= sizeof junk ? 7 : sizeof junk - i);
    while (send(deaf, junk, sizeof junk, MSG_NOSIGNAL) > 0)
        ;
    cr_assert_eq(ctl_number(q, "pid"), harness_pid(w));
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, SOON_MS);
    memset(junk, 'y', sizeof junk); /* a line that never ends */
    (void)send(mute[19], junk, sizeof junk, MSG_NOSIGNAL);
    cr_assert(ctl_is(q, "state", "running"));
    for (size_t i = 0; i < 20; i++)
        close(mute[i]);
    close(deaf);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(mqctl, a_killed_workers_socket_is_in_nobodys_way)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");

    harness_kill(w);
    cr_assert_eq(ctl("pause", q).status, 69);
    w = ctl_worker(q, "--", "true");
    ctl_out("pause", q);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- the process title ---- */

Test(mqctl, the_title_tells_what_runs_waits_and_is_dead)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "-c", "3", "--max-attempts", "1", "--", "sh", "-c",
                   "read b; [ $b = good ] || exit 1; " GATE);
    const char *title = harness_path("/proc/%d/cmdline", (int)harness_pid(w));
    char want[128];

    harness_send_text(q, "bad\n");
    harness_send_text(q, "good\n");
    harness_until_lines("started", 1, SOON_MS);
    snprintf(want, sizeof want, "mqworker: %s [1 of 3 busy, 0 waiting, 1 dead]",
             q);
    harness_until(strstr(harness_read(title, NULL), want), SOON_MS);
    open_gate();
    snprintf(want, sizeof want, "mqworker: %s [0 of 3 busy, 0 waiting, 1 dead]",
             q);
    harness_until(strstr(harness_read(title, NULL), want), SOON_MS);
    ctl_out("pause", q);
    strcat(want, " [paused]");
    harness_until(strstr(harness_read(title, NULL), want), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
