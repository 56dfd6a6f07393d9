/* groups.h - the ordered groups of a queue that have a message
 *
 * WHAT   What custody, the store and the spool have of each group, by its key,
 *        so that a list can be taken up again after any of them. Works with and
 *        without a worker; which groups are closing only a worker knows.
 * WHO    One thread.
 * OWNS   Its own lists; borrows the messages.
 * FAILS  -errno, or what `visit` returned.
 */
#ifndef SCRIPTS_MQCTL_LOOK_GROUPS_H
#define SCRIPTS_MQCTL_LOOK_GROUPS_H

#include <jansson.h>

#include "scripts/mqctl/look/groups_spooled.h"
#include "scripts/mqctl/look/messages.h"

struct groups_seen {
    struct messages *m;
    json_t *closing;          /* an object, by the key in hexadecimal */
    struct slot_seen **slots; /* those that name a group, by that */
    size_t count;
    struct groups_spooled spooled;
};

/* One of them; valid during the visit. */
struct group_seen {
    const char *key;
    size_t size;
    enum group_where where;
    bool closing;         /* it refuses what comes */
    uint64_t waiting;     /* messages that do not run, its head included */
    uint64_t due_ns;      /* blocked: until then */
    int64_t letter;       /* held: by that one; else 0 */
    struct ulid head;     /* all 0: it has no id yet */
    uint64_t received_ns; /* of its head */
};

/* `m` is open, without a filter. -ENOMEM. */
int groups_seen_open(struct groups_seen *g, struct messages *m);
void groups_seen_close(struct groups_seen *g);
/* Those behind a key (of no bytes: from the first on), or `only` that one. */
int groups_seen_each(struct groups_seen *g, const char *after, size_t size,
                     const char *only,
                     int (*visit)(const struct group_seen *seen, void *arg),
                     void *arg);

#endif
