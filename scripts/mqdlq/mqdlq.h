/* mqdlq.h - options, context and verbs of the program mqdlq
 *
 * WHAT   The options of the command line; the open store of the queue; the
 *        letters that a verb works on; one function per verb. "Letter" means
 *        dead letter.
 * WHO    The files of this folder; mqdlq has one thread.
 * OWNS   A context owns its store, a selection its array. Strings point into
 *        argv.
 * FAILS  Each verb, context_open and selection_make return an exit status,
 *        after printing the reason to stderr.
 */
#ifndef SCRIPTS_MQDLQ_MQDLQ_H
#define SCRIPTS_MQDLQ_MQDLQ_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/safe_text.h"
#include "common/broker/broker_operand.h"
#include "common/cli/subcommand.h"
#include "common/state/statedir.h"
#include "common/store/letters.h"

enum verb {
    VERB_LIST,
    VERB_SHOW,
    VERB_REPLAY,
    VERB_EDIT,
    VERB_DISCARD,
    VERB_PURGE,
    VERB_EXPORT,
    VERB_IMPORT,
    VERB_COUNT,
};

struct options {
    struct subcommand_line line; /* first; its verb: enum verb */
    struct letter_filter filter;
    const char *state_dir; /* --state-dir; NULL: not given */
    const char *to;        /* --to; NULL: the letter's own queue */
    const char *new_body;  /* edit --body; NULL: run an editor */
    struct broker_access access;
    uint64_t by; /* enum letter_by */
    uint64_t rate, wait_ns, canary_ns, older_than_ns;
    bool all, json, quiet, count, body, raw, dry_run, canary;
    bool reset_expiry, again, utc, local;
    bool has_by, has_wait, has_canary, has_older_than;
};

extern const struct subcommand_table mqdlq_table;

/* Return true if a flag narrows the choice of letters. */
bool filter_given(const struct options *o);

/* The queue that a verb works on. */
struct context {
    const struct options *o;
    char queue[QUEUE_NAME_MAX];
    char root[PATH_MAX]; /* the state directory; "": the queue is on a broker */
    struct store *store; /* NULL: no store exists */
    /* Operations on letters of a broker; NULL: the queue is on this machine. */
    const struct broker_letters *letters;
    struct broker *broker; /* NULL: the queue is on this machine */
};

/* Return the arguments that name the context's queue in a command, in a buffer
 * that lasts until the caller's block ends. */
#define CONTEXT_OPERAND(ctx) STATEDIR_OPERAND((ctx)->root, (ctx)->queue)

/* Open the store of the queue that `o` names, or fetch the letters from its
 * broker. With `create` a missing store is created. Without it a missing store
 * is no error; stderr then names the path that was tried. */
int context_open(struct context *ctx, const struct options *o, bool create);
/* Close the store, and give letters back to their broker. Returns an exit
 * status. */
int context_close(struct context *ctx);

/* Complain that mqdlq cannot `what`, such as "read the letters", because of the
 * error `err`, a -errno of the store. Returns the exit status. */
int store_failed(const char *what, int err);
/* Release `object`, the summary of a verb; with --json print it first. Returns
 * false if the caller must print the summary in words. */
bool summary_print(const struct context *ctx, json_t *object);
/* Return the first exit status that is not 0. */
static inline int status_worse(int status, int other)
{
    return status ? status : other;
}

/* ---- the letters that a verb works on (selection.c) ---- */

struct pick {
    uint64_t died_ns;
    struct letter_name name;
};

/* Chosen letters, each once, the oldest first. */
struct selection {
    struct pick *picks;
    size_t count, room;
    bool by_id;   /* chosen by ids, not by a filter */
    bool missing; /* an id was not found: exit status 66 at the end */
};

/* Choose by ids (operands, or stdin for "-"), or by the filter. If no letter
 * has an id, complain, set `missing` and choose the others. */
int selection_make(struct selection *c, const struct context *ctx);
void selection_free(struct selection *c);
/* Count the letters that match the filter but are on their way through the
 * queue again, because a verb for all letters leaves them out. 0 with ids or
 * --replayed. */
int selection_on_way(const struct selection *c, const struct context *ctx,
                     uint64_t *count);
/* A clause about the letters that are on their way, for printf. */
#define ON_WAY_CLAUSE \
    "%" PRIu64 " %s on %s way already: see mqdlq list --replayed %s"
#define ON_WAY_ARGS(count, ctx)                                           \
    (count), (count) == 1 ? "is" : "are", (count) == 1 ? "its" : "their", \
        CONTEXT_OPERAND(ctx)

/* ---- another body for a letter (edit.c) ---- */

/* Freed by the caller with body_free, also after an error. */
struct body {
    char *bytes;  /* NULL: none */
    char *folder; /* has only the editor's copy; NULL: none */
    size_t size;
    bool unsaved; /* the copy has work of the user that is nowhere else */
};
/* Read the new body from --body, or let the user edit the letter's body. A body
 * of more than `most` bytes is refused. Returns an exit status. */
int body_edit(struct body *out, const struct letter *l, const struct options *o,
              size_t most);
/* Free the body, and remove the editor's copy. If the copy is unsaved, keep it
 * and say where it is. */
void body_free(struct body *b);

/* ---- the verbs ---- */

/* list, export: print the chosen letters, or count them. */
int list_run(struct context *ctx);
/* list without a queue: count the letters of each queue in the state directory.
 * A queue with an unreadable store is reported, and the others are counted. */
int queues_run(const struct options *o);
int show_run(struct context *ctx);
/* replay, edit: send letters to the queue again, oldest first; edit sends one,
 * with another body. A letter that cannot be sent is reported, and the next one
 * is tried; a queue that stays full and a system limit end the verb. */
int replay_run(struct context *ctx);
/* discard, purge: remove letters, in batches of one transaction each. */
int remove_run(struct context *ctx);
/* Add letters from JSON lines, in batches of one transaction each; stderr names
 * the line at fault. */
int import_run(struct context *ctx);

#endif
