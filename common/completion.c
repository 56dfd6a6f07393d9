/* completion.c - completion scripts for shells (see completion.h) */
#include "common/completion.h"

#include <errno.h>
#include <string.h>
#include <sysexits.h>

#include "common/completion_inner.h"
#include "common/term.h"

const struct option_row *completion_row(const struct completion *c, size_t i)
{
    return c->options ? &c->options->rows[i] : &c->verbs->flags[i].row;
}

bool completion_takes(const struct completion *c, size_t i, size_t verb)
{
    return c->options || c->verbs->flags[i].verbs & 1u << verb;
}

bool completion_runs(const struct completion *c)
{
    return c->options && strstr(c->options->usage, "-- COMMAND") != NULL;
}

bool completion_reads(const struct completion *c, size_t verb)
{
    return c->verbs && strstr(c->verbs->verbs[verb].usage, "FILE") != NULL;
}

/* starts - whether a value's name begins so */
static bool starts(const char *value, const char *with)
{
    return strncmp(value, with, strlen(with)) == 0;
}

/* completion_offer - by the words of a row, else by its value's name */
enum offer completion_offer(const struct option_row *row)
{
    const char *value = option_value(row);

    if (row->words)
        return OFFER_WORDS;
    if (starts(value, "FILE") || starts(value, "PATH"))
        return OFFER_FILES;
    if (starts(value, "DIR"))
        return OFFER_DIRECTORIES;
    if (starts(value, "QUEUE") || starts(value, "NAME"))
        return OFFER_QUEUES;
    return OFFER_NOTHING;
}

void completion_words(const struct option_row *row, FILE *out)
{
    for (const char *c = row->words; *c; c++)
        fputc(*c == '|' ? ' ' : *c, out);
}

void completion_quote(const char *text, bool brackets, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\'", out);
        else if (brackets && strchr("[]:\\", *text))
            fputc('\\', out);
        fputc(*text, out);
    }
}

/* script_print - for the shell that argv names */
static int script_print(struct completion *c, const char *shell)
{
    static const struct {
        const char *name;
        void (*print)(const struct completion *c);
    } shells[] = {{"bash", completion_bash},
                  {"zsh", completion_zsh},
                  {"fish", completion_fish}};

    c->out = stdout;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].print(c);
            if (fflush(stdout) == 0 && !ferror(stdout))
                return 0;
            term_complain(c->program, "cannot write the output: %s",
                          strerror(errno));
            return EX_IOERR;
        }
    term_complain(c->program,
                  "--completion: \"%s\" is no shell that is known; give bash, "
                  "zsh or fish",
                  shell);
    return EX_USAGE;
}

/* asked - whether argv is --completion SHELL and no more */
static bool asked(int argc, char **argv)
{
    return argc == 3 && strcmp(argv[1], "--completion") == 0;
}

int completion_options(const struct option_table *t, int argc, char **argv)
{
    struct completion c = {
        .program = t->program, .options = t, .count = t->count};

    return asked(argc, argv) ? script_print(&c, argv[2]) : -1;
}

int completion_verbs(const struct verb_table *t, int argc, char **argv)
{
    struct completion c = {
        .program = t->program, .verbs = t, .count = t->flag_count};

    return asked(argc, argv) ? script_print(&c, argv[2]) : -1;
}
