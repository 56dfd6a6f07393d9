/* html.h - HTML that holds what somebody else wrote
 *
 * WHAT   Text and attribute values, escaped; parts of URLs; values of JSON
 *        objects in the form that a person reads.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_HTML_H
#define SCRIPTS_MQCTL_SERVE_ASK_HTML_H

#include <jansson.h>
#include <stdio.h>

/* Escaped for a value in double quotes, and as it is otherwise: scripts read it
 * and forms send it back. */
void html_attribute(FILE *out, const char *text);
/* Text that a person reads: characters that hide something are shown as
 * escapes, too. */
void html_text(FILE *out, const char *text);
/* A segment of a path, or a value of a query. */
void html_url(FILE *out, const char *text);
/* The address of a queue's page: "/q/orders". */
void html_queue_url(FILE *out, const char *queue);
/* "820 us", "1.2 s" of ns; "-" below 0. */
void html_duration(FILE *out, double ns);
/* A member of an object: text, number, yes or no; "-" if it is null. */
void html_value(FILE *out, const json_t *o, const char *name);

/* What to type in a terminal instead. */
void html_command(FILE *out, const char *what, const char *queue,
                  const char *rest);
/* A name and the member of an object, in a list of facts. */
void html_fact(FILE *out, const char *name, const json_t *o, const char *field);
/* What could not be looked at. */
void html_troubles(FILE *out, const json_t *data);

/* "": not there. */
const char *member_text(const json_t *o, const char *name);
/* -1: not there. */
double member_number(const json_t *o, const char *name);

#endif
