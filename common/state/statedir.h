/* statedir.h - find the state directory, and the folder of a queue in it
 *
 * WHAT   The state directory (--state-dir, /var/lib/mqworker) has a folder for
 *        each queue: that of "/orders" is STATE-DIRECTORY/orders. It holds the
 *        store (retries, dead letters), the pidfile, the control socket and
 *        notes of the worker. All programs find it by the same rules.
 * WHO    The worker while it starts, and every tool; any thread.
 * FAILS  A problem with status 73: the directory cannot be used, belongs to
 *        another user, is a symbolic link or writable by others. -ENOENT if it
 *        is missing and was not to be created.
 */
#ifndef COMMON_STATE_STATEDIR_H
#define COMMON_STATE_STATEDIR_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/problem.h"

struct statedir {
    char root[PATH_MAX];   /* the state directory */
    char folder[PATH_MAX]; /* folder of one queue, root/NAME */
};

#define STATEDIR_STORE   "store.db"
#define STATEDIR_PIDFILE "worker.pid"

#define STATEDIR_CONTROL "control"
#define STATEDIR_REQUEST 2048 /* bytes of a request, NUL included */
/* Prefix of a request, followed by a wall time in ns and a blank; the worker
 * refuses the request after that time. */
#define STATEDIR_BEFORE      "before "
#define STATEDIR_BEFORE_SIZE 32 /* maximum size of the prefix, bytes */

/* Find the state directory: `flag` (--state-dir, may be NULL), $STATE_DIRECTORY
 * (its first entry, as systemd separates several with ':'), /var/lib/mqworker
 * for root, $XDG_STATE_HOME/mqworker, ~/.local/state/mqworker. Looks at no
 * file. */
int statedir_root(char out[PATH_MAX], const char *flag, struct problem *p);
/* Return the arguments that name a queue in a command, as shell words:
 * "/orders", or "--state-dir DIR /orders" if programs without $STATE_DIRECTORY
 * would look in another directory. `root` is "" if no directory is used. */
const char *statedir_operand(const char *root, const char *queue, char *out,
                             size_t room);
#define STATEDIR_OPERAND_ROOM 2048
/* Return these arguments in a buffer that lasts until the caller's block ends.
 */
#define STATEDIR_OPERAND(root, queue)                               \
    statedir_operand(root, queue, (char[STATEDIR_OPERAND_ROOM]){0}, \
                     STATEDIR_OPERAND_ROOM)

/* Fill `p` because the state directory `root` could not be opened, with errno
 * `err`; returns -err. */
int statedir_refuse(const char *root, int err, struct problem *p);

/* Find the folder of queue "/orders" (root/orders). With `create`, create it
 * and its parents, mode 0700. The folder must be a directory, not a symbolic
 * link; belong to this user, unless root calls; and not be writable by group or
 * others. The same holds for the state directory, except that it may belong to
 * root, and that $STATE_DIRECTORY may be a symbolic link of root. */
int statedir_open(struct statedir *out, const char *flag, const char *queue,
                  bool create, struct problem *p);

/* Find the folder of a queue on a broker, as statedir_open does. `label` is the
 * folder's path below the state directory: "/amqp/VHOST@HOST/QUEUE". */
int statedir_open_label(struct statedir *out, const char *flag,
                        const char *label, bool create, struct problem *p);

/* Join folder/file. A file that exists must be a regular file, no symbolic
 * link, with the owner of the folder, and not writable by group or others. */
int statedir_path(const struct statedir *dir, const char *file,
                  char out[PATH_MAX], struct problem *p);

/* ---- mistyped names ---- */

/* Find the existing queue whose name is nearest to `queue` ("/ordrs"), among
 * the folders of the state directory and the kernel's queues; false if no name
 * is near. `state_dir` as in statedir_root. An unreadable directory counts as
 * empty. */
bool queue_guess(const char *state_dir, const char *queue,
                 char out[NAME_MAX + 2]);

/* Fill `p` with status 66 (EX_NOINPUT) because queue `queue` ("/orders") does
 * not exist, and name the nearest existing queue, if any. Returns -ENOENT. */
int queue_absent(const char *state_dir, const char *queue, struct problem *p);

#endif
