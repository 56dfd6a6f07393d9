/* options_dump.c - the rows of a program, for scripts/completion.awk, which has
 * the fields (see options.h, subcommand.h) */
#include <stdio.h>
#include <string.h>

#include "common/cli/complain.h"
#include "common/cli/option_value.h"
#include "common/cli/subcommand.h"

/* asked - whether argv is --options-dump and no more */
static bool asked(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--options-dump") == 0;
}

static void row_print(const struct option_row *row)
{
    const char letter[] = {row->letter, '\0'};
    bool again = row->type == OPT_COUNT || row->type == OPT_CALL;

    printf("\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row->name, letter,
           option_bare(row) ? "bare"
           : row->optional  ? "optional"
                            : "value",
           again ? "again" : "-", option_value(row),
           row->words ? row->words : "", row->help, row->live ? "live" : "-");
}

int options_dump(const struct option_table *t, int argc, char **argv)
{
    if (!asked(argc, argv))
        return -1;
    complain_as(t->program);
    printf("program\t%s\t%s\n", t->program,
           strstr(t->usage, "-- COMMAND") ? "runs" : "-");
    for (size_t i = 0; i < t->count; i++) {
        fputs("flag\t", stdout);
        row_print(&t->rows[i]);
    }
    return complain_output(0);
}

int verbs_dump(const struct subcommand_table *t, int argc, char **argv)
{
    if (!asked(argc, argv))
        return -1;
    complain_as(t->program);
    printf("program\t%s\t-\n", t->program);
    for (size_t v = 0; v < t->verb_count; v++)
        printf("verb\t%s\t%s\t%s\t%s\t%s\n", t->verbs[v].name,
               strstr(t->verbs[v].usage, "FILE") ? "reads"
               : strstr(t->verbs[v].usage, "ID") ? "ids"
                                                 : "-",
               t->verbs[v].about, t->verbs[v].settings ? "settings" : "-",
               t->verbs[v].last ? t->verbs[v].last : "");
    for (size_t i = 0; i < t->flag_count; i++) {
        const char *space = "\t";

        fputs("flag", stdout);
        for (size_t v = 0; v < t->verb_count; v++)
            if (t->flags[i].verbs & 1u << v) {
                printf("%s%s", space, t->verbs[v].name);
                space = " ";
            }
        row_print(&t->flags[i].row);
    }
    return complain_output(0);
}
