/* test_forward_worker.c - mqworker --forward: between POSIX queues, under
 * kills */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(forward_worker, .init = harness_init, .fini = harness_fini);

#define SOON_MS 20000
#define FORWARD(from, to, ...) \
    harness_worker(from, "--forward", to, __VA_ARGS__)

static void consume(const char *q)
{
    struct harness_process *w = harness_worker(q, "-c", "1", "--exit-when-idle",
                                               "--", harness_handler("record"));

    cr_assert_eq(harness_wait(w, 60000), 0, "%s", harness_stderr(w, NULL));
}

Test(forward_worker, keeps_id_priority_group_and_order)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(10, 512);
    struct harness_process *w;

    harness_send(from, "MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\ngroup: g\n\none",
                 strlen("MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\ngroup: g\n\n"
                        "one"),
                 7);
    harness_send_text(from, "two");
    harness_send_text(from, "three");
    w = FORWARD(from, to, "--exit-when-idle");
    cr_assert_eq(harness_wait(w, SOON_MS), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_queue_length(from), 0);
    consume(to);
    cr_assert_eq(harness_lines_with("runs", "01JD3Z6Q9V0X8N5T2K7B4M1C3F 1 0 7 "
                                            "g one"),
                 1);
    cr_assert_lt(strstr(harness_read("runs", NULL), " 1 0 0 - two"),
                 strstr(harness_read("runs", NULL), " 1 0 0 - three"));
}

Test(forward_worker, a_full_destination_is_waited_for_and_nothing_fails)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(1, 512);
    struct harness_process *w;
    size_t letters;

    for (int i = 0; i < 5; i++)
        harness_send_text(from, "body");
    w = FORWARD(from, to, "--max-attempts", "1");
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    harness_wait_log(w, "the destination is full (1 message)", SOON_MS);
    for (int i = 0; harness_lines("runs") < 5; i++) {
        cr_assert_lt(i, 5, "%s", harness_read("runs", NULL));
        harness_until(harness_queue_length(to) == 1, SOON_MS);
        consume(to);
    }
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - body"), 5);
    harness_letters(from, &letters);
    cr_assert_eq(letters, 0);
}

Test(forward_worker, what_waits_goes_at_once_and_waits_there)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(10, 512);
    struct harness_process *w =
        harness_worker(from, "--backoff", "1h", "--", "false");
    char got[512];
    ssize_t n;

    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(from, "retry");
    harness_wait_log(w, "event=retry", SOON_MS);
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", from, "late").status,
                 0);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = FORWARD(from, to, "--exit-when-idle");
    cr_assert_eq(harness_wait(w, SOON_MS), 0, "%s", harness_stderr(w, NULL));
    cr_assert_eq(harness_queue_length(to), 2);
    for (int i = 0; i < 2; i++) {
        n = harness_receive(to, got, sizeof got - 1, NULL);
        cr_assert_gt(n, 0);
        got[n] = '\0';
        cr_assert_not_null(strstr(got, "\nnot-before: "), "%s", got);
    }
}

/* With -c 1, the second message gets the slot that the delayed one had. */
Test(forward_worker, what_comes_after_a_delayed_message_is_not_delayed)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(10, 512);
    struct harness_process *w = harness_worker(from, "--", "cat");
    char got[512];
    ssize_t n;

    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", from, "late").status,
                 0);
    harness_until(harness_queue_length(from) == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    w = FORWARD(from, to, "-c", "1");
    harness_until(harness_queue_length(to) == 1, SOON_MS);
    harness_send_text(from, "now");
    harness_until(harness_queue_length(to) == 2, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    for (int i = 0; i < 2; i++) {
        n = harness_receive(to, got, sizeof got - 1, NULL);
        cr_assert_gt(n, 0);
        got[n] = '\0';
        cr_assert_eq(strstr(got, "\nnot-before: ") != NULL, i == 0, "%s", got);
    }
}

/* Check that a worker runs a new message and none of the waiting ones. */
static void only_a_new_one_runs(const char *from)
{
    struct harness_process *w =
        harness_worker(from, "--", harness_handler("record"));

    harness_wait_log(w, "event=started", SOON_MS);
    harness_send_text(from, "now");
    harness_until(harness_lines("runs") > 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    cr_assert_eq(harness_lines("runs"), 1, "%s", harness_read("runs", NULL));
}

Test(forward_worker, what_waits_keeps_its_time_if_it_cannot_go)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(1, 512);
    struct harness_process *w =
        harness_worker(from, "--", harness_handler("record"));

    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_eq(
        harness_run("mqsend", "--delay", "1h", "--group", "g", from, "stored")
            .status,
        0);
    harness_until(harness_queue_length(from) == 0, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    harness_send_text(to, "full");
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", from, "fresh").status,
                 0);
    w = FORWARD(from, to, "-c", "2");
    harness_until(harness_queue_length(from) == 0, SOON_MS);
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    only_a_new_one_runs(from);
}

Test(forward_worker, a_retry_keeps_its_time_if_it_cannot_go)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(1, 512);
    struct harness_process *w;

    cr_assert_eq(harness_run("mqsend", "--group", "g", from, "grouped").status,
                 0);
    for (int i = 0; i < 2; i++) {
        w = harness_worker(from, "--backoff", "1h", "--", "false");
        harness_wait_log(w, "event=retry", SOON_MS);
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        if (i == 0)
            harness_send_text(from, "alone");
    }
    harness_send_text(to, "full");
    w = FORWARD(from, to, "-c", "2");
    harness_wait_log(w, "event=breaker_open", SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
    only_a_new_one_runs(from);
}

Test(forward_worker, a_message_is_not_to_blame_for_kills_of_its_worker)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(1, 512);
    struct harness_process *w;

    harness_send_text(to, "full");
    harness_send_text(from, "body");
    for (int i = 1; i <= 3; i++) {
        w = FORWARD(from, to, "-c", "1");
        harness_wait_log(w, "event=started", SOON_MS);
        harness_until(harness_queue_length(from) == 0, SOON_MS);
        harness_kill(w);
    }
    consume(from);
    cr_assert_eq(harness_lines_with("runs", " - body"), 1);
}

