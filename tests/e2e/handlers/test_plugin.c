/* test_plugin.c - mqworker --plugin: C functions as handlers */
#include "tests/harness/harness.h"
#include "tests/harness/letters.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(plugin, .init = harness_init, .fini = harness_fini);

#define ACT "--plugin", harness_plugin("act")

/* Check the exit status, and that the only line contains `text`. */
static void refused(struct harness_result r, int status, const char *text)
{
    cr_assert_eq(r.status, status, "status %d: %s", r.status, r.err);
    cr_assert_not_null(strstr(r.err, text), "\"%s\" is not in: %s", text,
                       r.err);
    cr_assert_eq(strchr(r.err, '\n') + 1, r.err + r.err_size, "not one line");
}

#define REFUSED(status, text, ...)                                      \
    refused(harness_run("mqworker", "--state-dir", harness_state_dir(), \
                        harness_queue(0, 0), __VA_ARGS__),              \
            status, text)

Test(plugin, is_called_for_each_message_between_its_init_and_its_fini)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "one");
    harness_send_text(q, "two");
    struct harness_process *w =
        harness_worker(q, ACT, "--plugin-arg", "hello", "-c", "1");
    harness_until_lines("runs", 3, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(harness_read("runs", NULL),
                     "hello 0 0\none 1 0\ntwo 1 0\nfini 0 0\n");
}

Test(plugin, verdicts_are_those_it_returns)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "dead");
    harness_send_text(q, "retry");
    struct harness_process *w = harness_worker(q, ACT, "--backoff", "1ms");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_str_eq(l->reason, "rejected");
    cr_assert_str_eq(l->error, "as told");
    harness_until(harness_lines_with("runs", "retry 2 0") == 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    harness_wait_log(w, "error=\"returned retry\"", 1000);
}

Test(plugin, that_cannot_be_used_is_refused_in_one_line)
{
    REFUSED(64, "cannot be loaded", "--plugin", "/nowhere.so");
    REFUSED(64, "no function mqw_handle", "--plugin", harness_plugin("empty"));
    REFUSED(64, "version 999", "--plugin", harness_plugin("old"));
    REFUSED(69, "its mqw_init returned 3", ACT, "--plugin-arg", "no");
    REFUSED(64, "give one of them", ACT, "--", "true");
    REFUSED(64, "--plugin-arg is for a plugin", "--plugin-arg", "x", "--",
            "true");
    REFUSED(64, "--timeout-abort is for a plugin", "--timeout-abort", "--",
            "true");
}

Test(plugin, flags_for_processes_are_refused_with_their_values)
{
    REFUSED(64, "and --window 8: a plugin is called instead of a command", ACT,
            "--window", "8");
    REFUSED(64, "and --max-requests 7: a plugin", ACT, "--max-requests", "7");
    REFUSED(64, "and --max-rss 1MiB: a plugin", ACT, "--max-rss", "1MiB");
    REFUSED(64, "and --on-exit: a plugin", ACT, "--on-exit", "3=dead");
}

Test(plugin, an_empty_argument_reaches_it)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "one");
    struct harness_process *w = harness_worker(q, ACT, "--plugin-arg", "");
    harness_until_lines("runs", 2, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(harness_read("runs", NULL), " 0 0\none 1 0\nfini 0 0\n");
    REFUSED(64, "--plugin-arg is for a plugin", "--plugin-arg=", "--", "true");
}

Test(plugin, a_message_that_crashes_it_is_dead_and_all_others_are_done)
{
    const char *q = harness_queue(0, 0);
    const char *bodies[] = {"a", "b", "abort", "c", "d"};
    int crashes = 0, status;
    for (size_t i = 0; i < 5; i++)
        harness_send_text(q, bodies[i]);
    do {
        struct harness_process *w = harness_worker(
            q, ACT, "--max-crashes", "3", "--exit-when-idle", "-c", "1");
        status = harness_wait(w, 10000);
        crashes += status == -SIGABRT;
    } while (status == -SIGABRT && crashes < 10);
    cr_assert_eq(status, 0);
    cr_assert_eq(crashes, 3);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_str_eq(l->reason, "crashed");
    cr_assert_str_eq(l->body, "abort");
    for (size_t i = 0; i < 5; i++)
        cr_assert_geq(harness_lines_with("runs", bodies[i]), 1);
    cr_assert_eq(harness_lines_with("runs", "abort 1 "), 3);
    cr_assert_eq(harness_lines_with("runs", "d 1 0"), 1, "%s",
                 harness_read("runs", NULL));
}

/* Run three `quiet` messages beside one that aborts. Only that one may die, and
 * only of a crash in which it ran alone. */
static void beside(const char *quiet, const char *aborts, const char *max)
{
    const char *q = harness_queue(0, 0);
    int crashes = 0, status;
    size_t n;
    for (size_t i = 0; i < 3; i++)
        harness_send_text(q, quiet);
    harness_send_text(q, aborts);
    do {
        struct harness_process *w =
            harness_worker(q, ACT, "--max-crashes", max, "--exit-when-idle=1s",
                           "-c", "4", "--backoff", "100ms", "--jitter", "0");
        status = harness_wait(w, 10000);
        crashes += status == -SIGABRT;
    } while (status == -SIGABRT && crashes < 10);
    cr_assert_eq(status, 0);
    cr_assert(crashes == atoi(max) || crashes == atoi(max) + 1);
    const struct harness_letter *l = harness_letters(q, &n);
    cr_assert_eq(n, 1, "%s", harness_read("runs", NULL));
    cr_assert_str_eq(l->body, aborts);
    cr_assert_str_eq(l->reason, "crashed");
}

