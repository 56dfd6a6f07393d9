/* completion_flags.c - what can be offered for a flag (see completion_inner.h)
 */
#include "common/options/completion_inner.h"

#include <string.h>

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
