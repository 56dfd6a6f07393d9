/* test_mqctl_forget.c - mqctl forget: what was kept of a removed queue */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(mqctl_forget, .init = harness_init, .fini = harness_fini);

/* Return the queue's folder in the state directory or in its folder `below`. */
static const char *folder(const char *below, const char *q)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s%s%s", harness_state_dir(), below, q);
    return path;
}

static bool there(const char *below, const char *q)
{
    return access(folder(below, q), F_OK) == 0;
}

/* Return whether any verb that lists queues shows it. Without any queue the
 * verbs may fail. */
static bool shown(const char *q)
{
    static const char *const verbs[][4] = {
        {"status"}, {"metrics"}, {"top", "--rounds", "1"}, {"queues"}};

    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strstr(harness_run("mqctl", "--state-dir", harness_state_dir(),
                               verbs[i][0], verbs[i][1], verbs[i][2])
                       .out,
                   q))
            return true;
    return false;
}

/* Run a worker on a queue until it has `letters` dead letters and, if `waits`,
 * a waiting message. */
static void worked(const char *q, int letters, bool waits)
{
    struct harness_process *w =
        ctl_worker(q, "--max-attempts", "1", "--", "false");

    for (int i = 0; i < letters; i++)
        ctl_send(q, "x");
    if (waits)
        cr_assert_eq(harness_run("mqsend", "--delay", "1h", q, "later").status,
                     0);
    harness_until(ctl_number(q, "dead") == letters, SOON_MS);
    harness_until(ctl_number(q, "waiting") == (waits ? 1 : 0), SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Do the same and remove the queue, so that only the saved state is left. */
static void used(const char *q, int letters, bool waits)
{
    worked(q, letters, waits);
    cr_assert_eq(ctl("remove", "-q", q).status, 0);
}

/* Remove the queue; check that remove says what is kept, and for how long. */
static void remove_says(const char *q, const char *kept)
{
    struct harness_result r = ctl("remove", q);
    char want[4400];

    snprintf(want, sizeof want,
             "%s: removed; %s kept in %s until mqctl forget "
             "--state-dir %s %s\n",
             q, kept, folder("", q), harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_str_eq(r.out, want);
}

Test(mqctl_forget, remove_counts_what_is_kept)
{
    const char *q = harness_queue(0, 0);

    worked(q, 2, true);
    remove_says(q, "1 waiting, 2 dead letters");
    q = harness_queue(0, 0);
    worked(q, 0, false);
    remove_says(q, "it has no saved messages, its counters are");
}

Test(mqctl_forget, a_queue_that_is_gone_leaves_each_list)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r;

    used(q, 0, false);
    cr_assert(shown(q));
    r = ctl("forget", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, ": forgotten\n"), "%s", r.out);
    cr_assert_not(shown(q));
    cr_assert_not(there("", q));
    cr_assert_not(there("", "/.forgotten"));
    r = ctl("forget", q);
    cr_assert_eq(r.status, 66);
    cr_assert_not_null(strstr(r.err, "nothing is saved"), "%s", r.err);
}

Test(mqctl_forget, several_queues_are_forgotten_and_the_highest_status_counts)
{
    const char *a = harness_queue(0, 0), *b = harness_queue(0, 0);
    struct harness_result r;

    used(a, 0, false);
    used(b, 0, false);
    r = ctl("forget", a, "/nosuch", b);
    cr_assert_eq(r.status, 66, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "nothing is saved of /nosuch"), "%s",
                       r.err);
    cr_assert_not(shown(a));
    cr_assert_not(shown(b));
}

Test(mqctl_forget, messages_are_thrown_away_by_force_only_and_counted)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r;
    char want[300];

    used(q, 2, true);
    r = ctl("forget", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "1 waiting, 2 dead letters"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "--force"), "%s", r.err);
    snprintf(want, sizeof want,
             "{\"queue\":\"%s\",\"forgotten\":false,\"waiting\":1,"
             "\"spooled\":0,\"in_flight\":0,\"dead\":2}\n",
             q);
    cr_assert_str_eq(ctl_out("forget", "--force", "--dry-run", "--json", q),
                     want);
    cr_assert(there("", q), "a dry run removed the folder");
    r = ctl("forget", "--force", q);
    cr_assert_not_null(
        strstr(r.out, "forgotten, and deleted: 1 waiting, 2 dead letters"),
        "%s", r.out);
    cr_assert_not(shown(q));
    used(q, 1, false);
    cr_assert_str_eq(ctl_out("forget", "-q", "--force", q), "");
}

