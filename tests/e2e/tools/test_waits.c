/* test_waits.c - mqsend, mqdlq, mqctl: programs that wait say so */
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/tools/mqctl_fixture.h"
#include "tests/harness/letters.h"

TestSuite(waits, .init = harness_init, .fini = harness_fini);

#define STATE harness_state_dir()

/* Programs mention a wait after a second. On a busy machine, one of RUNS runs
 * must mention a long wait, and one must not mention a short wait. */
#define RUNS 3

/* Return a full queue of two messages. */
static const char *queue_full(void)
{
    const char *q = harness_queue(2, 256);

    harness_send_text(q, "1");
    harness_send_text(q, "2");
    return q;
}

/* Return a queue with that many dead letters. */
static const char *letters_of(size_t n)
{
    const char *q = harness_queue(2, 256);
    struct harness_process *w = harness_worker(q, "--", "sh", "-c", "exit 65");

    for (size_t i = 1; i <= n; i++) {
        harness_send_text(q, "x");
        harness_wait_letters(q, i, SOON_MS);
    }
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    return q;
}

/* ---- output to a log, as under cron ---- */

Test(waits, mqsend_says_once_that_the_queue_is_full_and_no_worker_runs)
{
    const char *q = queue_full(), *line;
    struct harness_process *w,
        *p = harness_program("mqsend", "--repeat", "3", q, "x");

    line = harness_wait_log(p, "is full (2 messages)", SOON_MS);
    cr_assert(strstr(line, "no worker is running with state directory /"), "%s",
              line);
    cr_assert(strstr(line, "waiting for room, Ctrl-C ends it"), "%s", line);
    cr_assert(strstr(line, "--no-wait"), "%s", line);
    cr_assert(harness_running(p));
    w = harness_worker(q, "-c", "1", "--", "sleep", "1.2");
    cr_assert_eq(harness_wait(p, SOON_MS), 0);
    cr_assert_eq(harness_log_count(p, "is full"), 1, "%s",
                 harness_stderr(p, NULL));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(waits, mqctl_says_after_a_second_what_it_waits_for_and_what_ends_that)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        ctl_worker(q, "--", "sh", "-c",
                   "echo >>began; until [ -e go ]; do sleep 0.01; done");
    struct harness_process *waits;
    struct harness_result r;
    int runs = 0;

    ctl_send(q, "x");
    harness_until_lines("began", 1, SOON_MS);
    do {
        r = ctl("drain", "--wait=3s", q);
        cr_assert_eq(r.status, 75);
    } while (!strstr(r.err, "waiting for worker") && ++runs < RUNS);
    cr_assert_not_null(strstr(r.err, "waiting for worker"), "%s", r.err);
    cr_assert_not_null(strstr(r.err, "mqctl quit --state-dir /"), "%s", r.err);
    runs = 0;
    do {
        r = ctl("drain", "--wait=50ms", q);
        cr_assert_eq(r.status, 75);
    } while (strstr(r.err, "waiting for worker") && ++runs < RUNS);
    cr_assert_null(strstr(r.err, "waiting for worker"), "%s", r.err);
    waits = harness_program("mqctl", "drain", "--wait", "--state-dir",
                            harness_state_dir(), q);
    harness_wait_log(waits, "waiting for worker", SOON_MS);
    harness_write("go", "", 0);
    cr_assert_eq(harness_wait(waits, SOON_MS), 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
}

/* A waiting mqctl may be run again: that terminates no handler, and the message
 * is done. */
Test(waits, a_stop_that_is_waited_for_twice_ends_no_handler)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(
        q, "--", "sh", "-c",
        "echo >>began; until [ -e go ]; do sleep 0.01; done; echo >>finished");

    ctl_send(q, "x");
    harness_until_lines("began", 1, SOON_MS);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(ctl("stop", "--wait=50ms", q).status, 75);
    cr_assert_eq(harness_log_count(w, "event=stopping"), 1);
    harness_write("go", "", 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("finished"), 1);
}

/* Without --wait, a second stop skips the rest of --grace, like a second
 * SIGTERM. */
Test(waits, a_second_stop_skips_the_grace)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = ctl_worker(q, "--kill-after", "1s", "--", "sh",
                                           "-c", "echo >>began; exec sleep 60");

    ctl_send(q, "x");
    harness_until_lines("began", 1, SOON_MS);
    cr_assert_eq(ctl("stop", "--wait=50ms", q).status, 75);
    cr_assert_eq(ctl("stop", q).status, 0);
    cr_assert_eq(harness_wait(w, SOON_MS), 0);
    cr_assert_eq(harness_log_count(w, "event=stopping"), 2);
}

