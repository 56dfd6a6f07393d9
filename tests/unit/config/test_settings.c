/* test_settings.c - settings of a worker: defaults, operands, and flags that
 * depend on each other */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "worker/config/settings.h"

static struct settings s;
static struct problem p;

#define ARGS_MOST 16

/* Parse a command line; words are separated by blanks. */
static int parse(const char *line)
{
    static char text[512];
    static char *argv[ARGS_MOST + 1];
    int argc = 0;

    cr_assert_lt(strlen(line), sizeof text);
    strcpy(text, line);
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " ")) {
        cr_assert_lt(argc, ARGS_MOST);
        argv[argc++] = at;
    }
    argv[argc] = NULL;
    settings_init(&s);
    p = (struct problem){0};
    return settings_parse(&s, argc, argv, &p);
}

static void setup(void)
{
    unsetenv("MQW_CONFIG");
    unsetenv("INVOCATION_ID");
}

TestSuite(settings, .init = setup);

/* Check that a line fails with status 64 and this text. */
static void refused(const char *line, const char *says)
{
    cr_assert_lt(parse(line), 0, "%s", line);
    cr_assert_eq(p.status, EX_USAGE, "%s", line);
    cr_assert_not_null(strstr(p.text, says), "%s: %s", line, p.text);
}

Test(settings, a_queue_and_a_command_are_enough)
{
    cr_assert_eq(parse("mqworker /q -- cmd arg"), 0, "%s", p.text);
    cr_assert_str_eq(s.queue, "/q");
    cr_assert_str_eq(s.command[0], "cmd");
    cr_assert_str_eq(s.command[1], "arg");
    cr_assert_null(s.command[2]);
}

Test(settings, the_table_and_the_defaults_agree)
{
    static const struct {
        const char *line;
        size_t at;
    } same[] = {
        {"--max-attempts 5", offsetof(struct settings, max_attempts)},
        {"--max-crashes 3", offsetof(struct settings, max_crashes)},
        {"--grace 30s", offsetof(struct settings, grace_ns)},
        {"--kill-after 5s", offsetof(struct settings, kill_after_ns)},
        {"--lookahead 64", offsetof(struct settings, lookahead)},
        {"--tolerance-factor 5", offsetof(struct settings, tolerance_factor)},
        {"--estimated-duration 2s",
         offsetof(struct settings, estimated_duration_ns)},
    };
    struct settings none;

    settings_init(&none);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char line[128];

        snprintf(line, sizeof line, "mqworker %s /q -- cmd", same[i].line);
        cr_assert_eq(parse(line), 0, "%s", p.text);
        cr_assert_eq(memcmp((char *)&s + same[i].at, (char *)&none + same[i].at,
                            sizeof(uint64_t)),
                     0, "%s is not the default", same[i].line);
    }
}

Test(settings, operands_that_are_missing_are_named)
{
    refused("mqworker", "no queue");
    refused("mqworker /q", "no command");
    refused("mqworker /q --", "no command");
    refused("mqworker /q cmd", "the command comes after --");
    refused("mqworker /q /r -- cmd", "give one queue");
    refused("mqworker --exit-when-idle 30s /q -- cmd",
            "like --exit-when-idle=30s");
    refused("mqworker --spool 100 /q -- cmd", "like --spool=100");
    refused("mqworker /q --exit-when-idle 5s -- cmd",
            "like --exit-when-idle=5s");
    cr_assert_eq(parse("mqworker --spool /q -- cmd"), 0, "%s", p.text);
    cr_assert_eq(parse("mqworker help"), 0, "%s", p.text);
    cr_assert(s.help);
}

Test(settings, a_unit_without_a_command_names_its_file)
{
    setenv("MQW_CONFIG", "/etc/mqworker/q.conf", 1);
    refused("mqworker /q --", "/etc/mqworker/q.conf");
    unsetenv("MQW_CONFIG");
}

Test(settings, one_thing_handles_the_messages)
{
    cr_assert_eq(parse("mqworker --plugin a.so /q"), 0, "%s", p.text);
    cr_assert_null(s.command);
    refused("mqworker --plugin a.so /q -- cmd", "give one of them");
    refused("mqworker --plugin a.so --stream /q", "give one of them");
    refused("mqworker --plugin a.so --window 2 /q", "--window 2");
    refused("mqworker --plugin a.so --on-exit 3=dead /q", "give one of them");
    refused("mqworker --plugin-arg x /q -- cmd", "--plugin FILE.so");
    refused("mqworker --window 2 /q -- cmd", "give --stream");
    refused("mqworker --max-requests 9 /q -- cmd", "--max-requests 9");
    refused("mqworker --stream --on-exit 3=dead /q -- cmd", "--on-exit");
    cr_assert_eq(parse("mqworker --stream --window 2 /q -- cmd"), 0, "%s",
                 p.text);
}

