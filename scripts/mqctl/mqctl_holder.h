/* mqctl_holder.h - an mqworker that has a queue open
 *
 * WHAT   Finds the workers of a queue by their descriptors (proc(5)), also
 *        where the state directory does not lead to them: it is another one, or
 *        it was removed, moved, unmounted or mounted over.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  By finding none: processes of others are hidden.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_HOLDER_H
#define SCRIPTS_MQCTL_MQCTL_HOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct holder {
    pid_t pid;
    char folder[PATH_MAX]; /* of the queue, as proc(5) names it now; "" if it is
                              not known */
    bool there; /* that path leads to its files, and is that of a queue's
                              folder */
};

/* Whether a process is an mqworker, and where it has the state of `queue`. */
bool holder_is(struct holder *out, pid_t pid, const char *queue);
/* The first mqworker that has this queue open to receive. */
bool holder_find(struct holder *out, const char *queue);
/* Whether a descriptor takes messages, and is not open to send alone. */
bool holder_receives(pid_t pid, int fd);

#endif
