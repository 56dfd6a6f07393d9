/* test_notify.c - mqworker under a service manager: notifications, and queues
 * that are passed in */
#include "tests/harness/disk.h"
#include "tests/harness/harness.h"
#include "tests/harness/preload.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

TestSuite(notify, .init = preload_init, .fini = harness_fini);

#define RECORD harness_handler("record")

/* The socket of the manager, and all assignments received so far, one a
 * line. */
struct manager {
    int fd;
    char env[160];
    char heard[16 << 10];
    size_t size;
};

/* Make a socket where a worker finds it. A name that begins with @ is in no
 * file system. */
static struct manager *manager_at(const char *name)
{
    static struct manager managers[2];
    static int made;
    struct manager *m = &managers[made++];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = offsetof(struct sockaddr_un, sun_path) + strlen(name);

    cr_assert_leq(made, 2);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
    snprintf(m->env, sizeof m->env, "NOTIFY_SOCKET=%s", name);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_geq(m->fd, 0);
    cr_assert_eq(bind(m->fd, (struct sockaddr *)&address, (socklen_t)size), 0,
                 "bind %s", name);
    return m;
}

static struct manager *manager_open(void)
{
    return manager_at(harness_path("notify"));
}

/* Return true if that was received so far. */
static bool heard(struct manager *m, const char *text)
{
    ssize_t n;

    while ((n = recv(m->fd, m->heard + m->size, sizeof m->heard - m->size - 2,
                     0)) > 0) {
        m->size += (size_t)n;
        m->heard[m->size++] = '\n';
        m->heard[m->size] = '\0';
    }
    return strstr(m->heard, text) != NULL;
}

/* Count how often `text` is in `all`. */
static int count_in(const char *all, const char *text)
{
    int n = 0;

    for (const char *at = all; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* Count how often that was received so far. */
static int count(struct manager *m, const char *text)
{
    (void)heard(m, text);
    return count_in(m->heard, text);
}

#define served(m, watchdog, queue, ...)                                      \
    harness_start(&(struct harness_spec){                                    \
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), \
                             (queue), __VA_ARGS__),                          \
        .env = HARNESS_LIST((m)->env, (watchdog))})

Test(notify, manager_hears_ready_status_and_stopping)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(0, 0);
    struct harness_process *w = served(m, "WATCHDOG_USEC", q, "-c", "3",
                                       "--grace", "20s", "--", RECORD);
    char status[160];

    harness_until(heard(m, "READY=1\n"), 5000);
    snprintf(status, sizeof status,
             "STATUS=%s [0 of 3 busy, 0 waiting, 0 dead]\n", q);
    harness_until(heard(m, status), 5000);
    cr_assert_not(heard(m, "STOPPING=1"));
    harness_signal(w, SIGUSR2);
    harness_until(heard(m, "dead] [paused]\n"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(count(m, "STOPPING=1\n"), 1, "%s", m->heard);
    /* The grace, twice --kill-after, and 10 s: no kill before that. */
    cr_assert(heard(m, "EXTEND_TIMEOUT_USEC=40000000\n"), "%s", m->heard);
    cr_assert_not(heard(m, "WATCHDOG=1"));
}

Test(notify, manager_with_an_abstract_name_hears_the_same)
{
    char name[64];

    snprintf(name, sizeof name, "@mqworker-test-%d", (int)getpid());
    struct manager *m = manager_at(name);
    struct harness_process *w =
        served(m, "WATCHDOG_USEC=200000", harness_queue(0, 0), "--", RECORD);

    harness_until(heard(m, "READY=1\n"), 5000);
    harness_until(heard(m, "STATUS="), 5000);
    harness_until(count(m, "WATCHDOG=1\n") >= 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert(heard(m, "STOPPING=1\n"));
}

/* The socket of the manager is soon full. Notifications that do not fit are
 * dropped; READY was the first. */
Test(notify, manager_that_does_not_read_holds_nobody_up)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(10, 256);
    struct harness_process *w = served(m, "WATCHDOG_USEC", q, "--", RECORD);

    harness_wait_log(w, "event=started", 5000);
    for (int i = 1; i <= 40; i++) { /* each message changes the title */
        harness_signal(w, SIGUSR2);
        harness_until(count_in(harness_stderr(w, NULL), "event=paused") == i,
                      5000);
        harness_signal(w, SIGCONT);
        harness_until(count_in(harness_stderr(w, NULL), "event=resumed") == i,
                      5000);
    }
    harness_send_text(q, "x");
    harness_until(harness_lines("runs") == 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert(heard(m, "READY=1\n"));
    cr_assert_leq(count(m, "STATUS="), 80);
}

/* Nothing receives notifications, which is logged once: under Type=notify the
 * start will time out. */
Test(notify, manager_that_is_not_there_is_named_and_nothing_else_happens)
{
    char too_long[256] = "NOTIFY_SOCKET=/";
    const char *const nowhere[] = {
        "NOTIFY_SOCKET=/nowhere/at/all",
        "NOTIFY_SOCKET=@mqworker-test-nobody",
        "NOTIFY_SOCKET=x",
        "NOTIFY_SOCKET=@",
        "NOTIFY_SOCKET=vsock:2:1234",
        too_long,
    };

    memset(too_long + strlen(too_long), 'x', 120);
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++) {
        const char *q = harness_queue(0, 0);
        struct harness_process *w = harness_start(&(struct harness_spec){
            .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),
                                 "--max-deliveries", "1", q, "--", RECORD),
            .env = HARNESS_LIST(nowhere[i], "WATCHDOG_USEC=100000")});

        harness_wait_log(w, "event=started", 5000);
        harness_send_text(q, "x");
        cr_assert_eq(harness_wait(w, 10000), 0, "%s", nowhere[i]);
        cr_assert_eq(harness_lines("runs"), i + 1);
        cr_assert_eq(
            count_in(harness_stderr(w, NULL), "event=manager_not_told"), 1,
            "%s: %s", nowhere[i], harness_stderr(w, NULL));
    }
}

