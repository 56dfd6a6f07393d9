/* mqctl_options.h - the command line of mqctl: a verb and its flags
 *
 * WHAT   One row per flag with the verbs that take it
 *        (common/options/subcommand.h).
 * WHO    Once, from main.
 * OWNS   Strings point into argv, which is permuted.
 * FAILS  A problem with status 64.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_OPTIONS_H
#define SCRIPTS_MQCTL_MQCTL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/problem.h"
#include "common/options/subcommand.h"

enum verb {
    VERB_QUEUES,
    VERB_STATUS,
    VERB_TOP,
    VERB_PAUSE,
    VERB_RESUME,
    VERB_SET,
    VERB_DRAIN,
    VERB_STOP,
    VERB_QUIT,
    VERB_EXPLAIN,
    VERB_DOCTOR,
    VERB_METRICS,
    VERB_CREATE,
    VERB_REMOVE,
    VERB_COUNT,
};

struct options {
    enum verb verb;
    struct subcommand_operands operands; /* after the verb */
    const char *state_dir;               /* NULL: as the worker finds it */
    const char *textfile;                /* NULL: stdout */
    uint64_t interval_ns, rounds; /* of top; rounds 0: until it is ended */
    uint64_t depth, message_size, mode; /* 0: not given */
    bool json, force, help;
};

/* VERB_COUNT if it is none. */
enum verb verb_parse(const char *text);
const char *verb_name(enum verb verb);
/* argv[1] is the verb of o->verb. */
int options_read(struct options *o, int argc, char **argv, struct problem *p);
/* --options-dump (common/options/subcommand.h). */
int options_complete(int argc, char **argv);
/* --help of the verb; VERB_COUNT: of the program. */
void help_print(enum verb verb, FILE *out);

#endif
