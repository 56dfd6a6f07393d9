/* mqctl.h - the verbs of mqctl and their options
 *
 * WHAT   mqctl_table (options.c) has a row for each verb, with its help and its
 *        function, and a row for each flag, with the verbs that take it.
 * WHO    main reads the command line into the options and calls the function of
 *        the verb, once. mqctl serve fills in options of its own and calls the
 *        function of a verb in a child process for each request.
 * OWNS   Nothing; strings point into argv.
 * FAILS  A verb prints the reason on stderr and returns its exit status.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_H
#define SCRIPTS_MQCTL_MQCTL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/broker/broker_operand.h"
#include "common/cli/subcommand.h"
#include "common/store/waiting.h"

/* Values of line.verb in the options. */
enum verb {
    VERB_QUEUES,
    VERB_LIST,
    VERB_RUN_NOW,
    VERB_CANCEL,
    VERB_GROUPS,
    VERB_GROUP,
    VERB_KEYS,
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
    VERB_SERVE,
    VERB_CREATE,
    VERB_REMOVE,
    VERB_FORGET,
    VERB_MOVE,
    VERB_COUNT,
};

/* The states of an ordered group. A group may be closing in each of them. */
enum group_where {
    GROUP_IS_RUNNING,
    GROUP_IS_READY,
    GROUP_IS_BLOCKED, /* its head waits for its retry */
    GROUP_IS_HELD,    /* waits for an operator: its head is a dead letter */
    GROUP_IS_CLOSING,
    GROUP_IS_COUNT,
};

const char *group_where_text(enum group_where where);

/* The values of a flag that may be given several times. */
#define WORDS_MOST 16
struct words {
    const char *at[WORDS_MOST];
    size_t count;
};

/* Options of mqctl serve (docs/web.md). */
struct serve_options {
    const char *listen, *token_file, *group, *tls_cert,
        *tls_key;            /* NULL: not given */
    struct words state_dirs; /* one that is NULL: the worker's default */
    struct words hosts;      /* more names of this server */
    bool allow_write, no_bodies, metrics_open, behind_proxy;
};

struct options {
    struct subcommand_line line;  /* first: subcommand_read relies on that */
    const char *state_dir;        /* NULL: the worker's default */
    const char *textfile;         /* NULL: stdout */
    uint64_t interval_ns, rounds; /* of top; rounds 0: without end */
    uint64_t depth, message_size, mode; /* 0: not given */
    bool json, quiet, force, all, dry_run, utc;
    bool look_only;          /* doctor, explain: only read; create no queue to
                              * test the limits */
    const char *runtime_dir; /* of move; NULL: the worker's default */
    bool letters, allow_disk_custody;
    char group_separator;         /* of move; 0: none */
    const char *pause_for;        /* duration; NULL: not given */
    bool orphans;                 /* remove: all queues that no process has
                                     open */
    bool running;                 /* cancel: running messages as well */
    bool wait;                    /* until the worker has exited */
    uint64_t wait_ns;             /* for --wait; UINT64_MAX: without a limit */
    struct waiting_filter filter; /* of messages */
    unsigned groups;      /* groups: states to list, bits of group_where */
    uint64_t limit;       /* messages or groups; 0: all */
    const char *free_key; /* keys: the key to free; NULL: list keys */
    const char *after;    /* cursor to continue at; NULL: none */
    struct serve_options serve;
    struct broker_access access;
};

extern const struct subcommand_table mqctl_table;

/* Return true if the options select only some messages. */
bool filter_given(const struct options *o);

/* The verbs of the same name, in the man page mqctl(1). Each returns its exit
 * status. */
int queues_run(const struct options *o);
int create_run(const struct options *o);
int remove_run(const struct options *o);
int forget_run(const struct options *o);
int move_run(const struct options *o);
int list_run(const struct options *o);
int steer_messages_run(const struct options *o); /* run-now, cancel */
int groups_run(const struct options *o);
int group_run(const struct options *o);
int keys_run(const struct options *o);
int status_run(const struct options *o);
int top_run(const struct options *o);
int steer_run(const struct options *o); /* pause to quit: orders to a worker */
int explain_run(const struct options *o);
int doctor_run(const struct options *o);
int metrics_run(const struct options *o);
int serve_run(const struct options *o);

#endif
