/* test_who_runs.c - mqctl: a worker is running if its lock is held, whatever
 * its pid says */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"

TestSuite(who_runs, .init = harness_init, .fini = harness_fini);

#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"

/* Kill the worker without reaping it, as the first process of a container may
 * do. */
static void zombie_make(const struct harness_process *w)
{
    siginfo_t info;

    harness_signal(w, SIGKILL);
    cr_assert_eq(waitid(P_PID, (id_t)harness_pid(w), &info, WEXITED | WNOWAIT),
                 0);
    cr_assert_eq(kill(harness_pid(w), 0), 0, "its pid is free");
}

/* Return the row of mqctl queues --json; the test frees it. */
static json_t *queues_row(const char *q)
{
    const char *out = ctl_out("queues", "--json"), *at = strstr(out, q);

    cr_assert_not_null(at, "%s", out);
    while (at > out && at[-1] != '\n')
        at--;
    return ctl_json(at);
}

/* Return true if a field is that text. */
static bool is_text(const json_t *o, const char *field, const char *text)
{
    const char *value = json_string_value(json_object_get(o, field));

    return value && strcmp(value, text) == 0;
}

/* Return true if mqctl shows the worker as running. */
static bool queues_runs(const char *q)
{
    json_t *o = queues_row(q);
    bool is = is_text(o, "worker", "running");

    json_decref(o);
    return is;
}

/* Check that a field of the object says killed, without a pid. */
static void killed_row(json_t *o, const char *field)
{
    char *text = json_dumps(o, 0);

    cr_assert(is_text(o, field, "killed"), "%s", text);
    cr_assert(json_is_null(json_object_get(o, "pid")), "%s", text);
    free(text);
    json_decref(o);
}

Test(who_runs, a_killed_worker_that_nobody_reaped_is_gone)
{
    const char *q = harness_queue(4, 256), *id = ctl_send(q, "x");
    struct harness_process *w =
        ctl_worker(q, "--", "sh", "-c", "echo >>started; exec sleep 1000");
    struct harness_result r;
    char up[128];

    harness_until_lines("started", 1, SOON_MS);
    zombie_make(w);
    r = ctl("status", "--json", q);
    cr_assert_eq(r.status, 69, "%d: %s", r.status, r.out);
    cr_assert_not_null(strstr(r.err, "was killed"), "%s", r.err);
    killed_row(ctl_json(r.out), "state");
    killed_row(queues_row(q), "worker");
    killed_row(ctl_json(ctl_out("top", "--json", "--rounds", "1", q)), "state");
    snprintf(up, sizeof up, "mqworker_up{queue=\"%s\",engine=\"mq\"} 0\n", q);
    r = harness_run("mqctl", "metrics", "--state-dir", harness_state_dir());
    cr_assert_not_null(strstr(r.out, up), "%s", r.out);
    r = ctl("doctor", q);
    cr_assert_not_null(strstr(r.out, "was killed"), "%s", r.out);
    cr_assert_null(strstr(r.out, " is running, "), "%s", r.out);
    r = ctl("explain", q, id);
    cr_assert_not_null(strstr(r.out, "when you start a worker"), "%s", r.out);
    r = ctl("remove", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    harness_kill(w);
}

/* A recovery may take long, and the worker cannot be controlled before. */
Test(who_runs, a_worker_that_has_only_the_lock_is_starting)
{
    const char *q = harness_queue(4, 64);
    struct harness_process *w = ctl_worker(q, "--", "true");
    struct harness_result r;
    int fd;

    harness_kill(w);
    fd = open(harness_path("%s%s/worker.pid", harness_state_dir(), q),
              O_WRONLY | O_CLOEXEC | O_TRUNC);
    cr_assert_geq(fd, 0);
    cr_assert_gt(dprintf(fd, "%d", (int)getpid()), 0);
    cr_assert_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    r = ctl("status", q);
    cr_assert_eq(r.status, 0, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.out, "starting, pid"), "%s", r.out);
    cr_assert_str_eq(r.err, "");
    r = ctl("pause", q);
    cr_assert_eq(r.status, 75, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, "is starting and does not take orders"),
                       "%s", r.err);
    close(fd);
    cr_assert_not_null(strstr(ctl("status", q).out, "killed"));
}

/* A container mounts its own boot id over the one that the worker saw at its
 * start. */
Test(who_runs, another_boot_id_makes_no_worker_killed)
{
    static const char id[] = "f92ae3b0-0000-4000-8000-000000000002\n";
    const char *q = harness_queue(4, 64);
    struct harness_process *w = ctl_worker(q, "--", "true");
    json_t *o;

    harness_write("boot_id", id, sizeof id - 1);
    if (unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(harness_path("%s/boot_id", harness_dir()), BOOT_ID_FILE, NULL,
              MS_BIND, NULL) < 0)
        cr_skip_test("no permission to mount");
    harness_until(queues_runs(q), SOON_MS); /* no longer starting */
    o = queues_row(q);
    cr_assert_eq(json_integer_value(json_object_get(o, "pid")), harness_pid(w));
    json_decref(o);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(who_runs, what_is_in_a_folder_of_somebody_else_is_not_seen_from_here)
{
    const char *q = harness_queue(4, 64);
    struct harness_process *w;
    struct harness_result r;

    if (geteuid() != 0 ||
        harness_run("setpriv", "--reuid=65534", "--clear-groups",
                    harness_bin("mqctl"), "--version")
                .status != 0)
        cr_skip_test("no mqctl of another user here");
    w = ctl_worker(q, "--", "true");
    cr_assert_eq(chmod(harness_dir(), 0755), 0);
    cr_assert_eq(chmod(harness_state_dir(), 0755), 0);
    r = harness_run("setpriv", "--reuid=65534", "--clear-groups",
                    harness_bin("mqctl"), "status", "--state-dir",
                    harness_state_dir(), "--json", q);
    cr_assert_eq(r.status, 77, "%d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.out, "not seen from here"), "%s", r.out);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}
