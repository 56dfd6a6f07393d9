/* test_worker_replay_twice.c - mqworker, mqdlq: repeated and forged replays
 *
 * A letter may be replayed more than once, or a sender may pretend to replay
 * it. Two runs of a letter never overlap, and a message that is no replay never
 * changes a letter.
 */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"
#include "tests/harness/turns.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(replay_twice, .init = harness_init, .fini = harness_fini);

#define LIMIT     10000
#define DUPLICATE "event=duplicate_letter "

/* Run mqdlq with the test's state directory. */
#define mqdlq(verb, ...) \
    harness_run("mqdlq", verb, "--state-dir", harness_state_dir(), __VA_ARGS__)

/* A handler that notes its attempt, the mark of a repeat and the body, waits
 * for the file "go" and exits with the status in it. */
#define GATED                                                  \
    "echo begin $MQW_ATTEMPT $MQW_REDELIVERED $(cat) >>runs\n" \
    "until [ -s go ]; do sleep 0.01; done\n"                   \
    "echo end >>runs\n"                                        \
    "exit $(cat go)\n"

static const char *q;

/* Let a message die; it becomes letter 1. */
static const struct harness_letter *letter(const char *message)
{
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "1", "--", "false");
    harness_send_text(q, message);
    const struct harness_letter *l = harness_wait_letters(q, 1, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    return l;
}

/* Start a worker with two threads and the handler GATED. */
static struct harness_process *gated(const char *option, const char *value)
{
    return harness_worker(q, "-c", "2", option, value, "--",
                          harness_script("gated", GATED));
}

static void open_gate(const char *status)
{
    harness_write("go", status, strlen(status));
}

/* The message that mqdlq sent in copy_take. */
static char copied[1024];
static size_t copied_size;

/* Replay letter 1 and receive the message. */
static void copy_take(void)
{
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    ssize_t n = harness_receive(q, copied, sizeof copied, NULL);
    cr_assert_gt(n, 0);
    copied_size = (size_t)n;
}

static void copy_send(void)
{
    harness_send(q, copied, copied_size, 0);
}

#define LETTERS "SELECT count(*) FROM messages WHERE state >= 3"

/* Wait until the worker has dropped `n` copies. */
static void dropped(const struct harness_process *w, size_t n)
{
    harness_until(harness_log_count(w, DUPLICATE) >= n, LIMIT);
}

static void start(void)
{
    q = harness_queue(0, 320);
}

/* ---- the second copy ---- */

Test(replay_twice, typed_again_while_it_runs_it_runs_once)
{
    start();
    letter("pay");
    struct harness_process *w = gated("--backoff", "1s");
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    harness_until_lines("runs", 1, LIMIT);
    struct harness_result r = mqdlq("replay", q, "1");
    cr_assert_eq(r.status, 65);
    cr_assert(strstr(r.err, "letter 1 has been on its way since "), "%s",
              r.err);
    cr_assert_eq(mqdlq("replay", "--again", q, "1").status, 0);
    dropped(w, 1);
    cr_assert(strstr(harness_stderr(w, NULL), "letter=1"));
    open_gate("0");
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "begin 1 0 pay\nend\n");
}

Test(replay_twice, sent_again_while_the_worker_is_paused_it_runs_once)
{
    start();
    letter("pay");
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    harness_wait_log(w, "event=started", LIMIT);
    harness_signal(w, SIGUSR2);
    harness_wait_log(w, "event=paused", LIMIT);
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    cr_assert_eq(mqdlq("replay", "--replayed", q).status, 65);
    cr_assert_eq(mqdlq("replay", "--replayed", "--again", q).status, 0);
    cr_assert_eq(harness_queue_length(q), 2);
    harness_signal(w, SIGCONT);
    dropped(w, 1);
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "begin 1 0 pay\nend\n");
}

Test(replay_twice, a_copy_that_comes_when_the_letter_is_done_is_dropped)
{
    start();
    letter("pay");
    copy_take();
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    copy_send();
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    copy_send();
    copy_send();
    dropped(w, 2);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "begin 1 0 pay\nend\n");
}

Test(replay_twice, a_copy_that_comes_while_it_waits_for_its_retry_is_dropped)
{
    start();
    letter("pay");
    copy_take();
    open_gate("1");
    struct harness_process *w = gated("--backoff", "1h");
    copy_send();
    harness_until(
        harness_sql(q, "SELECT count(*) FROM messages WHERE state = 1") > 0,
        LIMIT);
    copy_send();
    dropped(w, 1);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "begin 1 0 pay\nend\n");
    cr_assert_eq(harness_sql(q, "SELECT count(*) FROM messages"), 1);
}

