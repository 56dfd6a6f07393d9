/* mqctl_ask.h - say something to a worker
 *
 * WHAT   One request to the control socket of a folder, one answer.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  A problem: 69 no worker runs, 75 it does not answer, 77 no permission.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_ASK_H
#define SCRIPTS_MQCTL_MQCTL_ASK_H

#include <jansson.h>

#include "common/base/problem.h"
#include "common/state/statedir.h"

/* The answer, the caller's. -ECONNREFUSED or -ENOENT: nobody is there. */
int ask(const struct statedir *dir, const char *queue, const char *line,
        json_t **out, struct problem *p);

#endif
