/* path.h - what a request asks for
 *
 * WHAT   The table of routes, which reads a method and a path.
 * WHO    Any thread. Pure functions.
 * OWNS   Nothing.
 * FAILS  serve_path_read: the HTTP status to refuse with.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_PATH_H
#define SCRIPTS_MQCTL_SERVE_ASK_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/safe_text.h"

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
    const char *method;  /* GET is HEAD, too */
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

/* Return the query of that name if `allowed` has its bit, else QUERY_COUNT. */
enum serve_query serve_query_find(const char *name, unsigned allowed);
/* Print the names of these bits: "error, reason"; "no names" without any. */
const char *serve_query_list(unsigned allowed, char *out, size_t room);

/* Read a decimal number from 1 up, and nothing behind it. */
bool serve_number_read(const char *text, int64_t *out);

#endif
