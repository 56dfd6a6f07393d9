/* test_worker_disk.c - mqworker: a full disk loses nothing, and the worker
 * waits for space */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <sys/stat.h>
#include <sys/mount.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

TestSuite(worker_disk, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")
/* A handler that rejects all bodies except "good". */
#define GOOD_ONLY \
    "--", "sh", "-c", "read b; echo $b >>runs; [ $b = good ] || exit 65"

/* Start a worker and fill its disk before the verdict on "bad" is written. */
static struct harness_process *full_worker(const char *q)
{
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--max-attempts", "1", GOOD_ONLY);
    harness_wait_log(w, "event=started", 5000);
    disk_fill();
    harness_send_text(q, "bad\n");
    const char *line = harness_wait_log(w, "event=store_cannot_write", 5000);
    cr_assert(strstr(line, strerror(ENOSPC)), "%s", line);
    return w;
}

/* Let the worker look for work; `left` messages must stay in the queue. */
static void taken_check(struct harness_process *w, const char *q, long left)
{
    harness_signal(w, SIGTTIN);
    harness_until(harness_log_count(w, "event=max_concurrency") > 0 ||
                      harness_log_count(w, "event=cap_not_raised") > 0,
                  5000);
    cr_assert_eq(harness_queue_length(q), left);
}

Test(worker_disk, a_full_disk_stops_the_taking_and_goes_on_by_itself)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w = full_worker(q);
    for (int i = 0; i < 5; i++)
        harness_send_text(q, "good\n");
    taken_check(w, q, 5);
    cr_assert_eq(harness_lines("runs"), 1);
    disk_free();
    harness_until_lines("runs", 6, 10000);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_str_eq(l->body, "bad\n");
    cr_assert_str_eq(l->error, "exit 65");
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", "bad"), 1, "it ran again");
    cr_assert_eq(harness_log_count(w, "event=store_cannot_write"), 1,
                 "not logged once");
}

Test(worker_disk, a_stop_while_it_is_full_keeps_the_message_and_names_it)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w = full_worker(q);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_queue_length(q), 0);
    disk_free();
    struct harness_process *next = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(next, 5000), 0);
    const char *runs = strchr(harness_read("runs", NULL), '\n') + 1;
    cr_assert_str_eq(runs + 26, " 1 1 0 - bad?\n");
    char id[27];
    snprintf(id, sizeof id, "%s", runs);
    const char *stopping = strstr(harness_stderr(w, NULL), "event=stopping");
    cr_assert(strstr(stopping, id), "the id that stays is not logged:\n%s",
              stopping);
}

Test(worker_disk, a_kill_while_it_is_full_keeps_the_message)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w = full_worker(q);
    harness_kill(w);
    disk_free();
    /* The worker did not die while the handler was running, so no crash is
     * counted. */
    w = harness_worker(q, "--max-crashes", "1", "--", RECORD);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - bad?"), 1);
}

Test(worker_disk, a_disk_too_small_to_start_is_73)
{
    disk_mount("16k");
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_result r = harness_run("mqworker", "--state-dir",
                                          harness_state_dir(), q, "--", RECORD);
    cr_assert_eq(r.status, 73, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, harness_state_dir()), "%s", r.err);
    cr_assert(strstr(r.err, "store.db cannot be created: No space left on "
                            "device; free some space on /"),
              "%s", r.err);
    cr_assert(strstr(r.err, "or give another --state-dir"), "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1, "it was taken");
}

Test(worker_disk, delayed_messages_wait_for_room_too)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    disk_fill();
    cr_assert_eq(harness_run("mqsend", "--delay", "4s", q, "x").status, 0);
    harness_wait_log(w, "event=store_cannot_write", 5000);
    disk_free();
    harness_until_lines("runs", 1, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - x"), 1, "%s",
                 harness_read("runs", NULL));
}

