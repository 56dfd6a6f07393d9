/* test_mqctl_elsewhere.c - mqctl: a worker that the state directory does not
 * lead to (any more) */
#include <limits.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"
#include "tests/harness/disk.h"

TestSuite(elsewhere, .init = harness_init, .fini = harness_fini);

/* Return the queue's folder in the state directory. */
static const char *folder(const char *q)
{
    return harness_path("%s%s", harness_state_dir(), q);
}

/* Check that doctor sees the worker and advises neither to kill it nor to start
 * another. Return what doctor printed. */
static const char *never_killed(const struct harness_process *w, const char *q)
{
    struct harness_result r = ctl("doctor", q);
    char pid[48];

    snprintf(pid, sizeof pid, "an mqworker (pid %d)", (int)harness_pid(w));
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, pid), "%s", r.out);
    cr_assert_null(strstr(r.out, "-> kill"), "%s", r.out);
    cr_assert_null(strstr(r.out, "no worker has used"), "%s", r.out);
    cr_assert_null(strstr(r.out, "-- COMMAND"), "%s", r.out);
    return r.out;
}

/* Check the same, and that status and doctor say how to get the files back. */
static void not_seen(const struct harness_process *w, const char *q)
{
    const char *out = never_killed(w, q), *err = ctl("status", q).err;
    struct harness_result r;

    cr_assert(strstr(err, "(pid ") && strstr(err, "mqctl doctor --state-dir /"),
              "%s", err);
    cr_assert_null(strstr(err, "no worker has used"), "%s", err);
    cr_assert(strstr(out, "do not kill it. If the folder was moved, "
                          "move it back"),
              "%s", out);
    r = ctl("remove", q);
    cr_assert_eq(r.status, 69);
    cr_assert(strstr(r.err, "mqctl doctor --state-dir /"), "%s", r.err);
}

Test(elsewhere, the_folder_was_moved)
{
    const char *q = harness_queue(0, 0), *away = harness_path("away");
    struct harness_process *w = ctl_worker(q, "--", "true");

    cr_assert_eq(rename(folder(q), away), 0);
    not_seen(w, q);
    cr_assert(strstr(never_killed(w, q), "/away"), "no new place");
    cr_assert_eq(rename(away, folder(q)), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(elsewhere, the_folder_was_removed)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");

    harness_signal(w, SIGSTOP); /* so that it cannot write the folder again
                                 * yet */
    harness_run("rm", "-r", folder(q));
    not_seen(w, q);
    harness_signal(w, SIGCONT);
    harness_until(harness_exists(harness_path("%s/store.db", folder(q))),
                  SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(elsewhere, something_was_mounted_over_it)
{
    const char *q = harness_queue(1, 0);
    struct harness_process *w;

    disk_mount("4m");
    w = ctl_worker(q, "-c", "1", "--", "sleep", "60");
    cr_assert_eq(mount("tmpfs", harness_state_dir(), "tmpfs", 0, "size=1m"), 0);
    harness_until(((void)harness_try_send(q, "fills it", 8, 0),
                   harness_queue_length(q) == 1),
                  SOON_MS);
    not_seen(w, q);
    cr_assert_eq(umount2(harness_state_dir(), 0), 0);
    harness_kill(w);
}

Test(elsewhere, it_was_unmounted)
{
    const char *q = harness_queue(0, 0), *held = harness_path("held");
    struct harness_process *w;

    disk_mount("4m");
    w = ctl_worker(q, "--", "true");
    cr_assert_eq(mkdir(held, 0700), 0);
    cr_assert_eq(mount(harness_state_dir(), held, NULL, MS_BIND, NULL), 0);
    cr_assert_eq(umount2(harness_state_dir(), MNT_DETACH), 0);
    not_seen(w, q);
    cr_assert_eq(mount(held, harness_state_dir(), NULL, MS_BIND, NULL), 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* The usual case: --state-dir was forgotten. */
Test(elsewhere, it_has_another_state_directory)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--", "true");
    const char *other = harness_path("other");
    struct harness_result r =
        harness_run("mqctl", "doctor", "--state-dir", other, q);
    char want[PATH_MAX];

    snprintf(want, sizeof want, "-> mqctl doctor --state-dir %s %s",
             harness_state_dir(), q);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.out, want), "%s: %s", want, r.out);
    cr_assert_null(strstr(r.out, "kill"), "%s", r.out);
    r = harness_run("mqctl", "remove", "--state-dir", other, q);
    cr_assert_eq(r.status, 69);
    cr_assert(strstr(r.err, "mqctl drain --state-dir"), "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 0, "it was removed");
    r = harness_run("mqctl", "remove", "--force", "--state-dir", other, q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
