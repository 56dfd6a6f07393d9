/* completion_fish.c - the completion script for fish: one line a flag */
#include "common/options/completion_inner.h"

/* verbs_list - that take the flag */
static void verbs_list(const struct completion *c, size_t i)
{
    const struct verb_table *t = c->verbs;

    fputs(" -n '__fish_seen_subcommand_from", c->out);
    for (size_t v = 0; v < t->verb_count; v++)
        if (completion_takes(c, i, v))
            fprintf(c->out, " %s", t->verbs[v].name);
    fputs("'", c->out);
}

/* value_print - whether there is one, and what may be offered */
static void value_print(const struct option_row *row, FILE *out)
{
    switch (completion_offer(row)) {
    case OFFER_WORDS:
        fputs(" -x -a '", out);
        completion_words(row, out);
        fputs("'", out);
        break;
    case OFFER_FILES:
        fputs(" -r -F", out);
        break;
    case OFFER_DIRECTORIES:
        fputs(" -x -a '(__fish_complete_directories)'", out);
        break;
    case OFFER_QUEUES:
        fputs(" -x -a '(__mqw_queues)'", out);
        break;
    case OFFER_NOTHING:
    default:
        fputs(" -x", out);
    }
}

/* flag_print - one line */
static void flag_print(const struct completion *c, size_t i)
{
    const struct option_row *row = completion_row(c, i);

    fprintf(c->out, "complete -c %s", c->program);
    if (c->verbs)
        verbs_list(c, i);
    else if (completion_runs(c))
        fputs(" -n 'not contains -- -- (commandline -opc)'", c->out);
    if (row->letter)
        fprintf(c->out, " -s %c", row->letter);
    fprintf(c->out, " -l %s", row->name);
    if (!option_bare(row) && !row->optional)
        value_print(row, c->out);
    fputs(" -d '", c->out);
    completion_quote(row->help, false, c->out);
    fputs("'\n", c->out);
}

/* verbs_print - the first argument */
static void verbs_print(const struct completion *c)
{
    const struct verb_table *t = c->verbs;

    for (size_t v = 0; v < t->verb_count; v++) {
        fprintf(c->out, "complete -c %s -n __fish_use_subcommand -a %s -d '",
                c->program, t->verbs[v].name);
        completion_quote(t->verbs[v].about, false, c->out);
        fputs("'\n", c->out);
        if (completion_reads(c, v))
            fprintf(c->out,
                    "complete -c %s -n '__fish_seen_subcommand_from %s' -F\n",
                    c->program, t->verbs[v].name);
    }
    fprintf(c->out,
            "complete -c %s -n __fish_use_subcommand -l version -d 'print the "
            "version and exit'\n"
            "complete -c %s -n __fish_use_subcommand -s h -l help -d 'print "
            "this and exit'\n"
            "complete -c %s -n 'not __fish_use_subcommand' -a "
            "'(__mqw_queues)'\n",
            c->program, c->program, c->program);
}

void completion_fish(const struct completion *c)
{
    fprintf(c->out,
            "# fish completion for %s; made from its option rows\n"
            "function __mqw_queues\n    " COMPLETION_QUEUES "\nend\n"
            "complete -c %s -f\n",
            c->program, c->program);
    if (c->verbs)
        verbs_print(c);
    else
        fprintf(c->out, "complete -c %s -a '(__mqw_queues)'\n", c->program);
    if (completion_runs(c))
        fprintf(c->out,
                "complete -c %s -n 'contains -- -- (commandline -opc)' -F -a "
                "'(__fish_complete_command)'\n",
                c->program);
    for (size_t i = 0; i < c->count; i++)
        flag_print(c, i);
}