Test(settings, the_queue_takes_no_dead_letters_of_its_own)
{
    refused("mqworker --dead-letter-queue /q /q -- cmd", "another name");
    cr_assert_eq(parse("mqworker --dead-letter-queue /d /q -- cmd"), 0);
}

Test(settings, a_run_in_which_nothing_would_be_taken_is_refused)
{
    refused("mqworker --run-for 10s /q -- cmd", "no longer than 5 x");
    refused("mqworker --run-for 9s /q -- cmd", "shorter than 5 x");
    cr_assert_eq(parse("mqworker --run-for 11s /q -- cmd"), 0);
    cr_assert_eq(
        parse("mqworker --run-for 2s --estimated-duration 100ms /q -- cmd"), 0);
}

Test(settings, the_margin_does_not_wrap)
{
    settings_init(&s);
    cr_assert_eq(settings_margin(&s, NS_PER_S), 5 * NS_PER_S);
    cr_assert_eq(settings_margin(&s, 0), 0);
    cr_assert_eq(settings_margin(&s, UINT64_MAX), UINT64_MAX / 2);
    cr_assert_eq(settings_margin(&s, UINT64_MAX / 2), UINT64_MAX / 2);
    s.tolerance_factor = 1;
    cr_assert_eq(settings_margin(&s, UINT64_MAX), UINT64_MAX / 2);
}

Test(settings, a_number_is_held_against_the_range_of_its_row)
{
    const struct option_row *row = settings_row("max-attempts");

    cr_assert_not_null(row);
    cr_assert_eq(settings_check_number(row, row->min, &p), 0);
    cr_assert_eq(settings_check_number(row, row->max, &p), 0);
    if (row->min > 0)
        cr_assert_lt(settings_check_number(row, row->min - 1, &p), 0);
    if (row->max < UINT64_MAX)
        cr_assert_lt(settings_check_number(row, row->max + 1, &p), 0);
    cr_assert_eq(p.status, EX_USAGE);
    cr_assert_null(settings_row("no-such-flag"));
}

Test(settings, the_backoff_is_set_as_a_whole)
{
    const struct backoff b = {.count = 2, .step_ns = {NS_PER_S, 9 * NS_PER_S}};
    struct backoff is;

    settings_init(&s);
    settings_set_backoff(&s, &b);
    settings_backoff(&s, &is);
    cr_assert_eq(is.count, 2);
    cr_assert_eq(is.step_ns[1], 9 * NS_PER_S);
    cr_assert(!is.exponential);
}

Test(settings, the_queue_is_asked_for_as_told)
{
    struct queue_attr attr;

    cr_assert_eq(parse("mqworker --no-create /q -- cmd"), 0, "%s", p.text);
    cr_assert_eq(settings_queue_flags(&s), QUEUE_RECEIVE);
    cr_assert_eq(parse("mqworker /q -- cmd"), 0);
    cr_assert_eq(settings_queue_flags(&s), QUEUE_RECEIVE | QUEUE_CREATE);
    s.queue_depth = 7;
    s.message_size = 99;
    s.mode = 0640;
    settings_attr(&s, &attr);
    cr_assert_eq(attr.depth, 7);
    cr_assert_eq(attr.message_size, 99);
    cr_assert_eq(attr.mode, 0640);
}

/* There is a slot for each receiving thread and for all that it may deliver,
 * besides a full lookahead and some verdicts that cannot be written. */
Test(settings, there_are_slots_for_all_that_may_be_lent_at_once)
{
    settings_init(&s);
    s.lookahead = 10;
    for (unsigned cap = 1; cap < 100; cap++)
        for (s.window = 1; s.window < 9; s.window++) {
            unsigned n = slots_for(&s, cap);

            cr_assert_gt(n, cap * (1 + s.window) + s.lookahead);
            cr_assert_gt(slots_for(&s, cap + 1), n);
        }
    s.concurrency = 12;
    cr_assert_eq(slots_more(&s), 12);
}