/* A message that never ran must not be marked, so that it can expire. */
Test(worker_disk, a_message_that_expired_while_it_is_full_does_not_run_later)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", 5000);
    cr_assert_eq(harness_run("mqsend", "--ttl", "1ms", q, "late").status, 0);
    harness_run("sleep", "0.01");
    disk_fill();
    harness_signal(w, SIGCONT);
    harness_wait_log(w, "event=store_cannot_write", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    disk_free();
    w = harness_worker(q, "--exit-when-idle", "--", RECORD);
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 0);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_str_eq(l->reason, "expired");
}

/* Run a program that reads the store while the disk is full. */
static void tool_run(const char *const *argv)
{
    struct harness_result r =
        harness_run_spec(&(struct harness_spec){.argv = argv});

    cr_expect(r.status == 0 || (r.status > 0 && r.err_size > 0), "%s: %d: %s",
              argv[0], r.status, r.err);
}

/* SQLite maps its -shm file: writing to a page without a disk block raises
 * SIGBUS. */
Test(worker_disk, a_start_or_a_look_is_never_ended_by_a_full_disk_s_signal)
{
    unsigned ran = 0, refused = 0;
    disk_mount_ext4(8192, 4096);
    const char *q = harness_queue(0, 0), *state = harness_state_dir();
#define START                                                               \
    harness_run("mqworker", "--state-dir", state, "--exit-when-idle=0s", q, \
                "--", "cat")
    cr_assert_eq(START.status, 0);
    for (unsigned left = 0; left <= 48; left++) {
        disk_leave(left);
        struct harness_result r = START;
        cr_expect(r.status == 0 || (r.status == 73 && strstr(r.err, state)),
                  "%u KiB left: %d: %s", left, r.status, r.err);
        ran += r.status == 0;
        refused += r.status == 73 && strstr(r.err, "store.db") != NULL;
        tool_run(HARNESS_LIST("mqdlq", "list", "--state-dir", state, q));
        tool_run(HARNESS_LIST("mqctl", "status", "--state-dir", state, q));
        disk_free();
    }
    cr_assert(ran > 0 && refused > 0, "%u ran, %u refused", ran, refused);
#undef START
}

/* Return the line of doctor's output that has both words; "": there is none. */
static const char *line_of(const char *out, const char *level, const char *what)
{
    static char line[2048];
    for (const char *at = out; *at; at += strcspn(at, "\n") + 1) {
        size_t size = strcspn(at, "\n");
        const char *more = at[size] ? at + size + 1 : at + size;
        if (strncmp(more, "      -> ", 9) == 0) /* include the advice below */
            size += 1 + strcspn(more, "\n");
        snprintf(line, sizeof line, "%.*s", (int)size, at);
        if (strncmp(line, level, strlen(level)) == 0 && strstr(line, what))
            return line;
        if (!at[strcspn(at, "\n")])
            break;
    }
    return "";
}

#define DOCTOR(q) \
    harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(), (q))

