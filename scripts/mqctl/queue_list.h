/* queue_list.h - which queues there are
 *
 * WHAT   Collects the names of queues from the mqueue file system, mounted or
 *        not, from folders of the state directory, and from descriptors of
 *        processes. Each name once, sorted.
 * WHO    Verbs that deal with all queues; on the only thread of the process.
 * OWNS   The names.
 * FAILS  A place that cannot be read is left out; `missing` or `folder_trouble`
 *        has the reason.
 */
#ifndef SCRIPTS_MQCTL_QUEUE_LIST_H
#define SCRIPTS_MQCTL_QUEUE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/problem.h"
#include "scripts/mqctl/proc.h"

struct queue_list {
    char **at;
    size_t count;
    bool complete;     /* the kernel's own list was read */
    dev_t dev;         /* st_dev of that list and of its queues; 0: not read */
    char missing[256]; /* why the list was not read, and what to do */
    /* Why the state directory was not read; "": it was. */
    char folder_trouble[sizeof((struct problem *)0)->text];
};

/* List the queues with a folder in the state directory. These three functions
 * return 0, or -ENOMEM with an empty list. */
int queue_list_of_workers(struct queue_list *n, const char *state_dir);
/* List queues on brokers as well, each as an operand with one host. */
int queue_list_of_all_workers(struct queue_list *n, const char *state_dir);
/* List all queues that can be found. */
int queue_list_of_queues(struct queue_list *n, const char *state_dir);
void queue_list_free(struct queue_list *n);

/* A queue that no process has open. Such queues use up their owner's limits,
 * and nothing else lists them. A queue is no orphan if its worker holds the
 * lock, or if the lock cannot be checked. */
struct orphan {
    const char *queue;
    uid_t owner;
    uint64_t charged; /* bytes charged to its owner's limit */
    long depth;       /* messages in it */
    uint64_t idle_ns; /* time since the last use or the creation */
    bool has_folder;  /* a worker has run on the queue, with that state
                         directory */
    dev_t dev;
    ino_t ino;
};

/* `hidden`: number of processes that cannot be inspected and may have the
 * queues open. Processes of another PID namespace are not even counted. */
struct orphans {
    struct orphan *at;
    size_t count;
    size_t hidden;
};

/* Find the orphans among these queues: 0 or -ENOMEM. Names point into the list
 * of queues. `fds`: the open descriptors; NULL: read them. */
int orphans_find(struct orphans *out, const struct queue_list *queues,
                 const char *state_dir, const struct fds *fds);
void orphans_free(struct orphans *o);

#define ORPHAN_TEXT 256
/* "owner root, 82880 bytes charged, 3 messages, unused for 2h". */
const char *orphan_text(const struct orphan *o, char buf[ORPHAN_TEXT]);

#endif