/* ---- settings as a command line ---- */

static char told_line[2048];

/* Return the flags that are not at their defaults, as a command line. */
static const char *told(void)
{
    struct settings preset;
    char value[SETTING_TEXT];
    size_t used = 0;

    settings_init(&preset);
    told_line[0] = '\0';
    for (size_t i = 0; i < settings_table.count; i++)
        if (settings_changed(&s, &preset, &settings_table.rows[i], value))
            used += (size_t)snprintf(told_line + used, sizeof told_line - used,
                                     "--%s%s%s ", settings_table.rows[i].name,
                                     *value ? "=" : "", value);
    return told_line;
}

Test(settings, what_was_not_given_is_not_told)
{
    cr_assert_eq(parse("mqworker /q -- true"), 0);
    cr_assert_str_eq(told(), "");
    cr_assert_eq(parse("mqworker --max-attempts 5 --backoff exp:1s,5m /q -- x"),
                 0);
    cr_assert_str_eq(told(), "", "a default that was given is printed");
}

Test(settings, what_was_given_is_told_in_words_that_say_the_same)
{
    static const char *const lines[] = {
        "--max-attempts=9 --backoff=1s,5s --on-exit=3=discard,70=dead "
        "--timeout=2s --group-separator=: ",
        "--batch-time-limit=none --exit-when-idle=0s --queue-depth=3 "
        "--message-size=8KiB --mode=0640 ",
        "--max-concurrency=777 --on-group-dead=hold "
        "--dead-letter-queue=/dead --keep-dead=1h --no-create "
        "--log-format=json --verbose=2 ",
        "--exit-when-idle=5s --state-dir=/tmp ",
    };
    char line[400];

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        snprintf(line, sizeof line, "mqworker %s/q -- true", lines[i]);
        for (char *v = strstr(line, "--verbose=2"); v; v = NULL)
            memcpy(v, "-vv        ", 11);
        cr_assert_eq(parse(line), 0, "%s: %s", line, p.text);
        cr_assert_str_eq(told(), lines[i]);
    }
}

/* ---- a broker ---- */

Test(settings, on_a_broker_nothing_bounds_what_waits)
{
    refused("mqworker amqp://h/v/q --max-waiting 1000000 -- cmd",
            "--max-waiting cannot be used with amqp://h/v/q");
    refused("mqworker amqp://h/v/q --max-parked 5 -- cmd",
            "--max-parked cannot be used with amqp://h/v/q");
    cr_assert_eq(parse("mqworker /q --max-waiting 5 --max-parked 5 -- cmd"), 0,
                 "%s", p.text);
}

Test(settings, on_a_broker_what_is_for_groups_needs_partitions)
{
    refused("mqworker amqp://h/v/q --lookahead 64 -- cmd",
            "--lookahead cannot be used with amqp://h/v/q");
    refused("mqworker amqp://h/v/q --group-quantum 10 -- cmd",
            "--group-quantum cannot be used with amqp://h/v/q");
    refused("mqworker amqp://h/v/q --spool-sync always -- cmd",
            "--spool-sync cannot be used with amqp://h/v/q");
    cr_assert_eq(parse("mqworker amqp://h/v/q --partitions 2 --backoff 1m "
                       "--jitter 0 --group-quantum 10 -- cmd"),
                 0, "%s", p.text);
}

/* ---- partitions ---- */

#define PARTED "mqworker amqp://h/v/q --partitions 2 "

Test(settings, with_partitions_all_attempts_fit_into_what_a_broker_waits)
{
    cr_assert_eq(parse(PARTED "--backoff 4m --jitter 0 -- cmd"), 0, "%s",
                 p.text);
    refused(PARTED "--backoff 5m --jitter 0 -- cmd", "less than 20m");
    refused(PARTED "--backoff 4m --jitter 25 -- cmd", "--jitter");
    refused(PARTED "--backoff 1s --timeout 4m -- cmd", "--timeout");
    cr_assert_eq(parse(PARTED "--backoff 1s --timeout 3m -- cmd"), 0, "%s",
                 p.text);
    refused(PARTED "--backoff 1s --max-timeout 4m -- cmd", "--max-timeout");
    cr_assert_eq(parse(PARTED "--backoff 1s --max-timeout 3m -- cmd"), 0, "%s",
                 p.text);
    refused(PARTED "--lookahead 64 -- cmd", "leave out --lookahead");
}