/* No advice to purge: letters cannot be removed without space either. */
Test(worker_disk, doctor_calls_a_full_disk_bad_and_looks_for_room_elsewhere)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0), *line;
    char want[4352];
    struct harness_process *w = full_worker(q);
    const char *out = DOCTOR(q).out;
    line = line_of(out, "bad", "is full: ");
    snprintf(want, sizeof want, "-> df -h %s; free some space",
             harness_state_dir());
    cr_assert(strstr(line, want), "%s", out);
    line = line_of(out, "bad", "its store cannot be written");
    cr_assert(strstr(line, "-> df -h "), "%s", out);
    cr_assert_null(strstr(out, "purge"), "%s", out);
    disk_free();
    out = DOCTOR(q).out;
    line = line_of(out, "warn", " free\n");
    cr_assert(strstr(line, "purge") && strstr(line, "free some space"), "%s",
              out);
    cr_assert(strstr(line, "purge") > strstr(line, "free some space"));
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_disk, a_read_only_file_system_is_named_with_its_mount_point)
{
    disk_mount("1m");
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "true");
    char want[4352];
    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    disk_read_only();
    snprintf(want, sizeof want, "mount -o remount,rw %s", harness_state_dir());
    const char *out = DOCTOR(q).out;
    cr_assert(strstr(line_of(out, "bad", "is on a read-only file"), want), "%s",
              out);
    struct harness_result r = harness_run("mqworker", "--state-dir",
                                          harness_state_dir(), q, "--", "true");
    cr_assert_eq(r.status, 73);
    cr_assert(strstr(r.err, want) && !strstr(r.err, "chmod"), "%s", r.err);
    r = harness_run("mqworker", "--state-dir", harness_state_dir(),
                    harness_queue_name(), "--", "true");
    cr_assert_eq(r.status, 73);
    cr_assert(strstr(r.err, want) && !strstr(r.err, "another --state-dir"),
              "%s", r.err);
    r = harness_run("mqdlq", "list", "--state-dir", harness_state_dir(), q);
    cr_assert(strstr(r.err, want) && !strstr(r.err, "as their owner"), "%s",
              r.err);
    cr_assert_null(strstr(DOCTOR(q).out, "as their owner"), "%s",
                   DOCTOR(q).out);
    r = harness_run("mqctl", "forget", "--force", "--state-dir",
                    harness_state_dir(), q);
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(strstr(r.err, want) && !strstr(r.err, "its owner"), "%s", r.err);
    snprintf(want, sizeof want, "%s/m.prom", harness_state_dir());
    r = harness_run("mqctl", "metrics", "--state-dir", harness_state_dir(),
                    "--textfile", want);
    cr_assert_eq(r.status, 73);
    cr_assert(strstr(r.err, "Read-only file system"), "%s", r.err);
}

/* Without free inodes, df -h still shows free space. */
Test(worker_disk, no_inodes_left_is_said_as_such)
{
    disk_mount("4m");
    struct harness_result r;
    (void)mkdir(harness_runtime_dir(), 0700);
    if (mount("tmpfs", harness_runtime_dir(), "tmpfs", 0, "nr_inodes=1") < 0)
        cr_skip_test("no tmpfs of so few inodes: %s", strerror(errno));
    for (int inodes = 1; inodes < 3; inodes++) {
        char options[32];
        snprintf(options, sizeof options, "nr_inodes=%d", inodes);
        cr_assert_eq(
            mount(NULL, harness_runtime_dir(), NULL, MS_REMOUNT, options), 0);
        r = harness_run("mqworker", "--state-dir", harness_state_dir(),
                        "--exit-when-idle", harness_queue(0, 0), "--", "true");
        cr_assert_eq(r.status, 73, "%d: %s", inodes, r.err);
        cr_assert(strstr(r.err, "no inodes left (df -i)"), "%d: %s", inodes,
                  r.err);
    }
}

/* Set the soft limit of the worker's file size, which can be raised again. */
static void file_limit(struct harness_process *w, rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(prlimit(harness_pid(w), RLIMIT_FSIZE, NULL, &limit), 0);
    limit.rlim_cur = bytes;
    cr_assert_eq(prlimit(harness_pid(w), RLIMIT_FSIZE, &limit, NULL), 0);
}

/* SIGXFSZ, which the kernel sends at that limit, must not kill the worker. */
Test(worker_disk, a_limit_of_the_file_size_is_a_full_disk)
{
    enum { LETTERS = 10 };
    const char *q = harness_queue(0, 0);
    signal(SIGXFSZ, SIG_DFL); /* the parent of the test may ignore it */
    struct harness_process *w = harness_worker(q, "-c", "1", GOOD_ONLY);
    harness_wait_log(w, "event=started", 5000);
    file_limit(w, 32 << 10);
    for (int i = 0; i < LETTERS; i++)
        harness_send_text(q, "bad\n");
    harness_wait_log(w, "event=store_cannot_write", 5000);
    file_limit(w, RLIM_INFINITY);
    harness_wait_letters(q, LETTERS, 20000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), LETTERS, "one ran twice");
}
