/* test_subcommand.c - a program with verbs: which verb has a flag, where
 * operands end */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "common/cli/subcommand.h"

struct values {
    struct subcommand_line line;
    bool all, json;
    const char *dir;
};

#define AT(member) .offset = offsetof(struct values, member)

static const struct subcommand_row rows[] = {
    {"list", "[options] QUEUE", "List.", NULL, "Look", 1, SUBCOMMAND_ANY,
     .also = "ls|dir"},
    {"wipe", "[options] QUEUE", "Wipe.", NULL, NULL, 1, 3, .settings = true,
     .elsewhere = "rm|listen"},
    {"door", "[options] QUEUE open|shut", "A door.", NULL, "Look", 2, 2,
     .last = "open|shut", .absent = "X=1; build without X=1"},
    {"tell", "[options] [QUEUE] ID|ERROR", "Tell.", NULL, "Look", 1, 2},
};
static const struct option_row flags[] = {
    {"json", 'j', OPT_FLAG, .verbs = 1, AT(json), .help = "as JSON"},
    {"all", 'a', OPT_FLAG, .verbs = 2, AT(all), .help = "all of it"},
    {"help", 'h', OPT_FLAG, .verbs = 3, AT(line.help), .help = "this"},
    {"dir", 'd', OPT_STRING, .verbs = 3, .value = "DIR", AT(dir),
     .help = "where"},
};

static const struct subcommand_exit exits[] = {
    {2, 1, "nothing was wiped"},
    {7, EX_USAGE, "usage"},
    {1, EX_NOINPUT, "no such queue, nor any other that the tool knows of"},
    {1, EX_NOINPUT, "a name so long that it needs another line"},
    {2, EX_NOINPUT, "no such colour"},
    {2, EX_NOINPUT, "no such size"},
};

/* Refuse --dir bad, as a program refuses options that exclude each other. */
static int values_check(void *options, struct problem *p)
{
    struct values *v = options;

    return v->dir && strcmp(v->dir, "bad") == 0
               ? problem_set(p, EX_USAGE, EINVAL, "a bad dir")
               : 0;
}

static const struct subcommand_table table = {
    .program = "tool",
    .usage = "VERB [options] QUEUE",
    .about = "A tool.",
    .exits = exits,
    .exit_count = sizeof exits / sizeof *exits,
    .notes = "The notes.",
    .verbs = rows,
    .verb_count = 3,
    .flags = flags,
    .flag_count = 4,
    .check = values_check,
};

static struct values v;
static struct problem p;

/* Read the line "tool VERB ..." into `v`. */
static int reads(size_t verb, const char *const *words)
{
    static char *argv[16]; /* operands point into it */
    int argc = 0;

    argv[argc++] = (char *)"tool";
    argv[argc++] = (char *)rows[verb].name;
    while (*words)
        argv[argc++] = (char *)*words++;
    v = (struct values){.line.verb = verb};
    return subcommand_read(&table, argc, argv, &v.line, &p);
}
#define READS(verb, ...) reads((verb), (const char *const[]){__VA_ARGS__, NULL})

Test(verbs, the_last_operand_may_be_one_of_a_few_words)
{
    cr_assert_eq(READS(2, "q", "open"), 0);
    cr_assert_eq(READS(2, "open", "shut"), 0);
    cr_assert(READS(2, "q", "opn") < 0);
    cr_assert_not_null(strstr(p.text, "did you mean open?"), "%s", p.text);
    cr_assert(READS(2, "q", "colour") < 0);
    cr_assert_not_null(strstr(p.text, "open|shut"), "%s", p.text);
    cr_assert(READS(2, "open") < 0);
    cr_assert_eq(p.status, EX_USAGE);
}

Test(verbs, are_found_by_name)
{
    cr_assert_eq(subcommand_find(&table, "list"), 0);
    cr_assert_eq(subcommand_find(&table, "wipe"), 1);
    cr_assert_eq(subcommand_find(&table, "wip"), 3);
    cr_assert_eq(subcommand_find(&table, ""), 3);
    cr_assert_eq(subcommand_find(&table, "ls"), 0);
    cr_assert_eq(subcommand_find(&table, "dir"), 0);
    cr_assert_eq(subcommand_find(&table, "ls|dir"), 3);
    cr_assert_eq(subcommand_find(&table, "di"), 3);
}

Test(verbs, take_their_flags_and_leave_the_operands)
{
    cr_assert_eq(READS(0, "-j", "/a", "--dir", "x", "/b"), 0);
    cr_assert(v.json);
    cr_assert_str_eq(v.dir, "x");
    cr_assert_eq(v.line.operand_count, 2);
    cr_assert_str_eq(v.line.operands[0], "/a");
    cr_assert_str_eq(v.line.operands[1], "/b");
}

