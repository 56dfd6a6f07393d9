/* test_worker_crash.c - mqworker: after one kill of the worker; tests/crash has
 * many kills */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>

TestSuite(worker_crash, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")

/* A handler that notes its environment, its pid and that of a child in a
 * session of its own, and stays. */
#define STAYS                                                              \
    "--", "sh", "-c",                                                      \
        "setsid sleep 1000 & echo \"$MQW_ID $MQW_ATTEMPT $MQW_REDELIVERED" \
        " $$ $!\" >>stays; wait"

struct stay {
    char id[27];
    int attempt, redelivered, pid, escaped;
};

/* Read the line of run `number`. */
static struct stay stay_read(size_t number)
{
    struct stay s;
    harness_until_lines("stays", number, 5000);
    const char *at = harness_read("stays", NULL);
    while (--number > 0)
        at = strchr(at, '\n') + 1;
    cr_assert_eq(sscanf(at, "%26s %d %d %d %d", s.id, &s.attempt,
                        &s.redelivered, &s.pid, &s.escaped),
                 5);
    return s;
}

Test(worker_crash, the_message_of_a_killed_worker_runs_again_and_says_so)
{
    char want[128];
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, STAYS);
    struct stay s = stay_read(1);
    cr_assert_eq(s.redelivered, 0);
    harness_kill(w);
    w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    snprintf(want, sizeof want, "%s 1 1 0 - x\n", s.id);
    cr_assert_str_eq(harness_read("runs", NULL), want,
                     "another one, or a counted attempt");
}

/* ---- a /proc without processes ---- */

/* Start the worker in a namespace of its own, after a shell has run `first`.
 * Return NULL if that is not permitted. */
static struct harness_process *elsewhere(const char *flag, const char *first,
                                         const char *q)
{
    char script[128];
    if (harness_run("unshare", flag, "true").status != 0)
        return NULL;
    snprintf(script, sizeof script, "%s\nexec \"$@\"", first);
    return harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("unshare", flag, "sh", "-c", script, "sh",
                             harness_bin("mqworker"), "--state-dir",
                             harness_state_dir(), q, "--exit-when-idle", "--",
                             RECORD)});
}

/* Check that after a refused start the worker before it still counts as
 * killed. */
static void still_killed(const char *q, pid_t pid)
{
    struct harness_result r =
        harness_run("mqctl", "status", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 69, "%s", r.err);
    cr_assert(strstr(r.err, strrchr(harness_path("/its last one, pid %d, "
                                                 "started at ",
                                                 (int)pid),
                                    '/') +
                                1),
              "%s", r.err);
    cr_assert(strstr(r.err, "was killed; 1 message is in custody"), "%s",
              r.err);
    r = harness_run("mqctl", "doctor", "--state-dir", harness_state_dir(), q);
    cr_assert(strstr(r.out, "was killed; its 1 unfinished message"), "%s",
              r.out);
}

/* Check that a worker which sees no processes refuses to start while a message
 * may be running, and says why. The next worker must terminate the leftover
 * handler and run the message again. */
static void blind_check(const char *flag, const char *first, const char *why)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, STAYS);
    struct stay s = stay_read(1);
    pid_t killed = harness_pid(w);
    harness_kill(w);
    w = elsewhere(flag, first, q);
    if (!w) {
        kill(s.pid, SIGKILL);
        kill(s.escaped, SIGKILL);
        cr_skip_test("no namespaces here");
    }
    cr_assert_eq(harness_wait(w, 5000), 71, "%s", harness_stderr(w, NULL));
    cr_assert(strstr(harness_stderr(w, NULL), "which had 1 message running"),
              "%s", harness_stderr(w, NULL));
    cr_assert(strstr(harness_stderr(w, NULL), why), "%s",
              harness_stderr(w, NULL));
    cr_assert_eq(harness_lines("runs"), 0);
    cr_assert(harness_alive(s.pid), "the handler was ended");
    still_killed(q, killed);
    w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_not(harness_alive(s.pid));
    cr_assert_not(harness_alive(s.escaped));
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - x"), 1);
}

Test(worker_crash, no_start_where_proc_is_empty_and_a_handler_may_be_left)
{
    if (getenv("MQW_SANITIZED"))
        cr_skip_test("a sanitizer needs /proc");
    blind_check("--mount", "mount -t tmpfs none /proc",
                "/proc: no procfs is mounted there; nothing was lost");
}

