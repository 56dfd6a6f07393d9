/* test_stream.c - mqworker --stream: long-lived children */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(stream, .init = harness_init, .fini = harness_fini);

#define LIMIT 10000

/* A child that notes head and body and then runs the body as a command, with
 * $id set. */
#define EACH                                            \
    "while read -r msg id size rest; do read -r body\n" \
    "echo \"$id $size $rest : $body\" >>heads\n"        \
    "eval \"$body\"; done\n"

#define STREAM(...)                                                          \
    harness_worker(queue, "--stream", "--backoff", "1ms", "-v", __VA_ARGS__, \
                   "--", harness_script("each", EACH))

static const char *queue;

static void send(const char *body)
{
    harness_send_text(queue, body);
}

/* Return true if at least `n` messages are done. */
static bool done(struct harness_process *w, size_t n)
{
    return harness_log_count(w, "event=done") >= n;
}

/* Return the n-th head line that a child has read, from 0. */
static const char *head(size_t n)
{
    static char line[512];
    const char *at = harness_read("heads", NULL);

    while (n-- > 0)
        at = strchr(at, '\n') + 1;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

/* Return the pid of the n-th child. */
static pid_t child(struct harness_process *w, size_t n)
{
    static const char event[] = "event=stream_child_started pid=";
    const char *at;

    harness_until(harness_log_count(w, event) > n, LIMIT);
    at = strstr(harness_stderr(w, NULL), event);
    while (n-- > 0)
        at = strstr(at + 1, event);
    return (pid_t)atol(at + strlen(event));
}

Test(stream, one_child_answers_all_messages)
{
    queue = harness_queue(10, 256);
    for (int i = 0; i < 10; i++)
        send("echo OK $id");
    struct harness_process *w = STREAM("-c", "1");
    harness_until(done(w, 10), LIMIT);
    pid_t pid = child(w, 0);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 1);
    cr_assert_not(harness_alive(pid));
    cr_assert(strstr(harness_wait_log(w, "event=stopped", 0),
                     "deliveries=10 done=10 retried=0 dead=0 discarded=0"));
}

Test(stream, each_answer_does_what_it_says)
{
    queue = harness_queue(10, 256);
    send("echo DEAD $id no such account; echo is anybody here >&2");
    send("echo DISCARD $id");
    send("case $rest in attempt=1*) echo RETRY $id delay=1h not now;; esac");
    send("case $rest in attempt=1*) echo RETRY $id;; *) echo OK $id;; esac");
    struct harness_process *w = STREAM("-c", "1");
    harness_until(done(w, 1), LIMIT);
    harness_wait_log(w, "event=discarded", LIMIT);
    const char *again = harness_wait_log(w, "error=\"not now\"", LIMIT);
    cr_assert(strstr(again, "in=1h"), "%s", again);
    const struct harness_letter *l = harness_wait_letters(queue, 1, LIMIT);
    cr_assert_str_eq(l->reason, "rejected");
    cr_assert_str_eq(l->error, "no such account");
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 1);
}

