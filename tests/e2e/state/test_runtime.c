/* test_runtime.c - mqworker: messages in flight are in memory, and are found
 * wherever the last worker had them */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(runtime, .init = harness_init, .fini = harness_fini);

#define TMPFS 0x01021994
/* A handler that does not end in the first worker and succeeds in the next. */
#define HANDLER                                 \
    "read b; echo $b $MQW_REDELIVERED >>runs\n" \
    "[ $MQW_REDELIVERED = 1 ] || exec sleep 1000"

static struct harness_process *worker(const char *q)
{
    return harness_worker(q, "-c", "2", "--",
                          harness_script("handler", HANDLER));
}

/* Kill a worker while it runs the message `body`. */
static void killed_over(const char *q, const char *body)
{
    struct harness_process *w = worker(q);
    size_t before = harness_lines("runs");

    harness_send_text(q, body);
    harness_until_lines("runs", before + 1, SOON_MS);
    harness_kill(w);
}

/* Check that the message ran again, marked. */
static void in_runs(const char *body)
{
    const char *line = harness_path("%s 1", body);

    harness_until(harness_lines_with("runs", strrchr(line, '/') + 1) == 1,
                  SOON_MS);
}

static int node_remove(const char *path, const struct stat *st, int type,
                       struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static const char *folder(const char *q)
{
    return harness_runtime_folder(q);
}

static void folder_remove(const char *path)
{
    cr_assert_eq(nftw(path, node_remove, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* Make later mounts visible only to this test. */
static void mounts_own(void)
{
    if (unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        cr_skip_test("no mounts of our own here (%s): run as root",
                     strerror(errno));
}

static void memory_at(const char *path, const char *options)
{
    cr_assert_eq(mount("tmpfs", path, "tmpfs", 0, options), 0, "%s: %s", path,
                 strerror(errno));
}

/* Put `path` on the disk of the scratch directory. */
static void disk_at(const char *path)
{
    const char *source = harness_path("disk.%d", (int)strlen(path));
    struct statfs s;

    cr_assert_eq(mkdir(source, 0755), 0);
    cr_assert_eq(statfs(source, &s), 0);
    if (s.f_type == TMPFS)
        cr_skip_test("%s is in memory; set TMPDIR to a disk", source);
    cr_assert_eq(mount(source, path, NULL, MS_BIND, NULL), 0, "%s: %s", path,
                 strerror(errno));
}

/* Run a worker with these flags and without $RUNTIME_DIRECTORY. */
#define plain(q, ...)                                                          \
    harness_run_spec(&(struct harness_spec){                                   \
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),   \
                             "--exit-when-idle", (q), __VA_ARGS__, "--", "sh", \
                             "-c", "cat >>done; echo >>done"),                 \
        .env = HARNESS_LIST("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")})

/* ---- default directories ---- */

Test(runtime, by_default_it_is_the_first_directory_in_memory)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    mounts_own();
    const char *q = harness_queue(0, 0);
    memory_at("/run", "mode=0755");
    memory_at("/dev/shm", "mode=1777");
    struct harness_result r = plain(q, "-v");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, harness_path("/run/mqworker%s.", q)), "%s", r.err);
    disk_at("/run");
    r = plain(q, "-v");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, harness_path("/dev/shm/mqworker-0%s.", q)), "%s",
              r.err);
}

Test(runtime, without_memory_a_start_is_refused_and_with_the_flag_warned_of)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    mounts_own();
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "kept");
    disk_at("/run");
    disk_at("/dev/shm");
    struct harness_result r = plain(q, "-v");
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(strstr(r.err, "/run/mqworker (") &&
                  strstr(r.err, "/dev/shm/mqworker-0 (") &&
                  strstr(r.err, "--runtime-dir DIR on a tmpfs") &&
                  strstr(r.err, "--allow-disk-custody"),
              "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1);
    r = plain(q, "--allow-disk-custody");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "level=warn event=custody_on_disk"), "%s", r.err);
    cr_assert_eq(harness_lines_with("done", "kept"), 1);
    cr_assert(
        harness_exists(harness_path("%s%s/custody", harness_state_dir(), q)));
    r = ctl("doctor", q);
    cr_assert(strstr(r.out, "loses the message that is being"), "%s", r.out);
}

