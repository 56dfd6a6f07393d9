/* ask.h - ask a worker, or give it an order
 *
 * WHAT   Sends one request to the control socket in a queue's folder, and reads
 *        one answer.
 * WHO    Verbs that steer a worker, snapshots of a queue, and mqctl top; on
 *        the only thread of the process.
 * OWNS   Nothing.
 * FAILS  A problem: 69 no worker runs, 75 it does not answer, 77 no permission.
 */
#ifndef SCRIPTS_MQCTL_ASK_H
#define SCRIPTS_MQCTL_ASK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "common/base/safe_text.h"
#include "common/state/statedir.h"

/* Send a request to the worker; the caller frees the answer. A starting worker
 * gets 3 s to listen. -ECONNREFUSED or -ENOENT: no worker is listening.
 * -EHOSTDOWN: a signal has stopped the worker. */
int ask(const struct statedir *dir, const char *queue, const char *line,
        json_t **out, struct problem *p);

/* Return 0 if the worker carried out the order, else an exit status and the
 * reason in *why. */
int ask_status(const json_t *answer, const char **why);

/* Return the pid of the running worker; 0: none is running. */
pid_t ask_runs(const struct statedir *dir);
/* Wait until that worker has exited and released its lock: 0, or -ETIMEDOUT.
 * UINT64_MAX: without a limit. */
int ask_until_gone(const struct statedir *dir, pid_t pid, uint64_t limit_ns);

/* Return true if systemd is running and has an instance of mqworker@.service
 * for the queue. */
bool worker_has_unit(const char *queue);
/* Return the command that starts a worker of the queue: "systemctl start
 * mqworker@orders" if that unit exists, else "mqworker /orders -- COMMAND". */
#define START_TEXT (SHELL_WORD_ROOM(QUEUE_NAME_MAX) + 64)
const char *worker_start_text(const char *queue, char buf[START_TEXT]);

#endif