Test(forward_worker, many_that_wait_for_room_end_with_the_first)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(1, 512);
    struct harness_process *w;
    uint64_t before, took = UINT64_MAX;

    harness_send_text(to, "full");
    for (int i = 0; i < 10; i++)
        harness_send_text(from, "body");
    for (int i = 0; i < 10 && took >= 4000; i++) {
        w = FORWARD(from, to, "-c", "8");
        harness_wait_log(w, "event=breaker_open", SOON_MS);
        before = harness_now_ms();
        cr_assert_eq(harness_stop(w, SOON_MS), 0);
        took = harness_now_ms() - before;
    }
    cr_assert_lt(took, 4000);
}

Test(forward_worker, queues_that_forward_in_a_circle_make_dead_letters)
{
    const char *a = harness_queue(4, 256), *b = harness_queue(4, 256);
    struct harness_process *there = FORWARD(a, b, "-q"),
                           *back = FORWARD(b, a, "-q");
    const struct harness_letter *l;

    harness_send_text(a, "round");
    l = harness_wait_letters(a, 1, SOON_MS);
    cr_assert_str_eq(l->reason, "rejected");
    cr_assert_not_null(strstr(l->error, "circle"), "%s", l->error);
    cr_assert_eq(harness_stop(there, SOON_MS), 0);
    cr_assert_eq(harness_stop(back, SOON_MS), 0);
    cr_assert_eq(harness_queue_length(a) + harness_queue_length(b), 0);
}

static void refused(struct harness_result r, int status, const char *text)
{
    cr_assert_eq(r.status, status, "status %d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, text), "\"%s\" is not in: %s", text,
                       r.err);
}

#define REFUSED(status, text, ...)                                      \
    refused(harness_run("mqworker", "--state-dir", harness_state_dir(), \
                        __VA_ARGS__),                                   \
            status, text)

Test(forward_worker, what_cannot_work_is_refused_at_the_start)
{
    const char *q = harness_queue(4, 256);

    REFUSED(64, "forwarded to itself", "--forward", q, q);
    REFUSED(64, "forwarded to itself", "--forward", q + 1, q);
    REFUSED(64, "--forward /b and a command", "--forward", "/b", q, "--",
            "cat");
    REFUSED(64, "and --stream", "--forward", "/b", "--stream", q);
    REFUSED(64, "and --plugin", "--forward", "/b", "--plugin", "x.so", q);
    REFUSED(64, "and --timeout", "--forward", "/b", "--timeout", "1s", q);
    REFUSED(64, "and --max-crashes", "--forward", "/b", "--max-crashes", "2",
            q);
    REFUSED(64, "and --max-delay", "--forward", "/b", "--max-delay", "1h", q);
    REFUSED(64, "and --max-delay", "--forward", "/b", "--max-delay", "400d", q);
    REFUSED(64, "--tls-ca", "--forward", "/b", "--tls-ca", "x", q);
    REFUSED(64, "a/b", "--forward", "/a/b", q);
}

Test(forward_worker, a_destination_that_is_missing_at_the_start_is_logged)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(10, 512);
    struct harness_process *w;

    cr_assert_eq(mq_unlink(to), 0);
    w = FORWARD(from, to, "-c", "1");
    harness_wait_log(w, "event=started", SOON_MS);
    cr_assert_not_null(
        strstr(harness_stderr(w, NULL), "event=destination_unusable"));
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

Test(forward_worker, settings_that_it_cannot_have_cannot_be_set)
{
    const char *a = harness_queue(4, 256), *b = harness_queue(4, 256);
    struct harness_process *w = FORWARD(a, b, "-c", "1");

    harness_wait_log(w, "event=started", SOON_MS);
    for (size_t i = 0; i < 2; i++) {
        const char *change = i ? "max-delay=1h" : "timeout=1s";
        const char *text = i ? "and --max-delay" : "and --timeout";

        refused(harness_run("mqctl", "--state-dir", harness_state_dir(), "set",
                            a, change),
                64, text);
    }
    cr_assert_eq(harness_run("mqsend", "--delay", "1h", a, "late").status, 0);
    harness_until(harness_queue_length(b) == 1, SOON_MS);
    cr_assert_eq(harness_stop(w, SOON_MS), 0);
}

