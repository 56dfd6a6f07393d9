/* watch.h - a child that looks at all queues again and again
 *
 * WHAT   Each second while somebody listens, else each minute. It adds its
 *        findings to the history and, where they differ, to a list of changes.
 * WHO    The server's thread.
 * OWNS   The child, the pipes to it, the last look at each queue.
 * FAILS  watch_start: -errno; it is tried again a second after the child died.
 */
#ifndef SCRIPTS_MQCTL_SERVE_WATCH_H
#define SCRIPTS_MQCTL_SERVE_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "scripts/mqctl/mqctl.h"

int watch_start(const struct serve_options *o);
/* Its descriptor for poll(2); -1: no child is there now. */
int watch_fd(void);
/* Start it again if it died and a second has passed; monotonic time of the next
 * such start, UINT64_MAX: none is due. */
uint64_t watch_keep(uint64_t now_ns);
/* Look each second from now on, or each minute. */
void watch_fast(bool fast);
/* Read what it wrote. True: a round is complete, and *changes (the caller's)
 * has the queues that differ from the round before. */
bool watch_read(json_t **changes);
/* All queues as last seen; the caller's. */
json_t *watch_all(void);
void watch_end(void);

#endif
