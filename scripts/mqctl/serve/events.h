/* events.h - one stream of Server-Sent Events for each browser
 *
 * WHAT   A ring of the last events, and for each stream its place in the ring.
 *        A stream that has sent all events is suspended. A stream that is too
 *        slow for the ring ends; the browser connects again and gets
 *        everything.
 * WHO    The server's thread.
 * OWNS   The ring and the streams.
 * FAILS  stream_open: NULL, too many, or no memory.
 */
#ifndef SCRIPTS_MQCTL_SERVE_EVENTS_H
#define SCRIPTS_MQCTL_SERVE_EVENTS_H

#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAMS_MAX 32

/* Make a response that begins with all queues as last seen. `last_id`: the
 * Last-Event-ID, or NULL. */
struct MHD_Response *stream_open(struct MHD_Connection *c, const char *last_id,
                                 json_t *all);
size_t streams_count(void);
/* Send an event to all streams; takes over `data`. */
void event_send(const char *name, json_t *data);
/* Send a comment if there was no event for 2 s, to notice soon that a browser
 * has gone, and to keep proxies from closing the stream. */
void events_keep(uint64_t now_ns);
/* End all streams, in the next MHD_run. */
void events_end(void);

#endif