Test(worker_crash, nor_where_it_is_that_of_another_pid_namespace)
{
    blind_check("-mpf", ":", "/proc: it is of another PID namespace");
}

/* ---- a handler that kills the worker ---- */

/* Run the body $1, marked as a repeat by $2 = 1. The body `poison` kills the
 * worker while others run. */
#define BODY                                                  \
    "one() {\n"                                               \
    "    case $1 in\n"                                        \
    "    poison) sleep 0.1; kill -9 $worker; sleep 1000 ;;\n" \
    "    *) sleep 0.2; echo \"$1 $2\" >>done ;;\n"            \
    "    esac\n"                                              \
    "}\n"
#define RUNS_ONE \
    BODY "worker=$PPID; read -r body || :; one $body $MQW_REDELIVERED\n"
/* A child that answers each message when it has run, several at once. */
#define RUNS_MANY                                                      \
    BODY "worker=$PPID\n"                                              \
         "while read -r msg id size rest; do read -r body\n"           \
         "    again=0; case $rest in *redelivered*) again=1 ;; esac\n" \
         "    { one $body $again; echo OK $id; } &\n"                  \
         "done; wait\n"

/* Start workers until one exits with 0: of a poison among good messages, only
 * the poison may be dead. */
static void poisoned(const char *const *options, const char *script,
                     bool grouped)
{
    static const char *const bodies[] = {"a", "b", "poison", "c"};
    const char *q = harness_queue(10, 256), *argv[24];
    const char *handler = harness_script("run", script);
    int status, crashes = -1, n = 0;
    char text[64];
    size_t letters;

    for (size_t i = 0; i < 4; i++) {
        if (grouped)
            snprintf(text, sizeof text, "MQW/1\ngroup: %s\n\n%s", bodies[i],
                     bodies[i]);
        else
            snprintf(text, sizeof text, "%s", bodies[i]);
        harness_send_text(q, text);
    }
    argv[n++] = "mqworker";
    argv[n++] = "--state-dir";
    argv[n++] = harness_state_dir();
    for (size_t i = 0; options[i]; i++)
        argv[n++] = options[i];
    argv[n++] = "--exit-when-idle";
    argv[n++] = q;
    argv[n++] = "--";
    argv[n++] = handler;
    argv[n] = NULL;
    do {
        status = harness_wait(
            harness_start(&(struct harness_spec){.argv = argv}), 20000);
        crashes++;
    } while (status == -SIGKILL && crashes < 10);
    cr_assert_eq(status, 0);
    cr_assert(crashes == 3 || crashes == 4, "%d crashes", crashes);
    const struct harness_letter *l = harness_letters(q, &letters);
    cr_assert_eq(letters, 1, "%s", harness_read("done", NULL));
    cr_assert_str_eq(l->body, "poison");
    cr_assert_str_eq(l->reason, "crashed");
    for (size_t i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        snprintf(text, sizeof text, "%s 0", bodies[i]);
        cr_assert_geq(harness_lines_with("done", bodies[i]), 1, "%s",
                      bodies[i]);
        cr_assert_leq(harness_lines_with("done", text), 1, "unmarked repeat");
    }
}

Test(worker_crash, a_command_that_takes_the_worker_along_is_dead_alone)
{
    poisoned(HARNESS_LIST("-c", "4"), RUNS_ONE, false);
}

Test(worker_crash, so_is_one_of_a_group)
{
    poisoned(HARNESS_LIST("-c", "4"), RUNS_ONE, true);
}

Test(worker_crash, so_is_one_of_the_spool)
{
    poisoned(HARNESS_LIST("-c", "4", "--spool"), RUNS_ONE, false);
}

Test(worker_crash, so_is_one_of_a_window)
{
    poisoned(HARNESS_LIST("-c", "2", "--stream", "--window", "4"), RUNS_MANY,
             false);
}

/* ---- another PID namespace ---- */

/* A handler whose first run kills the worker and waits for the file `go`. */
#define OUTLIVES                                                             \
    "--", "sh", "-c",                                                        \
        "echo \"begin $MQW_REDELIVERED\" >>spans\n"                          \
        "[ $MQW_REDELIVERED = 1 ] || kill -9 $PPID\n"                        \
        "until [ $MQW_REDELIVERED = 1 ] || [ -e go ]; do sleep 0.05; done\n" \
        "echo \"end $MQW_REDELIVERED\" >>spans"

