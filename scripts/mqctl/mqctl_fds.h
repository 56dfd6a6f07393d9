/* mqctl_fds.h - descriptors of message queues that processes hold
 *
 * WHAT   Visits each descriptor of a message queue in proc(5) that we may see.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Processes of others are skipped; `hidden` counts them.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_FDS_H
#define SCRIPTS_MQCTL_MQCTL_FDS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define MQUEUE_MAGIC 0x19800202 /* include/uapi/linux/magic.h has it not */

struct fd_seen {
    pid_t pid;
    int fd;
    const char *name; /* "/orders"; the queue may be gone */
    struct stat st;   /* device and inode name the queue */
};

/* How many processes could not be looked into goes to *hidden. */
void fds_each(void (*visit)(const struct fd_seen *seen, void *arg), void *arg,
              size_t *hidden);

#endif
