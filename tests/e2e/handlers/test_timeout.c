/* test_timeout.c - mqworker: time limits of handlers, and processes that
 * handlers leave */
#include "tests/e2e/tools/run_fixture.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

TestSuite(timeout, .init = harness_init, .fini = harness_fini);

/* Each process of a tree notes its pid, and all hold the stderr of the handler
 * open. */
#define NOTE(file) "echo $$ >>" file "; "
#define STAY       "exec sleep 1000"
#define STUBBORN(file) \
    "sh -c 'trap \"\" TERM; " NOTE(file) "while :; do sleep 1; done' & "
#define IN_SESSION(file) "setsid sh -c '" NOTE(file) STAY "' & "
#define DAEMON(file) \
    "(setsid sh -c 'trap \"\" TERM HUP; " NOTE(file) STAY "' &); "
/* Four processes: the leader, one that ignores SIGTERM, one in its own session,
 * one that has also left its parent. */
#define TREE(file) \
    STUBBORN(file) IN_SESSION(file) DAEMON(file) NOTE(file) "sleep 1000"
#define PROCESSES 4

/* Return true if no process with a pid in the file exists, not even as a
 * zombie. */
static bool gone(const char *file)
{
    const char *at = harness_read(file, NULL);
    for (char *end; *at; at = end + 1) {
        pid_t pid = (pid_t)strtol(at, &end, 10);
        if (kill(pid, 0) == 0 || errno != ESRCH)
            return false;
    }
    return true;
}

/* Count the running processes with a pid in the file. */
static size_t alive(const char *file)
{
    const char *at = harness_read(file, NULL);
    size_t n = 0;
    for (char *end; *at; at = end + 1)
        n += harness_alive((pid_t)strtol(at, &end, 10));
    return n;
}

/* Return the factor for time limits. */
static long slow(void)
{
    const char *text = getenv("MQW_TEST_SLOW");
    return text ? strtol(text, NULL, 10) : 1;
}

/* An upper bound of time must hold in one of RUNS runs, because the machine may
 * be busy. */
#define RUNS 3

/* Return the ms between the first lines of two kinds in the log. */
static long took_ms(struct harness_process *w, const char *from, const char *to)
{
    long start = run_line_ms(harness_wait_log(w, from, 20000));
    long day = 24 * 3600 * 1000L;
    return (run_line_ms(harness_wait_log(w, to, 20000)) - start + day) % day;
}

/* Return the number behind `field` in the line event=stopped. */
static long number(struct harness_process *w, const char *field)
{
    const char *line = harness_wait_log(w, "event=stopped", 20000);
    const char *at = strstr(line, field);
    cr_assert_not_null(at, "%s", line);
    return strtol(at + strlen(field), NULL, 10);
}

/* Let a handler with a stubborn tree of processes reach its limit; no process
 * may be left. Return the ms from the limit until the thread was free. */
static long nasty_ended(void)
{
    const char *q = harness_queue(0, 0);
    const char *handler = harness_script("nasty", TREE("pids"));
    harness_write("pids", "", 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--max-attempts", "1", "-t", "4s",
                       "--kill-after", "300ms", "--", handler);
    const struct harness_letter *letter = harness_wait_letters(q, 1, 20000);
    cr_assert_str_eq(letter->reason, "exhausted");
    cr_assert_str_eq(letter->error, "timeout 4s");
    cr_assert_eq(harness_lines("pids"), PROCESSES);
    cr_assert(gone("pids"));
    long took = took_ms(w, "event=handler_timeout", "event=dead");
    cr_assert_geq(took, 300, "%ld ms: the grace was cut", took);
    cr_assert_eq(harness_stop(w, 5000), 0);
    return took;
}

Test(timeout, no_process_of_a_nasty_tree_is_left_and_its_thread_is_free_in_time)
{
    long took, most = 300 + 1000 * slow();
    int runs = 0;
    do
        took = nasty_ended();
    while (took > most && ++runs < RUNS);
    cr_assert_leq(took, most, "%ld ms", took);
}

