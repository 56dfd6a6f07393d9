/* answer.h - what a child prints for a request
 *
 * WHAT   Finds out by the route, and prints it as JSON or as a page.
 * WHO    A child of the server (look.h), once.
 * OWNS   Nothing.
 * FAILS  An exit status; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQCTL_SERVE_ASK_ANSWER_H
#define SCRIPTS_MQCTL_SERVE_ASK_ANSWER_H

/* `ask` is a struct serve_ask. */
int answer_print(void *ask);

#endif
