/* ask.h - what a request asks for, and its answer
 *
 * WHAT   The table of routes, which reads a method and a path. Answers a
 *        request that passed all checks, from its path, query and body, as
 *        JSON.
 * WHO    request.c reads the path of each request, and starts a child (look.h)
 *        that calls answer_print once; jobs.c calls mqdlq_become in its
 *        children.
 * OWNS   Nothing: the strings belong to the request, of which the child has a
 *        copy.
 * FAILS  serve_path_read: the HTTP status to refuse with. Others: NULL, and a
 *        problem with the exit status of the tool.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_ASK_H
#define SCRIPTS_MQCTL_SERVE_ASK_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/problem.h"
#include "common/store/store.h"
#include "scripts/mqctl/mqctl.h"

/* ---- the route, by method and path (path.c) ---- */

enum serve_what {
    SERVE_PAGE, /* the page, whose scripts ask for the rest */
    SERVE_FILE,
    SERVE_HEALTH,
    SERVE_METRICS,
    SERVE_SESSION,
    SERVE_SESSION_END,
    SERVE_ABOUT,
    SERVE_OVERVIEW,
    SERVE_EVENTS,
    SERVE_SPARKS,
    SERVE_FINDINGS,
    SERVE_DOCTOR,
    SERVE_EXPLAIN,
    SERVE_BY_ERROR,
    SERVE_QUEUES,
    SERVE_QUEUE,
    SERVE_HISTORY,
    SERVE_SETTINGS,
    SERVE_MESSAGES,
    SERVE_MESSAGE,
    SERVE_GROUPS,
    SERVE_LETTERS,
    SERVE_LETTER,
    SERVE_BODY,
    SERVE_JOBS,
    SERVE_JOB,
    SERVE_JOB_OUTCOME,
    SERVE_JOB_STOP,
    SERVE_REPLAY,
    SERVE_DISCARD,
    SERVE_EDIT,
    SERVE_RUN_NOW,
    SERVE_CANCEL,
    SERVE_STEER_GROUP,
    SERVE_SET,
    SERVE_STEER,
};

/* Known names in a query. */
enum serve_query {
    QUERY_AFTER,
    QUERY_LIMIT,
    QUERY_ERROR,
    QUERY_REASON,
    QUERY_GROUP,
    QUERY_MATCH,
    QUERY_SINCE,
    QUERY_UNTIL,
    QUERY_ID,
    QUERY_QUEUE,
    QUERY_RANGE,
    QUERY_STATE,
    QUERY_PATTERN,
    QUERY_COUNT,
};
extern const char *const serve_query_names[QUERY_COUNT];

#define QUERY(name) (1u << QUERY_##name)
/* Names that select letters, also allowed in a JSON filter. */
#define QUERY_FILTER                                              \
    (QUERY(ERROR) | QUERY(REASON) | QUERY(GROUP) | QUERY(MATCH) | \
     QUERY(SINCE) | QUERY(UNTIL) | QUERY(PATTERN))

struct serve_route {
    const char *method;  /* GET also allows HEAD */
    const char *pattern; /* {q}, {row}, {word}: one segment each */
    enum serve_what what;
    bool open;      /* needs no token */
    bool write;     /* changes something */
    unsigned query; /* allowed bits of enum serve_query */
};

#define SERVE_WORD    64
#define SERVE_ALLOW   64
#define SERVE_SEGMENT (3 * QUEUE_NAME_MAX) /* a queue on a broker, encoded */

struct serve_path {
    const struct serve_route *route;
    char queue[QUEUE_NAME_MAX]; /* "/NAME", or on a broker; "": none */
    int64_t row;                /* number of a letter or a job; 0: none */
    char word[SERVE_WORD];      /* name of a file or an order; "": none */
    char allow[SERVE_ALLOW];    /* for 405: the allowed methods */
};

/* Read a method and a percent-decoded path. Returns 0; 404: no route; 405: no
 * route with that method; 501: no route has that method. */
int serve_path_read(struct serve_path *out, const char *method,
                    const char *path);

/* Return "; below a queue there are history, ..." for a path one step below a
 * queue, else "". */
const char *serve_queue_list(const char *path, char *out, size_t room);

/* Return the query of that name if `allowed` has its bit, else QUERY_COUNT. */
enum serve_query serve_query_find(const char *name, unsigned allowed);
/* Print the names of these bits: "error, reason"; "no names" without any. */
const char *serve_query_list(unsigned allowed, char *out, size_t room);

/* Read a decimal number of at least 1; nothing may follow it. */
bool serve_number_read(const char *text, int64_t *out);

/* ---- the request ---- */

/* How JSON is written: real numbers have at most six significant digits. */
#define SERVE_JSON (JSON_COMPACT | JSON_REAL_PRECISION(6))

struct serve_ask {
    const struct serve_options *o;
    struct serve_path path;
    const char *query[QUERY_COUNT]; /* NULL: not given */
    const char *body;               /* JSON; "": none */
    size_t body_size;
    const struct ask_job *job; /* for SERVE_JOB_OUTCOME */
    json_t *look; /* last look at the queue of the path; NULL: none */
};

/* Header and body of a letter or of a message. */
struct ask_bytes {
    const char *header, *body;                 /* header NULL: not known */
    size_t header_size, body_size, whole_size; /* body may be cut: whole size */
};

