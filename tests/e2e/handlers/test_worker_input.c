/* test_worker_input.c - mqworker: wrong usage gets one helpful line, status 64
 * and changes nothing */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(worker_input, .init = harness_init, .fini = harness_fini);

/* Check that there is a single line, which starts with the program's name. */
static void one_line(const struct harness_result *r)
{
    const char *end = strchr(r->err, '\n');
    cr_assert(end && end[1] == '\0', "not one line: %s", r->err);
    cr_assert_eq(strncmp(r->err, "mqworker: ", 10), 0, "%s", r->err);
    cr_assert_eq(r->out_size, 0);
}

/* Check status 64, one line with each of the words, and that nothing was
 * created. */
static void refused(const char *queue, const char *const *argv,
                    const char *const *words)
{
    struct harness_result r =
        harness_run_spec(&(struct harness_spec){.argv = argv});
    cr_assert_eq(r.status, 64, "%d: %s", r.status, r.err);
    one_line(&r);
    for (; *words; words++)
        cr_assert(strstr(r.err, *words), "no \"%s\" in: %s", *words, r.err);
    cr_assert_eq(harness_queue_length(queue), -1, "a queue was made");
    cr_assert_not(harness_exists(harness_state_dir()), "state was made");
    cr_assert_not(harness_exists("elsewhere"), "state was made");
}

#define WORDS(...) HARNESS_LIST(__VA_ARGS__)
/* A flag with a value in an otherwise correct command line. */
#define FLAG_REFUSED(flag, value, ...)                                         \
    refused(q,                                                                 \
            HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), flag, \
                         value, q, "--", "true"),                              \
            WORDS(__VA_ARGS__))
#define REFUSED(words, ...)                                              \
    refused(q,                                                           \
            HARNESS_LIST("mqworker", "--state-dir", harness_state_dir(), \
                         __VA_ARGS__),                                   \
            words)

Test(worker_input, numbers_out_of_range)
{
    const char *q = harness_queue_name();
    FLAG_REFUSED("-c", "0", "--max-concurrency", "\"0\"", "1 to");
    FLAG_REFUSED("-c", "-1", "--max-concurrency", "\"-1\"");
    FLAG_REFUSED("--max-concurrency", "9999999", "\"9999999\"", "1 to");
    FLAG_REFUSED("--max-concurrency", "4x", "\"4x\"");
    FLAG_REFUSED("--max-concurrency", "", "--max-concurrency");
    FLAG_REFUSED("--max-concurrency", " 4", "--max-concurrency");
    FLAG_REFUSED("--max-concurrency", "18446744073709551617",
                 "--max-concurrency");
    FLAG_REFUSED("--max-attempts", "0", "--max-attempts", "\"0\"");
    FLAG_REFUSED("--max-crashes", "0", "--max-crashes", "\"0\"");
    FLAG_REFUSED("--jitter", "-5", "--jitter", "\"-5\"");
    FLAG_REFUSED("--jitter", "5%%", "--jitter", "\"5%%\"");
    FLAG_REFUSED("--queue-depth", "0", "--queue-depth", "\"0\"");
    FLAG_REFUSED("--message-size", "0", "--message-size");
    FLAG_REFUSED("--message-size", "1QiB", "--message-size", "\"1QiB\"");
    FLAG_REFUSED("--mode", "0888", "--mode", "\"0888\"");
    FLAG_REFUSED("--mode", "01777", "--mode", "\"01777\"");
}

Test(worker_input, units_that_do_not_exist)
{
    const char *q = harness_queue_name();
    FLAG_REFUSED("--grace", "5", "--grace", "\"5\"", "unit");
    FLAG_REFUSED("--grace", "5 s", "--grace", "\"5 s\"");
    FLAG_REFUSED("--grace", "-5s", "--grace", "\"-5s\"");
    FLAG_REFUSED("--grace", "5sec", "--grace", "\"5sec\"");
    FLAG_REFUSED("--grace", "99999999999h", "--grace");
    FLAG_REFUSED("--batch-time-limit", "never", "--batch-time-limit",
                 "\"never\"", "none");
    FLAG_REFUSED("--breaker-pause", "1y", "--breaker-pause", "\"1y\"");
}

Test(worker_input, a_backoff_that_is_none)
{
    static const char *const wrong[] = {
        "1s,,2s",       ",",         "1s,",
        ",1s",          "5",         "1s 2s",
        "exp:",         "exp:1s",    "exp:1s,",
        "exp:1s,2s,3s", "exp:5s,1s", "exp:1s,never",
        "linear:1s,5s"};
    const char *q = harness_queue_name();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char value[64];
        snprintf(value, sizeof value, "\"%s\"", wrong[i]);
        FLAG_REFUSED("--backoff", wrong[i], "--backoff", value, "exp:BASE,MAX");
    }
    FLAG_REFUSED("--backoff", "1s,,2s", "empty entry");
    FLAG_REFUSED("--backoff", "", "--backoff");
}

