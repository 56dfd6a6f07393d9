/* test_worker_files.c - mqworker: its files are removed, moved, replaced or
 * made read-only while it runs */
#include "tests/e2e/faults/faults_fixture.h"
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(worker_files, .init = faults_init, .fini = harness_fini,
          .timeout = 600);

/* A handler that rejects all bodies except "good". */
#define GOOD_ONLY \
    "--", "sh", "-c", "read b; echo $b >>runs; [ $b = good ] || exit 65"
/* "queue=" is needed because the hint of file_gone has the event name. */
#define FILE_BACK "event=file_back queue="
/* A handler that runs until a file with the name of the body exists. */
#define UNTIL                                                           \
    "--", "sh", "-c",                                                   \
        "read b; echo $b $MQW_REDELIVERED >>runs; until [ -e $b ]; do " \
        "sleep 0.02; done"

/* Return the path of a file in the queue's folder. */
static const char *file(const char *q, const char *name)
{
    return harness_path("%s%s/%s", harness_state_dir(), q, name);
}

/* Wait until the worker has started `times` times in its process. */
static void started(struct harness_process *w, size_t times)
{
    harness_until(harness_log_count(w, "event=started queue=") >= times, 20000);
    cr_assert(harness_running(w));
}

/* Run a command that must succeed; "$S" is the queue's state folder, "$R" its
 * runtime folder. */
static void shell(const char *q, const char *command)
{
    char state[256], runtime[300];
    snprintf(state, sizeof state, "S=%s%s", harness_state_dir(), q);
    snprintf(runtime, sizeof runtime, "R=%s", harness_runtime_folder(q));
    struct harness_result r = harness_run_spec(
        &(struct harness_spec){.argv = HARNESS_LIST("sh", "-euc", command),
                               .env = HARNESS_LIST(state, runtime)});
    cr_assert_eq(r.status, 0, "%s: %d: %s", command, r.status, r.err);
}

/* Count the worker's answers to orders to raise the cap. The thread that logs
 * them looks at the queue as well. */
static size_t looked(const struct harness_process *w)
{
    return harness_log_count(w, "event=max_concurrency") +
           harness_log_count(w, "event=cap_not_raised");
}

static void look_again(struct harness_process *w)
{
    size_t before = looked(w);
    harness_signal(w, SIGTTIN);
    harness_until(looked(w) > before, 5000);
}

/* Check that messages stay in the queue although the worker has looked. */
static void alone_check(struct harness_process *w, const char *q, long left)
{
    look_again(w);
    cr_assert_eq(harness_queue_length(q), left);
}

/* Start a worker that rejects three messages. */
static struct harness_process *rejecting(const char *q)
{
    struct harness_process *w = harness_worker(q, "-c", "2", GOOD_ONLY);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "bad\n");
    harness_wait_letters(q, 3, 10000);
    return w;
}

static void removed_store(const char *names)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    shell(q, names);
    started(w, 2);
    harness_send_text(q, "bad\n");
    harness_wait_letters(q, 4, 10000);
    harness_kill(w);
    harness_wait_letters(q, 4, 5000); /* the letters are on disk, not only in
                                       * the killed process */
    w = harness_worker(q, "--exit-when-idle", GOOD_ONLY);
    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert_eq(harness_lines("runs"), 4, "one ran twice");
}

Test(worker_files, a_removed_store_is_written_again_by_a_restart)
{
    removed_store("rm $S/store.db*");
}

Test(worker_files, a_removed_wal_is_written_again)
{
    removed_store("rm $S/store.db-wal");
}

Test(worker_files, a_removed_shm_is_written_again)
{
    removed_store("rm $S/store.db-shm");
}

Test(worker_files, a_removed_database_beside_its_wal_is_written_again)
{
    removed_store("rm $S/store.db");
}

Test(worker_files, a_removed_folder_is_made_again)
{
    removed_store("until rm -rf $S; do :; done");
}

Test(worker_files, removed_directories_are_made_again)
{
    removed_store("until rm -rf ${S%/*} ${R%/*}; do :; done");
}

/* Grow the store so that a copy takes a while. The new row belongs to no
 * letter, so that no list prints it. */
