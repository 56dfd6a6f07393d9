/* subcommand.h - command lines like "mqctl drain QUEUE": a verb, then options
 *
 * WHAT   One row per verb; one row per flag with the verbs that take it. The
 *        help of each verb is made from its rows (options.h).
 * WHO    main of mqctl and mqdlq, once, before any thread exists.
 * OWNS   Nothing; operands point into argv, which is permuted.
 * FAILS  subcommand_read: a problem with status 64. subcommand_begin: the exit
 *        status, after printing the reason to stderr.
 */
#ifndef COMMON_CLI_SUBCOMMAND_H
#define COMMON_CLI_SUBCOMMAND_H

#include "common/cli/options.h"

#define SUBCOMMAND_ANY (-1)

struct options; /* of the program */

struct subcommand_row {
    const char *name;
    const char *usage;                   /* after the verb: "[options] QUEUE" */
    const char *about;                   /* one sentence */
    int (*run)(const struct options *o); /* returns an exit status; NULL: the
                                            program calls its own function, or
                                            the verb is not in this build */
    const char *under;                   /* heading in --help; NULL: "Verbs" */
    int least, most;       /* operands; SUBCOMMAND_ANY: no upper bound */
    const char *also;      /* unlisted aliases: "ls|show" */
    const char *elsewhere; /* what other programs call it: refused, with `name`
                              as the answer */
    bool settings;      /* operands after the first are NAME=VALUE, checked by
                          the worker */
    const char *last;   /* words allowed as the last operand: "close|open" */
    const char *absent; /* what leaves the verb out of a build; NULL: nothing */
};

struct subcommand_exit {
    unsigned verbs; /* as in option_row */
    int status;
    const char *means; /* a clause: "no worker is running" */
};

/* The first member of the program's struct options. */
struct subcommand_line {
    size_t verb;
    char **operands; /* after the verb, flags left out */
    int operand_count;
    bool help; /* set by the program's row of --help */
};

struct subcommand_table {
    const char *program;
    const char *usage; /* after the program: "VERB [options] QUEUE ..." */
    const char *about; /* one sentence */
    const struct subcommand_exit *exits; /* without 0, ascending */
    size_t exit_count;
    const char
        *notes; /* behind the exit statuses in each help: "See tool(1)." */
    const struct subcommand_row *verbs;
    size_t verb_count;
    const struct option_row *flags; /* with `verbs` */
    size_t flag_count;
    /* Check flags that exclude each other: 0 or a problem. May be NULL. */
    int (*check)(void *options, struct problem *p);
};

/* Find a verb by its name; verb_count if there is none. */
size_t subcommand_find(const struct subcommand_table *t, const char *name);

/* Fill `line`, and the options that it begins, from argv, whose [1] is the verb
 * line->verb. Words after "--" are operands as well. */
int subcommand_read(const struct subcommand_table *t, int argc, char **argv,
                    struct subcommand_line *line, struct problem *p);

/* Do everything before the work of a verb. Returns -1 if the verb of `line` is
 * to run, else the exit status, after printing help or an error. */
int subcommand_begin(const struct subcommand_table *t, int argc, char **argv,
                     struct subcommand_line *line);

/* Print the help of a verb, or, for verb_count, of the program. */
void subcommand_help(const struct subcommand_table *t, size_t verb, FILE *out);

#endif