/* A replay. */
struct ask_job {
    const char *queue;
    const int64_t *rows;
    size_t count;
    uint64_t started_ns; /* wall */
    uint64_t sent;       /* letters */
    bool ended;
};

/* Parse the JSON body of a request. Every member must be known to its route and
 * have the right type, so that a misspelt member does not mean "no
 * restriction". The caller frees the result; NULL and a problem on an error. */
json_t *ask_body_read(const struct serve_ask *a, struct problem *p);

/* Print what a request asks for; `ask` is a struct serve_ask. Returns an exit
 * status. */
int answer_print(void *ask);

/* ---- looking ---- */

json_t *ask_queues(const struct serve_ask *a, struct problem *p);
json_t *ask_queue(const struct serve_ask *a, struct problem *p);
/* Return true if the queue of the path exists, or a worker has run on it;
 * otherwise fill a problem. An empty answer is right only for such a queue. */
bool queue_is_known(const struct serve_ask *a, struct problem *p);
/* Return all flags of the worker, with their values and what they mean. */
json_t *ask_settings(const struct serve_ask *a, struct problem *p);
/* Return messages as mqctl list --json does: a page, from a cursor on. */
json_t *ask_messages(const struct serve_ask *a, struct problem *p);
/* Return one message, with its body and its attempts. */
json_t *ask_message(const struct serve_ask *a, struct problem *p);
/* Return a page of ordered groups as mqctl groups --json does. */
json_t *ask_groups(const struct serve_ask *a, struct problem *p);
json_t *ask_explain(const struct serve_ask *a, struct problem *p);
/* Return doctor's findings: of the queue in the query, or of all queues. */
json_t *ask_doctor(const struct serve_ask *a, struct problem *p);
/* Return doctor's warnings; several queues with the same warning share one. */
json_t *ask_findings(const struct serve_ask *a, struct problem *p);
/* Pause, resume or drain a worker, or change its settings. */
json_t *ask_steer(const struct serve_ask *a, struct problem *p);
/* Cancel the messages that the body names, or run them now. */
json_t *ask_steer_messages(const struct serve_ask *a, struct problem *p);
/* Close, open or release the group that the body names. */
json_t *ask_steer_group(const struct serve_ask *a, struct problem *p);
/* Return the first state directory with a folder of the queue; the first of all
 * if there is none. */
const char *ask_state_dir(const struct serve_ask *a, const char *queue);
/* Refuse a queue whose waiting messages and letters are on a broker. */
int ask_kept_here(const char *queue, struct problem *p);

/* Parse the queue named in the query, with or without its slash, into `out` as
 * the queue of a separate request. Returns false and a problem if there is no
 * such queue. */
bool ask_named_queue(const struct serve_ask *a, struct serve_ask *out,
                     struct problem *p);
/* Add the objects that a verb of mqctl prints to a list. Returns its exit
 * status. */
int ask_verb(int (*verb)(const struct options *), const struct options *o,
             json_t *list);
/* Run a verb of mqctl for the queue of the path. Returns the object that it
 * printed; NULL: it failed and has printed the reason. `named` is the number of
 * messages in the request (0: none). If the object tells what became of each of
 * them, the verb has not failed, whatever its exit status is. */
json_t *ask_order(const struct serve_ask *a,
                  int (*verb)(const struct options *), struct options *o,
                  size_t named, struct problem *p);
/* Return true if the word of a path is one of three; else fill a problem. */
bool ask_word_check(const char *word, const char *const words[3],
                    struct problem *p);

/* ---- letters ---- */

json_t *ask_letters(const struct serve_ask *a, struct problem *p);
/* Return the letters of one queue, or of all, grouped by error. */
json_t *ask_by_error(const struct serve_ask *a, struct problem *p);
json_t *ask_letter(const struct serve_ask *a, struct problem *p);
/* Print the body of the letter. Returns an exit status. */
int ask_body(const struct serve_ask *a);
/* Count the outcomes of a job's letters. */
json_t *ask_outcome(const struct serve_ask *a, struct problem *p);
/* Print the rows that a request to replay or discard is about, each as an
 * int64_t, oldest first. Returns an exit status, 1 if there are not as many as
 * the request expects. */
int ask_rows(const struct serve_ask *a);
/* Become mqdlq, which sends a letter with the body of the request; returns an
 * exit status if mqdlq cannot be run. */
int ask_edit(const struct serve_ask *a);
/* Become mqdlq; `argv` ends with NULL. Returns an exit status if it cannot be
 * run. */
int mqdlq_become(const char *const argv[]);

/* ---- texts ---- */

/* Return untrusted bytes as a text, with escapes for characters that would hide
 * something; null for NULL. */
json_t *ask_text(const void *bytes, size_t size, bool one_line);
/* Add to `o` what only the page of one letter or message shows: the header, the
 * body as text, in hex and (if it is JSON) indented, and the attempts. */
int ask_whole(const struct serve_ask *a, json_t *o, struct store *s,
              int64_t row, const struct ask_bytes *bytes);

/* ---- files ---- */

/* A file of scripts/mqctl/serve/web, made into C by scripts/embed; NAME.gz is
 * the same file, compressed. A NUL byte follows its bytes. */
struct serve_file {
    const char *name, *etag;
    const unsigned char *bytes;
    size_t size;
};
extern const struct serve_file serve_files[];
extern const size_t serve_file_count;

#endif
