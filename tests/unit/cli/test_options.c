/* test_options.c - every way to write a flag, and every way to get it wrong */
#include <criterion/criterion.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/base/clock.h"
#include "common/cli/options.h"

#define WORDS_MAX 16
#define COUNT(a)  (sizeof(a) / sizeof *(a))

struct settings {
    uint64_t concurrency, timeout, grace, size, depth, mode, format, verbose;
    uint64_t idle, sum;
    const char *name;
    bool stream, quiet, idle_given, grace_given;
};

/* Append a digit to a number: an OPT_CALL that fails for "own" and "bad". */
static int sum_call(const char *text, void *into, struct problem *p)
{
    uint64_t *sum = into;
    if (strcmp(text, "own") == 0)
        return problem_set(p, EX_CONFIG, ERANGE, "--sum: own words");
    if (strcmp(text, "bad") == 0)
        return problem_set(p, 0, EINVAL, "\"%s\" cannot be added", text);
    *sum = *sum * 10 + (uint64_t)(*text - '0');
    return 0;
}

/* Add a thousand: an OPT_CALL without a value. */
static int poke_call(const char *text, void *into, struct problem *p)
{
    (void)p;
    cr_assert_null(text);
    *(uint64_t *)into += 1000;
    return 0;
}

#define AT(field) .offset = offsetof(struct settings, field)
/* clang-format off */
static const struct option_row rows[] = {
    {.name = "max-concurrency", .letter = 'c', .type = OPT_NUMBER,
     .value = "N", .min = 1, .max = 1024, .preset = "processors",
     .elsewhere = "workers|jobs", AT(concurrency),
     .help = "handlers at once, all kinds together"},
    {.name = "timeout", .letter = 't', .type = OPT_DURATION, .value = "DUR",
     .min = 1, .words = "none", .preset = "none", AT(timeout),
     .help = "handler time limit: SIGTERM to its process group"},
    {.name = "grace", .type = OPT_DURATION, .value = "DUR", .min = NS_PER_MS,
     .max = 3600 * NS_PER_S, .preset = "30s", AT(grace),
     .seen = offsetof(struct settings, grace_given) + 1,
     .help = "how long running handlers may finish"},
    {.name = "message-size", .type = OPT_SIZE, .value = "SIZE", .min = 1,
     .max = 16 << 20, AT(size), .help = "room for one message"},
    {.name = "queue-depth", .type = OPT_NUMBER, .value = "N", AT(depth),
     .old_letter = 'n', .unit = "%", .help = "room for messages"},
    {.name = "mode", .type = OPT_OCTAL, .value = "OCTAL", .max = 0777,
     .preset = "0600", AT(mode), .help = "permissions of a new queue"},
    {.name = "log-format", .type = OPT_CHOICE, .words = "text|json|none",
     .preset = "text", AT(format), .help = "form of the log lines"},
    {.name = "exit-when-idle", .letter = 'i', .type = OPT_DURATION,
     .optional = true, .value = "DUR", .preset = "2s", AT(idle),
     .seen = offsetof(struct settings, idle_given) + 1,
     .help = "exit once nothing is left to do"},
    {.name = "dead-letter-queue", .letter = 'd', .type = OPT_STRING,
     .value = "NAME", AT(name), .help = "also move dead letters there"},
    {.name = "sum", .letter = 's', .type = OPT_CALL, .value = "DIGIT",
     .call = sum_call, AT(sum), .help = "add a digit"},
    {.name = "poke", .type = OPT_CALL, .call = poke_call, AT(sum),
     .help = "add a thousand"},
    {.name = "stream", .type = OPT_FLAG, AT(stream),
     .help = "COMMAND is long-lived"},
    {.name = "verbose", .letter = 'v', .type = OPT_COUNT, AT(verbose),
     .help = "say more"},
    {.name = "quiet", .letter = 'q', .type = OPT_FLAG, AT(quiet),
     .help = "say less"},
    {.name = "help", .type = OPT_FLAG, AT(quiet), .help = "this text"},
};
/* clang-format on */

static const struct option_table table = {.program = "prog",
                                          .usage = "[options] QUEUE",
                                          .rows = rows,
                                          .count = COUNT(rows)};

/* One call of options_parse: a line that is split at spaces ("_" in a word is a
 * space, "''" an empty word), and what came of it. */
struct run {
    char text[256];
    char *argv[WORDS_MAX + 1];
    int argc, operands, rest, rc;
    struct settings set;
    struct problem p;
};