Test(stream, the_head_says_what_the_message_says)
{
    queue = harness_queue(10, 256);
    harness_run("mqsend", "--priority", "3", "--group", "account 7", "--header",
                "x-trace=a=b%", queue, "echo OK $id");
    struct harness_process *w = STREAM("-c", "1");
    harness_until(done(w, 1), LIMIT);
    cr_assert(strstr(head(0), " 11 attempt=1 priority=3 group=account%207 "
                              "x-trace=a%3Db%25 : echo OK"),
              "%s", head(0));
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(stream, as_many_as_the_window_are_open)
{
    queue = harness_queue(10, 256);
    send("a=$id");
    send("b=$id");
    send("c=$id");
    send("echo OK $id; echo OK $c; echo OK $b; echo OK $a");
    struct harness_process *w = STREAM("-c", "1", "--window", "4");
    harness_until(done(w, 4), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 1);
}

Test(stream, a_message_that_comes_while_others_are_open_is_sent_on)
{
    queue = harness_queue(10, 256);
    struct harness_process *w = STREAM("-c", "1", "--window", "2");
    send("a=$id");
    harness_until_lines("heads", 1, LIMIT);
    send("echo OK $id; echo OK $a");
    harness_until(done(w, 2), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(stream, a_group_has_one_message_open_at_a_time)
{
    queue = harness_queue(10, 256);
    turns_send(queue, "g", 0, "[ ! \"$open\" ] && open=$id");
    turns_send(queue, "g", 0, "[ ! \"$open\" ] && echo OK $id");
    turns_send(queue, NULL, 0, "echo OK $id; echo OK $open; open=");
    struct harness_process *w = STREAM("-c", "1", "--window", "8");
    harness_until(done(w, 3), LIMIT);
    cr_assert(strstr(head(1), "echo OK $open"), "%s", head(1));
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(stream, children_work_side_by_side)
{
    queue = harness_queue(10, 256);
    for (int i = 0; i < 3; i++)
        send("echo >>up; while [ ! -e go ]; do sleep 0.01; done; echo OK $id");
    struct harness_process *w = STREAM("-c", "3");
    harness_until_lines("up", 3, LIMIT);
    harness_write("go", "", 0);
    harness_until(done(w, 3), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 3);
}

/* ---- children that end ---- */

Test(stream, a_child_that_dies_fails_what_it_had_open_once)
{
    queue = harness_queue(10, 256);
    send("case $rest in attempt=1*) a=$id;; *) echo OK $id;; esac");
    send("case $rest in attempt=1*) exit 7;; *) echo OK $id;; esac");
    struct harness_process *w = STREAM("-c", "1", "--window", "2");
    harness_until(done(w, 2), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "how=\"exit 7\" answered=0 open=2"), 1);
    cr_assert_eq(harness_log_count(w, "error=\"exit 7\""), 2);
    cr_assert_eq(harness_lines_with("heads", "attempt=2"), 2);
}

Test(stream, a_delay_that_is_none_is_garbage)
{
    queue = harness_queue(10, 256);
    send("case $rest in attempt=1*) echo RETRY $id delay=soon busy; sleep 1000"
         ";; *) echo OK $id;; esac");
    struct harness_process *w = STREAM("-c", "1");
    harness_wait_log(w, "error=\"wrote garbage\"", LIMIT);
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(stream, garbage_is_told_and_the_child_replaced)
{
    queue = harness_queue(10, 256);
    send("case $rest in attempt=1*) echo what is this;; *) echo OK $id;; esac");
    struct harness_process *w = STREAM("-c", "1");
    const char *line = harness_wait_log(w, "event=stream_protocol", LIMIT);
    cr_assert(strstr(line, "what=\"wrote garbage\" line=\"what is this\""),
              "%s", line);
    cr_assert(strstr(line, "OK, RETRY, DEAD or DISCARD and the id"), "%s",
              line);
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 2);
}

Test(stream, messages_die_of_a_child_that_cannot_stand_them)
{
    size_t count;
    queue = harness_queue(10, 256);
    send("echo alas >&2; kill -SEGV $$");
    send("echo OK $id");
    struct harness_process *w = STREAM("-c", "1", "--max-attempts", "2");
    harness_until(done(w, 1), LIMIT);
    const struct harness_letter *l = harness_wait_letters(queue, 1, LIMIT);
    count = l->history;
    cr_assert_eq(count, 2);
    cr_assert_str_eq(l->error, "signal 11");
    cr_assert(strstr(l->said, "alas\n"), "%s", l->said);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(stream, an_idle_child_is_heard_and_replaced)
{
    queue = harness_queue(10, 256);
    struct harness_process *w = STREAM("-c", "1");
    send("echo OK $id; (sleep 0.2; echo in the background >&2) &");
    harness_until(done(w, 1), LIMIT);
    harness_wait_log(w, "line=\"in the background\"", LIMIT);
    kill(child(w, 0), SIGKILL);
    harness_wait_log(w, "event=stream_child_ended", LIMIT);
    cr_assert_not(harness_alive(child(w, 0)));
    send("echo OK $id");
    harness_until(done(w, 2), LIMIT);
    cr_assert_neq(child(w, 1), child(w, 0));
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_lines_with("heads", "attempt=2"), 0);
}

Test(stream, a_command_that_is_missing_opens_the_breaker_and_is_found_later)
{
    queue = harness_queue(10, 256);
    send("echo OK $id");
    struct harness_process *w =
        harness_worker(queue, "--stream", "-v", "--breaker-pause", "50ms", "--",
                       harness_path("late"));
    harness_wait_log(w, "event=breaker_open", LIMIT);
    harness_script("late", EACH);
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert(strstr(head(0), " attempt=1 "), "%s", head(0));
}

Test(stream, children_are_replaced_after_max_requests)
{
    queue = harness_queue(10, 256);
    for (int i = 0; i < 10; i++)
        send("echo OK $id");
    struct harness_process *w =
        STREAM("-c", "1", "--window", "2", "--max-requests", "3");
    harness_until(done(w, 10), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 4);
    cr_assert_eq(harness_log_count(w, "how=\"exit 0\" why=max-requests "
                                      "answered=3 open=0"),
                 3, "%s", harness_stderr(w, NULL));
}

/* ---- time limits and stops ---- */

Test(stream, a_time_limit_ends_the_child)
{
    queue = harness_queue(10, 256);
    send("case $rest in attempt=1*) sleep 1000;; *) echo OK $id;; esac");
    struct harness_process *w = STREAM("-c", "1", "--timeout", "4s");
    harness_wait_log(w, "error=\"timeout 4s\"", LIMIT);
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=handler_timeout"), 1);
}

Test(stream, a_time_limit_counts_the_start_of_the_child)
{
    queue = harness_queue(10, 256);
    send("echo OK $id");
    struct harness_process *w = harness_worker(
        queue, "--stream", "-c", "1", "--timeout", "100ms", "--max-attempts",
        "1", "--", harness_script("slow", "exec sleep 1000"));
    cr_assert_str_eq(harness_wait_letters(queue, 1, LIMIT)->error,
                     "timeout 100ms");
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

/* SIGTERM is the only sign of a stop for a child that holds back an answer. */
Test(stream, what_is_answered_at_sigterm_after_the_grace_is_done)
{
    queue = harness_queue(10, 256);
    send("");
    struct harness_process *w = harness_worker(
        queue, "--stream", "-c", "1", "--grace", "10ms", "-v", "--",
        harness_script("holds", "trap 'echo OK $id; exit' TERM\n"
                                "read -r msg id rest; read -r body\n"
                                "echo >held\n"
                                "while :; do sleep 0.01; done"));
    harness_until_lines("held", 1, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert(done(w, 1), "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 0);
}

#define UNTIL_GO \
    "echo $$ >pid; while [ ! -e go ]; do sleep 0.01; done; echo OK $id"

Test(stream, what_is_open_when_the_worker_stops_is_finished)
{
    queue = harness_queue(10, 256);
    send(UNTIL_GO);
    struct harness_process *w = STREAM("-c", "1");
    harness_until_lines("pid", 1, LIMIT);
    harness_signal(w, SIGTERM);
    harness_wait_log(w, "event=stopping", LIMIT);
    harness_write("go", "", 0);
    cr_assert_eq(harness_wait(w, LIMIT), 0);
    cr_assert(done(w, 1));
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 0);
}

/* Check that a new worker runs the message again as a first attempt. */
static void again(void)
{
    harness_write("go", "", 0);
    struct harness_process *w = STREAM("-c", "1");
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert(strstr(head(1), "attempt=1 priority=0 redelivered=1 :"), "%s",
              head(1));
    cr_assert_eq(strncmp(head(1), harness_read("heads", NULL), 26), 0);
}

Test(stream, what_is_open_after_the_grace_runs_again)
{
    queue = harness_queue(10, 256);
    send(UNTIL_GO);
    struct harness_process *w = STREAM("-c", "1", "--grace", "100ms");
    harness_until_lines("pid", 1, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_not(harness_alive(atoi(harness_read("pid", NULL))));
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 1);
    again();
}

Test(stream, quit_kills_children_at_once)
{
    queue = harness_queue(10, 256);
    send("trap '' TERM; " UNTIL_GO);
    struct harness_process *w = STREAM("-c", "1");
    harness_until_lines("pid", 1, LIMIT);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, LIMIT), 0);
    cr_assert_not(harness_alive(atoi(harness_read("pid", NULL))));
    again();
}

Test(stream, children_of_a_killed_worker_are_ended_before_a_message_runs_again)
{
    queue = harness_queue(10, 256);
    send("trap '' HUP PIPE; setsid sleep 1000 & echo $! >escaped; " UNTIL_GO);
    struct harness_process *w = STREAM("-c", "1");
    harness_until_lines("pid", 1, LIMIT);
    pid_t pid = atoi(harness_read("pid", NULL));
    harness_kill(w);
    cr_assert(harness_alive(pid));
    w = STREAM("-c", "1");
    harness_until_lines("heads", 2, LIMIT);
    cr_assert_not(harness_alive(pid));
    harness_wait_log(w, "event=leftovers_killed", LIMIT);
    harness_write("go", "", 0);
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert(strstr(head(1), " attempt=1 priority=0 redelivered=1 "), "%s",
              head(1));
}

#define KILLS    15
#define MESSAGES (KILLS * 20)

/* Return how often message n ran; all runs but the first must be marked. */
static unsigned ran(unsigned n)
{
    const char *at = harness_read("ran", NULL);
    unsigned all = 0, first = 0;
    char name[32];

    snprintf(name, sizeof name, "\n<%u> ", n);
    while ((at = strstr(at, name)) != NULL) {
        size_t size = strcspn(++at, "\n");

        all++;
        first += !memmem(at, size, "redelivered=1", 13);
    }
    cr_assert_leq(first, 1, "message %u ran again without a mark", n);
    return all;
}

Test(stream, nothing_is_lost_when_the_worker_is_killed_again_and_again)
{
    static char lines[MESSAGES * 64];
    size_t size = 0;
    queue = harness_queue(10, 256);
    harness_write("ran", "\n", 1);
    for (unsigned n = 0; n < MESSAGES; n++)
        size += (size_t)sprintf(lines + size,
                                "echo \"<%u> $rest\" >>ran; echo OK $id\n", n);
    harness_start(
        &(struct harness_spec){.argv = HARNESS_LIST("mqsend", "--lines", queue),
                               .input = lines,
                               .input_size = size});
    struct harness_process *w;
    for (unsigned kill = 1; kill <= KILLS; kill++) {
        w = STREAM("-c", "2", "--window", "4", "--max-crashes", "1000");
        harness_until_lines("ran", kill * (MESSAGES / KILLS - 5), LIMIT);
        harness_kill(w);
    }
    w = STREAM("-c", "2", "--window", "4", "--max-crashes", "1000");
    /* Before this event, SIGTERM would kill the process. */
    harness_wait_log(w, "event=started", LIMIT);
    for (unsigned n = 0; n < MESSAGES; n++)
        harness_until(ran(n) > 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    /* The worker may have kept messages that the last kill interrupted. */
    w = STREAM("-c", "2", "--window", "4", "--max-crashes", "1000",
               "--exit-when-idle");
    cr_assert_eq(harness_wait(w, LIMIT), 0);
    for (unsigned n = 0; n < MESSAGES; n++)
        cr_assert_gt(ran(n), 0);
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 0);
}

Test(stream, a_child_that_does_not_go_is_ended_when_the_worker_closes)
{
    queue = harness_queue(10, 256);
    send("trap '' TERM; echo OK $id; echo $$ >pid; while :; do sleep 1; done");
    struct harness_process *w = STREAM("-c", "1", "--kill-after", "100ms");
    harness_until_lines("pid", 1, LIMIT);
    harness_until(done(w, 1), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_not(harness_alive(atoi(harness_read("pid", NULL))));
}

Test(stream, quit_does_not_wait_for_an_idle_child_either)
{
    queue = harness_queue(10, 256);
    send("trap '' TERM; echo OK $id; echo $$ >pid; while :; do sleep 1; done");
    struct harness_process *w = STREAM("-c", "1", "--kill-after", "1h");
    harness_until_lines("pid", 1, LIMIT);
    harness_until(done(w, 1), LIMIT);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, LIMIT), 0);
    cr_assert_not(harness_alive(atoi(harness_read("pid", NULL))));
}

/* ---- the examples of the docs ---- */

/* Return the path of docs/examples/NAME; make runs tests in the source tree. */
static const char *example(const char *name)
{
    static char path[4096];
    const char *docs = getenv("MQW_DOCS");
    char want[4096];

    snprintf(want, sizeof want, "%s/examples/%s", docs ? docs : "docs", name);
    cr_assert_not_null(realpath(want, path), "cannot find %s; set MQW_DOCS",
                       want);
    return path;
}

/* Run an example that adds the numbers of each message and writes the sums to a
 * file. At first the file cannot be created, so messages are retried. */
static void adds(const char *command)
{
    const char *sums = harness_path("sums/file");
    char env[4200];

    queue = harness_queue(10, 256);
    send("1 2 39");
    send("");
    send("one two");
    harness_run("mqsend", "--group", "a b", queue, "7\n-4 ");
    snprintf(env, sizeof env, "SUMS=%s", sums);
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(),
                             "-v", "-c", "1", "--stream", "--window", "4",
                             "--max-attempts", "1000", queue, "--", command),
        .env = HARNESS_LIST(env)});
    harness_until(harness_log_count(w, "in=200ms") >= 3, 2 * LIMIT);
    harness_wait_log(w, "reason=rejected", LIMIT);
    cr_assert_eq(harness_run("mkdir", harness_path("sums")).status, 0);
    harness_until(done(w, 3), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=stream_child_started"), 1);
    cr_assert_eq(harness_log_count(w, "event=stream_protocol"), 0);
    cr_assert_eq(harness_lines("sums/file"), 3);
    cr_assert_eq(harness_lines_with("sums/file", " 42"), 1);
    cr_assert_eq(harness_lines_with("sums/file", " 0"), 1);
    cr_assert_eq(harness_lines_with("sums/file", " 3"), 1);
}

