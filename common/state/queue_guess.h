/* queue_guess.h - the error for the name of a queue that does not exist
 *
 * WHAT   Finds the existing name that a mistyped one was probably meant to be,
 *        among the folders of the state directory and the kernel's queues.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never: a folder that cannot be read has no names.
 */
#ifndef COMMON_STATE_QUEUE_GUESS_H
#define COMMON_STATE_QUEUE_GUESS_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/problem.h"

/* Find the existing queue whose name is nearest to `queue` ("/ordrs"); false if
 * none is near. `state_dir` as statedir_root takes it. */
bool queue_guess(const char *state_dir, const char *queue,
                 char out[NAME_MAX + 2]);

/* Fill `p` with status 66 (EX_NOINPUT): there is no queue `queue` ("/orders"),
 * and the name that was probably meant, if there is one. Returns -ENOENT. */
int queue_absent(const char *state_dir, const char *queue, struct problem *p);

#endif
