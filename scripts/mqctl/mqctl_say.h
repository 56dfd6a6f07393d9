/* mqctl_say.h - what mqctl says when something is wrong
 *
 * WHAT   "mqctl: text" on stderr, and the exit status to go on with.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_SAY_H
#define SCRIPTS_MQCTL_MQCTL_SAY_H

#include "common/base/problem.h"

/* Returns `status`. */
int say(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int say_problem(const struct problem *p);
/* Out of memory, with the limit that says so. */
int say_memory(void);

#endif
