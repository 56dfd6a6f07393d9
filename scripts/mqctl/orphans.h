/* orphans.h - queues that no process has open
 *
 * WHAT   Such queues use up their owner's limits, and nothing else lists them.
 *        A queue is no orphan if its worker holds the lock, or if the lock
 *        cannot be checked.
 * WHO    One thread.
 * OWNS   The list, until orphans_free; names point into the list of queues.
 * FAILS  -ENOMEM. Processes that cannot be inspected are counted in `hidden`;
 *        with any of these, a queue may be open after all. Processes of another
 *        PID namespace are not even counted.
 */
#ifndef SCRIPTS_MQCTL_ORPHANS_H
#define SCRIPTS_MQCTL_ORPHANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "scripts/mqctl/queue_list.h"

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
    bool open; /* used during the search */
};

struct orphans {
    struct orphan *at;
    size_t count;
    size_t hidden;
};

int orphans_find(struct orphans *out, const struct queue_list *queues,
                 const char *state_dir);
void orphans_free(struct orphans *o);

#define ORPHAN_TEXT 256
/* "owner root, 82880 bytes charged, 3 messages, unused for 2h". */
const char *orphan_text(const struct orphan *o, char buf[ORPHAN_TEXT]);

#endif
