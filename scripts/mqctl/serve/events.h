/* events.h - one stream of Server-Sent Events for each browser
 *
 * WHAT   A ring of the last events, and for each stream its place in the ring.
 *        A stream that has sent all events is suspended. A stream that is too
 *        slow for the ring ends; the browser connects again and gets
 *        everything. Events of one queue go only to the streams of that queue.
 * WHO    request.c opens streams, watch.c and jobs.c send events, serve.c keeps
 *        streams alive; all on the server's only thread.
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

/* Make a response that begins with the overview `all`, which is taken over. The
 * stream also gets the events of `queue` ("": of no queue), beginning with the
 * last look at it (NULL: there is none). `last_id`: the Last-Event-ID, or
 * NULL. */
struct MHD_Response *stream_open(struct MHD_Connection *c, const char *last_id,
                                 json_t *all, const char *queue, json_t *look);
size_t streams_count(void);
/* Send an event, to the streams of a queue or (NULL) to all; takes over
 * `data`. */
void event_send(const char *name, const char *queue, json_t *data);
/* Send a comment if there was no event for 2 s, to notice soon that a browser
 * has gone, and to keep proxies from closing the stream. */
void events_keep(uint64_t now_ns);
/* End all streams, in the next MHD_run. */
void events_end(void);

#endif
