/* subcommand.c - a program whose first argument says what to do (see
 * subcommand.h) */
#include "common/options/subcommand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "common/text/term.h"

#define NAME_ROOM 64

/* What options_parse and options_help want to know of a verb. */
struct single {
    struct option_table table;
    struct option_row *rows; /* its own; NULL: no memory */
    char name[NAME_ROOM];
};

/* subcommand_find - by its name */
size_t subcommand_find(const struct subcommand_table *t, const char *name)
{
    size_t v = 0;

    while (v < t->verb_count && strcmp(t->verbs[v].name, name) != 0)
        v++;
    return v;
}

/* single_make - the rows of one verb */
static void single_make(struct single *s, const struct subcommand_table *t,
                        size_t verb)
{
    snprintf(s->name, sizeof s->name, "%s %s", t->program, t->verbs[verb].name);
    s->table = (struct option_table){
        .program = s->name,
        .usage = t->verbs[verb].usage,
        .about = t->verbs[verb].about,
        .notes = t->notes,
    };
    s->rows = calloc(t->flag_count, sizeof *s->rows);
    for (size_t i = 0; s->rows && i < t->flag_count; i++)
        if (t->flags[i].verbs & 1u << verb)
            s->rows[s->table.count++] = t->flags[i].row;
    s->table.rows = s->rows;
}

/* join - operands after "--" follow those before it */
static void join(struct subcommand_operands *o, int argc, char **argv,
                 int before, int rest)
{
    int after = rest < 0 ? 0 : argc - rest;

    if (after > 0)
        memmove(argv + before, argv + rest, (size_t)after * sizeof *argv);
    o->at = argv;
    o->count = before + after;
}

/* subcommand_read - argv[1] stands where a program's name does for
 * options_parse */
int subcommand_read(const struct subcommand_table *t, size_t verb, int argc,
                    char **argv, void *into,
                    struct subcommand_operands *operands, struct problem *p)
{
    struct single s;
    int before = 0, rest = -1, err;

    single_make(&s, t, verb);
    if (!s.rows)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    err = options_parse(&s.table, argc - 1, argv + 1, into, &before, &rest, p);
    free(s.rows);
    if (!err)
        join(operands, argc - 1, argv + 1, before, rest);
    return err;
}

/* subcommand_help - of one verb, or the list of verbs */
void subcommand_help(const struct subcommand_table *t, size_t verb, FILE *out)
{
    struct single s;

    if (verb < t->verb_count) {
        single_make(&s, t, verb);
        options_help(&s.table, out, term_width(out));
        free(s.rows);
        return;
    }
    fprintf(out, "Usage: %s %s\n\n%s\n\nVerbs:\n", t->program, t->usage,
            t->about);
    for (verb = 0; verb < t->verb_count; verb++)
        fprintf(out, "  %-8s %s\n", t->verbs[verb].name, t->verbs[verb].about);
    fprintf(out, "\n%s VERB --help tells the options of a verb.\n%s\n",
            t->program, t->notes);
}
