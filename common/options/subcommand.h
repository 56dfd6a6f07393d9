/* subcommand.h - a program whose first argument says what to do
 *
 * WHAT   One row per verb; one row per flag with the verbs that take it. Each
 *        verb has a help of its own, made of its rows (options.h).
 * WHO    Once, from main.
 * OWNS   Nothing; operands point into argv, which is permuted.
 * FAILS  subcommand_read: a problem with status 64.
 */
#ifndef COMMON_OPTIONS_SUBCOMMAND_H
#define COMMON_OPTIONS_SUBCOMMAND_H

#include "common/options/options.h"

struct subcommand_row {
    const char *name;
    const char *usage; /* after the verb: "[options] QUEUE" */
    const char *about; /* one sentence */
};

struct subcommand_flag {
    unsigned verbs; /* bit 1 << i: the i-th verb takes it */
    struct option_row row;
};

struct subcommand_table {
    const char *program;
    const char *usage; /* after the program: "VERB [options] QUEUE ..." */
    const char *about; /* one sentence */
    const char *notes; /* after the options of each help */
    const struct subcommand_row *verbs;
    size_t verb_count;
    const struct subcommand_flag *flags;
    size_t flag_count;
};

/* The verb of that name; verb_count: there is none. */
size_t subcommand_find(const struct subcommand_table *t, const char *name);

struct subcommand_operands {
    char **at;
    int count;
};
/* The flags of a verb, argv[1], into `into`; what stands after "--" are
 * operands as what is before it. */
int subcommand_read(const struct subcommand_table *t, size_t verb, int argc,
                    char **argv, void *into,
                    struct subcommand_operands *operands, struct problem *p);

/* As options_dump. */
int verbs_dump(const struct subcommand_table *t, int argc, char **argv);

/* --help of a verb; verb_count: of the program. */
void subcommand_help(const struct subcommand_table *t, size_t verb, FILE *out);

#endif
