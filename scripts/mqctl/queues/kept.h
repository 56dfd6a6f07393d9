/* kept.h - messages that are kept of a queue, which may be gone
 *
 * WHAT   Counts those in its store and in custody, and names them.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  What could not be read is in `unknown`.
 */
#ifndef SCRIPTS_MQCTL_QUEUES_KEPT_H
#define SCRIPTS_MQCTL_QUEUES_KEPT_H

#include "scripts/mqctl/look/snapshot.h"

struct kept {
    int64_t waiting, spooled, dead, in_flight;
    struct problem unknown; /* status 0: they are all known */
};

/* `k` is all 0. */
void kept_count(struct kept *k, struct snapshot *v);
int64_t kept_sum(const struct kept *k);
/* "3 waiting, 2 dead letters"; "": none. */
#define KEPT_TEXT 256
const char *kept_text(const struct kept *k, char buf[KEPT_TEXT]);
/* Remove the count of living handlers (process_stat.h) of a queue without a worker.
 * Call this before removing custody, which has the key of the count. */
void kept_alive_remove(const struct statedir *dir);

#endif
