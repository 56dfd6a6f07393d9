/* denied.h - calls of the kernel that a filter may deny
 *
 * WHAT   Asks, before the first message, for the calls that tell how a handler
 *        process ended. Without one of them a handler that did its work would
 *        count as failed, or never be seen to end.
 * WHO    The open of a handler that runs processes; any thread.
 * OWNS   Nothing after it returns.
 * FAILS  A problem, 71: which call is denied, by what, and which to allow.
 */
#ifndef WORKER_PROCESS_DENIED_H
#define WORKER_PROCESS_DENIED_H

#include <stdbool.h>

#include "common/base/problem.h"

/* waitid and pidfd_open, and memfd_create for bodies that are files. */
int denied_check(bool bodies, struct problem *p);

#endif
