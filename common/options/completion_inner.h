/* completion_inner.h - what the three writers of completion scripts share
 *
 * WHAT   A program as one list of flags, each with the verbs that take it; what
 *        can be offered as the value of a flag.
 * WHO    completion*.c only.
 * OWNS   Nothing; the rows are the tables'.
 * FAILS  No.
 */
#ifndef COMMON_OPTIONS_COMPLETION_INNER_H
#define COMMON_OPTIONS_COMPLETION_INNER_H

#include <stdbool.h>
#include <stdio.h>

#include "common/options/option_value.h"
#include "common/options/verbs.h"

/* Either of the two tables. */
struct completion {
    const char *program;
    const struct option_table *options; /* NULL: it has verbs */
    const struct verb_table *verbs;     /* NULL: it has none */
    size_t count;                       /* of flags */
    FILE *out;
};

const struct option_row *completion_row(const struct completion *c, size_t i);
bool completion_takes(const struct completion *c, size_t i, size_t verb);
/* Whether what follows "--" is a command. */
bool completion_runs(const struct completion *c);
/* Whether a verb (0 without verbs) has FILE among its operands. */
bool completion_reads(const struct completion *c, size_t verb);

enum offer {
    OFFER_NOTHING, /* a number, a text */
    OFFER_WORDS,
    OFFER_FILES,
    OFFER_DIRECTORIES,
    OFFER_QUEUES,
};
enum offer completion_offer(const struct option_row *row);
/* "text|json" to "text json". */
void completion_words(const struct option_row *row, FILE *out);
/* `text` for use between single quotes; zsh: also between brackets. */
void completion_quote(const char *text, bool brackets, FILE *out);

/* The queues of this machine, one a line, as a shell command. */
#define COMPLETION_QUEUES                \
    "mqctl queues --json 2>/dev/null | " \
    "sed -n 's/^{\"queue\":\"\\([^\"]*\\)\".*/\\1/p'"

void completion_bash(const struct completion *c);
void completion_zsh(const struct completion *c);
void completion_fish(const struct completion *c);

#endif