/* There is no memory for the copy that a restart would pass on. */
Test(notify, manager_hears_ready_without_memory_for_its_name)
{
    struct manager *m = manager_open();
    char preload[PRELOAD_TEXT], fault[PATH_MAX], seen[PATH_MAX];
    uint64_t calls[2]; /* all, failed */
    const char *data;
    size_t size;

    snprintf(fault, sizeof fault, "MQW_FAULT=strdup@%s:1:%d",
             harness_path("notify"), ENOMEM);
    snprintf(seen, sizeof seen, "MQW_FAULT_SEEN=%s", harness_path("seen"));
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv =
            HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),
                         "--exit-when-idle", harness_queue(0, 0), "--", RECORD),
        .env = HARNESS_LIST(m->env, preload_text(preload, "faults"), fault,
                            seen)});
    cr_assert_eq(harness_wait(w, 10000), 0);
    data = harness_read("seen", &size);
    cr_assert_eq(size, sizeof calls);
    memcpy(calls, data, size);
    cr_assert_eq(calls[1], 1, "strdup failed %d times", (int)calls[1]);
    cr_assert_eq(count(m, "READY=1\n"), 1);
    cr_assert_eq(count(m, "STOPPING=1\n"), 1);
}

/* Variables for another process, for none, or invalid: the queue is opened by
 * its name, and no descriptor is taken for one of a manager. */
Test(notify, nonsense_in_the_environment_changes_nothing)
{
    static const char *const nonsense[] = {
        "LISTEN_PID=$$ LISTEN_FDS=2000000000",
        "LISTEN_PID=$$ LISTEN_FDS=-1",
        "LISTEN_PID=$$ LISTEN_FDS=99999999999999999999",
        "LISTEN_PID=$$ LISTEN_FDS=1x",
        "LISTEN_PID=$$ LISTEN_FDS=",
        "LISTEN_PID=$$ LISTEN_FDNAMES=a:b",
        "LISTEN_PID=x LISTEN_FDS=1",
        "LISTEN_PID= LISTEN_FDS=1",
        "LISTEN_FDS=1",
        "WATCHDOG_USEC=0",
        "WATCHDOG_USEC=-5",
        "WATCHDOG_USEC=18446744073709551615",
        "WATCHDOG_USEC=9223372036854775807 NOTIFY_SOCKET=",
        "WATCHDOG_USEC=abc WATCHDOG_PID=$$",
        "WATCHDOG_USEC=100 WATCHDOG_PID=abc",
    };
    const char *q = harness_queue(0, 0);

    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        char script[256];

        harness_send_text(q, "x");
        snprintf(script, sizeof script, "exec env %s \"$@\" 5</dev/null",
                 nonsense[i]);
        struct harness_result r = harness_run(
            "sh", "-c", script, "sh", harness_bin("mqworker"), "--state-dir",
            harness_state_dir(), "--max-deliveries", "1", q, "--", RECORD);
        cr_assert_eq(r.status, 0, "%s: %s", nonsense[i], r.err);
        cr_assert_eq(harness_lines("runs"), i + 1, "%s", nonsense[i]);
        cr_assert_null(strstr(r.err, "level=warn"), "%s: %s", nonsense[i],
                       r.err);
    }
}

