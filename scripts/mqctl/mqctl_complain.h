/* mqctl_complain.h - what mqctl says when something is wrong
 *
 * WHAT   "mqctl: text" on stderr, and the exit status to go on with.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_COMPLAIN_H
#define SCRIPTS_MQCTL_MQCTL_COMPLAIN_H

#include "common/base/problem.h"

/* Returns `status`. */
int complain(int status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int complain_of(const struct problem *p);
/* Out of memory, with the limit that says so. */
int say_memory(void);

#endif
