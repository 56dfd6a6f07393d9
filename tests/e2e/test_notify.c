/* mqworker under a service manager: what it says, what it takes over */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef HAVE_SYSTEMD
static void init(void)
{
    harness_init();
}
#else
static void init(void)
{
    harness_init();
    cr_skip_test("built without libsystemd");
}
#endif

TestSuite(notify, .init = init, .fini = harness_fini, .timeout = 60);

#define RECORD harness_handler("record")

/* The manager's end, and all that came so far, one line for each assignment. */
struct manager {
    int fd;
    char env[160];
    char heard[16 << 10];
    size_t size;
};

/* manager_open - a socket where a worker finds it */
static struct manager *manager_open(void)
{
    static struct manager m;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    m.size = 0;
    m.heard[0] = '\0';
    snprintf(address.sun_path, sizeof address.sun_path, "%s",
             harness_path("notify"));
    snprintf(m.env, sizeof m.env, "NOTIFY_SOCKET=%s", address.sun_path);
    m.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_geq(m.fd, 0);
    cr_assert_eq(bind(m.fd, (struct sockaddr *)&address, sizeof address), 0,
                 "bind %s", address.sun_path);
    return &m;
}

/* heard - whether that was said so far */
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

/* count - how often that was said so far */
static int count(struct manager *m, const char *text)
{
    int n = 0;

    (void)heard(m, text);
    for (const char *at = m->heard; (at = strstr(at, text)); at++)
        n++;
    return n;
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
    /* The grace, twice --kill-after, and 10 s: no kill before they are over. */
    cr_assert(heard(m, "EXTEND_TIMEOUT_USEC=40000000\n"), "%s", m->heard);
    cr_assert_not(heard(m, "WATCHDOG=1"));
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
    struct manager *m = manager_open();
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
    harness_run("sleep", "0.5");
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
        .argv = HARNESS_LIST(harness_handler("listen"), q, "own",
                             harness_bin("mqworker"), "--state-dir",
                             harness_state_dir(), "--max-deliveries", "1", q,
                             "--", "sh", "-c", "env >vars"),
        .env = HARNESS_LIST(m->env, "WATCHDOG_USEC=9000000")});
    cr_assert_eq(harness_wait(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_lines_with("vars", "MQW_ID="), 1);
    cr_assert_eq(harness_lines_with("vars", "NOTIFY_SOCKET"), 0);
    cr_assert_eq(harness_lines_with("vars", "WATCHDOG_"), 0);
    cr_assert_eq(harness_lines_with("vars", "LISTEN_"), 0);
}

/* ---- a queue that is passed in ---- */

/* passed - a worker of `queue` that is handed the queue `fd_of` */
#define passed(fd_of, whose, queue)                                          \
    harness_run(harness_handler("listen"), fd_of, whose,                     \
                harness_bin("mqworker"), "--state-dir", harness_state_dir(), \
                "--no-create", "--max-deliveries", "1", queue, "--", RECORD)

/* Its name is gone: nobody could open it. */
Test(notify, queue_that_was_passed_in_is_consumed)
{
    const char *q = harness_queue(0, 0);

    harness_send_text(q, "only here");
    struct harness_result r = passed(q, "gone", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(harness_lines("runs"), 1);
    cr_assert_eq(harness_queue_length(q), -1);
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