Test(notify, worker_that_ends_by_itself_says_stopping)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        served(m, "WATCHDOG_USEC", q, "--exit-when-idle", "--", RECORD);

    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert(heard(m, "READY=1\n"));
    cr_assert_eq(count(m, "STOPPING=1\n"), 1, "%s", m->heard);
}

Test(notify, one_that_cannot_start_is_never_ready)
{
    struct manager *m = manager_open();
    struct harness_process *w = served(m, "WATCHDOG_USEC", harness_queue_name(),
                                       "--no-create", "--", RECORD);

    cr_assert_eq(harness_wait(w, 10000), 66);
    cr_assert_not(heard(m, "READY=1"), "%s", m->heard);
}

Test(notify, watchdog_is_fed_by_an_idle_worker_and_not_by_a_stopped_one)
{
    struct manager *m = manager_open(), *n = manager_at(harness_path("other"));
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        served(m, "WATCHDOG_USEC=200000", q, "--", RECORD);
    int fed;

    harness_until(count(m, "WATCHDOG=1\n") >= 4, 10000);
    harness_signal(w, SIGSTOP);
    char line[64];
    snprintf(line, sizeof line, "grep -q 'State:.T' /proc/%d/status",
             (int)harness_pid(w));
    harness_until(harness_run("sh", "-c", line).status == 0, 5000);
    fed = count(m, "WATCHDOG=1\n");
    /* Another worker feeds its watchdog several times meanwhile. */
    served(n, "WATCHDOG_USEC=200000", harness_queue(0, 0), "--", RECORD);
    harness_until(count(n, "WATCHDOG=1\n") >= 5, 10000);
    cr_assert_eq(count(m, "WATCHDOG=1\n"), fed);
    harness_signal(w, SIGCONT);
    harness_until(count(m, "WATCHDOG=1\n") > fed, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(notify, watchdog_of_another_process_is_not_fed)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),
                             "--run-for", "1s", "--estimated-duration", "1ms",
                             q, "--", RECORD),
        .env = HARNESS_LIST(m->env, "WATCHDOG_USEC=100000", "WATCHDOG_PID=1")});

    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert(heard(m, "READY=1\n"));
    cr_assert_not(heard(m, "WATCHDOG=1"));
}

Test(notify, handlers_do_not_see_the_managers_variables)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(0, 0);

    harness_send_text(q, "x");
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(
            harness_handler("listen"), q, "own", harness_bin("mqworker"),
            "--state-dir", harness_state_dir(), "--max-deliveries", "1", q,
            "--", "sh", "-c", "env >vars; ls /proc/$$/fd >fds"),
        .env = HARNESS_LIST(m->env, "WATCHDOG_USEC=9000000")});
    cr_assert_eq(harness_wait(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_lines_with("vars", "MQW_ID="), 1);
    cr_assert_eq(harness_lines_with("vars", "NOTIFY_SOCKET"), 0);
    cr_assert_eq(harness_lines_with("vars", "WATCHDOG_"), 0);
    cr_assert_eq(harness_lines_with("vars", "LISTEN_"), 0);
    /* not the socket either: only the standard ones and those of sh */
    cr_assert_leq(harness_lines("fds"), 4);
}

/* ---- a queue that is passed in ---- */

/* Run a worker of `queue` that is passed the queue `fd_of`. */
#define passed(fd_of, whose, queue)                                          \
    harness_run(harness_handler("listen"), fd_of, whose,                     \
                harness_bin("mqworker"), "--state-dir", harness_state_dir(), \
                "--no-create", "--max-deliveries", "1", queue, "--", RECORD)