Test(verbs, refuse_the_flag_of_another_verb)
{
    cr_assert_lt(READS(0, "--all", "/a"), 0);
    cr_assert_eq(p.status, EX_USAGE);
    cr_assert_not_null(strstr(p.text, "--all"), "%s", p.text);
    cr_assert_eq(READS(1, "--all", "/a"), 0);
    cr_assert(v.all);
}

Test(verbs, what_stands_after_two_dashes_is_an_operand)
{
    cr_assert_eq(READS(1, "/a", "--", "--all", "-x"), 0);
    cr_assert_not(v.all);
    cr_assert_eq(v.line.operand_count, 3);
    cr_assert_str_eq(v.line.operands[1], "--all");
    cr_assert_str_eq(v.line.operands[2], "-x");
}

Test(verbs, take_so_many_operands)
{
    cr_assert_lt(READS(0, "-j"), 0);
    cr_assert_str_eq(p.text, "list: no queue given; usage: tool list [options] "
                             "QUEUE");
    cr_assert_lt(READS(3, NULL), 0);
    cr_assert_str_eq(p.text, "tell: no id or error given; usage: tool tell "
                             "[options] [QUEUE] ID|ERROR");
    cr_assert_eq(READS(0, "1", "2", "3", "4", "5"), 0);
    cr_assert_eq(READS(1, "1", "2", "3"), 0);
    cr_assert_lt(READS(1, "1", "2", "3", "4"), 0);
    cr_assert_not_null(strstr(p.text, "too many arguments"), "%s", p.text);
    cr_assert_lt(READS(1, "1", "--dir", "bad"), 0);
    cr_assert_str_eq(p.text, "a bad dir");
    cr_assert_eq(READS(1, "--help", "--dir", "bad"), 0,
                 "--help is refused for another option");
}

/* Begin "tool ..."; its output goes to `said`. */
static char said[4096];

static int begins(const char *const *words)
{
    static char *argv[16];
    int argc = 0, saved[2] = {dup(1), dup(2)}, status;
    FILE *file = tmpfile();

    argv[argc++] = (char *)"tool";
    while (*words)
        argv[argc++] = (char *)*words++;
    v = (struct values){0};
    fflush(stdout);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    status = subcommand_begin(&table, argc, argv, &v.line);
    fflush(stdout);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return status;
}
#define BEGINS(...) begins((const char *const[]){__VA_ARGS__, NULL})

Test(verbs, run_with_flags_on_both_sides)
{
    cr_assert_eq(BEGINS("list", "/q"), -1, "%s", said);
    cr_assert_eq(BEGINS("--dir", "x", "wipe", "--all", "/q"), -1, "%s", said);
    cr_assert_eq(v.line.verb, 1);
    cr_assert(v.all);
    cr_assert_str_eq(v.dir, "x");
    cr_assert_str_eq(v.line.operands[0], "/q");
    cr_assert_eq(BEGINS("-d", "x", "--dir=y", "-j", "ls", "/q"), -1);
    cr_assert(v.json);
    cr_assert_str_eq(v.dir, "y");
    cr_assert_eq(v.line.operand_count, 1);
    cr_assert_str_eq(said, "");
    cr_assert_eq(BEGINS("-a", "list", "/q"), EX_USAGE, "list has no --all");
    cr_assert_not_null(strstr(said, "unknown flag -a"), "%s", said);
}

Test(verbs, that_are_slips_are_guessed)
{
    cr_assert_eq(BEGINS("lst", "/q"), EX_USAGE);
    cr_assert_str_eq(said, "tool: \"lst\" is not a verb; did you mean list?\n");
    cr_assert_eq(BEGINS("wip"), EX_USAGE);
    cr_assert_not_null(strstr(said, "mean wipe?"), "%s", said);
    cr_assert_eq(BEGINS("rm", "/q"), EX_USAGE);
    cr_assert_str_eq(said, "tool: \"rm\" is not a verb; did you mean wipe?\n");
    cr_assert_eq(BEGINS("listen"), EX_USAGE, "list is near, and not meant");
    cr_assert_not_null(strstr(said, "mean wipe?"), "%s", said);
    cr_assert_eq(BEGINS("/q", "wipe"), EX_USAGE);
    cr_assert_str_eq(
        said, "tool: \"/q\" is not a verb; did you mean tool wipe /q?\n");
    cr_assert_eq(BEGINS("8", "/q", "list"), EX_USAGE);
    cr_assert_not_null(strstr(said, "mean tool list 8 ...?"), "%s", said);
    cr_assert_eq(BEGINS("frob"), EX_USAGE);
    cr_assert_str_eq(
        said, "tool: \"frob\" is not a verb; give list, wipe or door first\n");
    cr_assert_eq(BEGINS(NULL), EX_USAGE);
    cr_assert_str_eq(said,
                     "tool: no verb given; give list, wipe or door first\n");
    cr_assert_eq(BEGINS("--dir", "list"), EX_USAGE,
                 "the value of --dir is taken for a verb");
    cr_assert_eq(BEGINS("-j", "--", "list"), EX_USAGE);
    cr_assert_eq(BEGINS("door", "/q", "open"), EX_UNAVAILABLE);
    cr_assert_str_eq(said, "tool: door: not in this build, because of X=1; "
                           "build without X=1\n");
}

