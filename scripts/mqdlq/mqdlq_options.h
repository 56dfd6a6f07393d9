/* mqdlq_options.h - the command line of mqdlq: a verb and its flags
 *
 * WHAT   One row per flag with the verbs that take it; each verb has a help of
 *        its own made of its rows.
 * WHO    Once, from main.
 * OWNS   Strings point into argv, which is permuted.
 * FAILS  A problem with status 64.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_OPTIONS_H
#define SCRIPTS_MQDLQ_MQDLQ_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/store/letters.h"
#include "common/base/problem.h"

enum verb {
    VERB_LIST,
    VERB_SHOW,
    VERB_REPLAY,
    VERB_DISCARD,
    VERB_PURGE,
    VERB_EXPORT,
    VERB_IMPORT,
    VERB_COUNT,
};

struct options {
    enum verb verb;
    struct letter_filter filter;
    const char *state_dir; /* NULL: as the worker finds it */
    const char *to;        /* NULL: the queue itself */
    char **operands;       /* after the verb */
    int operand_count;
    uint64_t by; /* enum letter_by */
    uint64_t rate, wait_ns, older_than_ns;
    bool all, json, count, body, raw, dry_run, canary, reset_expiry, again;
    bool has_by, has_wait, has_older_than, help;
};

/* VERB_COUNT if it is none. */
enum verb verb_parse(const char *text);
/* argv[1] is the verb of o->verb. */
int options_read(struct options *o, int argc, char **argv, struct problem *p);
/* Whether anything narrows the choice of letters. */
bool filter_given(const struct options *o);
/* --options-dump (common/options/subcommand.h). */
int options_complete(int argc, char **argv);
/* --help of the verb; VERB_COUNT: of the program. */
void help_print(enum verb verb, FILE *out);

#endif
