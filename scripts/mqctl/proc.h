/* proc.h - who has a message queue open, as proc(5) shows it
 *
 * WHAT   Lists all visible descriptors of message queues. Finds the workers of
 *        a queue by their descriptors, so also workers with another state
 *        directory, or with a state directory that was removed, moved,
 *        unmounted or mounted over.
 * WHO    doctor, status, remove, queue lists and the control socket's client;
 *        on the only thread of the process.
 * OWNS   The list, until fds_free.
 * FAILS  fds_read: -ENOMEM. Processes of others are skipped; `hidden` counts
 *        them.
 */
#ifndef SCRIPTS_MQCTL_PROC_H
#define SCRIPTS_MQCTL_PROC_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/safe_text.h"

/* An open descriptor of a message queue. */
struct fd_seen {
    pid_t pid;
    int fd;
    dev_t dev; /* with the inode: which queue it is */
    ino_t ino;
    char name[QUEUE_NAME_MAX]; /* "/orders"; the queue may have been removed */
};

struct fds {
    struct fd_seen *at;
    size_t count, room;
    size_t hidden; /* processes that cannot be inspected */
};

/* List the descriptors of all processes: 0, or -ENOMEM with an empty list.
 * Reading /proc takes milliseconds, so doctor calls this once for all
 * queues. */
int fds_read(struct fds *out);
void fds_free(struct fds *f);

/* Visit the entries of a folder that are numbers, until `visit` returns false.
 * 0, or -errno if the folder cannot be read. */
int proc_numbers(const char *folder, bool (*visit)(int number, void *arg),
                 void *arg);
/* Read a short file as a string. Returns false, and "", if it is empty or
 * missing. */
bool proc_text(char *buf, size_t room, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Return true if both processes run the same executable. */
bool proc_same_program(pid_t a, pid_t b);

/* A worker of a queue. */
struct holder {
    pid_t pid;
    char folder[PATH_MAX]; /* of the queue, as proc(5) names it; "": unknown */
    bool there; /* `folder` is the queue's, and still has the worker's files */
};

/* Return true if a process is an mqworker: it has a pidfile open, or its
 * program is named mqworker. *out gets the worker's folder for `queue`. */
bool holder_is(struct holder *out, pid_t pid, const char *queue);
/* Return true if a worker has its state in that folder. */
bool holder_is_of(const struct holder *h, const char *folder);
/* Find the first mqworker that has this queue open to receive. `fds` is a list
 * to search; NULL: read a new list. */
bool holder_find(struct holder *out, const char *queue, const struct fds *fds);
/* Return true if a descriptor can receive: it is not open only to send. */
bool holder_receives(pid_t pid, int fd);

#endif