Test(waits, mqsend_with_a_limit_says_it_and_a_short_one_says_nothing)
{
    const char *q = queue_full();
    struct harness_result r;
    int runs = 0;

    do {
        r = harness_run("mqsend", "--wait", "3500ms", q, "x");
        cr_assert_eq(r.status, 75);
    } while (!strstr(r.err, "waiting") && ++runs < RUNS);
    cr_assert(strstr(r.err, "waiting for room, up to 3s500ms") ||
                  strstr(r.err, "waiting for room, up to 3.5s") ||
                  strstr(r.err, "waiting for room, up to 3500ms"),
              "%s", r.err);
    cr_assert_null(strstr(r.err, "Ctrl-C"), "%s", r.err);
    runs = 0;
    do {
        r = harness_run("mqsend", "--wait", "10ms", q, "x");
        cr_assert_eq(r.status, 75);
    } while (strstr(r.err, "waiting") && ++runs < RUNS);
    cr_assert_null(strstr(r.err, "waiting"), "%s", r.err);
}

Test(waits, mqsend_that_is_to_be_quiet_says_only_why_it_stops)
{
    const char *q = queue_full();
    struct harness_result r =
        harness_run("mqsend", "-q", "--wait", "1200ms", q, "x");

    cr_assert_eq(r.status, 75);
    cr_assert_null(strstr(r.err, "waiting"), "%s", r.err);
    cr_assert(strstr(r.err, "stayed full"), "%s", r.err);
}

Test(waits, replay_into_a_full_queue_says_so)
{
    const char *q = letters_of(1), *line;
    struct harness_process *p;

    harness_send_text(q, "1");
    harness_send_text(q, "2");
    p = harness_program("mqdlq", "replay", "--state-dir", STATE, "--all", q);
    line = harness_wait_log(p, "is full (2 messages)", SOON_MS);
    cr_assert(strstr(line, "no worker is running with state directory"), "%s",
              line);
    cr_assert(strstr(line, "--wait DUR"), "%s", line);
    harness_signal(p, SIGINT);
    harness_wait(p, SOON_MS);
    cr_assert_eq(harness_log_count(p, "is full"), 1);
}