Test(runtime, a_directory_on_a_disk_is_refused_without_the_flag)
{
    const char *q = harness_queue(0, 0), *disk = harness_path("disk");
    struct statfs s;

    harness_send_text(q, "kept");
    cr_assert_eq(statfs(harness_dir(), &s), 0);
    if (s.f_type == TMPFS)
        cr_skip_test("TMPDIR is in memory");
    struct harness_result r = plain(q, "--runtime-dir", disk);
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(strstr(r.err, disk) && strstr(r.err, "--allow-disk-custody"),
              "%s", r.err);
    cr_assert(!harness_exists(disk));
    const char *none = harness_queue_name();
    r = plain(none, "--runtime-dir", disk);
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert_eq(harness_queue_length(none), -1, "a queue was made");
    r = plain(q, "--runtime-dir", disk, "--allow-disk-custody");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "event=custody_on_disk"), "%s", r.err);
    cr_assert(harness_exists(harness_path(
        "%s/custody", harness_folder_in(disk, harness_state_dir(), q))));
    cr_assert_eq(harness_lines_with("done", "kept"), 1);
}

/* Shrink a tmpfs to one block more than is used. Return false if the use grew
 * meanwhile. */
static bool full_made(const char *folder)
{
    struct statvfs room;
    char size[64];
    cr_assert_eq(statvfs(folder, &room), 0);
    snprintf(size, sizeof size, "size=%llu",
             (unsigned long long)(room.f_blocks - room.f_bfree + 1) *
                 room.f_frsize);
    return mount("tmpfs", folder, "tmpfs", MS_REMOUNT, size) == 0;
}

Test(runtime, too_small_a_directory_is_refused_with_the_arithmetic)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    mounts_own();
    const char *q = harness_queue(0, 0), *small = harness_path("small");
    cr_assert_eq(mkdir(small, 0700), 0);
    memory_at(small, "size=16k,mode=0700");
    harness_send_text(q, "kept");
    /* 84 slots are 2 x 2 + 64 + 16; 384 bytes are 128 + 256. */
    struct harness_result r = plain(q, "-c", "2", "--runtime-dir", small);
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(
        strstr(r.err, "84 slots x 384 bytes = 32256 bytes are needed, ") &&
            strstr(r.err, "mount -o remount,size=") &&
            strstr(r.err, "--lookahead"),
        "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1);
    cr_assert_eq(mount("tmpfs", small, "tmpfs", MS_REMOUNT, "size=1m"), 0);
    r = plain(q, "-c", "2", "--runtime-dir", small);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_lines_with("done", "kept"), 1);
    /* Growing is refused in the same way, and the worker goes on. */
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--runtime-dir", small, "--", harness_handler("record"));
    harness_wait_log(w, "event=started", SOON_MS);
    /* The worker may touch a page of its counters between statvfs and mount. */
    harness_until(full_made(small), SOON_MS);
    r = ctl("set", q, "max-concurrency=50");
    cr_assert_neq(r.status, 0);
    cr_assert(strstr(r.err, "96 slots x 384 bytes = 36864 bytes are needed, "),
              "%s", r.err);
    harness_send_text(q, "next");
    harness_until_lines("runs", 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* Start a worker without CAP_IPC_LOCK that may lock `limit` of memory. */
static struct harness_process *may_lock(const char *q, const char *limit)
{
    return harness_program("setpriv", "--bounding-set=-ipc_lock", "prlimit",
                           limit, harness_bin("mqworker"), "--state-dir",
                           harness_state_dir(), "-c", "2", q, "--", "true");
}

/* Skip the test where it would prove nothing. */
static void may_lock_skip(void)
{
    if (geteuid() != 0)
        cr_skip_test("needs root to give up a capability");
    if (getenv("MQW_SANITIZED"))
        cr_skip_test("a sanitizer's mlock(2) locks nothing and says it did");
}

Test(runtime, what_cannot_be_locked_is_told_with_the_number)
{
    may_lock_skip();
    const char *q = harness_queue(0, 0);
    struct harness_process *w = may_lock(q, "--memlock=4096");
    const char *line =
        harness_wait_log(w, "level=warn event=custody_not_locked", SOON_MS);
    /* 4096 + 84 x 384 bytes, in whole pages */
    cr_assert(strstr(line, "kib=36 ") && strstr(line, "LimitMEMLOCK="), "%s",
              line);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = may_lock(q, "--memlock=36864");
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "custody_not_locked"), 0);
}