Test(verbs, help_needs_no_operands)
{
    static const char *const ways[][3] = {
        {"--help"}, {"-h"}, {"help"}, {"-j", "--help"}};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cr_assert_eq(begins(ways[i]), 0);
        cr_assert_not_null(strstr(said, "Usage: tool VERB"), "%s", said);
    }
    cr_assert_eq(BEGINS("help", "wipe"), 0);
    cr_assert_not_null(strstr(said, "Usage: tool wipe"), "%s", said);
    cr_assert_eq(BEGINS("--help", "wipe"), 0);
    cr_assert_not_null(strstr(said, "Usage: tool wipe"), "%s", said);
    cr_assert_eq(BEGINS("wipe", "--help"), 0);
    cr_assert_not_null(strstr(said, "Usage: tool wipe"), "%s", said);
    cr_assert_eq(BEGINS("-j", "--help", "wipe"), 0);
    cr_assert_not_null(strstr(said, "Usage: tool wipe"), "%s", said);
    cr_assert_eq(BEGINS("--help", "--dir", "list", "wipe"), 0);
    cr_assert_not_null(strstr(said, "Usage: tool wipe"), "%s", said);
    cr_assert_eq(BEGINS("help", "wpie"), EX_USAGE);
    cr_assert_not_null(strstr(said, "mean wipe?"), "%s", said);
    cr_assert_eq(BEGINS("--version"), 0);
    cr_assert_str_eq(said, "tool " MQW_VERSION "\n");
}

/* Return the help of a verb. */
static const char *help(size_t verb)
{
    static char text[4096];
    FILE *f = fmemopen(text, sizeof text, "w");

    subcommand_help(&table, verb, f);
    fclose(f);
    return text;
}

Test(verbs, each_has_a_help_with_its_own_flags)
{
    cr_assert_not_null(strstr(help(0), "tool list"), "%s", help(0));
    cr_assert_not_null(strstr(help(0), "--json"));
    cr_assert_null(strstr(help(0), "--all"));
    cr_assert_not_null(strstr(help(1), "--all"));
    cr_assert_not_null(strstr(help(1), "The notes."));
}

Test(verbs, settings_of_the_worker_are_no_flags)
{
    cr_assert_lt(READS(1, "/a", "--size=3"), 0);
    cr_assert_str_eq(p.text, "wipe: \"--size=3\" is not a flag here; give "
                             "size=VALUE to change that setting");
    cr_assert_lt(READS(0, "/a", "--size=3"), 0);
    cr_assert_not_null(strstr(p.text, "unknown flag"), "%s", p.text);
    cr_assert_lt(READS(1, "/a", "--alll"), 0);
    cr_assert_not_null(strstr(p.text, "did you mean --all?"), "%s", p.text);
    cr_assert_eq(READS(1, "/a", "size=3"), 0);
}

Test(verbs, the_help_of_the_program_lists_them)
{
    cr_assert_not_null(strstr(help(3), "Usage: tool VERB"));
    cr_assert_not_null(strstr(help(3),
                              "\nLook:\n"
                              "  list     List.\n"
                              "  door     A door. (not in this build)\n"
                              "\nVerbs:\n"
                              "  wipe     Wipe.\n"
                              "\ntool VERB"),
                       "%s", help(3));
}

/* No status of another verb is listed, and no line is too long. */
Test(verbs, help_of_each_has_its_own_exit_statuses)
{
#define TOP "\nExit status:\n  0   success\n"
    cr_assert_not_null(strstr(help(0), TOP
                              "  64  usage\n  66  no such queue, nor any other "
                              "that the tool knows of, or a name so long\n"
                              "      that it needs another line\nThe notes.\n"),
                       "%s", help(0));
    cr_assert_not_null(strstr(help(1),
                              TOP "  1   nothing was wiped\n  64  usage\n"
                                  "  66  no such colour, or no such size\n"
                                  "The notes.\n"),
                       "%s", help(1));
    cr_assert_not_null(strstr(help(2), TOP "  64  usage\nThe notes.\n"), "%s",
                       help(2));
    cr_assert_not_null(strstr(help(3), TOP "  1   nothing was wiped\n  64  "
                                           "usage\n  66  no such queue"),
                       "%s", help(3));
}
