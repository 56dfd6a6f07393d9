/* mqctl_custody.h - how many messages are in custody, and of what kind
 *
 * WHAT   Counts what a worker has received and not finished, in its custody
 *        file, and which of it are runs of messages that the store has as well.
 * WHO    mqctl_snapshot.c
 * OWNS   Nothing.
 * FAILS  -errno and a problem, as custody_look; then nothing is known.
 */
#ifndef SCRIPTS_MQCTL_MQCTL_CUSTODY_H
#define SCRIPTS_MQCTL_MQCTL_CUSTODY_H

#include <stdint.h>

#include "common/base/problem.h"
#include "common/store/store.h"

struct custody_count {
    int64_t total;
    int64_t running;         /* of these: a handler has it, or had it */
    int64_t grouped;         /* of the others: it names a group */
    int64_t waiting, parked; /* rows of the store that these are runs of */
};

/* `s`: NULL if there is no store. */
int custody_count(struct custody_count *out, const char *path, struct store *s,
                  struct problem *p);

#endif