Test(runtime, what_cannot_be_locked_later_is_told_then_and_by_doctor)
{
    may_lock_skip();
    const char *q = harness_queue(0, 0);
    struct harness_process *w = may_lock(q, "--memlock=36864");

    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_null(strstr(ctl("doctor", q).out, "not locked"));
    ctl_out("set", q, "max-concurrency=50");
    const char *line =
        harness_wait_log(w, "level=warn event=custody_not_locked", SOON_MS);
    /* 4096 + 180 x 384 bytes, in whole pages */
    cr_assert(strstr(line, "kib=72 "), "%s", line);
    struct harness_result r = ctl("doctor", q);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, "messages in flight, 72 KiB, are not locked") &&
                  strstr(r.out, "let the worker lock 72 KiB"),
              "%s", r.out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "custody_not_locked"), 1);
}

/* ---- a volume of a pod ---- */

#define POD_ID   1000
#define POD_USER "1000"

/* Mount what docs/examples/kubernetes.yaml describes: a state directory owned
 * by the user, and at `path` a tmpfs of root with these options. */
static const char *pod(const char *path, const char *options)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    mounts_own();
    memory_at("/run", "mode=0755");
    cr_assert_eq(mkdir("/run/state", 0755), 0);
    cr_assert_eq(chown("/run/state", POD_ID, POD_ID), 0);
    cr_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
    memory_at(path, options);
    return harness_queue_name();
}

#define as_user(uid, ...)                                               \
    harness_run_spec(&(struct harness_spec){                            \
        .argv = HARNESS_LIST("setpriv", "--reuid=" uid, "--regid=" uid, \
                             "--clear-groups", __VA_ARGS__),            \
        .env = HARNESS_LIST("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR",     \
                            "STATE_DIRECTORY=/run/state")})
#define pod_worker(uid, q, ...)                                                \
    as_user(uid, harness_bin("mqworker"), "--queue-depth", "10",               \
            "--message-size", "256", "--exit-when-idle", "-v", __VA_ARGS__, q, \
            "--", "cat")

static const char *pod_folder(const char *runtime, const char *q)
{
    return harness_folder_in(runtime, "/run/state", q);
}

/* Check that a message runs and that custody is in `folder`. */
#define pod_runs(uid, q, folder, ...)                                          \
    do {                                                                       \
        struct harness_result pod_r_;                                          \
        pod_r_ = pod_worker(uid, q, __VA_ARGS__);                              \
        cr_assert_eq(pod_r_.status, 0, "%s", pod_r_.err);                      \
        pod_r_ = as_user(uid, harness_bin("mqsend"), q, "hello");              \
        cr_assert_eq(pod_r_.status, 0, "%s", pod_r_.err);                      \
        pod_r_ = pod_worker(uid, q, __VA_ARGS__);                              \
        cr_assert_eq(pod_r_.status, 0, "%s", pod_r_.err);                      \
        cr_assert_str_eq(pod_r_.out, "hello");                                 \
        cr_assert(strstr(pod_r_.err,                                           \
                         harness_path("%s in_queue=", pod_folder(folder, q))), \
                  "%s", pod_r_.err);                                           \
    } while (0)

