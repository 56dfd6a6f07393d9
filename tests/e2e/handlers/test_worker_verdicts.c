/* test_worker_verdicts.c - mqworker: verdicts by the exit of a handler */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(worker_verdicts, .init = harness_init, .fini = harness_fini);

/* A handler that exits as the body says. */
#define ENDS "--", "sh", "-c", "read how; echo \"$how\" >>runs; $how"

/* Return the letter with that body (without its newline). */
static const struct harness_letter *letter_of(const struct harness_letter *list,
                                              size_t n, const char *body)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].body && strncmp(list[i].body, body, strlen(body)) == 0 &&
            list[i].body[strlen(body)] == '\n')
            return &list[i];
    }
    cr_assert_fail("no letter of \"%s\"", body);
    return NULL;
}

/* Check the reason, the error and the attempts of a letter. */
static void ended_check(const struct harness_letter *list, size_t n,
                        const char *body, const char *reason, const char *error,
                        long long tries)
{
    const struct harness_letter *l = letter_of(list, n, body);
    cr_assert_str_eq(l->reason, reason, "%s: %s", body, l->reason);
    cr_assert_str_eq(l->error, error, "%s: %s", body, l->error);
    cr_assert_eq(l->attempts, tries, "%s: %lld tries", body, l->attempts);
    cr_assert_eq(harness_lines_with("runs", body), (size_t)tries);
}

Test(worker_verdicts, done_dead_and_retry_by_exit_code_and_signal)
{
    static const char *const bodies[] = {
        "exit 0\n",   "exit 65\n",       "exit 1\n",        "exit 75\n",
        "exit 255\n", "kill -KILL $$\n", "kill -SEGV $$\n", "exit 00\n"};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        harness_send_text(q, bodies[i]);
    struct harness_process *w = harness_worker(
        q, "-c", "2", "--max-attempts", "2", "--backoff", "1ms", "--", "sh",
        "-c", "read how; echo \"$how\" >>runs; eval \"$how\"");
    const struct harness_letter *l = harness_wait_letters(q, 6, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    ended_check(l, 6, "exit 65", "rejected", "exit 65", 1);
    ended_check(l, 6, "exit 1", "exhausted", "exit 1", 2);
    ended_check(l, 6, "exit 75", "exhausted", "exit 75", 2);
    ended_check(l, 6, "exit 255", "exhausted", "exit 255", 2);
    ended_check(l, 6, "kill -KILL $$", "exhausted", "signal 9", 2);
    ended_check(l, 6, "kill -SEGV $$", "exhausted", "signal 11", 2);
    cr_assert_eq(harness_lines_with("runs", "exit 00"), 1);
    cr_assert_eq(harness_lines_with("runs", "exit 0"), 2, "one ran again");
}

Test(worker_verdicts, on_exit_maps_codes_and_leaves_the_others_alone)
{
    static const char *const bodies[] = {"exit 3\n",  "exit 70\n", "exit 4\n",
                                         "exit 65\n", "exit 0\n",  "exit 127\n",
                                         "exit 9\n"};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        harness_send_text(q, bodies[i]);
    struct harness_process *w = harness_worker(
        q, "-c", "1", "--max-attempts", "2", "--backoff", "1ms", "--on-exit",
        "3=discard,70=dead,4=done,65=retry,0=dead,127=dead", ENDS);
    const struct harness_letter *l = harness_wait_letters(q, 5, 10000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    ended_check(l, 5, "exit 70", "rejected", "exit 70", 1);
    ended_check(l, 5, "exit 65", "exhausted", "exit 65", 2);
    ended_check(l, 5, "exit 127", "rejected", "exit 127", 1);
    ended_check(l, 5, "exit 9", "exhausted", "exit 9", 2);
    ended_check(l, 5, "exit 0", "rejected", "exit 0", 1);
    cr_assert_eq(harness_lines_with("runs", "exit 3"), 1);
    cr_assert_eq(harness_lines_with("runs", "exit 4"), 1);
    const char *line = harness_wait_log(w, "event=discarded", 0);
    cr_assert(strstr(line, "msg="), "%s", line);
}

Test(worker_verdicts, the_summary_counts_each_end_once)
{
    static const char *const bodies[] = {"exit 0\n", "exit 0\n", "exit 65\n",
                                         "exit 3\n", "exit 1\n"};
    const char *q = harness_queue(0, 0);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        harness_send_text(q, bodies[i]);
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "2", "--backoff", "1ms",
                       "--on-exit", "3=discard", ENDS);
    harness_wait_letters(q, 2, 5000);
    harness_until_lines("runs", 6, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    const char *line = harness_wait_log(w, "event=stopped", 0);
    cr_assert(strstr(line, " done=2 ") && strstr(line, " retried=1 ") &&
                  strstr(line, " dead=2 ") && strstr(line, " discarded=1 "),
              "%s", line);
}

Test(worker_verdicts, the_history_has_every_attempt_with_its_end)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    struct harness_process *w =
        harness_worker(q, "--max-attempts", "3", "--backoff", "1ms", "--", "sh",
                       "-c", "echo try $MQW_ATTEMPT >&2; exit 1$MQW_ATTEMPT");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(l->history, 3);
    cr_assert_str_eq(l->errors[0], "exit 11");
    cr_assert_str_eq(l->errors[1], "exit 12");
    cr_assert_str_eq(l->errors[2], "exit 13");
    cr_assert_str_eq(l->said, "try 3\n");
    struct harness_result r = harness_run("mqdlq", "show", "--state-dir",
                                          harness_state_dir(), q, l->id);
    cr_assert(strstr(r.out, "try 1") && strstr(r.out, "try 2"), "%s", r.out);
}

Test(worker_verdicts, a_dead_letters_body_is_kept_byte_for_byte)
{
    char body[256], id[24];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(255 - i);
    const char *q = harness_queue(0, 256);
    harness_send(q, body, sizeof body, 9);
    struct harness_process *w = harness_worker(q, "--", "sh", "-c", "exit 65");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_null(l->body, "printed as text");
    cr_assert_eq(l->body_size, sizeof body);
    cr_assert_eq(l->priority, 9);
    snprintf(id, sizeof id, "%lld", l->row);
    struct harness_result r = harness_run(
        "mqdlq", "show", "--body", "--state-dir", harness_state_dir(), q, id);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert_eq(r.out_size, sizeof body);
    cr_assert_arr_eq(r.out, body, sizeof body);
}
