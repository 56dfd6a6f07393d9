/* queue_guess.h - the error for the name of a queue that does not exist
 *
 * WHAT   Finds the existing name nearest to a mistyped one, among the folders
 *        of the state directory and the kernel's queues.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never: an unreadable folder counts as empty.
 */
#ifndef COMMON_STATE_QUEUE_GUESS_H
#define COMMON_STATE_QUEUE_GUESS_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/problem.h"

/* Find the existing queue whose name is nearest to `queue` ("/ordrs"); false if
 * no name is near. `state_dir` as statedir_root takes it. */
bool queue_guess(const char *state_dir, const char *queue,
                 char out[NAME_MAX + 2]);

/* Fill `p` with status 66 (EX_NOINPUT): there is no queue `queue` ("/orders");
 * and name the nearest existing queue, if there is one. Returns -ENOENT. */
int queue_absent(const char *state_dir, const char *queue, struct problem *p);

#endif