Test(runtime, an_empty_dir_of_a_pod_is_used)
{
    const char *q = pod("/run/mqworker", "mode=0777");

    pod_runs(POD_USER, q, "/run/mqworker", "--runtime-dir", "/run/mqworker");
    pod_runs(POD_USER, q, "/run/mqworker/sub", "--runtime-dir",
             "/run/mqworker/sub");
    cr_assert_eq(chown("/run/state", 0, 0), 0);
    cr_assert_eq(mq_unlink(q), 0);
    folder_remove(harness_path("/run/state%s", q));
    pod_runs("0", q, "/run/mqworker", "--runtime-dir", "/run/mqworker");
}

Test(runtime, an_empty_dir_with_fs_group_is_used)
{
    const char *q = pod("/run/mqworker", "mode=2777,gid=" POD_USER);

    pod_runs(POD_USER, q, "/run/mqworker", "--runtime-dir", "/run/mqworker");
    cr_assert_eq(chmod("/run/mqworker", 02775), 0);
    pod_runs(POD_USER, q, "/run/mqworker", "--runtime-dir", "/run/mqworker");
}

Test(runtime, an_empty_dir_as_shared_memory_is_used)
{
    const char *q = pod("/dev/shm", "mode=0777");

    pod_runs(POD_USER, q, "/dev/shm/mqworker-" POD_USER, "-c", "1");
}

Test(runtime, what_others_do_in_a_shared_volume_is_noticed)
{
    const char *q = pod("/run/mqworker", "mode=0777");
    char folder_q[300], moved[320], line[400];
    struct harness_result r;

    snprintf(folder_q, sizeof folder_q, "%s", pod_folder("/run/mqworker", q));
    snprintf(moved, sizeof moved, "%s.moved", folder_q);
    /* Another user makes the folder before the worker does. */
    r = as_user("1001", "mkdir", folder_q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    r = pod_worker(POD_USER, q, "--runtime-dir", "/run/mqworker");
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(strstr(r.err, "belongs to uid 1001"), "%s", r.err);
    cr_assert_eq(rmdir(folder_q), 0);
    /* Another user moves the worker's folder away. */
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("setpriv", "--reuid=" POD_USER, "--regid=" POD_USER,
                         "--clear-groups", harness_bin("mqworker"),
                         "--queue-depth", "10", "--message-size", "256",
                         "--runtime-dir", "/run/mqworker", q, "--", "cat"),
        .env = HARNESS_LIST("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR",
                            "STATE_DIRECTORY=/run/state")});
    harness_wait_log(w, "event=started", SOON_MS);
    r = as_user("1001", "cat", harness_path("%s/custody", folder_q));
    cr_assert_neq(r.status, 0, "others read what is in flight");
    r = as_user("1001", "mv", folder_q, moved);
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(line, sizeof line, "event=file_gone queue=%s file=%s/custody", q,
             folder_q);
    harness_wait_log(w, line, SOON_MS);
    r = as_user("1001", "mv", moved, folder_q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    /* "queue=" is looked for because the hint of file_gone names file_back. */
    harness_wait_log(w, "event=file_back queue=", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(runtime, an_open_directory_that_is_no_volume_is_refused)
{
    const char *q = pod("/run/mqworker", "mode=0755");
    struct harness_result r;

    cr_assert_eq(mkdir("/run/mqworker/open", 0777), 0);
    cr_assert_eq(chmod("/run/mqworker/open", 0777), 0);
    r = pod_worker(POD_USER, q, "--runtime-dir", "/run/mqworker/open");
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(strstr(r.err, "have root do `chmod go-w /run/mqworker/open`, or "
                            "give another --runtime-dir DIR"),
              "%s", r.err);
    /* The state is not kept in such a directory either. */
    memory_at("/run/mqworker/open", "mode=0777");
    r = pod_worker(POD_USER, q, "--state-dir", "/run/mqworker/open");
    cr_assert_eq(r.status, 73, "%s", r.err);
    cr_assert(strstr(r.err, "give another --state-dir"), "%s", r.err);
}

/* ---- messages of the last worker ---- */

Test(runtime, another_directory_is_refused_until_the_messages_are_done)
{
    const char *q = harness_queue(0, 0);
    const char *other = harness_path("%s/other", harness_runtime_dir());
    char was[300], drain[600], env[300];
    struct harness_process *w;
    struct harness_result r;

    snprintf(was, sizeof was, "%s", folder(q));
    snprintf(drain, sizeof drain, "`mqctl drain --state-dir %s %s`",
             harness_state_dir(), q);
    snprintf(env, sizeof env, "RUNTIME_DIRECTORY=%s", other);
    killed_over(q, "moved");
    r = harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--runtime-dir", other, "--exit-when-idle", q, "--",
                    harness_path("handler"));
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert(strstr(r.err, was) && strstr(r.err, drain), "%s", r.err);
    cr_assert(!harness_exists(other));
    cr_assert_eq(harness_lines("runs"), 1, "nothing was touched");
    /* Do what the error says; $RUNTIME_DIRECTORY must not matter. */
    w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), q,
                             "--", harness_path("handler")),
        .env = HARNESS_LIST(env)});
    in_runs("moved");
    cr_assert_eq(ctl("drain", "--wait=20s", q).status, 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    w = harness_worker(q, "--runtime-dir", other, "--",
                       harness_path("handler"));
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert(!harness_exists(was), "the old folder is left");
    cr_assert(harness_exists(harness_path(
        "%s/custody", harness_folder_in(other, harness_state_dir(), q))));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "event=custody_missing"), 0);
    cr_assert_eq(harness_lines("runs"), 2, "nothing ran again");
}

