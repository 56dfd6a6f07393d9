/* test_worker_signals.c - mqworker: stop, pause and resize by signals */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

TestSuite(worker_signals, .init = harness_init, .fini = harness_fini);

#define RECORD harness_handler("record")

/* A handler that runs until the file "go" exists, and notes the message id at
 * its start and end. */
#define UNTIL_GO                                                     \
    "--", "sh", "-c",                                                \
        "echo $MQW_ID >>started; while [ ! -e go ]; do sleep 0.01; " \
        "done; echo $MQW_ID >>ended"
/* A handler that ignores SIGTERM; it notes its pid and that of a child. */
#define STUBBORN                                        \
    "--", "sh", "-c",                                   \
        "trap '' TERM; sleep 1000 & echo $$ $! >pids; " \
        "echo $MQW_ID >>started; while :; do wait; sleep 0.01; done"

static void go(void)
{
    harness_write("go", "", 0);
}

/* Check that the next worker runs the message again with the same id, as the
 * first attempt, marked as a repeat. With --max-crashes 1, it would be dead if
 * a crash had been counted. */
static void ran_again(const char *q, const char *id)
{
    char want[128];
    struct harness_process *w =
        harness_worker(q, "--max-crashes", "1", "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    snprintf(want, sizeof want, "%.26s 1 1 0 - x\n", id);
    cr_assert_str_eq(harness_read("runs", NULL), want);
}

/* Check that running handlers finish and no further message is taken. */
static void stop_softly(int signal)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 5; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, "-c", "2", UNTIL_GO);
    harness_until_lines("started", 2, 5000);
    harness_signal(w, signal);
    harness_wait_log(w, "event=stopping", 5000);
    go();
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_eq(harness_lines("ended"), 2);
    cr_assert_eq(harness_lines("started"), 2);
    cr_assert_eq(harness_queue_length(q), 3);
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 0);
    w = harness_worker(q, "-c", "1", "--", RECORD);
    harness_until_lines("runs", 3, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - x"), 3,
                 "what ended well ran again");
}

Test(worker_signals, term_finishes_what_runs_and_takes_no_more)
{
    stop_softly(SIGTERM);
}

Test(worker_signals, int_does_the_same)
{
    stop_softly(SIGINT);
}

Test(worker_signals, an_idle_worker_stops_at_once)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGQUIT};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < 3; i++) {
        struct harness_process *w = harness_worker(q, "--", RECORD);
        harness_wait_log(w, "event=started", 5000);
        harness_signal(w, signals[i]);
        cr_assert_eq(harness_wait(w, 5000), 0);
    }
}

Test(worker_signals, a_failure_while_stopping_is_counted_and_kept)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--backoff", "1ms", "--", "sh", "-c",
                       "echo >>started; while [ ! -e go ]; do sleep 0.01; "
                       "done; exit 1");
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 5000);
    go();
    cr_assert_eq(harness_wait(w, 5000), 0);
    w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 2 0 0 - x"), 1, "%s",
                 harness_read("runs", NULL));
}

Test(worker_signals, after_the_grace_handlers_get_term_and_messages_stay)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--grace", "300ms", "--", "sh",
                       "-c", "echo $MQW_ID >>started; exec sleep 1000");
    harness_until_lines("started", 1, 5000);
    uint64_t start = harness_now_ms();
    harness_signal(w, SIGTERM);
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_geq(harness_now_ms() - start, 300, "the grace was cut short");
    const char *id = harness_read("started", NULL);
    const char *line = harness_wait_log(w, "event=unfinished", 0);
    cr_assert_eq(strncmp(strstr(line, "msg=") + 4, id, 26), 0, "%s", line);
    ran_again(q, id);
}

Test(worker_signals, messages_that_wait_in_their_group_are_named_as_well)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 3; i++)
        harness_send_text(q, "MQW/1\ngroup: a\n\nx");
    struct harness_process *w =
        harness_worker(q, "--grace", "1ms", "--", "sh", "-c",
                       "echo x >>started; exec sleep 1000");
    harness_until_lines("started", 1, 5000);
    harness_until(harness_queue_length(q) == 0, 5000);
    harness_signal(w, SIGTERM);
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 3);
    /* Two of them never ran, which is nothing to warn about. */
    cr_assert_eq(harness_log_count(w, "level=warn event=unfinished"), 1);
    cr_assert_eq(harness_log_count(w, "level=info event=unfinished"), 2);
}