/* Start a worker as in another container: /proc shows its own PID namespace.
 * When the first process there exits, the kernel kills all others: `init` adds
 * such a process, otherwise the worker is the first. */
#define CONTAINER(init, ...)                                                   \
    harness_start(&(struct harness_spec){                                      \
        .argv = HARNESS_LIST("unshare", "-pf", "--mount-proc", "--kill-child", \
                             "sh", "-c",                                       \
                             init ? "\"$@\"; sleep 1000" : "exec \"$@\"",      \
                             "sh", harness_bin("mqworker"), "--state-dir",     \
                             harness_state_dir(), __VA_ARGS__)})

static bool containers(void)
{
    return harness_run("unshare", "-pf", "--mount-proc", "true").status == 0;
}

/* Return how many handlers of a queue the semaphore counts; -1: there is no
 * semaphore. Its key is made from the random number in the custody file. */
static int counted_in(const char *custody)
{
    size_t size;
    const char *data = harness_read(custody, &size);
    uint64_t n;
    int id;

    cr_assert_gt(size, 48);
    memcpy(&n, data + 40, sizeof n);
    id = semget((int)((n ^ n >> 32) & 0x7ffffffe) | 1, 1, 0);
    return id < 0 ? -1 : semctl(id, 0, GETVAL);
}

static int counted(const char *q)
{
    return counted_in(harness_custody(q));
}

Test(worker_crash, no_message_runs_beside_its_handler_in_another_container)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *a, *b;

    if (!containers())
        cr_skip_test("no PID namespaces here");
    harness_send_text(q, "x");
    a = CONTAINER(true, q, OUTLIVES);
    harness_until_lines("spans", 1, 5000);
    b = CONTAINER(false, q, "--exit-when-idle", OUTLIVES);
    cr_assert_eq(harness_wait(b, 10000), 69, "%s", harness_stderr(b, NULL));
    cr_assert(strstr(harness_stderr(b, NULL),
                     "a killed worker left 1 handler running in another PID "
                     "namespace"),
              "%s", harness_stderr(b, NULL));
    cr_assert_str_eq(harness_read("spans", NULL), "begin 0\n");
    harness_write("go", "", 0);
    harness_until_lines("spans", 2, 5000);
    b = CONTAINER(false, q, "--exit-when-idle", OUTLIVES);
    harness_until_lines("spans", 4, 10000);
    cr_assert_str_eq(harness_read("spans", NULL),
                     "begin 0\nend 0\nbegin 1\nend 1\n");
    cr_assert_eq(harness_wait(b, 10000), 0, "%s", harness_stderr(b, NULL));
    harness_kill(a);
}

Test(worker_crash, handlers_are_counted_while_they_live_and_nothing_is_left)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;
    struct harness_result r;

    harness_send_text(q, "x");
    w = harness_worker(q, STAYS);
    (void)stay_read(1);
    cr_assert_eq(counted(q), 1);
    harness_kill(w);
    cr_assert_eq(counted(q), 1);
    w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    harness_until(counted(q) == 0, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(counted(q), -1);
    w = harness_worker(q, "--", RECORD);
    harness_send_text(q, "y");
    harness_until_lines("runs", 2, 5000);
    harness_until(harness_settled(w, 5000) && counted(q) == 0, 5000);
    harness_kill(w);
    cr_assert_eq(counted(q), 0);
    const char *kept = harness_path("kept");
    size_t size;
    const char *data = harness_read(harness_custody(q), &size);
    harness_write("kept", data, size);
    r = harness_run("mqctl", "remove", "--state-dir", harness_state_dir(), q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_not(harness_exists(harness_custody(q)));
    cr_assert_eq(counted_in(kept), -1);
}

/* A container that has ended has no handlers. */
Test(worker_crash, a_container_whose_first_process_was_the_worker_is_over)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w;

    if (!containers())
        cr_skip_test("no PID namespaces here");
    harness_send_text(q, "x");
    w = CONTAINER(false, q, "--", "sh", "-c", "echo x >>began; sleep 1000");
    harness_until_lines("began", 1, 5000);
    harness_kill(w);
    w = CONTAINER(false, q, "--exit-when-idle", "--", RECORD);
    cr_assert_eq(harness_wait(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - x"), 1);
}

Test(worker_crash, where_nothing_was_running_an_empty_proc_is_told)
{
    if (getenv("MQW_SANITIZED"))
        cr_skip_test("a sanitizer needs /proc");
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        elsewhere("--mount", "mount -t tmpfs none /proc", q);
    if (!w)
        cr_skip_test("no namespaces here");
    cr_assert_eq(harness_wait(w, 10000), 0, "%s", harness_stderr(w, NULL));
    cr_assert(strstr(harness_stderr(w, NULL), "event=proc_not_seen"), "%s",
              harness_stderr(w, NULL));
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - x"), 1);
}

Test(worker_crash, a_handler_left_over_is_gone_before_its_message_runs_again)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, STAYS);
    struct stay s = stay_read(1);
    harness_kill(w);
    cr_assert(harness_alive(s.pid), "its worker took it along");
    cr_assert(harness_alive(s.escaped));
    char test[256];
    snprintf(test, sizeof test,
             "grep -l '^State:.[^ZX]' /proc/%d/status /proc/%d/status >beside; "
             "echo >>runs",
             s.pid, s.escaped);
    w = harness_worker(q, "--", "sh", "-c", test);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(harness_read("beside", NULL), "", "ran beside it");
}

