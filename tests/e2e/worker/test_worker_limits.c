/* test_worker_limits.c - mqworker: reasons not to start (exit statuses 66 69 71
 * 73 77 78) */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(worker_limits, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")
#define NOBODY 65534
#define OTHER  65533

/* Check that the program exited with this status and printed one line; return
 * the line. */
static const char *refused(const struct harness_result *r, int status)
{
    cr_assert_eq(r->status, status, "%d: %s", r->status, r->err);
    const char *last = strstr(r->err, "mqworker: ");
    cr_assert_not_null(last, "%s", r->err);
    const char *end = strchr(last, '\n');
    cr_assert(end && end[1] == '\0', "not one line: %s", r->err);
    return last;
}

#define start(...)                                                           \
    harness_run("mqworker", "--state-dir", harness_state_dir(), __VA_ARGS__, \
                "--", RECORD)
/* Start the worker under a system limit that prlimit(1) sets. */
#define start_limited(limit, ...)                                         \
    harness_run("prlimit", limit, harness_bin("mqworker"), "--state-dir", \
                harness_state_dir(), __VA_ARGS__, "--", RECORD)

/* Run a worker once, so that the queue has a folder; return the folder. */
static const char *folder_of(const char *q)
{
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    return harness_path("%s%s", harness_state_dir(), q);
}

/* Overwrite bytes in the middle of a file. */
static void bytes_put(const char *path, off_t at, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(pwrite(fd, data, size, at), (ssize_t)size);
    close(fd);
}

/* Check that the worker exits with 78 and leaves the file byte for byte. */
static void refused_untouched(const char *q, const char *path)
{
    size_t before_size, after_size;
    const char *before = harness_read(path, &before_size);
    struct harness_result r = start(q);
    const char *line = refused(&r, 78);
    cr_assert(strstr(line, path), "the file is not named: %s", line);
    const char *after = harness_read(path, &after_size);
    cr_assert_eq(before_size, after_size);
    cr_assert_arr_eq(before, after, before_size);
}

Test(worker_limits, a_second_worker_is_69_and_names_the_first)
{
    char pid[32];
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    snprintf(pid, sizeof pid, "pid %d", (int)harness_pid(w));
    struct harness_result r = start(q);
    const char *line = refused(&r, 69);
    cr_assert(strstr(line, pid) && strstr(line, q), "%s", line);
    r = start(q + 1);
    refused(&r, 69);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0, "the first one does not stop");
    w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0, "the lock is still taken");
}

Test(worker_limits, two_queues_and_two_state_directories_do_not_collide)
{
    const char *a = harness_queue(0, 0), *b = harness_queue(0, 0);
    struct harness_process *w[3] = {
        harness_worker(a, "--", RECORD), harness_worker(b, "--", RECORD),
        harness_program("mqworker", "--state-dir", harness_path("state2"), a,
                        "--", RECORD)};
    for (int i = 0; i < 3; i++)
        harness_wait_log(w[i], "event=started", 5000);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(harness_stop(w[i], 5000), 0);
}

Test(worker_limits, a_missing_queue_with_no_create_is_named)
{
    const char *q = harness_queue_name();
    struct harness_result r = start("--no-create", q);
    const char *line = refused(&r, 66);
    cr_assert(strstr(line, q), "%s", line);
    cr_assert(strstr(line, "leave out --no-create, or"), "%s", line);
    cr_assert_eq(harness_queue_length(q), -1);
}

Test(worker_limits, RLIMIT_MSGQUEUE_is_71_with_the_arithmetic)
{
    const char *q = harness_queue_name();
    struct harness_result r = start_limited("--msgqueue=1000", "--queue-depth",
                                            "10", "--message-size", "256", q);
    const char *line = refused(&r, 71);
    /* 3520 = 10*256 for bodies + 48*10 + 48*10 for the kernel's structures */
    static const char *const words[] = {"RLIMIT_MSGQUEUE", "3520", "1000",
                                        "ulimit -q"};
    for (size_t i = 0; i < 4; i++)
        cr_assert(strstr(line, words[i]), "no %s in: %s", words[i], line);
    cr_assert_eq(harness_queue_length(q), -1);
}

Test(worker_limits, a_queue_over_the_kernels_limits_is_71_with_the_command)
{
    const char *q = harness_queue_name();
    struct harness_result r =
        start("--queue-depth", "65536", "--message-size", "16MiB", q);
    const char *line = refused(&r, 71);
    cr_assert(strstr(line, "RLIMIT_MSGQUEUE") && strstr(line, "65536"), "%s",
              line);
    cr_assert(strstr(line, "sysctl") || strstr(line, "ulimit"), "%s", line);
    cr_assert_eq(harness_queue_length(q), -1);
}

Test(worker_limits, a_state_directory_that_cannot_be_made_is_73)
{
    const char *q = harness_queue(0, 0);
    harness_write("file", "", 0);
    struct harness_result r = harness_run(
        "mqworker", "--state-dir", harness_path("file"), q, "--", RECORD);
    const char *line = refused(&r, 73);
    cr_assert(strstr(line, harness_path("file")), "%s", line);
    r = harness_run("mqworker", "--state-dir", harness_path("file/below"), q,
                    "--", RECORD);
    refused(&r, 73);
}

Test(worker_limits, a_folder_that_is_not_safe_is_73)
{
    const char *q = harness_queue(0, 0), *folder = folder_of(q);
    cr_assert_eq(chmod(folder, 0777), 0);
    struct harness_result r = start(q);
    const char *line = refused(&r, 73);
    cr_assert(strstr(line, folder) && strstr(line, "chmod"), "%s", line);
    cr_assert_eq(rename(folder, harness_path("moved")), 0);
    cr_assert_eq(symlink(harness_path("moved"), folder), 0);
    r = start(q);
    line = refused(&r, 73);
    cr_assert(strstr(line, folder), "%s", line);
}