Test(worker_signals, a_handler_that_ends_well_on_term_is_done)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--grace", "1ms", "--", "sh", "-c",
                       "trap 'echo >>ended; exit 0' TERM; echo >>started; "
                       "while :; do sleep 0.01; done");
    harness_until_lines("started", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines("ended"), 1);
    w = harness_worker(q, "--", RECORD);
    harness_send_text(q, "next");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", "next"), 1, "it was not done");
}

Test(worker_signals, a_second_signal_skips_the_rest_of_the_grace)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--grace", "1h", "--", "sh", "-c",
                       "echo $MQW_ID >>started; exec sleep 1000");
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 5000);
    harness_signal(w, SIGINT);
    cr_assert_eq(harness_wait(w, 5000), 0);
    ran_again(q, harness_read("started", NULL));
}

Test(worker_signals, quit_kills_at_once_also_what_is_deaf_to_term)
{
    int leader, child;
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, STUBBORN);
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_eq(sscanf(harness_read("pids", NULL), "%d %d", &leader, &child),
                 2);
    harness_until(!harness_alive(leader), 5000);
    harness_until(!harness_alive(child), 5000);
    ran_again(q, harness_read("started", NULL));
}

Test(worker_signals, quit_after_term_skips_the_grace_and_the_rest)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, "--grace", "1h", STUBBORN);
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", 5000);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, 5000), 0);
    ran_again(q, harness_read("started", NULL));
}

Test(worker_signals, usr2_pauses_and_cont_resumes)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", "--", RECORD);
    harness_send_text(q, "before");
    harness_until_lines("runs", 1, 5000);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", 5000);
    harness_send_text(q, "during");
    /* When SIGTTIN is logged, the only thread has looked for messages. */
    harness_signal(w, SIGTTIN);
    harness_wait_log(w, "event=max_concurrency", 5000);
    cr_assert_eq(harness_queue_length(q), 1);
    harness_signal(w, SIGCONT);
    harness_wait_log(w, "event=resumed", 5000);
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_signals, a_pause_lets_running_handlers_finish_and_retries_wait)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--backoff", "1ms", "--jitter", "0", "--", "sh", "-c",
        "echo >>started; while [ ! -e go ]; do sleep 0.01; "
        "done; exit $((2 - MQW_ATTEMPT))");
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", 5000);
    go();
    harness_wait_log(w, "event=retry", 5000);
    harness_signal(w, SIGTTIN);
    harness_wait_log(w, "event=max_concurrency", 5000);
    cr_assert_eq(harness_lines("started"), 1, "the retry ran in the pause");
    harness_signal(w, SIGCONT);
    harness_until_lines("started", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_signals, a_paused_worker_stops_on_term)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "1", UNTIL_GO);
    /* While the handler runs, the only work item is in use, so no thread is in
     * mq_receive when the pause begins. */
    harness_send_text(q, "x");
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", 5000);
    harness_send_text(q, "x");
    go();
    harness_until_lines("ended", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_queue_length(q), 1);
    cr_assert_eq(harness_lines("started"), 1);
}

Test(worker_signals, pausing_twice_needs_one_cont)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);
    harness_wait_log(w, "event=started", 5000);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", 5000);
    harness_signal(w, SIGUSR2);
    harness_signal(w, SIGCONT);
    harness_wait_log(w, "event=resumed", 5000);
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_signals, ttin_adds_one_and_ttou_takes_one_off)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 8; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, "-c", "1", UNTIL_GO);
    harness_until_lines("started", 1, 5000);
    for (int n = 2; n <= 3; n++) {
        char want[64];
        harness_signal(w, SIGTTIN);
        snprintf(want, sizeof want, "old=%d new=%d", n - 1, n);
        harness_wait_log(w, want, 5000);
        harness_until_lines("started", n, 5000);
    }
    harness_signal(w, SIGTTOU);
    harness_wait_log(w, "old=3 new=2", 5000);
    cr_assert_eq(harness_queue_length(q), 5, "not three were taken");
    go();
    harness_until_lines("ended", 8, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_signals, the_lowered_cap_holds)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "-c", "2", UNTIL_GO);
    harness_wait_log(w, "event=started", 5000);
    /* A work item that is looking at the queue could take a message after the
     * cap was lowered, so let all threads sleep. */
    (void)harness_settled(w, 20000);
    harness_signal(w, SIGTTOU);
    harness_wait_log(w, "old=2 new=1", 5000);
    harness_signal(w, SIGTTOU); /* the cap stays at one */
    for (int i = 0; i < 4; i++)
        harness_send_text(q, "x");
    harness_until_lines("started", 1, 5000);
    harness_signal(w, SIGUSR2); /* when it is logged, earlier signals were
                                 * handled */
    harness_wait_log(w, "event=paused", 5000);
    cr_assert_eq(harness_queue_length(q), 3);
    cr_assert_eq(harness_log_count(w, "new=0"), 0);
    harness_signal(w, SIGCONT);
    go();
    harness_until_lines("ended", 4, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_signals, a_handlers_own_signals_do_not_reach_the_worker)
{
    const char *q = harness_queue(0, 0);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", "sh", "-c", "kill 0");
    harness_send_text(q, "x");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_str_eq(l->error, "signal 15");
    cr_assert(harness_running(w));
    cr_assert_eq(harness_stop(w, 5000), 0);
}