Test(worker_crash, crashes_are_counted_and_the_last_one_makes_it_dead)
{
    const char *q = harness_queue(0, 0);
    harness_send(q, "x", 1, 3);
    struct harness_process *w;
    for (int i = 1; i <= 2; i++) {
        w = harness_worker(q, "--max-crashes", "2", STAYS);
        struct stay s = stay_read((size_t)i);
        cr_assert_eq(s.attempt, 1);
        cr_assert_eq(s.redelivered, i > 1);
        harness_kill(w);
    }
    w = harness_worker(q, "--max-crashes", "2", STAYS);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("stays"), 2, "it ran a third time");
    cr_assert_str_eq(l->reason, "crashed");
    cr_assert_str_eq(l->id, stay_read(1).id);
    cr_assert_eq(l->crashes, 2);
    cr_assert_eq(l->attempts, 0);
    cr_assert_eq(l->priority, 3);
    cr_assert_str_eq(l->body, "x");
}

Test(worker_crash, a_crash_in_a_retry_keeps_its_attempt)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--backoff", "1ms", "--max-attempts", "2", "--", "sh", "-c",
        "[ $MQW_ATTEMPT = 1 ] && exit 1; echo >>second; exec sleep 1000");
    harness_until_lines("second", 1, 5000);
    harness_kill(w);
    w = harness_worker(q, "--max-attempts", "2", "--", RECORD, "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 2 1 0 - x"), 1, "%s",
                 harness_read("runs", NULL));
    cr_assert_eq(l->attempts, 2);
    cr_assert_eq(l->crashes, 1);
    cr_assert_eq(l->history, 2);
    cr_assert(l->redelivered);
}

Test(worker_crash, all_that_ran_run_again_in_the_order_they_were_received)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "4", "--", "sh", "-c", "cat >>started; exec sleep 1000");
    for (int i = 0; i < 4; i++) {
        char body[16];
        snprintf(body, sizeof body, "m%d\n", i);
        harness_send_text(q, body);
        harness_until_lines("started", i + 1, 5000);
    }
    harness_kill(w);
    w = harness_worker(q, "-c", "1", "--", "sh", "-c",
                       "echo $MQW_REDELIVERED $(cat) >>again");
    harness_until_lines("again", 4, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(harness_read("again", NULL), "1 m0\n1 m1\n1 m2\n1 m3\n");
}

Test(worker_crash, what_had_not_started_is_not_counted)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    for (int i = 0; i < 2; i++) { /* taken, but the handler cannot be started */
        struct harness_process *w = harness_worker(
            q, "--max-crashes", "1", "--", harness_path("missing"));
        harness_wait_log(w, "event=breaker_open", 5000);
        harness_kill(w);
    }
    cr_assert_eq(harness_queue_length(q), 0);
    struct harness_process *w =
        harness_worker(q, "--max-crashes", "1", "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - x"), 1, "%s",
                 harness_read("runs", NULL));
}

Test(worker_crash, more_held_messages_than_the_next_worker_has_threads)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "16", "--", "sh", "-c", "echo >>started; exec sleep 1000");
    for (int i = 0; i < 16; i++)
        harness_send_text(q, "x");
    harness_until_lines("started", 16, 10000);
    harness_kill(w);
    w = harness_worker(q, "-c", "1", "--", RECORD);
    harness_until_lines("runs", 16, 10000);
    harness_send_text(q, "fresh");
    harness_until_lines("runs", 17, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("runs"), 17);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - x"), 16);
}
