/* mqctl.h - the verbs of mqctl and their options
 *
 * WHAT   One row per flag with the verbs that take it
 *        (common/cli/subcommand.h); one function per verb.
 * WHO    main, once.
 * OWNS   Strings point into argv.
 * FAILS  Each verb returns its exit status; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_H
#define SCRIPTS_MQCTL_MQCTL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/broker/broker_operand.h"
#include "common/cli/subcommand.h"
#include "common/store/waiting.h"

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

/* What an ordered group does, and beside that, whether it is closing. */
enum group_where {
    GROUP_IS_RUNNING,
    GROUP_IS_READY,
    GROUP_IS_BLOCKED, /* its head waits for its retry */
    GROUP_IS_HELD,    /* a dead letter of it has to be dealt with */
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
    struct words state_dirs; /* NULL in it: as the worker finds it */
    struct words hosts;      /* names that are ours, too */
    bool allow_write, no_bodies, metrics_open, behind_proxy;
};

struct options {
    struct subcommand_line line;  /* first; its verb: enum verb */
    const char *state_dir;        /* NULL: as the worker finds it */
    const char *textfile;         /* NULL: stdout */
    uint64_t interval_ns, rounds; /* of top; rounds 0: until it is ended */
    uint64_t depth, message_size, mode; /* 0: not given */
    bool json, quiet, force, all, dry_run, utc;
    bool look_only;          /* doctor: change nothing, not even for a moment */
    const char *runtime_dir; /* of move; NULL: as the worker finds it */
    bool letters, allow_disk_custody;
    char group_separator;         /* of move; 0: none */
    const char *pause_for;        /* duration; NULL: not given */
    bool orphans;                 /* remove: all queues that no process has
                                     open */
    bool running;                 /* cancel: also what runs */
    bool wait;                    /* for the end of the worker */
    uint64_t wait_ns;             /* UINT64_MAX: as long as it takes */
    struct waiting_filter filter; /* of messages */
    unsigned groups;              /* that are wanted: bits of group_where */
    uint64_t limit;               /* of messages or groups; 0: all */
    const char *free_key;         /* keys: the key to free; NULL: list keys */
    const char *after;            /* a cursor; NULL: from the first */
    struct serve_options serve;
    struct broker_access access;
};

extern const struct subcommand_table mqctl_table;

/* Return true if only some messages are wanted. */
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
