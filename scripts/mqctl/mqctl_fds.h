/* mqctl_fds.h - proc(5): descriptors of message queues that processes hold
 *
 * WHAT   Visits each descriptor of a message queue that we may see; reads the
 *        small files and links that tell of a process.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Processes of others are skipped; `hidden` counts them.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_FDS_H
#define SCRIPTS_MQCTL_MQCTL_FDS_H

#include <limits.h>
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

/* The entries of a folder that are numbers, until `visit` returns false. 0, or
 * -errno if the folder cannot be read. */
int proc_numbers(const char *folder, bool (*visit)(int number, void *arg),
                 void *arg);
/* A short file, NUL-terminated; false, and "": it is empty or not there. */
bool proc_text(char *buf, size_t room, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Where a link leads, " (deleted)" left out; false: nowhere. */
bool proc_link(const char *path, char out[PATH_MAX]);

#endif
