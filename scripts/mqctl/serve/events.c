/* events.c - see events.h */
#include "scripts/mqctl/serve/events.h"

#include <bsd/stdlib.h>
#include <bsd/string.h>
#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/safe_text.h"
#include "scripts/mqctl/serve/ask/ask.h"

#define RING      256
#define QUIET     (2 * NS_PER_S)
#define CHUNK     4096
#define TIMEOUT_S 60 /* for a client that reads nothing */

struct event {
    char *text;
    size_t size;
    char queue[QUEUE_NAME_MAX]; /* only its streams get it; "": all do */
};

struct stream {
    LIST_ENTRY(stream) link;
    struct MHD_Connection *c;
    bool asleep;
    char queue[QUEUE_NAME_MAX]; /* its events are sent, too; "": none */
    struct event first;         /* sent before the events of the ring */
    uint64_t next;              /* number of the event to send */
    size_t at;                  /* bytes of that event which were sent */
};

static struct {
    LIST_HEAD(, stream) streams;
    size_t count;
    struct event ring[RING];
    uint64_t end;     /* number of the next event */
    uint32_t run;     /* random number of this run of the server */
    uint64_t last_ns; /* time of the last event, monotonic */
    bool over;
} e;

size_t streams_count(void)
{
    return e.count;
}

/* Make the text of an event, and free `data`. Compact JSON has no newline,
 * which would end the data. */
static struct event event_make(const char *name, json_t *data)
{
    struct event out = {0};
    char *json = json_dumps(data, SERVE_JSON);
    int n =
        json ? asprintf(&out.text,
                        "event: %s\nid: %" PRIx32 "-%" PRIu64 "\ndata: %s\n\n",
                        name, e.run, e.end, json)
             : -1;

    free(json);
    json_decref(data);
    out.size = n > 0 ? (size_t)n : 0;
    if (n < 0)
        out.text = NULL;
    return out;
}

/* Resume the sleeping streams; the next MHD_run reads them. */
static void streams_wake(void)
{
    struct stream *s;

    LIST_FOREACH (s, &e.streams, link) {
        if (s->asleep)
            MHD_resume_connection(s->c);
        s->asleep = false;
    }
}

/* Put an event into the ring, in the place of the oldest. */
static void event_push(struct event event)
{
    struct event *place = &e.ring[e.end % RING];

    if (!event.text)
        return;
    free(place->text);
    *place = event;
    e.end++;
    e.last_ns = clock_mono_ns();
    streams_wake();
}

void event_send(const char *name, const char *queue, json_t *data)
{
    const struct stream *s = LIST_FIRST(&e.streams);
    struct event event;

    while (s && queue && strcmp(s->queue, queue) != 0)
        s = LIST_NEXT(s, link);
    if (!s) {
        json_decref(data);
        return;
    }
    event = event_make(name, data);
    strlcpy(event.queue, queue ? queue : "", sizeof event.queue);
    event_push(event);
}

void events_keep(uint64_t now_ns)
{
    struct event quiet = {.size = 3};

    if (e.count == 0 || now_ns < e.last_ns + QUIET)
        return;
    quiet.text = strdup(":\n\n");
    event_push(quiet);
}

void events_end(void)
{
    e.over = true;
    streams_wake();
}

/* Send the next bytes of a stream; called when the connection has room. */
static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct stream *s = cls;
    const struct event *event = NULL;
    size_t n;

    (void)pos;
    if (e.over || (!s->first.text && s->next + RING < e.end))
        return (ssize_t)MHD_CONTENT_READER_END_OF_STREAM;
    if (s->first.text)
        event = &s->first;
    for (; !event && s->next < e.end; s->next++) {
        const struct event *one = &e.ring[s->next % RING];

        if (!one->queue[0] || strcmp(one->queue, s->queue) == 0) {
            event = one;
            break;
        }
    }
    if (!event) {
        s->asleep = true;
        MHD_suspend_connection(s->c);
        return 0;
    }
    n = event->size - s->at < max ? event->size - s->at : max;
    memcpy(buf, event->text + s->at, n);
    s->at += n;
    if (s->at < event->size)
        return (ssize_t)n;
    s->at = 0;
    if (s->first.text) {
        free(s->first.text);
        s->first.text = NULL;
    } else {
        s->next++;
    }
    return (ssize_t)n;
}

static void stream_close(void *cls)
{
    struct stream *s = cls;

    LIST_REMOVE(s, link);
    e.count--;
    free(s->first.text);
    free(s);
}

struct MHD_Response *stream_open(struct MHD_Connection *c, const char *last_id,
                                 json_t *all, const char *queue, json_t *look)
{
    struct stream *s = e.count < STREAMS_MAX ? calloc(1, sizeof *s) : NULL;
    struct MHD_Response *r =
        s ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK,
                                              stream_read, s, stream_close)
          : NULL;
    char run[16];
    bool again;

    if (!r) {
        json_decref(all);
        free(s);
        return NULL;
    }
    if (!e.run)
        e.run = arc4random() | 1;
    /* Begin with the whole state; the browser then needs no earlier event. A
     * browser that last had a stream of an earlier run gets it as "resync". */
    snprintf(run, sizeof run, "%" PRIx32 "-", e.run);
    again = last_id && *last_id && strncmp(last_id, run, strlen(run)) != 0;
    *s = (struct stream){.c = c,
                         .next = e.end,
                         .first = event_make(again ? "resync" : "hello", all)};
    strlcpy(s->queue, queue, sizeof s->queue);
    LIST_INSERT_HEAD(&e.streams, s, link);
    e.count++;
    if (look) /* other streams of that queue get it again */
        event_send("queue", queue, json_incref(look));
    (void)MHD_set_connection_option(c, MHD_CONNECTION_OPTION_TIMEOUT,
                                    TIMEOUT_S);
    return r;
}