Test(replay_twice, a_copy_of_a_letter_that_died_again_makes_no_second_letter)
{
    start();
    letter("pay");
    copy_take();
    open_gate("65");
    struct harness_process *w = gated("--backoff", "1s");
    copy_send();
    harness_until(
        harness_sql(q, "SELECT count(*) FROM messages WHERE state = 3") > 0,
        LIMIT);
    copy_send();
    dropped(w, 1);
    open_gate("0");
    cr_assert_eq(mqdlq("replay", q, "1").status, 0, "a new replay is refused");
    copy_send();
    dropped(w, 2);
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 0 pay\nend\nbegin 1 0 pay\nend\n");
}

Test(replay_twice, of_many_copies_on_many_threads_one_runs)
{
    start();
    letter("MQW/1\ngroup: a\n\npay");
    copy_take();
    struct harness_process *w = gated("--backoff", "1s");
    for (int i = 0; i < 40; i++) /* more than the queue holds: the worker takes
                                  * them */
        copy_send();
    dropped(w, 39);
    open_gate("0");
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL), "begin 1 0 pay\nend\n");
}

Test(replay_twice, a_drop_is_counted_as_discarded)
{
    start();
    letter("pay");
    copy_take();
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    copy_send();
    copy_send();
    dropped(w, 1);
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    struct harness_result r =
        harness_run("mqctl", "metrics", "--state-dir", harness_state_dir());
    const char *total = strstr(r.out, "\nmqworker_discarded_total{");
    cr_assert(total, "%s %s", r.out, r.err);
    cr_assert_eq(atoi(strchr(total, '}') + 1), 1, "%s", total);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

/* ---- kills ---- */

Test(replay_twice, a_kill_with_a_copy_in_the_queue_leaves_one_run_at_a_time)
{
    start();
    letter("pay");
    copy_take();
    struct harness_process *w = harness_worker(q, "-c", "1", "--", "sh",
                                               harness_script("gated", GATED));
    copy_send();
    harness_until_lines("runs", 1, LIMIT);
    copy_send();
    harness_kill(w);
    w = gated("--backoff", "1s");
    dropped(w, 1);
    harness_until_lines("runs", 2, LIMIT);
    open_gate("0");
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 0 pay\nbegin 1 1 pay\nend\n");
}

/* Both copies are in slots when the worker is killed, and the one received
 * first is not linked to the letter. While it was received, its token named
 * another row, as if the store could not be read. */
Test(replay_twice, a_kill_with_both_copies_in_slots_leaves_one)
{
    start();
    letter("pay");
    copy_take();
    struct harness_process *w = gated("--backoff", "1s");
    harness_sql(q, "UPDATE replays SET row = 1000");
    copy_send();
    harness_until_lines("runs", 1, LIMIT);
    cr_assert_eq(harness_log_count(w, "event=letter_unknown "), 1);
    harness_sql(q, "UPDATE replays SET row = 1");
    copy_send();
    harness_until_lines("runs", 2, LIMIT);
    harness_kill(w);
    w = gated("--backoff", "1s");
    dropped(w, 1);
    harness_until_lines("runs", 3, LIMIT);
    open_gate("0");
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 1 pay\nbegin 1 0 pay\nbegin 1 1 pay\nend\n");
}

/* ---- forged replays ---- */

/* Send `text`; if this is root, as the user nobody. */
static void forge(const char *text)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(2);
        mqd_t mq = mq_open(q, O_WRONLY);
        _exit(mq == (mqd_t)-1 || mq_send(mq, text, strlen(text), 0) < 0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
}

/* Let everybody write to the queue. */
static void open_to_all(void)
{
    mqd_t mq = mq_open(q, O_RDONLY);
    cr_assert_neq(mq, (mqd_t)-1);
    cr_assert_eq(fchmod((int)mq, 0622), 0);
    mq_close(mq);
}

/* Check that the forged message ran, marked as a possible repeat, and that the
 * letter is unchanged. */
static void forged_runs(struct harness_process *w,
                        const struct harness_letter *before)
{
    size_t n;
    harness_until(harness_lines("runs") >= 2, LIMIT);
    cr_assert_eq(harness_log_count(w, "event=letter_unknown "), 1);
    cr_assert_eq(harness_log_count(w, DUPLICATE), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 1 forged body\nend\n");
    const struct harness_letter *l = harness_letters(q, &n);
    cr_assert_eq(n, 1);
    cr_assert_eq(l->row, before->row);
    cr_assert_str_eq(l->body, "pay 100 to alice");
    cr_assert_eq(l->history, before->history);
}

Test(replay_twice, who_may_only_write_cannot_remove_a_letter)
{
    char text[256];
    start();
    const struct harness_letter l = *letter("pay 100 to alice");
    open_to_all();
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    snprintf(text, sizeof text, "MQW/1\nid: %s\nletter: %lld\n\nforged body",
             l.id, l.row);
    forge(text);
    forged_runs(w, &l);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(replay_twice, nor_with_a_token_that_he_made_up)
{
    char text[256];
    start();
    const struct harness_letter l = *letter("pay 100 to alice");
    open_to_all();
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    snprintf(text, sizeof text,
             "MQW/1\nid: %s\nletter: %lld\n"
             "letter-token: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\n\nforged body",
             l.id, l.row);
    forge(text);
    forged_runs(w, &l);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
}

Test(replay_twice, nor_while_it_is_on_its_way)
{
    char text[256];
    start();
    const struct harness_letter l = *letter("pay 100 to alice");
    open_to_all();
    copy_take();
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    snprintf(text, sizeof text, "MQW/1\nid: %s\nletter: %lld\n\nforged body",
             l.id, l.row);
    forge(text);
    harness_until_lines("runs", 2, LIMIT);
    cr_assert_eq(
        harness_sql(q, "SELECT count(*) FROM messages WHERE state = 4"), 1);
    copy_send();
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 1 forged body\nend\n"
                     "begin 1 0 pay 100 to alice\nend\n");
}

Test(replay_twice, nor_let_its_group_go_on)
{
    char text[256];
    start();
    const struct harness_letter l =
        *letter("MQW/1\ngroup: a\n\npay 100 to alice");
    open_to_all();
    open_gate("0");
    struct harness_process *w = gated("--on-group-dead", "hold");
    harness_send_text(q, "MQW/1\ngroup: a\n\nbehind it");
    snprintf(text, sizeof text, "MQW/1\nid: %s\nletter: %lld\n\nforged body",
             l.id, l.row);
    forge(text);
    forged_runs(w, &l);
    cr_assert_eq(harness_log_count(w, "event=group_released"), 0);
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    harness_until_lines("runs", 6, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 1 forged body\nend\n"
                     "begin 1 0 pay 100 to alice\nend\n"
                     "begin 1 0 behind it\nend\n");
}

/* A stored message keeps its header. The number of its row can be guessed, so a
 * forged header may name the message's own row. */
Test(replay_twice, nor_pass_its_group_by_way_of_the_store)
{
    char text[256];
    start();
    letter("MQW/1\ngroup: a\n\npay 100 to alice");
    open_to_all();
    open_gate("0");
    struct harness_process *w = gated("--on-group-dead", "hold");
    long long due_s = (long long)time(NULL) + 4;
    snprintf(text, sizeof text,
             "MQW/1\ngroup: a\nletter: 2\nnot-before: %lld000000000\n\n"
             "forged body",
             due_s);
    forge(text);
    harness_until(
        harness_sql(q, "SELECT count(*) FROM messages WHERE row = 2") > 0,
        LIMIT);
    /* A message without a group is due a second later, and runs. */
    snprintf(text, sizeof text, "MQW/1\nnot-before: %lld000000000\n\nlater",
             due_s + 1);
    harness_send_text(q, text);
    harness_until_lines("runs", 2, LIMIT);
    cr_assert_str_eq(harness_read("runs", NULL), "begin 1 0 later\nend\n");
    cr_assert_eq(mqdlq("replay", q, "1").status, 0);
    harness_until_lines("runs", 6, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "begin 1 0 later\nend\n"
                     "begin 1 0 pay 100 to alice\nend\n"
                     "begin 1 1 forged body\nend\n");
}

/* ---- the canary ---- */

Test(replay_twice, a_canary_that_is_done_lets_the_others_follow)
{
    start();
    for (int i = 0; i < 3; i++) {
        struct harness_process *w =
            harness_worker(q, "--max-attempts", "1", "--", "false");
        harness_send_text(q, "pay");
        harness_wait_letters(q, (size_t)i + 1, LIMIT);
        cr_assert_eq(harness_stop(w, LIMIT), 0);
    }
    open_gate("0");
    struct harness_process *w = gated("--backoff", "1s");
    struct harness_result r = mqdlq("replay", "--canary", "--all", q);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "3 of 3 letters sent"), "%s", r.out);
    harness_until(harness_sql(q, LETTERS) == 0, LIMIT);
    cr_assert_eq(harness_stop(w, LIMIT), 0);
    cr_assert_eq(harness_lines_with("runs", "begin 1 0 pay"), 3);
}
