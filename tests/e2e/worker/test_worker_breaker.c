/* test_worker_breaker.c - mqworker: no message is blamed if its handler cannot
 * be started */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(worker_breaker, .init = harness_init, .fini = harness_fini);

#define RECORD  harness_handler("record")
#define QUICKLY "--max-attempts", "1", "--breaker-pause", "100ms"

/* Write a script that starts the record handler. */
static void record_script(const char *name)
{
    char text[1024];
    snprintf(text, sizeof text, "exec %s", RECORD);
    harness_script(name, text);
}

/* Check that the breaker opens with this reason and that the message runs once
 * the handler works. */
static void runs_when_fixed(struct harness_process *w, const char *q,
                            const char *reason, const char *redelivered)
{
    char want[64];
    const char *line = harness_wait_log(w, "event=breaker_open", 5000);
    cr_assert(strstr(line, reason), "%s", line);
    record_script("handler");
    harness_until_lines("runs", 1, 5000);
    snprintf(want, sizeof want, " 1 %s 0 - x\n", redelivered);
    cr_assert_not_null(strstr(harness_read("runs", NULL), want), "%s",
                       harness_read("runs", NULL));
    harness_wait_log(w, "event=breaker_closed", 5000);
    harness_send_text(q, "next");
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    size_t letters;
    harness_letters(q, &letters);
    cr_assert_eq(letters, 0);
}

Test(worker_breaker, a_command_that_is_missing_counts_no_attempt)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, QUICKLY, "--", harness_path("handler"));
    runs_when_fixed(w, q, "No such file", "0");
}

Test(worker_breaker, a_command_that_is_not_in_PATH_is_looked_for_again)
{
    const char *q = harness_queue(0, 0);
    char path[8192];
    snprintf(path, sizeof path, "PATH=%s:%s", getenv("PATH"), harness_dir());
    harness_send_text(q, "x");
    struct harness_process *w = harness_start(&(struct harness_spec){
        .argv = HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), q,
                             QUICKLY, "--", "handler"),
        .env = HARNESS_LIST(path)});
    runs_when_fixed(w, q, "handler", "0");
}

Test(worker_breaker, a_command_that_is_not_executable_counts_no_attempt)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    harness_write("handler", "", 0);
    struct harness_process *w =
        harness_worker(q, QUICKLY, "--", harness_path("handler"));
    runs_when_fixed(w, q, "Permission denied", "0");
}

Test(worker_breaker, an_interpreter_that_is_missing_counts_no_attempt)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    harness_script("handler", "");
    harness_write("handler", "#!/no/such/shell\n", 17);
    struct harness_process *w =
        harness_worker(q, QUICKLY, "--", harness_path("handler"));
    runs_when_fixed(w, q, "handler", "0");
}

/* The reason must be in both log lines: in handler_not_found, at the start, and
 * in breaker_open. */
Test(worker_breaker, what_keeps_a_command_from_starting_is_named)
{
    static const struct {
        const char *script, *command, *said;
    } cases[] = {
        {"#!/bin/sh\r\nexit 0\r\n", "./handler",
         "its first line ends in CR LF; convert it: sed -i"},
        {"#!/usr/bin/env sh\r\nexit 0\r\n", "./handler",
         "its first line ends in CR LF; convert it: sed -i"},
        {"#! /no/such/shell -e\n", "./handler",
         "its interpreter /no/such/shell: No such file or directory"},
        {"", "grep x | wc -l",
         "to run a shell command line, use -- sh -c 'LINE'"},
        {"", "no-such-command", "not found in $PATH"},
        {"", "./no/such/command", "No such file or directory, from /"},
    };
    static const char *const kinds[] = {"-q", "--stream"};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 2; k++) {
            const char *q = harness_queue(0, 0), *line;
            harness_send_text(q, "x");
            harness_script("handler", "");
            harness_write("handler", cases[i].script, strlen(cases[i].script));
            struct harness_process *w =
                harness_worker(q, kinds[k], "--", cases[i].command);
            line = harness_wait_log(w, "event=handler_not_found", 5000);
            cr_expect(strstr(line, cases[i].said), "%zu: %s", i, line);
            line = harness_wait_log(w, "event=breaker_open", 5000);
            cr_expect(strstr(line, cases[i].said), "%zu: %s", i, line);
            cr_assert_eq(harness_stop(w, 5000), 0);
        }
}