static void store_fatten(const char *q)
{
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(file(q, "store.db"), &db), SQLITE_OK);
    cr_assert_eq(sqlite3_busy_timeout(db, 5000), SQLITE_OK);
    cr_assert_eq(
        sqlite3_exec(db,
                     "INSERT INTO attempts (row, n, started_ns, duration_ns,"
                     " stderr) VALUES (-1, 99, 0, 0, zeroblob(200000000))",
                     NULL, NULL, NULL),
        SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* Return true if the store is being written again. */
static bool copying(const char *q)
{
    DIR *dir = opendir(harness_path("%s%s", harness_state_dir(), q));
    const struct dirent *entry;
    bool is = false;
    while (dir && (entry = readdir(dir)) != NULL)
        is |= strlen(entry->d_name) == strlen("store.db.XXXXXX") &&
              strncmp(entry->d_name, "store.db.", 9) == 0;
    if (dir)
        closedir(dir);
    return is;
}

/* The exit of the process closes all files, even if a plugin never returns. So
 * the stop must wait until the store is written. */
Test(worker_files, a_stop_that_leaves_a_plugin_behind_waits_for_the_store)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--plugin", harness_plugin("act"), "-c", "2",
                       "--grace", "1ms", "--kill-after", "10ms");
    harness_send_text(q, "dead");
    harness_wait_letters(q, 1, 10000);
    store_fatten(q);
    harness_send_text(q, "hang");
    harness_until_lines("runs", 2, 10000);
    /* Repeat it if the copy was too quick to be seen. */
    for (size_t seen = 0, starts = 1; !seen; starts++) {
        cr_assert_leq(starts, 10);
        shell(q, "rm -f $S/store.db*");
        harness_until((seen = copying(q)) != 0 ||
                          harness_log_count(w, "event=started queue=") > starts,
                      20000);
    }
    harness_signal(w, SIGTERM);
    cr_assert_eq(harness_wait(w, 30000), 0);
    harness_wait_letters(q, 1, 5000);
    cr_assert_geq(harness_log_count(w, "event=kept"), 1, "%s",
                  harness_stderr(w, NULL));
}

/* The log tells the operator what to do, and doing that works. */
Test(worker_files, another_file_in_place_of_the_store_stops_the_taking)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    shell(q, "touch x; mv -f x $S/store.db");
    const char *line = harness_wait_log(w, "event=file_gone", 10000);
    cr_assert(strstr(line, "replaced") && strstr(line, "store.db") &&
                  strstr(line, "move the other file away"),
              "%s", line);
    harness_send_text(q, "good\n");
    alone_check(w, q, 1);
    struct harness_result r =
        harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, "is taking no messages: store.db was replaced"),
              "%s", r.out);
    r = harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);
    cr_assert(strstr(r.out, "store.db is gone"), "%s", r.out);
    shell(q, "mv $S/store.db $S/other");
    started(w, 2);
    harness_until_lines("runs", 4, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    harness_wait_letters(q, 3, 5000);
    cr_assert_eq(harness_log_count(w, "was replaced"), 1, "not logged once");
}

Test(worker_files, a_stop_saves_a_store_whose_name_is_taken)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    shell(q, "touch x; mv -f x $S/store.db");
    harness_wait_log(w, "event=file_gone", 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    const char *line = harness_wait_log(w, "event=store_saved", 1000);
    cr_assert(strstr(line, "move it to store.db"), "%s", line);
    shell(q, "mv $S/store.db.saved-* $S/store.db; rm -f $S/store.db-*");
    harness_wait_letters(q, 3, 5000);
}

/* While the store is away, the verdict stays in its slot: a kill loses
 * nothing. */
Test(worker_files, a_kill_while_the_store_is_away_keeps_what_is_in_flight)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c",
                       "echo >>runs; until [ -e go ]; do sleep 0.02; done; "
                       "exit 65");
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 10000);
    shell(q, "mv $S/store.db $S/away");
    harness_wait_log(w, "event=file_gone", 10000);
    shell(q, "touch go");
    harness_wait_log(w, "event=store_cannot_write", 10000);
    harness_kill(w);
    shell(q, "mv $S/away $S/store.db");
    w = harness_worker(q, "--", "sh", "-c", "echo $MQW_REDELIVERED >>runs");
    harness_until_lines("runs", 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("runs", "1"), 1, "no marked repeat");
}

/* Check that doctor names the worker that takes nothing, the path of the file
 * and what to do, and does not report a worker that never ran. */
