/* test_hostile_state.c - mqworker: refuse files that another user may control
 *
 * A state directory, folder or file that somebody else could have put there is
 * refused, and nothing is taken out of the queue.
 */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(hostile_state, .init = harness_init, .fini = harness_fini);

#define OTHER 65534

static const char *const names[] = {"custody", "store.db", "worker.pid"};
#define NAMES (sizeof names / sizeof names[0])

/* Make a queue with a message, and all files of a killed worker. */
static const char *state_made(void)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", "true");
    harness_wait_log(w, "event=started", 10000);
    harness_kill(w);
    harness_send_text(q, "x");
    return q;
}

/* Return the path of a file, which is created if it is missing: a worker that
 * could not start has removed its pidfile. */
static const char *file_of(const char *q, const char *name)
{
    const char *path =
        strcmp(name, "custody") == 0
            ? harness_custody(q)
            : harness_path("%s%s/%s", harness_state_dir(), q, name);
    if (harness_exists(path))
        return path;
    harness_write(path, "", 0);
    cr_assert_eq(chmod(path, 0600), 0);
    return path;
}

/* Check that the worker exits with 73 and one line that has the path and
 * `what`. */
static void refused(const char *q, const char *path, const char *what)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--exit-when-idle", q, "--", "touch", "ran");
    cr_assert_eq(r.status, 73, "%s: %d: %s", path, r.status, r.err);
    cr_assert(strncmp(r.err, "mqworker: ", 10) == 0 && strstr(r.err, path) &&
                  strstr(r.err, what) &&
                  strchr(r.err, '\n') == r.err + r.err_size - 1,
              "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 1, "the message was taken");
    cr_assert(!harness_exists("ran"));
}

/* Check that the unchanged state is accepted and the message runs. */
static void accepted(const char *q)
{
    struct harness_result r =
        harness_run("mqworker", "--state-dir", harness_state_dir(),
                    "--exit-when-idle", q, "--", "touch", "ran");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(harness_exists("ran"));
}

/* Rename a file to PATH.real, and make PATH a symbolic link to that; `back`
 * undoes both. */
static void linked(const char *path)
{
    const char *real = harness_path("%s.real", path);
    cr_assert_eq(rename(path, real), 0, "%s", path);
    cr_assert_eq(symlink(real, path), 0);
}

static void back(const char *path)
{
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rename(harness_path("%s.real", path), path), 0);
}

Test(hostile_state, a_symbolic_link_is_refused_wherever_it_is)
{
    const char *q = state_made();
    for (size_t i = 0; i < NAMES; i++) {
        const char *path = file_of(q, names[i]);
        size_t size, size_after;
        const char *before = harness_read(path, &size);
        linked(path);
        refused(q, path, "symbolic link");
        const char *after =
            harness_read(harness_path("%s.real", path), &size_after);
        cr_assert_eq(size, size_after, "%s", path);
        cr_assert_arr_eq(before, after, size, "%s", path);
        back(path);
    }
    const char *folder = harness_path("%s%s", harness_state_dir(), q);
    linked(folder);
    refused(q, folder, "symbolic link");
    back(folder);
    linked(harness_state_dir());
    refused(q, harness_state_dir(), "symbolic link");
    back(harness_state_dir());
    accepted(q);
}

Test(hostile_state, what_others_may_write_is_refused)
{
    static const struct {
        mode_t mode, good;
        const char *what;
    } bad[] = {{0660, 0600, "its group"}, {0602, 0600, "others"}};
    const char *q = state_made();
    const char *folder = harness_path("%s%s", harness_state_dir(), q);
    for (size_t b = 0; b < 2; b++) {
        for (size_t i = 0; i < NAMES; i++) {
            const char *path = file_of(q, names[i]);
            cr_assert_eq(chmod(path, bad[b].mode), 0);
            refused(q, path, bad[b].what);
            cr_assert_eq(chmod(path, bad[b].good), 0);
        }
        cr_assert_eq(chmod(folder, bad[b].mode | 0110), 0);
        refused(q, folder, bad[b].what);
        cr_assert_eq(chmod(folder, 0700), 0);
        cr_assert_eq(chmod(harness_state_dir(), bad[b].mode | 0110), 0);
        refused(q, harness_state_dir(), bad[b].what);
        cr_assert_eq(chmod(harness_state_dir(), 0700), 0);
    }
    accepted(q);
}

Test(hostile_state, a_file_of_another_user_is_refused_by_root_too)
{
    if (geteuid() != 0)
        cr_skip_test("only root can give a file away");
    const char *q = state_made();
    for (size_t i = 0; i < NAMES; i++) {
        const char *path = file_of(q, names[i]);
        cr_assert_eq(chown(path, OTHER, OTHER), 0);
        refused(q, path, "belongs to nobody");
        cr_assert_eq(chown(path, 0, 0), 0);
    }
    accepted(q);
}
