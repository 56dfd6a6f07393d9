/* watch.h - a child that looks at all queues again and again
 *
 * WHAT   Looks each second while a browser listens, else each ten seconds.
 * WHO    The server's thread.
 * OWNS   The child and the pipes to it.
 * FAILS  watch_start: -errno. A child that died is started again after a
 *        second.
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
/* Let the child look each second from now on, or each ten
 * seconds. */
void watch_fast(bool fast);
/* Let the child look within a second if it looks each second, because a request
 * has changed something. */
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