static void doctor_says(const struct harness_process *w, const char *q,
                        const char *file, const char *todo)
{
    struct harness_result r;
    char pid[48];

    snprintf(pid, sizeof pid,
             "pid %d is taking no messages: ", (int)harness_pid(w));
    /* The worker logs first and then publishes its state. */
    harness_until((r = harness_run("mqctl", "doctor", "--state-dir",
                                   harness_state_dir(), q),
                   strstr(r.out, pid) && strstr(r.out, file)),
                  5000);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, todo), "%s in %s", todo, r.out);
    cr_assert_null(strstr(r.out, "no counters yet"), "%s", r.out);
}

/* Return doctor's words about the custody file. */
static const char *custody_path(const char *q, const char *what)
{
    static char text[PATH_MAX];

    snprintf(text, sizeof text, "%s: %s", what, harness_custody(q));
    return text;
}

/* Check that the worker takes nothing until the file is put back, and then goes
 * on. */
static void moved_away(const char *away, const char *back)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    shell(q, away);
    const char *line = harness_wait_log(w, "event=file_gone", 10000);
    cr_assert(strstr(line, "moved away") && strstr(line, "put it back"), "%s",
              line);
    harness_send_text(q, "good\n");
    alone_check(w, q, 1);
    shell(q, back);
    harness_wait_log(w, FILE_BACK, 10000);
    harness_until_lines("runs", 4, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    harness_wait_letters(q, 3, 5000);
}

Test(worker_files, a_moved_store_is_waited_for)
{
    moved_away("mv $S/store.db $S/x", "mv $S/x $S/store.db");
}

/* A moved file does not come back by itself: to wait would be bad advice. */
Test(worker_files, mqdlq_calls_a_moved_store_moved)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    shell(q, "mv $S/store.db $S/x");
    struct harness_result r =
        harness_run("mqdlq", "list", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 75);
    cr_assert(strstr(r.err, "moved or removed") &&
                  strstr(r.err, "move it back") &&
                  strstr(r.err, "mqctl doctor --state-dir /"),
              "%s", r.err);
    shell(q, "mv $S/x $S/store.db");
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(worker_files, a_moved_custody_is_waited_for)
{
    moved_away("mv $R/custody $R/x", "mv $R/x $R/custody");
}

Test(worker_files, a_moved_folder_is_waited_for)
{
    moved_away("mv $S $S.away", "mv $S.away $S");
}

Test(worker_files, a_moved_runtime_folder_is_waited_for)
{
    moved_away("mv $R $R.away", "mv $R.away $R");
}

/* doctor must not need the counters for the pid: they were moved as well. */
Test(worker_files, doctor_names_a_runtime_folder_that_was_moved)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, GOOD_ONLY);
    harness_wait_log(w, "event=started", 5000);
    shell(q, "mv $R $R.away");
    harness_wait_log(w, "event=file_gone", 10000);
    doctor_says(w, q, custody_path(q, "custody was moved away"),
                "-> put it back there (mv, mount)");
    shell(q, "mv $R.away $R");
    harness_wait_log(w, FILE_BACK, 10000);
    shell(q, "touch x; mv $R/custody own; mv x $R/custody");
    harness_wait_log(w, "was replaced", 10000);
    doctor_says(w, q, custody_path(q, "custody was replaced by another file"),
                "-> move the other file away");
    shell(q, "mv own $R/custody");
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(worker_files, a_moved_state_directory_is_waited_for)
{
    moved_away("mv ${S%/*} away", "mv away ${S%/*}");
}

/* The worker takes nothing while a kill would lose it; messages in flight are
 * finished. */
Test(worker_files, a_removed_custody_is_made_again_when_nothing_runs)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", UNTIL);
    harness_send_text(q, "one\n");
    harness_until_lines("runs", 1, 10000);
    shell(q, "rm $R/custody");
    harness_wait_log(w, "event=file_gone", 10000);
    doctor_says(w, q, custody_path(q, "custody was removed"),
                "wait: when its handlers have finished");
    harness_send_text(q, "two\n");
    alone_check(w, q, 1);
    cr_assert(!harness_exists(harness_custody(q)));
    shell(q, "touch one");
    started(w, 2);
    harness_until_lines("runs", 2, 10000);
    harness_kill(w);
    shell(q, "touch two");
    w = harness_worker(q, "--", "sh", "-c",
                       "read b; echo $b $MQW_REDELIVERED >>runs");
    harness_until_lines("runs", 3, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "one 0\ntwo 0\ntwo 1\n");
}

