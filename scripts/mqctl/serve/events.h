/* events.h - one stream of Server-Sent Events for each browser
 *
 * WHAT   A ring of the last events; each stream has its place in it, and
 *        sleeps, suspended, when it has had all. One that falls out of the ring
 *        is ended; the browser comes back and begins with everything.
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

/* A response that begins with all queues as last seen. `last_id`: the
 * Last-Event-ID, or NULL. */
struct MHD_Response *stream_open(struct MHD_Connection *c, const char *last_id,
                                 json_t *all);
size_t streams_count(void);
/* An event to all streams; takes over `data`. */
void event_send(const char *name, json_t *data);
/* A comment to those that have heard nothing for 2 s: so a browser that went is
 * noticed soon, and what lies
 * between does not close them. */
void events_keep(uint64_t now_ns);
/* All streams end as soon as they run again. */
void events_end(void);

#endif
