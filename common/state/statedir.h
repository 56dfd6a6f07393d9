/* statedir.h - where a queue's files are
 *
 * WHAT   Finds the state directory and a queue's folder in it: custody, store,
 *        pidfile. The same rules in every program.
 * WHO    Any thread.
 * FAILS  A problem with status 73 (cannot be used, not ours, a symbolic link,
 *        writable by others); -ENOENT if it is missing and was not to be made.
 */
#ifndef COMMON_STATE_STATEDIR_H
#define COMMON_STATE_STATEDIR_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/problem.h"

struct statedir {
    char root[PATH_MAX];   /* the state directory */
    char folder[PATH_MAX]; /* root/NAME of one queue */
};

#define STATEDIR_STORE   "store.db"
#define STATEDIR_PIDFILE "worker.pid"

#define STATEDIR_CONTROL "control"
#define STATEDIR_REQUEST 2048 /* bytes of a line to it, NUL included */
/* Prefix of a request, followed by a wall time in ns and a blank; the worker
 * refuses the request after that time. */
#define STATEDIR_BEFORE      "before "
#define STATEDIR_BEFORE_SIZE 32 /* maximum size of the prefix, bytes */

/* Find the state directory: `flag` (--state-dir, may be NULL), $STATE_DIRECTORY
 * (its first entry, as systemd separates several with ':'), /var/lib/mqworker
 * for root, $XDG_STATE_HOME/mqworker, ~/.local/state/mqworker. Looks at no
 * file. */
int statedir_root(char out[PATH_MAX], const char *flag, struct problem *p);

/* Fill `p` for a directory that could not be opened; returns -err. */
int statedir_shut(const char *root, int err, struct problem *p);

/* Find the folder of queue "/orders" (root/orders). With `create` it is made
 * with mode 0700, and its parents. It must be a directory, no symbolic link,
 * ours (or we are root), and not writable by group or others. So must the state
 * directory, which may also belong to root, and in $STATE_DIRECTORY be a link
 * of root's. */
int statedir_open(struct statedir *out, const char *flag, const char *queue,
                  bool create, struct problem *p);

/* Find the folder of a queue on a broker; `label` is its path below the state
 * directory, "/amqp/VHOST@HOST/QUEUE". */
int statedir_open_label(struct statedir *out, const char *flag,
                        const char *label, bool create, struct problem *p);

/* Join folder/file. A file that exists must be a regular file, no symbolic
 * link, with the owner of the folder, and not writable by group or others. */
int statedir_path(const struct statedir *dir, const char *file,
                  char out[PATH_MAX], struct problem *p);

/* ---- the name of a queue that does not exist ----
 *
 * The existing name nearest to a mistyped one is looked for among the folders
 * of the state directory and the kernel's queues. An unreadable folder counts
 * as empty.
 */

/* Find the existing queue whose name is nearest to `queue` ("/ordrs"); false if
 * no name is near. `state_dir` as statedir_root takes it. */
bool queue_guess(const char *state_dir, const char *queue,
                 char out[NAME_MAX + 2]);

/* Fill `p` with status 66 (EX_NOINPUT): there is no queue `queue` ("/orders");
 * and name the nearest existing queue, if there is one. Returns -ENOENT. */
int queue_absent(const char *state_dir, const char *queue, struct problem *p);

#endif