/* The file `runtime`, which names the folder, must come back as well. */
Test(worker_files, a_removed_runtime_folder_is_made_again)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", UNTIL);
    harness_wait_log(w, "event=started", 5000);
    shell(q, "until rm -rf $R; do :; done; rm $S/runtime");
    harness_until(harness_exists(harness_custody(q)) &&
                      harness_exists(file(q, "runtime")),
                  10000);
    harness_send_text(q, "one\n");
    harness_until_lines("runs", 1, 10000);
    harness_kill(w);
    shell(q, "touch one");
    w = harness_worker(q, "--", "sh", "-c",
                       "read b; echo $b $MQW_REDELIVERED >>runs");
    harness_until_lines("runs", 2, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "one 0\none 1\n");
}

/* Messages that wait in slots for their turn in a group are stored. */
Test(worker_files, what_waits_in_a_removed_custody_runs_in_order)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--", "sh", "-c",
        "read b; echo $b >>runs; until [ -e go ]; do sleep 0.02; done");
    for (int i = 0; i < 5; i++) {
        char body[64];
        snprintf(body, sizeof body, "MQW/1\ngroup: g\n\n%d\n", i);
        harness_send_text(q, body);
    }
    harness_until(harness_queue_length(q) == 0, 10000);
    harness_until_lines("runs", 1, 10000);
    shell(q, "rm $R/custody; touch go");
    started(w, 2);
    harness_until_lines("runs", 5, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "0\n1\n2\n3\n4\n");
}

Test(worker_files, a_removed_pidfile_lets_no_second_worker_in)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, GOOD_ONLY), *second;
    harness_wait_log(w, "event=started", 5000);
    harness_signal(w, SIGSTOP); /* it must not restart yet */
    shell(q, "rm $S/worker.pid");
    second = harness_worker(q, GOOD_ONLY);
    cr_assert_eq(harness_wait(second, 30000), 69);
    const char *why = harness_stderr(second, NULL);
    cr_assert(strstr(why, "already has a consumer"), "%s", why);
    harness_signal(w, SIGCONT);
    started(w, 2);
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)harness_pid(w));
    cr_assert_str_eq(harness_read(file(q, "worker.pid"), NULL), pid);
    second = harness_worker(q, GOOD_ONLY);
    cr_assert_eq(harness_wait(second, 5000), 69);
    why = harness_stderr(second, NULL);
    char stop[600];
    snprintf(stop, sizeof stop, "mqctl stop --state-dir %s %s,",
             harness_state_dir(), q);
    cr_assert(strstr(why, pid) && strstr(why, stop), "%s", why);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert(!harness_exists(file(q, "worker.pid")));
}

/* Return true if mqctl reaches the worker. */
static bool steered(const char *q)
{
    return harness_run("mqctl", "pause", "--state-dir", harness_state_dir(), q)
               .status == 0;
}

Test(worker_files, a_removed_control_socket_comes_back)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, GOOD_ONLY);
    harness_until(steered(q), 5000);
    harness_signal(w, SIGSTOP); /* it must not restart yet */
    shell(q, "rm $S/control $S/worker.pid");
    struct harness_result r =
        harness_run("mqctl", "pause", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 75, "%s", r.err);
    cr_assert(strstr(r.err, "a worker is running on /") &&
                  strstr(r.err, "restarts when its handlers have finished"),
              "%s", r.err);
    harness_signal(w, SIGCONT);
    started(w, 2);
    harness_until(steered(q), 5000);
    /* rm fails if the worker writes to the folder meanwhile. */
    shell(q, "until rm -rf $S; do :; done");
    started(w, 3);
    harness_until(steered(q), 5000);
    harness_signal(w, SIGTERM);
    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert(access(file(q, "control"), F_OK) < 0);
}

/* The restarted worker notes ends again: a later kill leaves none in doubt. */
Test(worker_files, a_removed_file_of_ends_puts_nothing_in_doubt)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--spool", "--spool-sync", "always", "-c", "1", "--",
                       "sh", "-c", "read x; echo $x $MQW_REDELIVERED >>out");

    harness_wait_log(w, "event=started", 10000);
    shell(q, "rm $R/ends");
    harness_wait_log(w, "event=file_gone", 10000);
    harness_send_text(q, "one\n");
    harness_until_lines("out", 1, 10000);
    started(w, 2);
    harness_send_text(q, "two\n");
    harness_until_lines("out", 2, 10000);
    harness_kill(w);
    w = harness_worker(q, "--spool", "--", "sh", "-c",
                       "read x; echo $x $MQW_REDELIVERED >>out");
    harness_send_text(q, "three\n");
    harness_until(harness_lines_with("out", "three 0") == 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_lines_with("out", "one"), 1, "%s",
                 harness_read("out", NULL));
}

