/* watch.h - the overview, and the child that looks at all queues for it
 *
 * WHAT   The child reads all queues every ten seconds. While a browser listens,
 *        the child reads every second, and if ten reads find no change, every
 *        three seconds. The server keeps the last result and row of each queue,
 *        and sends the changes since the round before to the event streams.
 * WHO    serve.c in its loop, and request.c for streams and the overview, on
 *        the server's only thread.
 * OWNS   The child and the pipes to it; the looks and the rows.
 * FAILS  watch_start: -errno. A child that died is started again after a
 *        second. A queue for which there is no memory has no row.
 */
#ifndef SCRIPTS_MQCTL_SERVE_WATCH_H
#define SCRIPTS_MQCTL_SERVE_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "scripts/mqctl/mqctl.h"

int watch_start(const struct serve_options *o);
/* Return the child's descriptor for poll(2); -1 if there is no child. */
int watch_fd(void);
/* Start the child again if it died a second ago. Returns the monotonic time of
 * the next start; UINT64_MAX: none is due. */
uint64_t watch_keep(uint64_t now_ns);
/* Fast, for a new event stream: let the child read the queues within a second,
 * and from then on every second, or every three while nothing changes.
 * Otherwise: every ten seconds. */
void watch_fast(bool fast);
/* Let the child look within a second, because a request has changed something.
 * While no browser listens, this has no effect. */
void watch_soon(void);
/* Read looks from the child. */
void watch_read(void);
/* End the child. */
void watch_end(void);

/* Return the whole overview; `about` describes the server. The caller frees
 * the result. */
json_t *rows_all(json_t *about);
/* Return the last look at a queue, which the next watch_read may free; NULL:
 * there is none. */
json_t *rows_look(const char *queue);

#endif