Test(runtime, a_state_directory_that_was_moved_finds_what_was_in_flight)
{
    const char *q = harness_queue(0, 0), *moved = harness_path("moved-state");
    struct harness_process *w;

    killed_over(q, "found");
    cr_assert_eq(rename(harness_state_dir(), moved), 0);
    w = harness_program("mqworker", "--state-dir", moved, q, "--",
                        harness_path("handler"));
    in_runs("found");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "event=custody_missing"), 0);
}

Test(runtime, custody_that_is_gone_is_told_with_its_path)
{
    const char *q = harness_queue(0, 0), *line;
    struct harness_process *w;

    killed_over(q, "lost");
    folder_remove(folder(q));
    struct harness_result r = ctl("status", q);
    cr_assert_eq(r.status, 69);
    cr_assert(strstr(r.err, "was killed; its unfinished messages were not "
                            "found: its runtime directory is gone"),
              "%s", r.err);
    r = ctl("doctor", q);
    cr_assert(strstr(r.out, "were not found"), "%s", r.out);
    cr_assert_null(strstr(r.out, "no counters yet"), "%s", r.out);
    w = worker(q);
    line = harness_wait_log(w, "level=warn event=custody_missing", SOON_MS);
    cr_assert(strstr(line, folder(q)), "%s", line);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    folder_remove(folder(q));
    w = worker(q); /* nothing was in custody */
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "custody_missing"), 0);
}

Test(runtime, remove_takes_what_is_in_memory_unless_it_holds_messages)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    const char *said;

    killed_over(q, "held");
    said = ctl_out("remove", q);
    cr_assert(strstr(said, harness_path("%s, and runs when", folder(q))) &&
                  strstr(said, "; 1 message in flight stays in "),
              "%s", said);
    w = worker(q); /* the worker creates the queue again */
    in_runs("held");
    /* Kill the worker only after the handler has exited. */
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    harness_kill(w);
    said = ctl_out("remove", q);
    cr_assert_null(strstr(said, "stay"), "%s", said);
    cr_assert(!harness_exists(folder(q)), "%s", said);
    w = worker(q);
    harness_wait_log(w, "event=started", SOON_MS);
    said = ctl_out("remove", "--force", q);
    cr_assert(harness_exists(folder(q)), "it was in use");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "custody_missing"), 0, "one was lost");
}

Test(runtime, what_is_in_flight_outlives_its_state_directory)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;

    killed_over(q, "orphan");
    folder_remove(harness_state_dir());
    w = worker(q);
    in_runs("orphan");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A handler that succeeds once the file `ok` exists. Before that, it fails in
 * the first run of a message and hangs in the second. */