Test(timeout, a_neighbour_s_tree_is_not_touched)
{
    const char *q = harness_queue(0, 0);
    const char *handler = harness_script(
        "handler",
        "case `cat` in nasty) " TREE("nasty") ";; esac\n" IN_SESSION("near")
            DAEMON("near") NOTE("near") "while [ ! -e go ]; do sleep 0.01; "
                                        "done");
    struct harness_process *w =
        harness_worker(q, "-c", "2", "--max-attempts", "1", "--kill-after",
                       "100ms", "--", handler);
    harness_send_text(q, "near");
    harness_until_lines("near", 3, 10000);
    cr_assert_eq(harness_run("mqsend", "--timeout", "4s", q, "nasty").status,
                 0);
    harness_wait_letters(q, 1, 20000);
    cr_assert_eq(harness_lines("nasty"), PROCESSES);
    cr_assert(gone("nasty"));
    cr_assert_eq(alive("near"), 3);
    harness_write("go", "", 0);
    cr_assert_eq(harness_stop(w, 10000), 0);
    cr_assert_eq(number(w, " done="), 1);
    cr_assert_eq(alive("near"), 2, "what a success left was killed");
}

Test(timeout, many_at_once_end_together)
{
    const char *q = harness_queue(0, 0);
    const char *handler = harness_script("nasty", TREE("pids"));
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "10", "--max-attempts", "1", "-t", "8s",
                       "--kill-after", "300ms", "--", handler);
    harness_wait_letters(q, 10, 30000);
    cr_assert_eq(harness_lines("pids"), 10 * PROCESSES);
    cr_assert(gone("pids"));
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(timeout, a_message_s_own_limit_replaces_the_worker_s)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-attempts", "1", "-t", "300ms", "--", "sh", "-c",
        "case `cat` in slow) sleep 0.6;; *) sleep 1000;; esac");
    harness_run("mqsend", "--timeout", "60s", q, "slow");
    harness_run("mqsend", "--timeout", "100ms", q, "long");
    harness_run("mqsend", q, "plain");
    const struct harness_letter *l = harness_wait_letters(q, 2, 20000);
    cr_assert_str_eq(l[1].error, "timeout 100ms");
    cr_assert_str_eq(l[0].error, "timeout 300ms");
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(number(w, " done="), 1);
}

Test(timeout, a_message_asks_for_no_more_than_max_timeout)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "-c", "1", "--max-attempts", "1", "-t", "600ms",
                       "--max-timeout", "200ms", "--", "sleep", "1000");
    harness_send_text(q, "MQW/1\ntimeout: 9007199254740992\n\nlong");
    harness_send_text(q, "MQW/1\ntimeout: 100\n\nshort");
    harness_send_text(q, "the worker's own is not bounded");
    const struct harness_letter *l = harness_wait_letters(q, 3, 20000);
    cr_assert_str_eq(l[2].error, "timeout 200ms");
    cr_assert_str_eq(l[1].error, "timeout 100ms");
    cr_assert_str_eq(l[0].error, "timeout 600ms");
    cr_assert_eq(harness_run("mqctl", "set", "--state-dir", harness_state_dir(),
                             q, "max-timeout=50ms")
                     .status,
                 0);
    harness_send_text(q, "MQW/1\ntimeout: 60000\n\nlong");
    cr_assert_str_eq(harness_wait_letters(q, 4, 20000)->error, "timeout 50ms");
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(timeout, a_message_for_a_child_asks_for_no_more_either)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--stream", "-c", "1", "--max-attempts", "1",
                       "--max-timeout", "100ms", "--", "sleep", "1000");
    harness_send_text(q, "MQW/1\ntimeout: 60000\n\nlong");
    cr_assert_str_eq(harness_wait_letters(q, 1, 20000)->error, "timeout 100ms");
    cr_assert_eq(harness_stop(w, 10000), 0);
}

Test(timeout, what_a_handler_says_after_its_limit_is_dropped_and_logged)
{
    static const char *const says[] = {"0", "65", "3"};
    for (size_t i = 0; i < sizeof says / sizeof says[0]; i++) {
        char script[128], late[64];
        int runs = 0;
        bool logged;
        snprintf(script, sizeof script,
                 "trap 'exit %s' TERM; sleep 1000 & wait", says[i]);
        snprintf(late, sizeof late, " exit=%s ", says[i]);
        /* On a busy machine the signal may come before the trap. */
        do {
            const char *q = harness_queue(0, 0);
            harness_send_text(q, "x");
            struct harness_process *w =
                harness_worker(q, "--max-attempts", "1", "--on-exit", "3=done",
                               "-t", "2s", "--", "sh", "-c", script);
            const struct harness_letter *l = harness_wait_letters(q, 1, 20000);
            cr_assert_str_eq(l->reason, "exhausted");
            cr_assert_str_eq(l->error, "timeout 2s");
            cr_assert_eq(harness_stop(w, 5000), 0);
            cr_assert_eq(number(w, " done="), 0);
            logged = harness_log_count(w, "event=handler_late") == 1 &&
                     strstr(harness_wait_log(w, "event=handler_late", 0), late);
        } while (!logged && ++runs < RUNS);
        cr_assert(logged, "exit %s not logged", says[i]);
    }
}

