/* options.h - one table row per flag
 *
 * WHAT   Parses argv by a table; checks ranges; prints --help. The same rows
 *        feed the man-page check and shell completion.
 * WHO    main of each program, once, before it has threads. The worker also
 *        reads and prints single values (option_read, option_print): in the
 *        loop for mqctl set, and on a thread of the program that uses the
 *        library.
 * OWNS   Nothing; strings point into argv.
 * FAILS  A problem with status 64 that names the flag, the value and what is
 *        allowed; an unknown flag comes with the nearest known one.
 */
#ifndef COMMON_CLI_OPTIONS_H
#define COMMON_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/problem.h"

enum option_type {
    OPT_FLAG,     /* bool; no value */
    OPT_COUNT,    /* uint64_t; times given (-vv) */
    OPT_NUMBER,   /* uint64_t; plain decimal, min..max */
    OPT_OCTAL,    /* uint64_t; 0600, min..max */
    OPT_DURATION, /* uint64_t ns; min..max */
    OPT_SIZE,     /* uint64_t bytes; min..max */
    OPT_STRING,   /* const char *; not empty */
    OPT_CHOICE,   /* uint64_t; index into `words`, separated by '|' */
    OPT_CALL,     /* `call` reads the value */
};

struct option_row {
    const char *name; /* without "--" */
    char letter;      /* 0 = none */
    enum option_type type;
    bool optional;     /* the value may be left out, else it is --name=VALUE; a
                          next argument that looks like one is refused */
    const char *value; /* "N", "DUR"; NULL for flags. OPT_CHOICE: shown words */
    const char *words; /* numbers: a word that is allowed as well, such as
                           "none", and read as UINT64_MAX; OPT_CHOICE: the
                           choices; OPT_CALL: words that shells offer */
    uint64_t min, max; /* max 0 = no bound but INT64_MAX */
    const char *preset; /* default as --help shows it; NULL = none. Read if an
                           `optional` value is left out */
    size_t offset;      /* of the target in the struct that is filled */
    size_t seen;        /* offset + 1 of a bool set true when given; 0 = none */
    /* OPT_CALL: `into` is the target (struct + offset), `text` NULL without a
     * value; a row without `value` takes none. "--name: " is put in front of
     * the problem's text if it does not start with it. */
    int (*call)(const char *text, void *into, struct problem *p);
    /* OPT_CALL: the opposite, for option_print. False: there is no value. NULL:
     * the value is never printed. */
    bool (*print)(const void *from, char *out, size_t room);
    const char *help;  /* one sentence, no full stop at the end */
    unsigned verbs;    /* of a subcommand_table: bit 1 << i: the i-th verb takes
                          the flag */
    const char *under; /* heading in --help of this row and those behind it; the
                          first row's NULL is "Options" */
    const char *unit;  /* OPT_NUMBER: may follow the digits, like "%" */
    char old_letter;   /* read like `letter`, and listed nowhere */
    const char *elsewhere; /* what other programs call it: "retries|tries" */
    /* Only for options of the worker: */
    bool live;      /* a running worker can change it */
    size_t library; /* offset + 1 in struct mqw_options; 0: not there */
};

struct option_table {
    const char *program; /* "mqworker" */
    const char *usage; /* "[options] QUEUE -- COMMAND [ARG...]", lines by \n */
    const char *about; /* one sentence */
    const char *notes; /* after the options: examples, see also. May be NULL */
    const struct option_row *rows;
    size_t count;
};

/* Fill `into` from argv[1..]. Flags and operands may be mixed; "--" ends the
 * flags. On return argv[0..*operands-1] are the operands before "--" (without
 * the program's name), *rest the index after "--" in argv or -1 without one.
 * argv is permuted. --help and --version are handled by the caller as rows. */
int options_parse(const struct option_table *table, int argc, char **argv,
                  void *into, int *operands, int *rest, struct problem *p);

/* Return true if the word of `size` bytes is one of "a|b|c"; NULL has none. */
bool word_among(const char *words, const char *word, size_t size);
/* Return true if `name` is nearer to the mistyped `word` than any name before
 * it; `*far` begins as SIZE_MAX. A name that starts with the word is
 * nearest. */
bool word_nearer(const char *word, size_t size, const char *name, size_t *far);

/* Return true if the flag takes no value: flags, counts, calls without
 * `value`. */
bool option_bare(const struct option_row *row);
/* Return "N", "text|json"; "" for a bare flag. */
const char *option_value(const struct option_row *row);
/* Read `text` into the target in `into`. NULL if the value was left out: then
 * the preset is read, and a call gets NULL. */
int option_read(const struct option_row *row, const char *text, void *into,
                struct problem *p);
/* Print the value in `from` as the flag takes it, "" if the flag takes none; a
 * value that is too long is cut. Returns false if there is no value: a flag
 * that is off, a text that is NULL. Other threads may change a number. */
bool option_print(const struct option_row *row, const void *from, char *out,
                  size_t room);

/* Print --help, fitted to `width` columns. */
void options_help(const struct option_table *table, FILE *out, int width);
/* Print the rows for the build of completion if argv is --options-dump. Returns
 * the exit status, or -1 for another argv. */
int options_dump(const struct option_table *table, int argc, char **argv);
bool options_dump_asked(int argc, char **argv);
/* Print the fields of one row, from its name on. The caller has printed the
 * fields before the name. */
void option_dump(const struct option_row *row);

#endif