#define RETRIED                                                               \
    "--backoff", "1ms", "--", "sh", "-c",                                     \
        "read m; echo $m $MQW_ATTEMPT $MQW_REDELIVERED >>runs; [ -e ok ] && " \
        "exit 0; case $m:$MQW_ATTEMPT in later*) exit 1;; *:1) exit 1;; "     \
        "esac; exec sleep 60"

/* Kill a worker during the second run of `body`. */
static void killed_retry(const char *q, const char *body)
{
    struct harness_process *w = harness_worker(q, RETRIED);

    harness_send_text(q, body);
    harness_until(harness_lines_with("runs", " 2 0") == 1, SOON_MS);
    harness_kill(w);
}

Test(runtime, a_retry_in_flight_outlives_its_state_directory)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;

    killed_retry(q, "orphan");
    folder_remove(harness_state_dir());
    harness_write(harness_path("ok"), "", 0);
    w = harness_worker(q, RETRIED);
    harness_until(harness_lines_with("runs", "orphan 2 1") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "event=custody_of_other_store"), 1);
    w = harness_worker(q, RETRIED);
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 3, "nothing ran again");
    cr_assert_eq(harness_log_count(w, "event=custody_of_other_store"), 0);
}

/* Renames stand for two containers that have the same path for their state
 * directories and share memory. */
Test(runtime, messages_of_another_store_are_left_alone)
{
    const char *q = harness_queue(0, 0), *ours = harness_path("ours");
    const char *theirs = harness_path("theirs");
    struct harness_result r;
    struct harness_process *w =
        harness_worker(q, "--backoff", "1h", "--", "sh", "-c", "exit 1");

    harness_send_text(q, "later");
    harness_wait_log(w, "event=retry", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(rename(harness_state_dir(), ours), 0);
    killed_retry(q, "theirs");
    cr_assert_eq(rename(harness_state_dir(), theirs), 0);
    cr_assert_eq(rename(ours, harness_state_dir()), 0);
    harness_write(harness_path("ok"), "", 0);
    r = harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--exit-when-idle", q, RETRIED);
    cr_assert_eq(r.status, 78, "%s", r.err);
    cr_assert(strstr(r.err, folder(q)), "%s", r.err);
    cr_assert_eq(harness_lines("runs"), 2, "nothing was touched");
    cr_assert_eq(rename(harness_state_dir(), ours), 0);
    cr_assert_eq(rename(theirs, harness_state_dir()), 0);
    w = harness_worker(q, RETRIED);
    harness_until(harness_lines_with("runs", "theirs 2 1") == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(runtime, totals_outlive_the_memory_after_an_orderly_stop)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "true");

    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(q, "one");
    harness_send_text(q, "two");
    harness_until(ctl_number(q, "done") == 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    folder_remove(folder(q));
    struct harness_result r = ctl("status", q);
    cr_assert(strstr(r.out, "not running") && strstr(r.out, "2 done"), "%s",
              r.out);
    w = harness_worker(q, "--", "true");
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert(
        !harness_exists(harness_path("%s%s/counters", harness_state_dir(), q)),
        "the old totals are still there");
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- purpose ---- */

/* Return the bytes that a process has written to disks. */
static long long written(const struct harness_process *w)
{
    const char *text =
        harness_read(harness_path("/proc/%d/io", (int)harness_pid(w)), NULL);
    const char *at = strstr(text, "\nwrite_bytes: ");

    cr_assert_not_null(at, "%s", text);
    return atoll(at + strlen("\nwrite_bytes: "));
}

Test(runtime, messages_that_are_done_write_nothing_to_a_disk)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_program("mqworker", "--state-dir", harness_state_dir(), "-c",
                        "2", "--plugin", harness_plugin("nothing"), q);
    long long before;

    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(q, "first");
    harness_until(ctl_number(q, "done") == 1, SOON_MS);
    before = written(w);
    cr_assert_eq(harness_run("mqsend", "--repeat", "20000", q, "x").status, 0);
    harness_until(ctl_number(q, "done") == 20001, SOON_MS);
    cr_assert_eq(written(w), before);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