/* The signal ends the shell immediately, but its child needs a moment. */
Test(timeout, the_group_keeps_its_grace_when_its_leader_has_left)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-attempts", "1", "-t", "5s", "--kill-after", "60s",
        "--", "sh", "-c",
        "sh -c 'trap \"sleep 0.3; echo tidy >&2; echo >>tidy; exit\" TERM; "
        "sleep 1000 & wait' & sleep 1000");
    const struct harness_letter *l = harness_wait_letters(q, 1, 20000);
    cr_assert(harness_exists("tidy"), "it was killed too early");
    cr_assert_eq(l->said_size, 5, "its last words: %s", l->said);
    cr_assert_str_eq(l->said, "tidy\n");
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(timeout, a_stopped_handler_is_continued_to_end)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "-t", "200ms", "--kill-after",
                       "60s", "--", "sh", "-c", "kill -STOP $$");
    harness_wait_letters(q, 1, 20000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* Stop a worker with a stubborn tree by a signal; no process may be left. */
static void stopped_by(int signal)
{
    const char *q = harness_queue(0, 0);
    const char *handler = harness_script("nasty", TREE("pids"));
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "--grace", "0", "--kill-after", "300ms", "--", handler);
    harness_until_lines("pids", PROCESSES, 10000);
    harness_signal(w, signal);
    cr_assert_eq(harness_wait(w, 10000), 0);
    cr_assert(gone("pids"));
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 1);
}

Test(timeout, no_process_of_a_handler_survives_a_quit)
{
    stopped_by(SIGQUIT);
}

Test(timeout, no_process_of_a_handler_survives_the_end_of_the_grace)
{
    stopped_by(SIGTERM);
}

Test(timeout, what_a_success_left_behind_runs_on_and_is_no_zombie_after)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-v", "--", "sh", "-c",
        "(setsid sh -c '" NOTE(
            "pids") "while [ ! -e go ]; do sleep 0.01; done' 2>&- &)");
    harness_wait_log(w, "event=done", 10000);
    harness_until_lines("pids", 1, 10000);
    cr_assert_eq(alive("pids"), 1);
    harness_write("go", "", 0);
    harness_until(gone("pids"), 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(timeout, a_worker_that_was_started_with_sigchld_ignored_gets_its_statuses)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("sh", "-c", "trap '' CHLD; exec \"$@\"", "sh",
                             harness_bin("mqworker"), "--state-dir",
                             harness_state_dir(), "--max-attempts", "1", q,
                             "--", "sh", "-c", "exit 42")});
    cr_assert_str_eq(harness_wait_letters(q, 1, 10000)->error, "exit 42");
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* $MQW_TEST_NEAR handlers end within a millisecond of their limit. */
Test(timeout, each_message_has_one_verdict_however_near_to_its_limit)
{
    const char *q = harness_queue(0, 0);
    const char *many = getenv("MQW_TEST_NEAR");
    long n = many ? strtol(many, NULL, 10) : 300;
    char body[24];
    unsigned seed = (unsigned)time(NULL);
    struct harness_process *w =
        harness_worker(q, "-c", "4", "--max-attempts", "1", "-t", "20ms", "--",
                       harness_handler("nap"));
    printf("near the limit: seed %u\n", seed);
    for (long i = 0; i < n; i++) {
        /* Naps of 18.2 to 20.2 ms; a start adds most of a millisecond. */
        snprintf(body, sizeof body, "%d", 18200 + rand_r(&seed) % 2000);
        /* One message in ten is in time even if a start takes longer. */
        harness_send_text(q, i % 10 ? body : "MQW/1\ntimeout: 60000\n\n18200");
    }
    harness_until(harness_queue_length(q) == 0, 20000);
    cr_assert_eq(harness_stop(w, 20000), 0);
    size_t letters;
    const struct harness_letter *l = harness_letters(q, &letters);
    for (size_t i = 0; i < letters; i++)
        cr_assert_str_eq(l[i].error, "timeout 20ms");
    long done = number(w, " done=");
    cr_assert_eq(done + (long)letters, n, "%ld done, %zu timed out", done,
                 letters);
    cr_assert_eq(number(w, " deliveries="), n);
    cr_assert(done > 0 && letters > 0, "one kind: %ld done of %ld", done, n);
}