Test(worker_limits, the_folder_is_for_its_owner_alone)
{
    struct stat st;
    const char *q = harness_queue(0, 0), *folder = folder_of(q);
    cr_assert_eq(stat(folder, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0700);
}

Test(worker_limits, a_store_that_is_no_database_is_73_and_left_alone)
{
    const char *q = harness_queue(0, 0), *folder = folder_of(q);
    const char *store = harness_path("%s/store.db", folder);
    static const char text[] = "this is my shopping list, not a database. "
                               "0123456789012345678901234567890123456789 "
                               "0123456789012345678901234567890123456789";
    harness_write(store, text, sizeof text);
    struct harness_result r = start(q);
    const char *line = refused(&r, 73);
    cr_assert(strstr(line, store), "%s", line);
    size_t size;
    const char *now = harness_read(store, &size);
    cr_assert_eq(size, sizeof text);
    cr_assert_arr_eq(now, text, sizeof text);
}

Test(worker_limits, a_store_of_another_version_is_78_and_left_untouched)
{
    const char *q = harness_queue(0, 0), *folder = folder_of(q);
    const char *store = harness_path("%s/store.db", folder);
    /* PRAGMA user_version, https://sqlite.org/fileformat.html 1.3 */
    bytes_put(store, 60, "\0\0\0\x63", 4);
    refused_untouched(q, store);
}

Test(worker_limits, a_custody_file_of_another_version_is_78_and_untouched)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "kept");
    struct harness_process *w =
        harness_worker(q, "--", "sh", "-c", "echo >>started; exec sleep 1000");
    harness_until_lines("started", 1, 5000);
    harness_kill(w); /* a message stays in custody */
    const char *custody = harness_custody(q);
    uint32_t version = 99, right = 1; /* from docs/formats/custody.md */
    bytes_put(custody, 8, &version, sizeof version);
    refused_untouched(q, custody);
    bytes_put(custody, 8, &right, sizeof right);
    w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - kept"), 1);
}

Test(worker_limits, a_custody_file_that_is_none_is_78_and_left_untouched)
{
    const char *q = harness_queue(0, 0), *custody = harness_custody(q);
    folder_of(q);
    char text[8192];
    memset(text, 'x', sizeof text);
    harness_write(custody, text, sizeof text);
    refused_untouched(q, custody);
}

/* Run the worker as an ordinary user, with a state directory that belongs to
 * `owner`. */
#define as_nobody(owner, mode, ...)                                        \
    (nobody_ready(owner, mode),                                            \
     harness_run("setpriv", "--reuid=65534", "--regid=65534",              \
                 "--clear-groups", harness_bin("mqworker"), "--state-dir", \
                 harness_state_dir(), __VA_ARGS__, "--", "true"))

static void nobody_ready(uid_t owner, mode_t mode)
{
    if (geteuid() != 0)
        cr_skip_test("becoming another user needs root");
    cr_assert_eq(chmod(harness_dir(), 0755), 0);
    cr_assert(mkdir(harness_state_dir(), mode) == 0 || errno == EEXIST);
    cr_assert_eq(chown(harness_state_dir(), owner, owner), 0);
    if (harness_run("setpriv", "--reuid=65534", "--regid=65534",
                    "--clear-groups", "test", "-x", harness_bin("mqworker"))
            .status != 0)
        cr_skip_test("the programs are where no ordinary user can run them");
}

Test(worker_limits, a_queue_that_may_not_be_opened_is_77)
{
    const char *q = harness_queue(0, 0); /* mode 0600, owned by root */
    struct harness_result r = as_nobody(NOBODY, 0700, q);
    const char *line = refused(&r, 77);
    cr_assert(strstr(line, q), "%s", line);
}

Test(worker_limits, a_state_directory_of_another_user_is_73)
{
    const char *q = harness_queue_name();
    struct harness_result r = as_nobody(OTHER, 0755, q);
    const char *line = refused(&r, 73);
    cr_assert(strstr(line, harness_state_dir()), "%s", line);
    cr_assert_eq(harness_queue_length(q), -1, "a queue was made");
}

Test(worker_limits, a_folder_of_another_user_is_73_and_names_both)
{
    nobody_ready(NOBODY, 0755);
    const char *q = harness_queue_name();
    const char *folder = harness_path("%s%s", harness_state_dir(), q);
    cr_assert_eq(mkdir(folder, 0755), 0);
    cr_assert_eq(chown(folder, OTHER, OTHER), 0);
    struct harness_result r = as_nobody(NOBODY, 0755, q);
    const char *line = refused(&r, 73);
    cr_assert(strstr(line, "65533") && strstr(line, "nobody"), "%s", line);
}

Test(worker_limits, mqdlq_says_what_it_cannot_find_or_will_not_do)
{
    const char *q = harness_queue(0, 0);
    folder_of(q);
    struct harness_result r = harness_run("mqdlq", "show", "--state-dir",
                                          harness_state_dir(), q, "4711");
    cr_assert_eq(r.status, 66, "%s", r.err);
    cr_assert(strstr(r.err, "4711"), "%s", r.err);
    static const char *const verbs[] = {"discard", "replay"};
    for (size_t i = 0; i < 2; i++) {
        r = harness_run("mqdlq", verbs[i], "--state-dir", harness_state_dir(),
                        q);
        cr_assert_eq(r.status, 64, "%s: %s", verbs[i], r.err);
        cr_assert(strstr(r.err, "--all"), "%s", r.err);
    }
}