/* A cancelled message only waits for the next worker to record its end. */
Test(mqctl_forget, cancelled_messages_are_not_saved_and_have_no_age)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--spool", "-c", "1", "--", "sh", "-c",
                   "echo >>started; until [ -e go ]; do sleep 0.02; done");
    struct harness_result r;
    char age[300];

    snprintf(
        age, sizeof age,
        "mqworker_oldest_seconds{queue=\"%s\",engine=\"mq\",state=\"spooled\"}",
        q);
    for (int i = 0; i < 5; i++)
        ctl_send(q, "x");
    harness_until_lines("started", 1, SOON_MS);
    harness_until(ctl_number(q, "spooled") == 4, SOON_MS);
    cr_assert_not_null(strstr(ctl_out("metrics", NULL), age), "%s", age);
    cr_assert_not_null(strstr(ctl_out("cancel", "--all", q), "4 of 4"));
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", SOON_MS);
    harness_write("go", "", 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_null(strstr(ctl_out("metrics", NULL), age));
    remove_says(q, "it has no saved messages, its counters are");
    r = ctl("forget", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, ": forgotten\n"), "%s", r.out);
}

Test(mqctl_forget, never_under_a_worker_and_not_while_the_queue_is_there)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r = ctl("forget", "--force", q);

    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "mqctl stop --wait --state-dir /"), "%s",
                       r.err);
    cr_assert(there("", q));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    r = ctl("forget", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "still exists"), "%s", r.err);
    cr_assert_eq(ctl("forget", "--force", q).status, 0);
    cr_assert_eq(harness_queue_length(q), 0, "the queue stays");
    cr_assert_not(there("", q));
}

Test(mqctl_forget, a_lock_of_a_worker_that_only_begins_is_respected)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r;
    int fd;

    used(q, 0, false);
    fd = open(folder("", q), O_RDONLY | O_DIRECTORY);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    r = ctl("forget", "--force", q);
    cr_assert_eq(r.status, 69, "%s", r.err);
    cr_assert(there("", q));
    close(fd);
    cr_assert_eq(ctl("forget", q).status, 0);
}

Test(mqctl_forget, what_a_kill_left_in_flight_goes_with_its_runtime_folder)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--", "sh", "-c", "echo >>began; exec sleep 100");
    struct harness_result r;

    ctl_send(q, "x");
    harness_until_lines("began", 1, SOON_MS);
    harness_kill(w);
    cr_assert_eq(ctl("remove", "-q", "--force", q).status, 0);
    r = ctl("forget", q);
    cr_assert_eq(r.status, 69);
    cr_assert_not_null(strstr(r.err, "1 in flight"), "%s", r.err);
    r = ctl("forget", "--force", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "1 in flight"), "%s", r.out);
    cr_assert_not(shown(q));
    /* A new worker starts as if nothing had been there. */
    q = harness_queue(0, 0);
    w = ctl_worker(q, "--exit-when-idle", "--", "true");
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
}

Test(mqctl_forget, what_a_crash_left_is_removed_by_the_next_one)
{
    const char *q = harness_queue(0, 0);
    char from[4200];
    struct harness_result r;

    used(q, 1, false);
    snprintf(from, sizeof from, "%s", folder("", q));
    cr_assert_eq(mkdir(folder("", "/.forgotten"), 0700), 0);
    cr_assert_eq(rename(from, folder("/.forgotten", q)), 0);
    cr_assert_not(shown(q), "a renamed folder is still shown");
    r = ctl("forget", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not(there("", "/.forgotten"));
    cr_assert_eq(ctl("forget", q).status, 66);
}

/* The folder goes away while the worker waits for its lock. */
Test(mqctl_forget, a_start_whose_folder_is_removed_meanwhile_makes_it_again)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    char from[4200];
    int lock;

    used(q, 0, false);
    q = harness_queue(0, 0);
    snprintf(from, sizeof from, "%s", folder("", q));
    cr_assert_eq(mkdir(from, 0700), 0);
    lock = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(lock, LOCK_EX), 0); /* as mqctl forget does */
    w = harness_worker(q, "--exit-when-idle", "--", "true");
    harness_until(harness_switches(w) > 50, SOON_MS); /* it retries */
    cr_assert_eq(rename(from, harness_path("away")), 0);
    close(lock);
    cr_assert_eq(harness_wait(w, SOON_MS), 0, "%s", harness_stderr(w, NULL));
    cr_assert(there("", q));
}

Test(mqctl_forget, odd_names_and_folders_that_are_no_queues)
{
    static const char *const names[] = {"/a b;c", "/.dot", "/-x", "/ä'\"$(x)"};
    struct harness_result r;
    char path[4300];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_assert_eq(mkdir(harness_state_dir(), 0700) == 0 || errno == EEXIST,
                     true);
        cr_assert_eq(mkdir(folder("", names[i]), 0700), 0);
        r = ctl("forget", names[i]);
        cr_assert_eq(r.status, 0, "%s: %s", names[i], r.err);
        cr_assert_not(there("", names[i]));
    }
    cr_assert_eq(mkdir(folder("", "/amqp"), 0700), 0);
    snprintf(path, sizeof path, "%s/vhost@host", folder("", "/amqp"));
    cr_assert_eq(mkdir(path, 0700), 0);
    r = ctl("forget", "--force", "/amqp");
    cr_assert_eq(r.status, 73);
    cr_assert_not_null(strstr(r.err, "not that of a queue"), "%s", r.err);
    cr_assert_eq(access(path, F_OK), 0);
    cr_assert_eq(ctl("forget", "..").status, 64);
}