Test(waits, a_canary_without_a_worker_says_what_it_waits_for)
{
    const char *q = letters_of(2), *line;
    struct harness_process *w,
        *p = harness_program("mqdlq", "replay", "--state-dir", STATE,
                             "--canary", "--all", q);

    line = harness_wait_log(p, "waiting until a worker", SOON_MS);
    cr_assert(strstr(line, "no worker is running with state directory"), "%s",
              line);
    cr_assert(strstr(line, "--wait DUR"), "%s", line);
    w = harness_worker(q, "--", "true");
    cr_assert_eq(harness_wait(p, SOON_MS), 0);
    cr_assert_eq(harness_log_count(p, "waiting until"), 1);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* A canary that is settled within a second is not mentioned. */
Test(waits, a_canary_with_a_quick_worker_says_nothing)
{
    struct harness_result r;
    int runs = 0;

    do {
        const char *q = letters_of(1);
        struct harness_process *w = ctl_worker(q, "--", "true");

        r = harness_run("mqdlq", "replay", "--state-dir", STATE, "--canary",
                        "--all", q);
        cr_assert_eq(r.status, 0, "%s", r.err);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
    } while (strstr(r.err, "waiting") && ++runs < RUNS);
    cr_assert_null(strstr(r.err, "waiting"), "%s", r.err);
}

/* ---- a terminal ---- */

struct terminal {
    pid_t pid;
    int fd;
    char seen[16 << 10];
    size_t used;
};

/* Start a program on a terminal. */
static void terminal_open(struct terminal *t, const char *const *argv)
{
    struct winsize size = {.ws_row = 24, .ws_col = 160};

    t->used = 0;
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    cr_assert_geq(t->pid, 0);
    if (t->pid > 0)
        return;
    signal(SIGINT, SIG_DFL); /* ignored if the tests run in the background */
    execv(harness_bin(argv[0]), (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* Read until `text` was printed. */
static bool terminal_reads(struct terminal *t, const char *text)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    uint64_t end = harness_patience(SOON_MS);

    while (t->used < sizeof t->seen - 1 && harness_now_ms() < end) {
        ssize_t n;

        t->seen[t->used] = '\0';
        if (strstr(t->seen, text))
            return true;
        if (poll(&p, 1, 100) <= 0)
            continue;
        n = read(t->fd, t->seen + t->used, sizeof t->seen - 1 - t->used);
        if (n <= 0)
            return false;
        t->used += (size_t)n;
    }
    return false;
}

static int terminal_end(struct terminal *t)
{
    int status;

    cr_assert_eq(waitpid(t->pid, &status, 0), t->pid);
    close(t->fd);
    return status;
}

#define TYPE(t, text) \
    cr_assert_eq(write((t)->fd, (text), strlen(text)), (ssize_t)strlen(text))

Test(waits, a_forgotten_body_is_asked_for)
{
    static struct terminal t;
    const char *q = harness_queue(2, 256);

    terminal_open(&t, HARNESS_LIST("mqsend", q));
    cr_assert(terminal_reads(&t, "reads the body from this terminal"), "%s",
              t.seen);
    cr_assert(terminal_reads(&t, "Ctrl-D"), "%s", t.seen);
    TYPE(&t, "typed\n\004");
    cr_assert_eq(terminal_end(&t), 0);
    cr_assert_eq(harness_queue_length(q), 1);
}

Test(waits, a_body_that_was_given_is_not_asked_for)
{
    static struct terminal t;
    const char *q = harness_queue(2, 256);

    terminal_open(&t, HARNESS_LIST("mqsend", q, "x"));
    cr_assert_not(terminal_reads(&t, "reads the body"), "%s", t.seen);
    cr_assert_eq(terminal_end(&t), 0);
}

Test(waits, the_bar_says_that_it_waits)
{
    static struct terminal t;
    const char *q = queue_full();
    int status;

    terminal_open(&t, HARNESS_LIST("mqsend", "--repeat", "5", q, "x"));
    cr_assert(terminal_reads(&t, "Ctrl-C ends it"), "%s", t.seen);
    cr_assert(terminal_reads(&t, "0/5  0%  0/s  waiting for room"), "%s",
              t.seen);
    TYPE(&t, "\003");
    status = terminal_end(&t);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "%#x", status);
}

/* ---- advice ---- */

Test(waits, nothing_advises_to_put_a_message_into_a_queue_that_is_missing)
{
    const char *q = letters_of(1);
    const struct harness_result all[] = {
        /* A name like the other queue's would be answered by "did you mean". */
        harness_run("mqsend", "/nothing-is-called-so", "x"),
        harness_run("mqworker", "--state-dir", STATE, "--no-create",
                    "/nothing-is-called-so", "--", "true"),
    };
    struct harness_result r;

    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(all[i].status, 66, "%s", all[i].err);
        cr_assert(strstr(all[i].err, "`mqctl create /"), "%s", all[i].err);
        cr_assert_null(strstr(all[i].err, "BODY"), "%s", all[i].err);
    }
    cr_assert_eq(ctl("remove", q).status, 0);
    r = harness_run("mqdlq", "replay", "--state-dir", STATE, "--all", q);
    cr_assert_eq(r.status, 66);
    cr_assert(strstr(r.err, "`mqctl create /"), "%s", r.err);
    r = ctl("doctor", q);
    cr_assert(strstr(r.out, "`mqctl create /"), "%s", r.out);
    cr_assert_null(strstr(r.out, "BODY"), "%s", r.out);
    r = ctl("status", q);
    cr_assert_null(strstr(r.out, "BODY"), "%s", r.out);
}

Test(waits, a_body_that_is_too_large_is_told_by_how_much)
{
    static char body[9001];
    const char *q = harness_queue(2, 8192);
    unsigned header, all;
    struct harness_result r;

    memset(body, 'x', 8192);
    r = harness_run("mqsend", q, body);
    cr_assert_eq(r.status, 65);
    cr_assert_eq(sscanf(strstr(r.err, "too large: "),
                        "too large: %u bytes (8192 body + %u header), but",
                        &all, &header),
                 2, "%s", r.err);
    cr_assert(all == 8192 + header, "%s", r.err);
    cr_assert(strstr(r.err, "accepts at most 8192; "), "%s", r.err);
    cr_assert(strstr(r.err, "--raw"), "%s", r.err);
    cr_assert_eq(harness_run("mqsend", "--raw", q, body).status, 0);
    memset(body, 'x', 9000);
    r = harness_run("mqsend", q, body);
    cr_assert(strstr(r.err, "Moving a queue"), "%s", r.err);
    cr_assert_null(strstr(r.err, "--create"), "%s", r.err);
    r = harness_run("mqsend", "--raw", q, body);
    cr_assert(strstr(r.err, "too large: 9000 bytes, but"), "%s", r.err);
}
