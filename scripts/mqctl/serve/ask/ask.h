/* ask.h - the answer to a request
 *
 * WHAT   A request after all checks: its path, its query, its body. Its answer
 *        as JSON, and the page that shows it.
 * WHO    A child of the server (look.h), once.
 * OWNS   Nothing: the strings belong to the request, which the child has a copy
 *        of.
 * FAILS  NULL, and a problem with the exit status of the tool.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_ASK_H
#define SCRIPTS_MQCTL_SERVE_ASK_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/problem.h"
#include "scripts/mqctl/mqctl.h"
#include "scripts/mqctl/serve/ask/path.h"

struct serve_ask {
    const struct serve_options *o;
    struct serve_path path;
    const char *query[QUERY_COUNT]; /* NULL: not given */
    const char *body;               /* JSON; "": none */
    size_t body_size;
    const struct ask_job *job; /* for SERVE_JOB_OUTCOME */
};

/* A finished replay. */
struct ask_job {
    const char *queue;
    const int64_t *rows;
    size_t count;
    uint64_t started_ns; /* wall */
};

/* Parse the JSON body of a request. Every member must be known to its route and
 * have the right type, so that a misspelt member does not mean "no
 * restriction". The caller frees the result; NULL and a problem on an error. */
json_t *ask_body_read(const struct serve_ask *a, struct problem *p);

/* Print what a request asks for, as JSON or as a page; `ask` is a struct
 * serve_ask. Returns an exit status. */
int answer_print(void *ask);

/* ---- looking ---- */

json_t *ask_queues(const struct serve_ask *a, struct problem *p);
json_t *ask_queue(const struct serve_ask *a, struct problem *p);
/* Return true if the queue of the path exists, or a worker has run on it;
 * otherwise fill a problem. An empty answer is right only for such a queue. */
bool queue_is_known(const struct serve_ask *a, struct problem *p);
/* Return messages as mqctl list --json does: a page, from a cursor on. */
json_t *ask_messages(const struct serve_ask *a, struct problem *p);
/* Return a page of ordered groups as mqctl groups --json does. */
json_t *ask_groups(const struct serve_ask *a, struct problem *p);
json_t *ask_explain(const struct serve_ask *a, struct problem *p);
/* Return doctor's findings: of the queue in the query, or of all queues. */
json_t *ask_doctor(const struct serve_ask *a, struct problem *p);
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

/* ---- letters ---- */

#define LOOKED_AT 20000 /* letters that one answer inspects */
/* Read "DIED_NS.ROW", the cursor of a letter. */
bool ask_cursor(const char *text, uint64_t *ns, int64_t *row);

json_t *ask_letters(const struct serve_ask *a, struct problem *p);
json_t *ask_by_error(const struct serve_ask *a, struct problem *p);
json_t *ask_all_dead(const struct serve_ask *a, struct problem *p);
json_t *ask_letter(const struct serve_ask *a, struct problem *p);
/* Print the body of the letter; an exit status. */
int ask_body(const struct serve_ask *a);
/* Count the outcomes of a job's letters. */
json_t *ask_outcome(const struct serve_ask *a, struct problem *p);
/* Print the rows that a request to replay or discard is about, one a line,
 * oldest first; an exit status, 1 if there are not as many as it expects. */
int ask_rows(const struct serve_ask *a);

/* ---- pages ---- */

/* A file of scripts/mqctl/serve/web, made into C by scripts/embed. A NUL byte
 * follows its bytes. */
struct serve_file {
    const char *name, *etag;
    const unsigned char *bytes;
    size_t size;
};
extern const struct serve_file serve_files[];
extern const size_t serve_file_count;

/* Print the page of a route with its data, which is taken over. */
void page_print(FILE *out, const struct serve_ask *a, json_t *data);
/* Print a page of one sentence. With `login`, add a field for the token, which
 * leads to that address; NULL: no field. */
void page_message(FILE *out, const char *title, const char *text,
                  const char *login);

#endif
