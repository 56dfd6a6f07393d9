/* mqdlq.h - the verbs of mqdlq, what they are told and what they have
 *
 * WHAT   One row per flag with the verbs that take it
 *        (common/cli/subcommand.h); the open store of the queue; the
 *        letters a verb is to work on; one function per verb.
 * WHO    One thread.
 * OWNS   A context owns its store, a selection its array. Strings point into
 *        argv.
 * FAILS  Each verb, context_open and selection_make return an exit status; the
 *        reason is out on stderr.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_H
#define SCRIPTS_MQDLQ_MQDLQ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/subcommand.h"
#include "common/store/letters.h"

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
    struct subcommand_line line; /* first; its verb: enum verb */
    struct letter_filter filter;
    const char *state_dir; /* NULL: as the worker finds it */
    const char *to;        /* NULL: the queue itself */
    struct broker_access access;
    uint64_t by; /* enum letter_by */
    uint64_t rate, wait_ns, canary_ns, older_than_ns;
    bool all, json, quiet, count, body, raw, dry_run, canary;
    bool reset_expiry, again, utc, local;
    bool has_by, has_wait, has_canary, has_older_than;
};

extern const struct subcommand_table mqdlq_table;

/* Whether anything narrows the choice of letters. */
bool filter_given(const struct options *o);

/* What every verb has. */
struct context {
    const struct options *o;
    char queue[QUEUE_NAME_MAX];
    struct store *store; /* NULL: there is none */
    /* How letters on a broker are dealt with; NULL: of this machine. */
    const struct broker_letters *letters;
    struct broker *broker; /* that the letters are of; NULL: of this machine */
};

/* With `create` the store is made if it is missing; without, a store that is
 * missing is no failure, and stderr says where it was looked for. */
int context_open(struct context *ctx, const struct options *o, bool create);
/* An exit status: letters of a broker have to go back. */
int context_close(struct context *ctx);

/* A -errno of the store while it was asked to `what`; the exit status. */
int store_failed(const char *what, int err);
/* At the end of a verb that changes something: takes over `object`, and prints
 * it with --json. False: the caller tells it in words. */
bool summary_print(const struct context *ctx, json_t *object);
/* First trouble wins: the status to keep. */
static inline int status_worse(int status, int other)
{
    return status ? status : other;
}

/* ---- the letters a verb is to work on (selection.c) ---- */

struct pick {
    uint64_t died_ns;
    int64_t row;
};

/* Oldest letter first, each once. */
struct selection {
    struct pick *picks;
    size_t count, room;
    bool by_id;
    bool missing; /* an id was not found: exit status 66 at the end */
};

/* Choose by ids (operands, or stdin for "-"), or by the filter. An id that no
 * letter has is named, the others are chosen, and `missing` is set. */
int selection_make(struct selection *c, const struct context *ctx);
void selection_free(struct selection *c);
/* Count the letters being replayed that match the filter, so that a user who
 * acts on all letters knows that these are left out. 0 with ids or
 * --replayed. */
int selection_on_way(const struct selection *c, const struct context *ctx,
                     uint64_t *count);
/* That so many letters of a queue are on their way. */
#define ON_WAY_CLAUSE \
    "%" PRIu64 " %s on %s way already: see mqdlq list --replayed %s"
#define ON_WAY_ARGS(count, queue)                                         \
    (count), (count) == 1 ? "is" : "are", (count) == 1 ? "its" : "their", \
        SHELL_QUEUE(queue)

/* ---- the verbs ---- */

int list_run(struct context *ctx);
/* Count the letters of each queue of the state directory, for list without a
 * queue. A queue with an unreadable store is reported, and the others are
 * counted. */
int queues_run(const struct options *o);
int show_run(struct context *ctx);
/* Send letters into the queue again, oldest first. A letter that cannot be sent
 * is named and the others go on; 75 and 71 end it. */
int replay_run(struct context *ctx);
/* discard, purge: remove letters, in batches of one transaction each. */
int remove_run(struct context *ctx);
int export_run(struct context *ctx);
/* All or nothing of each batch; stderr names the line at fault. */
int import_run(struct context *ctx);

#endif