/* ---- kills ---- */

enum { MESSAGES = 400, COPIES = 4 * MESSAGES };
static char (*copies)[32]; /* ids in the order of arrival */
static size_t copy_count;

/* Receive all messages. Every copy of an id except the first must be marked. */
static void drain(const char *q, bool *came, size_t count)
{
    char got[512];
    ssize_t n;

    while ((n = harness_receive(q, got, sizeof got - 1, NULL)) > 0) {
        const char *id, *body;
        bool again = false;
        long number;

        got[n] = '\0';
        id = strstr(got, "id: ");
        body = strstr(got, "\n\n");
        cr_assert(id && body, "%s", got);
        cr_assert_lt(copy_count, (size_t)COPIES);
        for (size_t i = 0; i < copy_count && !again; i++)
            again = strncmp(copies[i], id + 4, 26) == 0;
        cr_assert(!again || strstr(got, "\nresent: 1\n"), "%s", got);
        number = strtol(body + 2, NULL, 10);
        cr_assert_lt((size_t)number, count);
        came[number] = true;
        snprintf(copies[copy_count++], 27, "%s", id + 4);
    }
}

Test(forward_worker, a_kill_at_any_moment_loses_nothing_and_marks_repeats,
     .timeout = 300)
{
    const char *from = harness_queue(10, 128), *to = harness_queue(4, 256);
    bool came[MESSAGES] = {false};
    struct harness_process *w;
    unsigned span = 60; /* longest life of a worker, ms */
    int sent = 0, kills = 0;
    size_t before;

    copies = calloc(COPIES, sizeof *copies);
    cr_assert_not_null(copies);
    for (unsigned seed = 1; sent < MESSAGES; kills++) {
        uint64_t end;
        int last = sent;

        for (int i = 0; i < 8 && sent < MESSAGES; i++) {
            char body[16];

            snprintf(body, sizeof body, "%d", sent);
            if (harness_try_send(from, body, strlen(body), 0))
                sent++;
        }
        if (sent == last) /* a start takes longer than `span`: the queue stays
                           * full */
            span += span / 2;
        w = FORWARD(from, to, "-q");
        seed = seed * 1103515245 + 12345;
        end = harness_now_ms() + 10 + (seed >> 16) % span;
        while (harness_now_ms() < end)
            drain(to, came, MESSAGES);
        harness_kill(w);
    }
    w = FORWARD(from, to, "-q", "--exit-when-idle=1s");
    harness_until((drain(to, came, MESSAGES), !harness_running(w)), SOON_MS);
    drain(to, came, MESSAGES);
    cr_assert_eq(harness_wait(w, SOON_MS), 0, "%s", harness_stderr(w, NULL));
    for (before = 0; before < MESSAGES && came[before]; before++)
        ;
    cr_assert_eq(before, MESSAGES, "message %zu is lost", before);
    harness_letters(from, &before);
    cr_assert_eq(before, 0, "a kill was blamed on a message");
    printf("forward: %d messages, %d kills, %zu copies\n", MESSAGES, kills,
           copy_count);
    free(copies);
}

/* Let a worker kill itself at the step `point`, and the next one finish its
 * message. */
static void killed_at(const char *from, const char *to, const char *point)
{
    struct harness_process *w;
    struct harness_result r;
    char at[64];

    snprintf(at, sizeof at, "MQW_KILL_AT=%s:1", point);
    harness_send_text(from, "body");
    r = harness_run_spec(&(struct harness_spec){
        .argv = HARNESS_LIST(harness_handler("../../points/bin/mqworker"),
                             "--state-dir", harness_state_dir(), "--forward",
                             to, from),
        .env = HARNESS_LIST(at)});
    cr_assert_eq(r.status, -SIGKILL, "%s", r.err);
    w = FORWARD(from, to, "--exit-when-idle");
    cr_assert_eq(harness_wait(w, SOON_MS), 0, "%s", harness_stderr(w, NULL));
    consume(to);
}

Test(forward_worker, a_message_that_may_have_been_sent_is_sent_with_a_mark)
{
    const char *from = harness_queue(10, 256), *to = harness_queue(10, 512);
    const char *runs;

    killed_at(from, to, "forward_before_send");
    cr_assert_eq(harness_lines("runs"), 1);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - body"), 1);
    killed_at(from, to, "forward_sent");
    cr_assert_eq(harness_lines("runs"), 3);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - body"), 1);
    cr_assert_eq(harness_lines_with("runs", " 1 1 0 - body"), 2);
    runs = strchr(harness_read("runs", NULL), '\n') + 1;
    cr_assert_eq(strncmp(runs, strchr(runs, '\n') + 1, 26), 0,
                 "the copies differ in their id");
}