/* The queue has no name any more, so it could not be opened. */
Test(notify, queue_that_was_passed_in_is_consumed)
{
    const char *q = harness_queue(0, 0);

    harness_send_text(q, "only here");
    struct harness_result r = passed(q, "gone", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_lines("runs"), 1);
    cr_assert_eq(harness_queue_length(q), -1);
}

/* After a removal the worker executes itself: it reports READY again and gets
 * the queue from the manager as descriptor 3, not by its name. */
Test(notify, restart_in_place_is_no_stop_and_keeps_the_queue)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(0, 0);
    char link[64], to[PATH_MAX] = "";
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("listen"), q, "own",
                             harness_bin("mqworker"), "--state-dir",
                             harness_state_dir(), q, "--", RECORD),
        .env = HARNESS_LIST(m->env, "WATCHDOG_USEC=200000")});

    harness_until(heard(m, "READY=1\n"), 5000);
    cr_assert_eq(unlink(harness_path("%s%s/store.db", harness_state_dir(), q)),
                 0);
    harness_until(count(m, "READY=1\n") == 2, 20000);
    cr_assert_eq(count(m, "STOPPING=1"), 0, "%s", m->heard);
    int fed = count(m, "WATCHDOG=1\n");
    harness_until(count(m, "WATCHDOG=1\n") > fed + 1, 5000);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 5000);
    snprintf(link, sizeof link, "/proc/%d/fd/3", (int)harness_pid(w));
    cr_assert_gt(readlink(link, to, sizeof to - 1), 0);
    cr_assert_str_eq(to, q);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(count(m, "STOPPING=1\n"), 1, "%s", m->heard);
}

/* Custody was removed and the disk is full, so messages in flight cannot be
 * saved. The stop waits, and the manager must not kill the worker for that. */
Test(notify, manager_hears_of_an_end_that_waits_for_the_disk)
{
    struct manager *m = manager_open();
    const char *q = harness_queue(0, 0);
    char script[PATH_MAX + 64];

    disk_mount("2m");
    snprintf(script, sizeof script,
             "[ \"$MQW_REDELIVERED\" = 1 ] || exec sleep 60; echo >>%s",
             harness_path("runs"));
    struct harness_process *w =
        served(m, NULL, q, "--grace", "1s", "--", "sh", "-c", script);
    harness_wait_log(w, "event=started", 10000);
    harness_send_text(q, "x");
    harness_until(harness_queue_length(q) == 0, 10000);
    disk_fill();
    cr_assert_eq(harness_run("rm", "-r", harness_runtime_folder(q)).status, 0);
    harness_until(count(m, "EXTEND_TIMEOUT_USEC=10000000\n") >= 2, 30000);
    cr_assert_eq(count(m, "READY=1\n"), 1);
    disk_free();
    harness_until_lines("runs", 1, 20000);
    cr_assert_eq(count(m, "READY=1\n"), 2);
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(notify, queue_that_was_passed_to_another_process_is_not_taken)
{
    const char *q = harness_queue(0, 0), *other = harness_queue(0, 0);

    harness_send_text(q, "wanted");
    harness_send_text(other, "not wanted");
    struct harness_result r = passed(other, "other", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_queue_length(q), 0);
    cr_assert_eq(harness_queue_length(other), 1);
}

Test(notify, another_queue_than_the_one_named_is_refused)
{
    const char *q = harness_queue(0, 0), *other = harness_queue(0, 0);

    harness_send_text(other, "not ours");
    struct harness_result r = passed(other, "own", q);
    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "another message queue"), "%s", r.err);
    cr_assert(strstr(r.err, "ListenMessageQueue="), "%s", r.err);
    cr_assert_eq(harness_queue_length(other), 1);
}

Test(notify, queue_that_cannot_be_read_is_refused)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = passed(q, "write", q);

    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "is open for writing only"), "%s", r.err);
}

Test(notify, descriptor_that_is_no_queue_is_refused)
{
    const char *q = harness_queue(0, 0);
    struct harness_result r = harness_run(
        "sh", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3</dev/null", "sh",
        harness_bin("mqworker"), "--state-dir", harness_state_dir(), q, "--",
        RECORD);

    cr_assert_eq(r.status, 64, "%s", r.err);
    cr_assert(strstr(r.err, "is no message queue"), "%s", r.err);
}