static struct run *run_line(const char *line)
{
    struct run *r = calloc(1, sizeof *r);
    snprintf(r->text, sizeof r->text, "prog %s", line);
    for (char *word = strtok(r->text, " "); word; word = strtok(NULL, " ")) {
        cr_assert_lt(r->argc, WORDS_MAX);
        if (strcmp(word, "''") == 0)
            *word = '\0';
        for (char *c = word; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        r->argv[r->argc++] = word;
    }
    r->rc = options_parse(&table, r->argc, r->argv, &r->set, &r->operands,
                          &r->rest, &r->p);
    return r;
}

/* Parse a line, which must succeed. */
static struct run *run_good(const char *line)
{
    struct run *r = run_line(line);
    cr_assert_eq(r->rc, 0, "%s: %s", line, r->p.text);
    return r;
}

/* Check that a line fails with this text and status 64. */
static void refuse_check(const char *line, const char *text)
{
    struct run *r = run_line(line);
    cr_expect_eq(r->rc, -EINVAL, "%s", line);
    cr_expect_eq(r->p.status, EX_USAGE, "%s", line);
    cr_expect_str_eq(r->p.text, text);
    free(r);
}

Test(options, values_are_attached_or_follow)
{
    static const char *const lines[] = {
        "--max-concurrency 4",
        "--max-concurrency=4",
        "-c4",
        "-c 4",
        "-vc4",
        "-qvc 4",
        "-c9 --max-concurrency=4",
        "-c=9 -c4",
    };
    for (size_t i = 0; i + 1 < COUNT(lines); i++) {
        struct run *r = run_good(lines[i]);
        cr_expect_eq(r->set.concurrency, 4, "%s", lines[i]);
        cr_expect_eq(r->operands, 0);
        cr_expect_eq(r->rest, -1);
        free(r);
    }
    refuse_check("-c=9", "--max-concurrency: \"=9\" is not a number; "
                         "give 1 to 1024");
}

Test(options, each_type_is_read)
{
    struct run *r = run_good("-c 1024 -t 1m30s --grace=250ms --mode 0640 "
                             "--message-size=8KiB --queue-depth 0 "
                             "--log-format=json -d /dead --stream -vvqv");
    cr_expect_eq(r->set.concurrency, 1024);
    cr_expect_eq(r->set.timeout, 90 * NS_PER_S);
    cr_expect_eq(r->set.grace, 250 * NS_PER_MS);
    cr_expect(r->set.grace_given);
    cr_expect_eq(r->set.mode, 0640);
    cr_expect_eq(r->set.size, 8192);
    cr_expect_eq(r->set.depth, 0);
    cr_expect_eq(r->set.format, 1);
    cr_expect_str_eq(r->set.name, "/dead");
    cr_expect(r->set.stream);
    cr_expect(r->set.quiet);
    cr_expect_eq(r->set.verbose, 3);
    cr_expect_not(r->set.idle_given);
    free(r);
}

Test(options, run_limits_are_inside)
{
    static const char *const lines[] = {
        "-c1",
        "-c1024",
        "--grace 1ms",
        "--grace 1h",
        "--message-size 16MiB",
        "--message-size 1",
        "--mode 0",
        "--mode 777",
        "-t 1ns",
        "--queue-depth 9223372036854775807",
        "-t 9223372036854775807ns",
        "-c 0004",
    };
    for (size_t i = 0; i < COUNT(lines); i++)
        free(run_good(lines[i]));
}

Test(options, the_last_of_two_wins_and_a_call_sees_both)
{
    struct run *r = run_good("-t 1s --log-format json -s1 --timeout=2s -s 2 "
                             "--log-format text --sum=3");
    cr_expect_eq(r->set.timeout, 2 * NS_PER_S);
    cr_expect_eq(r->set.format, 0);
    cr_expect_eq(r->set.sum, 123);
    free(r);
}

Test(options, a_word_besides_the_type_gives_the_largest_value)
{
    struct run *r = run_good("--timeout none");
    cr_expect_eq(r->set.timeout, UINT64_MAX);
    free(r);
}

Test(options, a_value_that_may_be_left_out_never_eats_an_operand)
{
    struct run *r = run_good("--exit-when-idle 5-orders");
    cr_expect(r->set.idle_given);
    cr_expect_eq(r->set.idle, 2 * NS_PER_S, "the value is not the preset");
    cr_expect_eq(r->operands, 1);
    cr_expect_str_eq(r->argv[0], "5-orders");
    free(r);
    r = run_good("--exit-when-idle=5s -vi");
    cr_expect_eq(r->set.idle, 2 * NS_PER_S,
                 "the last -i does not set the preset");
    cr_expect_eq(r->set.verbose, 1);
    free(r);
    r = run_good("--exit-when-idle --exit-when-idle=5s");
    cr_expect_eq(r->set.idle, 5 * NS_PER_S);
    free(r);
    r = run_good("--exit-when-idle /5s");
    cr_expect_str_eq(r->argv[0], "/5s");
    free(r);
}

Test(options, a_value_that_is_not_joined_is_no_operand)
{
    refuse_check("--exit-when-idle 5s /q",
                 "--exit-when-idle 5s: a value that may be left out is joined "
                 "with =, like --exit-when-idle=5s (the queue of that name is "
                 "/5s)");
    refuse_check("-vi 5 /q",
                 "--exit-when-idle 5: a value that may be left out is joined "
                 "with =, like --exit-when-idle=5 (the queue of that name is "
                 "/5)");
}

Test(options, operands_may_stand_anywhere_before_two_dashes)
{
    struct run *r = run_good("a -c4 b -- c -d --");
    cr_expect_eq(r->operands, 2);
    cr_expect_str_eq(r->argv[0], "a");
    cr_expect_str_eq(r->argv[1], "b");
    cr_expect_eq(r->rest, 5);
    cr_expect_str_eq(r->argv[5], "c");
    cr_expect_str_eq(r->argv[6], "-d");
    cr_expect_str_eq(r->argv[7], "--");
    cr_expect_null(r->set.name);
    free(r);
}

Test(options, a_single_dash_is_an_operand)
{
    struct run *r = run_good("replay - -v");
    cr_expect_eq(r->operands, 2);
    cr_expect_str_eq(r->argv[1], "-");
    free(r);
}

Test(options, two_dashes_at_the_end_leave_an_empty_rest)
{
    struct run *r = run_good("a --");
    cr_expect_eq(r->rest, r->argc);
    cr_expect_eq(r->operands, 1);
    free(r);
    r = run_good("");
    cr_expect_eq(r->rest, -1);
    cr_expect_eq(r->operands, 0);
    free(r);
}

Test(options, no_argument_is_lost_by_the_permutation)
{
    struct run *r = run_good("a -c 4 b -t1s c --stream d -- e");
    static const char *const all[] = {
        "prog", "a", "-c", "4", "b", "-t1s", "c", "--stream", "d", "--", "e"};
    cr_assert_eq(r->argc, COUNT(all));
    for (size_t i = 0; i < COUNT(all); i++) {
        int found = 0;
        for (int j = 0; j < r->argc; j++)
            found += strcmp(r->argv[j], all[i]) == 0;
        cr_expect_eq(found, 1, "%s", all[i]);
    }
    free(r);
}

Test(options, bad_numbers_name_flag_value_and_range)
{
    static const char *const bad[] = {"abc", "-5",  "+5", "4x", "0x4",
                                      "4.0", "1e2", "_4", "4_", "--stream"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        char line[64], text[128], shown[32];
        snprintf(shown, sizeof shown, "%s", bad[i]);
        for (char *c = shown; *c; c++)
            *c = *c == '_' ? ' ' : *c;
        snprintf(line, sizeof line, "--max-concurrency %s", bad[i]);
        snprintf(text, sizeof text,
                 "--max-concurrency: \"%s\" is not a number; give 1 to 1024",
                 shown);
        refuse_check(line, text);
    }
    refuse_check("-c 0",
                 "--max-concurrency: \"0\" is too small; give 1 to 1024");
    refuse_check("-c 1025",
                 "--max-concurrency: \"1025\" is too large; give 1 to 1024");
    refuse_check("-c 18446744073709551617",
                 "--max-concurrency: \"18446744073709551617\" is too large; "
                 "give 1 to 1024");
    refuse_check("--queue-depth 9223372036854775808",
                 "--queue-depth: \"9223372036854775808\" is too large; give "
                 "at most 9223372036854775807");
    refuse_check("--queue-depth x", "--queue-depth: \"x\" is not a number; "
                                    "give 0 or more, with or without %");
}

Test(options, empty_values_are_refused)
{
    refuse_check("--max-concurrency=",
                 "--max-concurrency: \"\" is empty; give 1 to 1024");
    refuse_check("-c ''", "--max-concurrency: \"\" is empty; give 1 to 1024");
    refuse_check("--dead-letter-queue=",
                 "--dead-letter-queue: \"\" is empty; give NAME");
    refuse_check("--log-format=", "--log-format: \"\" is not one of the "
                                  "choices; give text, json or none");
    refuse_check("--exit-when-idle=",
                 "--exit-when-idle: \"\" is empty; give a number with ns, us, "
                 "ms, s, m, h or d, like 250ms");
}

Test(options, bad_durations_name_the_units)
{
#define UNITS "give a number with ns, us, ms, s, m, h or d, like 250ms"
    refuse_check("--grace 5x", "--grace: \"5x\" has an unknown unit; " UNITS);
    refuse_check("--grace 1h5x",
                 "--grace: \"1h5x\" has an unknown unit; " UNITS);
    refuse_check("--grace 5seconds",
                 "--grace: \"5seconds\" has an unknown unit; " UNITS);
    refuse_check("--grace 5", "--grace: \"5\" has no unit; " UNITS);
    refuse_check("--grace 2h30", "--grace: \"2h30\" has no unit; " UNITS);
    refuse_check("--grace soon", "--grace: \"soon\" is not a duration; " UNITS);
    refuse_check("--grace -5s", "--grace: \"-5s\" is not a duration; " UNITS);
    refuse_check("--grace 5_s", "--grace: \"5 s\" is not a duration; " UNITS);
    refuse_check("--grace 1m1h", "--grace: \"1m1h\" is not a duration; " UNITS);
    refuse_check("--grace none", "--grace: \"none\" is not a duration; " UNITS);
    refuse_check("-t5x",
                 "--timeout: \"5x\" has an unknown unit; " UNITS ", or none");
    refuse_check("--grace 1us",
                 "--grace: \"1us\" is too small; give 1ms to 1h");
    refuse_check("--grace 2h", "--grace: \"2h\" is too large; give 1ms to 1h");
    refuse_check("-t 0", "--timeout: \"0\" is too small; give 1ns or more, "
                         "or none");
    refuse_check("-t 200000d", "--timeout: \"200000d\" is too large; give at "
                               "most 106751d23h47m16.854775807s");
}

Test(options, bad_sizes_and_modes_name_what_is_allowed)
{
#define SIZES \
    "give a whole number of bytes, or one with KiB, MiB or GiB, like 8KiB"
    refuse_check("--message-size 8x",
                 "--message-size: \"8x\" has an unknown unit; " SIZES);
    refuse_check("--message-size 1.5MiB",
                 "--message-size: \"1.5MiB\" is not a size; " SIZES);
    refuse_check("--message-size -8",
                 "--message-size: \"-8\" is not a size; " SIZES);
    refuse_check("--message-size 17MiB",
                 "--message-size: \"17MiB\" is too large; give 1B to 16MiB");
    refuse_check("--message-size 0",
                 "--message-size: \"0\" is too small; give 1B to 16MiB");
    refuse_check("--mode 0888",
                 "--mode: \"0888\" is not an octal number; give 0 to 0777");
    refuse_check("--mode -1",
                 "--mode: \"-1\" is not an octal number; give 0 to 0777");
    refuse_check("--mode 1777",
                 "--mode: \"1777\" is too large; give 0 to 0777");
    refuse_check("--mode 7777777777777777777777777",
                 "--mode: \"7777777777777777777777777\" is too large; give 0 "
                 "to 0777");
    refuse_check("--log-format tex", "--log-format: \"tex\" is not one of the "
                                     "choices; give text, json or none");
    refuse_check("--log-format text|json",
                 "--log-format: \"text|json\" is not one of the choices; give "
                 "text, json or none");
}

Test(options, missing_and_needless_values_are_refused)
{
    refuse_check("--queue-depth", "--queue-depth needs a value: "
                                  "--queue-depth N");
    refuse_check("-vc", "--max-concurrency needs a value: "
                        "--max-concurrency N");
    refuse_check("-d -- cmd", "--dead-letter-queue needs a value: "
                              "--dead-letter-queue NAME");
    refuse_check("--log-format", "--log-format needs a value: --log-format "
                                 "text|json|none");
    refuse_check("--stream=yes", "--stream takes no value");
    refuse_check("--verbose=3", "--verbose takes no value");
    refuse_check("--poke=1", "--poke takes no value");
}

Test(options, unknown_flags_come_with_the_nearest)
{
    static const struct {
        const char *given, *meant;
    } cases[] = {
        {"--max-concurency", "max-concurrency"},
        {"--max.concurrency", "max-concurrency"},
        {"--max-conc", "max-concurrency"},
        {"--mx-concurrency=4", "max-concurrency"},
        {"--tiemout", "timeout"},
        {"--qeue-depth", "queue-depth"},
        {"--depth=5", "queue-depth"},
        {"--concurrency", "max-concurrency"},
        {"--jobs=4", "max-concurrency"},
        {"--h", "help"},
        {"-help", "help"},
        {"-V", "verbose"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        int flag = (int)strcspn(cases[i].given, "=");
        snprintf(text, sizeof text, "unknown flag %.*s; did you mean --%s?",
                 flag, cases[i].given, cases[i].meant);
        refuse_check(cases[i].given, text);
    }
    refuse_check("--wibble=1", "unknown flag --wibble; see prog --help");
    refuse_check("--z", "unknown flag --z; see prog --help");
    refuse_check("--=1", "unknown flag --; see prog --help");
    refuse_check("-vx", "unknown flag -x in -vx; see prog --help");
    refuse_check("-x", "unknown flag -x; see prog --help");
    refuse_check("-\xc3\xa9", "unknown flag -\xc3\xa9; see prog --help");
}

Test(options, a_prefix_is_not_taken_for_the_flag)
{
    struct run *r = run_line("--verb");
    cr_assert_lt(r->rc, 0);
    cr_assert_eq(r->set.verbose, 0);
    free(r);
}

Test(options, a_very_long_unknown_flag_is_refused_without_a_guess)
{
    char flag[5000] = "--", program[] = "prog";
    char *argv[] = {program, flag, NULL};
    struct problem p;
    struct settings set;
    int operands, rest;
    memset(flag + 2, 'x', sizeof flag - 3);
    int rc = options_parse(&table, 2, argv, &set, &operands, &rest, &p);
    cr_assert_eq(rc, -EINVAL);
    cr_assert_not_null(strstr(p.text, "see prog --help"));
}

Test(options, a_very_long_value_still_leaves_room_for_what_is_allowed)
{
    char value[5000], program[] = "prog", letter[] = "-c";
    char *argv[] = {program, letter, value, NULL};
    struct problem p;
    struct settings set;
    int operands, rest;
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    options_parse(&table, 3, argv, &set, &operands, &rest, &p);
    cr_assert_not_null(strstr(p.text, "is not a number; give 1 to 1024"));
}

Test(options, a_number_may_have_its_unit_and_no_other)
{
    struct run *r = run_good("--queue-depth 20%");
    cr_expect_eq(r->set.depth, 20);
    free(r);
    refuse_check("--queue-depth 20%%",
                 "--queue-depth: \"20%%\" is not a number; give 0 or more, "
                 "with or without %");
    refuse_check("--queue-depth 20s", "--queue-depth: \"20s\" is not a number; "
                                      "give 0 or more, with or without %");
    refuse_check("--queue-depth %", "--queue-depth: \"%\" is not a number; "
                                    "give 0 or more, with or without %");
    refuse_check("-c 20%", "--max-concurrency: \"20%\" is not a number; give "
                           "1 to 1024");
}

Test(options, an_old_letter_is_still_read)
{
    struct run *r = run_good("-n7");
    cr_expect_eq(r->set.depth, 7);
    free(r);
}

Test(options, calls_speak_for_themselves_and_are_made_to_name_their_flag)
{
    struct run *r = run_line("--sum own");
    cr_expect_eq(r->rc, -ERANGE);
    cr_expect_eq(r->p.status, EX_CONFIG);
    cr_expect_str_eq(r->p.text, "--sum: own words");
    free(r);
    refuse_check("-s bad", "--sum: \"bad\" cannot be added");
    r = run_good("--poke -s1 --poke");
    cr_expect_eq(r->set.sum, 11001);
    free(r);
}

Test(options, what_was_refused_leaves_the_target_and_seen_alone)
{
    struct run *r = run_line("--grace 10s --grace 2h");
    cr_expect_lt(r->rc, 0);
    cr_expect_eq(r->set.grace, 10 * NS_PER_S);
    free(r);
    r = run_line("--grace 2h");
    cr_expect_not(r->set.grace_given);
    free(r);
}