Test(stream, example_in_python)
{
    if (!harness_has("python3"))
        cr_skip_test("no python3 here");
    adds(example("stream.py"));
}

Test(stream, example_in_shell)
{
    adds(example("stream.sh"));
}

Test(stream, example_in_c)
{
    struct harness_result r =
        harness_run("sh", "-c", "${CC:-cc} -Wall -Wextra -Werror -o adder $0",
                    example("stream.c"));
    cr_assert_eq(r.status, 0, "%s", r.err);
    adds(harness_path("adder"));
}

/* Check that another message is sent to the child beside an unanswered one. */
static void beside(struct harness_process *w)
{
    send("echo OK $held; echo OK $id");
    harness_until(done(w, 2), LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(stream, after_a_pause_messages_are_taken_beside_an_open_one)
{
    queue = harness_queue(10, 256);
    struct harness_process *w = STREAM("-c", "1", "--window", "4");
    send("held=$id");
    harness_until_lines("heads", 1, LIMIT);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", LIMIT);
    harness_signal(w, SIGCONT);
    harness_wait_log(w, "event=resumed", LIMIT);
    beside(w);
}

Test(stream, the_batch_time_limit_does_not_close_a_window)
{
    queue = harness_queue(10, 256);
    struct harness_process *w =
        STREAM("-c", "1", "--window", "4", "--batch-time-limit", "1ms");
    send("held=$id");
    harness_until_lines("heads", 1, LIMIT);
    for (size_t i = 2; i <= 4; i++) { /* the window is full by then */
        send(":");
        harness_until_lines("heads", i, LIMIT);
    }
    harness_kill(w);
}

/* Children start and end on several threads at the same time, so one thread
 * starts a process while another closes its own descriptors. */
Test(stream, who_ends_is_not_taken_for_who_begins)
{
    queue = harness_queue(10, 256);
    struct harness_process *w =
        STREAM("-q", "-c", "8", "--window", "2", "--max-requests", "1");
    for (int i = 0; i < 400; i++)
        send("echo OK $id");
    harness_until_lines("heads", 400, 6 * LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_log_count(w, "event=retry"), 0, "%s",
                 harness_stderr(w, NULL));
    cr_assert_eq(harness_lines("heads"), 400);
}