Test(plugin, what_ran_beside_a_message_that_crashes_it_is_done)
{
    beside("nap", "abort", "3");
}

/* Four messages were running at the first crash; the second crash shows which
 * of them is to blame. */
Test(plugin, what_ran_beside_it_is_done_even_if_one_crash_is_the_last)
{
    beside("nap", "abort", "1");
}

Test(plugin, retries_that_ran_beside_one_that_crashes_it_are_done)
{
    beside("later nap", "later abort", "3");
}

Test(plugin, retries_that_ran_beside_it_are_done_even_if_one_crash_is_the_last)
{
    beside("later nap", "later abort", "1");
}

/* Return the number of threads: /proc/PID/task has a folder for each. */
static long threads(const struct harness_process *w)
{
    char tasks[64];
    struct stat st;
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)harness_pid(w));
    cr_assert_eq(stat(tasks, &st), 0);
    return (long)st.st_nlink - 2;
}

/* With a plugin, threads wait for the queue themselves. */
Test(plugin, its_queue_made_again_and_again_costs_no_thread)
{
    enum { TIMES = 100 };
    const char *q = harness_queue(0, 0);
    struct harness_process *w = harness_worker(q, ACT, "-c", "1");
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 256};
    harness_wait_log(w, "event=started", 5000);
    harness_send_text(q, "first");
    harness_until_lines("runs", 1, 5000);
    long before = threads(w);
    for (int i = 1; i <= TIMES; i++) {
        mq_unlink(q);
        mqd_t mq = mq_open(q, O_CREAT | O_RDWR | O_CLOEXEC, 0600, &attr);
        cr_assert_neq(mq, (mqd_t)-1); /* made here or by the worker */
        mq_close(mq);
        harness_send_text(q, "more");
        harness_until_lines("runs", (size_t)i + 1, 5000);
    }
    cr_assert_leq(threads(w), before + 2);
    cr_assert_eq(harness_stop(w, 5000), 0);
}

Test(plugin, past_its_time_limit_it_is_cancelled_and_failed)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "wait");
    struct harness_process *w =
        harness_worker(q, ACT, "--timeout", "50ms", "--max-attempts", "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(l->error, "timeout 50ms", "a late done was counted");
    cr_assert_str_eq(l->reason, "exhausted");
}

Test(plugin, with_timeout_abort_the_worker_ends_and_the_crash_counts)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "hang");
    struct harness_process *w =
        harness_worker(q, ACT, "--timeout", "1500ms", "--kill-after", "500ms",
                       "--timeout-abort", "--max-crashes", "1");
    cr_assert_eq(harness_wait(w, 10000), -SIGABRT);
    w = harness_worker(q, ACT, "--max-crashes", "1");
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(l->reason, "crashed");
    cr_assert_eq(l->crashes, 1);
    cr_assert_eq(harness_lines_with("runs", "hang 1 0"), 1);
}

Test(plugin, one_that_does_not_return_gives_its_message_back_at_a_stop)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "hang");
    struct harness_process *w = harness_worker(q, ACT, "--max-crashes", "1");
    harness_until_lines("runs", 1, 5000);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_eq(harness_log_count(w, "event=unfinished"), 1);
    w = harness_worker(q, ACT, "--max-crashes", "1");
    harness_until_lines("runs", 2, 5000);
    harness_signal(w, SIGQUIT);
    cr_assert_eq(harness_wait(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", "hang 1 1"), 1,
                 "no marked repeat as attempt 1: %s",
                 harness_read("runs", NULL));
}

Test(plugin, one_that_is_cancelled_by_a_stop_counts_no_failure)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "wait");
    struct harness_process *w =
        harness_worker(q, ACT, "--grace", "20ms", "--max-attempts", "1");
    harness_until_lines("runs", 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_eq(harness_lines_with("runs", "fini"), 1);
    cr_assert_eq(harness_log_count(w, "event=dead"), 0);
}

/* Return the path of a file in docs/, which is $MQW_DOCS or else in the working
 * directory of make. */
static const char *docs(const char *name)
{
    static char path[4096];
    char real[4096];
    const char *dir = getenv("MQW_DOCS");

    snprintf(path, sizeof path, "%s/%s", dir ? dir : "docs", name);
    cr_assert_not_null(realpath(path, real), "cannot find %s; set MQW_DOCS",
                       path);
    return strcpy(path, real);
}

Test(plugin, the_one_of_the_docs_compiles_as_they_say_and_works)
{
    static const char fence[] = "\n```c plugin\n";
    char include[4200];
    const char *text = harness_read(docs("library.md"), NULL);
    const char *from = strstr(text, fence);
    cr_assert_not_null(from);
    from += sizeof fence - 1;
    harness_write("orders.c", from,
                  (size_t)(strstr(from, "\n```\n") + 1 - from));
    snprintf(include, sizeof include, "-I%s", docs("../worker"));
    struct harness_result r =
        harness_run("cc", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall",
                    "-Wextra", "-Werror", include, "-o",
                    harness_path("orders.so"), harness_path("orders.c"));
    cr_assert_eq(r.status, 0, "%s", r.err);
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "");
    harness_send_text(q, "why?");
    harness_send_text(q, "fine");
    struct harness_process *w =
        harness_worker(q, "--plugin", harness_path("orders.so"), "-v");
    harness_wait_log(w, "event=done", 5000);
    harness_wait_log(w, "event=retry", 5000);
    const struct harness_letter *l = harness_wait_letters(q, 1, 5000);
    cr_assert_eq(harness_stop(w, 5000), 0);
    cr_assert_str_eq(l->error, "an empty order");
}
