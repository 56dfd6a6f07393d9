/* test_subcommand.c - a program with verbs: whose flag it is, where operands
 * end */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/options/subcommand.h"

struct values {
    bool all, json;
    const char *dir;
};

#define AT(member) .offset = offsetof(struct values, member)

static const struct subcommand_row rows[] = {
    {"list", "[options] QUEUE", "List."}, {"wipe", "[options] QUEUE", "Wipe."}};
static const struct subcommand_flag flags[] = {
    {1, {"json", 'j', OPT_FLAG, AT(json), .help = "as JSON"}},
    {2, {"all", 'a', OPT_FLAG, AT(all), .help = "all of it"}},
    {3, {"dir", 0, OPT_STRING, .value = "DIR", AT(dir), .help = "where"}},
};
static const struct subcommand_table table = {
    .program = "tool",
    .usage = "VERB [options] QUEUE",
    .about = "A tool.",
    .notes = "The notes.",
    .verbs = rows,
    .verb_count = 2,
    .flags = flags,
    .flag_count = 3,
};

static struct values v;
static struct subcommand_operands operands;
static struct problem p;

/* reads - "tool VERB ..." */
static int reads(size_t verb, const char *const *words)
{
    static char *argv[16]; /* operands point into it */
    int argc = 0;

    argv[argc++] = (char *)"tool";
    argv[argc++] = (char *)rows[verb].name;
    while (*words)
        argv[argc++] = (char *)*words++;
    memset(&v, 0, sizeof v);
    return subcommand_read(&table, verb, argc, argv, &v, &operands, &p);
}
#define READS(verb, ...) reads((verb), (const char *const[]){__VA_ARGS__, NULL})

Test(verbs, are_found_by_name)
{
    cr_assert_eq(subcommand_find(&table, "list"), 0);
    cr_assert_eq(subcommand_find(&table, "wipe"), 1);
    cr_assert_eq(subcommand_find(&table, "wip"), 2);
    cr_assert_eq(subcommand_find(&table, ""), 2);
}

Test(verbs, take_their_flags_and_leave_the_operands)
{
    cr_assert_eq(READS(0, "-j", "/a", "--dir", "x", "/b"), 0);
    cr_assert(v.json);
    cr_assert_str_eq(v.dir, "x");
    cr_assert_eq(operands.count, 2);
    cr_assert_str_eq(operands.at[0], "/a");
    cr_assert_str_eq(operands.at[1], "/b");
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
    cr_assert_eq(operands.count, 3);
    cr_assert_str_eq(operands.at[1], "--all");
    cr_assert_str_eq(operands.at[2], "-x");
}

/* help - of a verb, as text */
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

Test(verbs, the_help_of_the_program_lists_them)
{
    cr_assert_not_null(strstr(help(2), "Usage: tool VERB"));
    cr_assert_not_null(strstr(help(2), "List."));
    cr_assert_not_null(strstr(help(2), "Wipe."));
}
