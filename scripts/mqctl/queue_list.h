/* queue_list.h - which queues there are
 *
 * WHAT   Names of queues from all places that tell: the mqueue file system,
 *        mounted or not, folders of the state directory, descriptors of
 *        processes. Each name once, sorted.
 * WHO    One thread.
 * OWNS   The names.
 * FAILS  A place that cannot be read is left out, and `missing` says so.
 */
#ifndef SCRIPTS_MQCTL_QUEUE_LIST_H
#define SCRIPTS_MQCTL_QUEUE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/problem.h"

struct queue_list {
    char **at;
    size_t count;
    bool complete;     /* the kernel's own list was read */
    char missing[256]; /* why it was not, and what to do */
    /* Why the state directory was not; "": it was. */
    char folder_trouble[sizeof((struct problem *)0)->text];
};

/* Those with a folder in the state directory. 0, or -ENOMEM, as below: then the
 * list is empty. */
int queue_list_of_workers(struct queue_list *n, const char *state_dir);
/* And the workers of queues on brokers, each as an operand with one host. */
int queue_list_of_all_workers(struct queue_list *n, const char *state_dir);
/* All that can be found. */
int queue_list_of_queues(struct queue_list *n, const char *state_dir);
void queue_list_free(struct queue_list *n);

#endif