Test(worker_input, an_exit_map_that_is_none)
{
    static const char *const wrong[] = {
        "3",       "3=",      "=done",  "3=perhaps",     "256=done", "-1=done",
        "3=done,", ",3=done", "x=done", "3=done;4=dead", "3=Done"};
    const char *q = harness_queue_name();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        FLAG_REFUSED("--on-exit", wrong[i], "--on-exit", wrong[i], "discard");
}

Test(worker_input, unknown_flags_come_with_the_nearest_known_one)
{
    const char *q = harness_queue_name();
    REFUSED(WORDS("--max-atempts", "--max-attempts"), "--max-atempts", "3", q,
            "--", "true");
    REFUSED(WORDS("--concurency"), "--concurency", "3", q, "--", "true");
    REFUSED(WORDS("--grase", "--grace"), "--grase=3s", q, "--", "true");
    REFUSED(WORDS("-Z"), "-Z", q, "--", "true");
    REFUSED(WORDS("--log-format", "\"xml\"", "json"), "--log-format", "xml", q,
            "--", "true");
    REFUSED(WORDS("--no-create"), "--no-create=yes", q, "--", "true");
}

Test(worker_input, a_command_line_without_its_parts)
{
    const char *q = harness_queue_name();
    refused(q, HARNESS_LIST("mqworker"), WORDS("queue", "--help"));
    REFUSED(WORDS("command"), q);
    REFUSED(WORDS("command"), q, "--");
    REFUSED(WORDS("command"), q, "--", "");
    REFUSED(WORDS("--", "\"true\""), q, "true");
    REFUSED(WORDS("queue"), "--", "true");
    REFUSED(WORDS("--grace"), q, "--grace");
}

Test(worker_input, flags_that_mean_nothing_to_that_kind_of_command)
{
    const char *q = harness_queue_name();
    REFUSED(WORDS("--window 3", "--stream"), "--window", "3", q, "--", "true");
    REFUSED(WORDS("--max-rss 8KiB", "--stream"), "--max-rss", "8KiB", q, "--",
            "true");
    REFUSED(WORDS("--stream", "leave out --on-exit"), "--stream", "--on-exit",
            "3=done", q, "--", "true");
}

Test(worker_input, a_queue_name_that_is_none)
{
    char longest[300];
    const char *q = harness_queue_name();
    REFUSED(WORDS("\"/a/b\"", "slash"), "/a/b", "--", "true");
    REFUSED(WORDS("queue"), "/", "--", "true");
    REFUSED(WORDS("queue"), "", "--", "true");
    REFUSED(WORDS("queue"), "/.", "--", "true");
    REFUSED(WORDS("queue"), "..", "--", "true");
    REFUSED(WORDS("queue"), "/a\nb", "--", "true");
    memset(longest, 'q', sizeof longest);
    longest[256] = '\0';
    REFUSED(WORDS("queue"), longest, "--", "true");
    REFUSED(WORDS("--dead-letter-queue", "slash"), "--dead-letter-queue",
            "/a/b", q, "--", "true");
    REFUSED(WORDS("--dead-letter-queue", q), "--dead-letter-queue", q, q, "--",
            "true");
}

Test(worker_input, control_bytes_in_bad_input_do_not_reach_the_terminal)
{
    const char *q = harness_queue_name();
    struct harness_result r =
        harness_run("mqworker", "--grace", "\033[2J\n5", q, "--", "true");
    cr_assert_eq(r.status, 64);
    one_line(&r);
    cr_assert_null(strchr(r.err, '\033'), "%s", r.err);
    r = harness_run("mqworker", "--\033[2J", q, "--", "true");
    cr_assert_eq(r.status, 64);
    one_line(&r);
    cr_assert_null(strchr(r.err, '\033'), "%s", r.err);
}

Test(worker_input, help_and_version_go_to_stdout)
{
    struct harness_result r = harness_run("mqworker", "--help");
    cr_assert_eq(r.status, 0);
    cr_assert_eq(r.err_size, 0);
    static const char *const flags[] = {"-c, --max-concurrency N",
                                        "--batch-time-limit",
                                        "--max-attempts",
                                        "--backoff SPEC",
                                        "--jitter PERCENT",
                                        "--max-crashes",
                                        "--on-exit MAP",
                                        "--grace DUR",
                                        "--dead-letter-queue",
                                        "--no-create",
                                        "--queue-depth",
                                        "--message-size",
                                        "--mode OCTAL",
                                        "--state-dir DIR",
                                        "--log-format"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        cr_assert(strstr(r.out, flags[i]), "%s", flags[i]);
    r = harness_run("mqworker", "--version");
    cr_assert_eq(r.status, 0);
    cr_assert_eq(strncmp(r.out, "mqworker ", 9), 0);
}

Test(worker_input, a_handlers_flags_are_its_own)
{
    const char *q = harness_queue(0, 0);
    harness_send_text(q, "x");
    harness_script("h", "echo \"$@\" >args; echo >done");
    struct harness_process *w = harness_worker(
        q, "--", harness_path("h"), "--help", "--no-such-flag", "--", "-c");
    harness_until_lines("done", 1, 5000);
    cr_assert_str_eq(harness_read("args", NULL),
                     "--help --no-such-flag -- -c\n");
    cr_assert_eq(harness_stop(w, 5000), 0);
}
