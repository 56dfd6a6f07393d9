/* reply.h - responses
 *
 * WHAT   Responses with the headers that all of them have: JSON, problems
 *        (RFC 9457), and the files that are built into the program. One of
 *        these files is the page; its scripts ask for everything that it
 *        shows.
 * WHO    The server's thread.
 * OWNS   Nothing.
 * FAILS  MHD_NO: the connection is closed.
 */
#ifndef SCRIPTS_MQCTL_SERVE_REPLY_H
#define SCRIPTS_MQCTL_SERVE_REPLY_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#define REPLY_JSON    "application/json"
#define REPLY_HTML    "text/html; charset=utf-8"
#define REPLY_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define REPLY_BYTES   "application/octet-stream"
#define REPLY_EVENTS  "text/event-stream"

/* Send a response, which is taken over and may be NULL. */
enum MHD_Result reply_send(struct MHD_Connection *c, unsigned status,
                           const char *type, struct MHD_Response *r);
/* Send a text, which is copied. */
enum MHD_Result reply_text(struct MHD_Connection *c, unsigned status,
                           const char *type, const char *text);
/* Send JSON, which is freed and may be NULL, or status 304 if the client has
 * the same already. */
enum MHD_Result reply_json(struct MHD_Connection *c, char *text);
/* Reason for refusing a request. */
struct reply_problem {
    unsigned status;
    int exit_status;   /* exit status of the failed tool; 0: none */
    const char *line;  /* the line that the tool would print */
    bool person;       /* somebody reads the answer, not a program */
    const char *allow; /* for 405: the allowed methods */
};
enum MHD_Result reply_problem(struct MHD_Connection *c,
                              const struct reply_problem *p);
/* Send a file. */
enum MHD_Result reply_file(struct MHD_Connection *c, const char *name);
/* Send the page. Its status is for programs; a person sees what the scripts
 * find out. */
enum MHD_Result reply_page(struct MHD_Connection *c, unsigned status);
/* Return the HTTP status for the exit status of a tool. */
unsigned reply_status(int exit_status);

#endif