Test(worker_breaker, a_working_directory_that_was_removed_is_named)
{
    const char *q = harness_queue(0, 0), *line;
    struct harness_process *w = harness_program(
        "sh", "-c",
        "mkdir gone; cd gone; rmdir ../gone; exec \"$0\" --state-dir \"$@\"",
        harness_bin("mqworker"), harness_state_dir(), q, "--", "./handler");

    line = harness_wait_log(w, "event=handler_not_found", 5000);
    cr_expect(strstr(line, "/gone was removed"), "%s", line);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_breaker, exit_126_and_127_count_no_attempt)
{
    static const char *const ends[] = {"exit 126", "exit 127"};
    for (size_t i = 0; i < 2; i++) {
        const char *q = harness_queue(0, 0);
        harness_send_text(q, "x");
        harness_script("handler", ends[i]);
        struct harness_process *w =
            harness_worker(q, QUICKLY, "--", harness_path("handler"));
        /* A program did run, so the next delivery is marked as a repeat. */
        runs_when_fixed(w, q, ends[i], "1");
        harness_run("rm", "runs");
    }
}

Test(worker_breaker, nothing_more_is_taken_while_it_is_open)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 8; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--breaker-pause", "50ms", "--", harness_path("handler"));
    harness_until(harness_log_count(w, "event=breaker_open") >= 3, 5000);
    /* Each thread has tried one message at most. */
    cr_assert_geq(harness_queue_length(q), 6);
    record_script("handler");
    harness_until_lines("runs", 8, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", " 1 0 0 - x"), 8);
}

Test(worker_breaker, one_probe_at_a_time)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 8; i++)
        harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "-c", "4", "--breaker-pause", "100ms", "--",
                       harness_path("handler"));
    /* When a probe has failed, the first four starts are over. */
    harness_until(harness_log_count(w, "event=breaker_open") >= 2, 5000);
    harness_script("handler", "echo >>probes; "
                              "while [ ! -e go ]; do sleep 0.01; done");
    harness_until_lines("probes", 1, 5000);
    /* When SIGTTIN is logged, the worker's waiting thread has looked for work,
     * and still only one probe may run. */
    harness_signal(w, SIGTTIN);
    harness_wait_log(w, "event=max_concurrency", 5000);
    cr_assert_eq(harness_lines("probes"), 1);
    harness_write("go", "", 0);
    harness_until_lines("probes", 8, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(worker_breaker, the_pause_doubles_while_probes_fail)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, "--breaker-pause", "30ms",
                                               "--", harness_path("handler"));
    static const char *const pauses[] = {"pause=30ms", "pause=60ms",
                                         "pause=120ms", "pause=240ms",
                                         "pause=480ms"};
    for (size_t i = 0; i < 5; i++)
        harness_wait_log(w, pauses[i], 5000);
    harness_until(harness_log_count(w, "pause=480ms") >= 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0, "a stop waits for the breaker");
}

Test(worker_breaker, a_held_message_is_named_and_kept_at_a_stop)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "MQW/1\nid: 01JD3Z6Q9V0X8N5T2K7B4M1C3F\n\nx");
    struct harness_process *w =
        harness_worker(q, "--", harness_path("handler"));
    harness_wait_log(w, "event=breaker_open", 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_queue_length(q), 0, "it was not taken");
    cr_assert(strstr(harness_stderr(w, NULL), "01JD3Z6Q9V0X8N5T2K7B4M1C3F"),
              "the id that stays in custody is not logged:\n%s",
              harness_stderr(w, NULL));
    w = harness_worker(q, "--", RECORD);
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(
        harness_lines_with("runs", "01JD3Z6Q9V0X8N5T2K7B4M1C3F 1 0 0 - x"), 1,
        "%s", harness_read("runs", NULL));
}

Test(worker_breaker, a_failing_handler_does_not_open_it)
{
    const char *q = harness_queue(0, 0);
    for (int i = 0; i < 10; i++)
        harness_send_text(q, "x");
    struct harness_process *w = harness_worker(q, QUICKLY, "--", RECORD, "1");
    harness_wait_letters(q, 10, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_log_count(w, "event=breaker_open"), 0);
}

/* A handler that was started before the breaker opened must not delay the
 * probe. */
Test(worker_breaker, the_probe_does_not_wait_for_a_handler_that_runs)
{
    static const char body[] =
        "read b; echo $b >>runs\n"
        "while [ $b = long ] && [ ! -e go ]; do sleep 0.05; done";
    const char *q = harness_queue(0, 0);
    const char *script = harness_script("handler", body);
    struct harness_process *w =
        harness_worker(q, "-c", "3", "--breaker-pause", "100ms", "--", script);
    harness_send_text(q, "long\n");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(rename(script, harness_path("away")), 0);
    harness_send_text(q, "short\n");
    harness_wait_log(w, "event=breaker_open", 5000);
    cr_assert_eq(rename(harness_path("away"), script), 0);
    harness_wait_log(w, "event=breaker_closed", 5000);
    harness_until_lines("runs", 2, 5000);
    harness_write("go", "", 0);
    cr_assert_eq(harness_stop(w, 5000), 0);
}