/* Return true if the worker's status contains the text. */
static bool counted(const char *q, const char *text)
{
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);

    cr_assert_eq(r.status, 0, "%s", r.err);
    return strstr(r.out, text) != NULL;
}

Test(worker_files, removed_counters_come_back_with_what_they_counted)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", UNTIL);
    harness_send_text(q, "one\n");
    harness_until_lines("runs", 1, 10000);
    shell(q, "rm $R/counters");
    const char *line = harness_wait_log(w, "event=file_gone", 10000);
    cr_assert(strstr(line, "level=warn"), "%s", line);
    shell(q, "touch one two");
    started(w, 2);
    harness_send_text(q, "two\n");
    harness_until_lines("runs", 2, 10000);
    harness_until(counted(q, "2 done"), 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Send messages until the worker logs the event. */
static void work_until(struct harness_process *w, const char *q,
                       const char *event)
{
    harness_until(harness_log_count(w, event) > 0 ||
                      (harness_try_send(q, "good\n", 5, 0), false),
                  20000);
}

/* inotify does not report mounts. */
Test(worker_files, a_mount_over_the_state_directory_is_noticed_at_work)
{
    const char *q = harness_queue(0, 0);
    disk_mount("4m");
    struct harness_process *w = rejecting(q);
    cr_assert_eq(mount("tmpfs", harness_state_dir(), "tmpfs", 0, "size=1m"), 0);
    work_until(w, q, "event=file_gone");
    cr_assert_eq(umount2(harness_state_dir(), 0), 0);
    harness_wait_log(w, FILE_BACK, 10000);
    harness_until(harness_queue_length(q) == 0, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    harness_wait_letters(q, 3, 5000);
}

Test(worker_files, an_unmount_under_it_is_noticed_at_work)
{
    const char *q = harness_queue(0, 0);
    disk_mount("4m");
    struct harness_process *w = rejecting(q);
    const char *held = harness_path("held");
    cr_assert_eq(mkdir(held, 0700), 0);
    cr_assert_eq(mount(harness_state_dir(), held, NULL, MS_BIND, NULL), 0);
    cr_assert_eq(umount2(harness_state_dir(), MNT_DETACH), 0);
    work_until(w, q, "event=file_gone");
    look_again(w); /* a thread that was about to take a message has done so */
    /* The queue may be full already */
    (void)harness_try_send(q, "good\n", 5, 0);
    alone_check(w, q, harness_queue_length(q));
    cr_assert_eq(mount(held, harness_state_dir(), NULL, MS_BIND, NULL), 0);
    harness_wait_log(w, FILE_BACK, 10000);
    harness_until(harness_queue_length(q) == 0, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    harness_wait_letters(q, 3, 5000);
}

/* Return the file of /sys that makes an ext4 file system act as after a disk
 * error; NULL: there is none. */
static const char *error_of(const char *device)
{
    const char *path = harness_path("/sys/fs/ext4/%s/trigger_fs_error",
                                    strrchr(device, '/') + 1);
    return access(path, W_OK) == 0 ? path : NULL;
}

/* No message fails, so the worker writes nothing and must look by itself. */
Test(worker_files, an_error_of_the_disk_stops_the_taking)
{
    const char *q = harness_queue(0, 0);
    disk_mount("1m"); /* for a mount namespace of this test */
    char command[512];
    snprintf(command, sizeof command,
             "truncate -s 16M image; mkfs.ext4 -q -F image; mount -o "
             "loop,errors=remount-ro image %s; findmnt -no SOURCE %s | tail -1",
             harness_state_dir(), harness_state_dir());
    struct harness_result r = harness_run("sh", "-ec", command);
    char *device = strdup(r.out);
    device[strcspn(device, "\n")] = '\0';
    if (r.status != 0 || !strrchr(device, '/') || !error_of(device))
        cr_skip_test("no ext4 can be mounted here: %s", r.err);
    cr_assert_eq(chmod(harness_state_dir(), 0700), 0);
    struct harness_process *w = harness_worker(q, GOOD_ONLY);
    harness_send_text(q, "good\n");
    harness_until_lines("runs", 1, 10000);
    harness_write(error_of(device), "x", 1);
    work_until(w, q, "event=read_only");
    look_again(w); /* a thread that was about to take a message has done so */
    /* The queue may be full already */
    (void)harness_try_send(q, "good\n", 5, 0);
    alone_check(w, q, harness_queue_length(q));
    harness_kill(w);
    free(device);
}

/* Start a worker in which system calls fail (fault_start). */
static struct harness_process *faulty(const char *q, const char *fault)
{
    return fault_start(fault, "tally",
                       HARNESS_LIST("mqworker", "--state-dir",
                                    harness_state_dir(), q, GOOD_ONLY));
}

Test(worker_files, a_disk_that_takes_writes_again_lets_it_go_on)
{
    const char *q = harness_queue(0, 0);
    /* Six calls fail with EROFS, and each look makes two of them. Changes in
     * the worker's folders make it look immediately. */
    struct harness_process *w = faulty(q, "open@/proc/self/fd/:1:30:6");
    const char *line = harness_wait_log(w, "event=read_only", 10000);
    cr_assert(strstr(line, "remount,rw"), "%s", line);
    look_again(w); /* a thread that was about to take a message has done so */
    harness_send_text(q, "good\n");
    bool there = harness_queue_length(q) == 1;
    cr_assert(there || harness_log_count(w, "event=writable_again") > 0,
              "it was taken before");
    harness_wait_log(w, "event=writable_again", 10000);
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(harness_log_count(w, "event=read_only"), 1, "not logged once");
}

/* doctor must not advise more handlers, which would get no messages. */
Test(worker_files, doctor_names_the_mount_point_to_remount)
{
    const char *q = harness_queue(1, 0), *line, *out;
    struct harness_process *w = faulty(q, "open@/proc/self/fd/:1:30:1000");
    line = harness_wait_log(w, "event=read_only", 10000);
    cr_assert(strstr(line, "mount -o remount,rw /"), "%s", line);
    look_again(w); /* a thread that was about to take a message has done so */
    harness_send_text(q, "good\n");
    out = harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(), q)
              .out;
    cr_assert(strstr(out, "is taking no messages: store.db is on a read-only"),
              "%s", out);
    cr_assert(strstr(out, "mount -o remount,rw /"), "%s", out);
    cr_assert(strstr(out, "queue: full"), "%s", out);
    cr_assert_null(strstr(out, "max-concurrency="), "%s", out);
    harness_kill(w);
}

Test(worker_files, without_inotify_it_looks_at_work)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = faulty(q, "inotify_init1:2:24");
    harness_wait_log(w, "event=files_not_watched", 5000);
    shell(q, "rm $S/store.db*");
    work_until(w, q, "event=file_gone");
    started(w, 2);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* A tool that finds no store must not create one in place of the worker's. */
Test(worker_files, no_tool_makes_a_store_under_a_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    shell(q, "mv $S/store.db $S/away");
    harness_wait_log(w, "event=file_gone", 10000);
    harness_write("export", "", 0);
    struct harness_result r = harness_run("mqdlq", "import", "--state-dir",
                                          harness_state_dir(), q, "export");
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "store.db was moved or removed under"), "%s",
              r.err);
    cr_assert(!harness_exists(file(q, "store.db")));
    shell(q, "touch $S/store.db");
    r = harness_run("mqdlq", "list", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "is not the file that worker"), "%s", r.err);
    shell(q, "mv $S/away $S/store.db");
    harness_wait_log(w, FILE_BACK, 10000);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

/* SQLite would apply the old -wal to a new store. */
Test(worker_files, a_start_beside_a_wal_without_its_store_is_73)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = rejecting(q);
    harness_kill(w);
    shell(q, "mv $S/store.db $S/away");
    w = harness_worker(q, GOOD_ONLY);
    cr_assert_eq(harness_wait(w, 5000), 73);
    const char *why = harness_stderr(w, NULL);
    cr_assert(strstr(why, "store.db is missing, but its -wal"), "%s", why);
    shell(q, "mv $S/away $S/store.db");
    harness_wait_letters(q, 3, 5000);
}