/* nohup(1) ignores signals for its command, a shell for background jobs. */
Test(worker_signals, signals_that_were_ignored_at_the_start_stay_ignored)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_program(
        "sh", "-c", "trap '' HUP INT QUIT; exec \"$0\" \"$@\"",
        harness_bin("mqworker"), "--state-dir", harness_state_dir(), q, "--",
        "sh", "-c", "kill -HUP $$; echo >>ended");

    harness_wait_log(w, "event=started", 5000);
    for (size_t i = 0; i < 3; i++)
        harness_signal(w, signals[i]);
    harness_send_text(q, "x"); /* handlers have default signals */
    harness_wait_log(w, "error=\"signal 1\"", 5000);
    cr_assert_eq(harness_log_count(w, "event=stopping"), 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_not(harness_exists("ended"));
}

Test(worker_signals, a_stray_signal_is_logged_and_ends_nothing)
{
    static const int strays[] = {SIGUSR1,   SIGALRM, SIGVTALRM, SIGPROF, SIGIO,
                                 SIGSTKFLT, SIGPWR,  SIGPIPE,   SIGXFSZ};
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, "--", RECORD);

    harness_wait_log(w, "event=started", 5000);
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++)
        harness_signal(w, strays[i]);
    harness_signal(w, SIGRTMIN);
    harness_signal(w, SIGRTMAX);
    harness_until(harness_log_count(w, "event=signal_ignored") == 9, 5000);
    cr_assert(strstr(harness_wait_log(w, "signal=USR1", 0), "next="));
    harness_send_text(q, "x");
    harness_until_lines("runs", 1, 5000);
    harness_signal(w, SIGXCPU);
    harness_wait_log(w, "event=stopping", 5000);
    cr_assert_eq(harness_wait(w, 5000), 0);
}

/* Each of 20 messages logs more than a twentieth of what the pipe holds. */
Test(worker_signals, a_log_that_nobody_reads_keeps_neither_messages_nor_a_stop)
{
    const char *q = harness_queue(10, 256), *log = harness_path("log");
    int fd;

    cr_assert_eq(mkfifo(log, 0600), 0);
    fd = open(log, O_RDWR); /* opened so that it never blocks; nothing reads
                             * it */
    cr_assert_geq(fd, 0);
    struct harness_process *w = harness_program(
        "sh", "-c", "exec 2>log; exec \"$0\" --state-dir \"$@\"",
        harness_bin("mqworker"), harness_state_dir(), q, "--", "sh", "-c",
        "yes \"$(head -c 999 /dev/zero | tr '\\0' x)\" | head -n 60 >&2; "
        "echo >>ran");
    for (int i = 0; i < 20; i++)
        harness_send_text(q, "x");
    harness_until_lines("ran", 20, 20000);
    struct harness_result r =
        harness_run("mqctl", "--state-dir", harness_state_dir(), "doctor", q);
    cr_expect(strstr(r.out, "nothing is reading its log: "), "%s%s", r.out,
              r.err);
    /* mqctl's answer waits for the fsync of the pause note, which on a busy
     * disk may take longer than mqctl waits. A single EX_TEMPFAIL is therefore
     * no sign that the worker waits for its log. */
    for (int i = 0; i < 5; i++) {
        r = harness_run("mqctl", "--state-dir", harness_state_dir(), "pause",
                        q);
        if (r.status != EX_TEMPFAIL)
            break;
    }
    cr_expect_eq(r.status, 0, "%s", r.err);
    cr_expect_eq(harness_stop(w, 10000), 0);
    close(fd);
}
