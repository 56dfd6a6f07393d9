/* publisher.c - sends messages to a broker and knows which it has (see
 * publisher.h)
 *
 * A nack is no end: RabbitMQ before 3.12.5 may nack all that comes on a channel
 * that began while a leader was elected, so another connection is tried. A
 * queue that is full nacks on that, too: it goes on until the time is over.
 */
#include "common/amqp/publisher.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>
#include <bsd/sys/queue.h>

#include "common/base/basics.h"
#include "common/base/clock.h"

#define WINDOW     256 /* not confirmed, at most */
#define WAIT_FIRST (100 * NS_PER_MS)
#define WAIT_MOST  (5 * NS_PER_S)
#define SLICE_NS   (200 * NS_PER_MS) /* until it asks again whether to stop */
#define HEADERS    80
#define LATE_NS    (30 * NS_PER_S)
#define REST_NS    (5 * NS_PER_S) /* for what else was sent, once it is over */

/* One that is not confirmed, with copies of all its text. */
struct unconfirmed {
    STAILQ_ENTRY(unconfirmed) link;
    uint64_t number; /* on this connection; 0: it is to be sent */
    uint64_t sent_ns;
    bool resent;
    char queue[TOPOLOGY_NAME], id[32];
    uint8_t priority;
    amqp_table_entry_t headers[HEADERS];
    int header_count;
    const amqp_basic_properties_t *properties; /* NULL: id and headers */
    size_t size;
    char *body; /* in bytes, behind the headers' text */
    char bytes[];
};
STAILQ_HEAD(unconfirmed_list, unconfirmed);

struct publisher {
    struct publisher_setup setup;
    struct link *link; /* NULL: there is none just now */
    unsigned host;
    uint64_t numbers; /* given on this connection */
    uint64_t wait_ns; /* before the next try */
    uint64_t confirmed;
    uint64_t returned; /* on this connection: no queue took them */
    uint64_t acked;    /* since the first return, those returned included */
    bool twice;        /* some were sent on another connection before */
    struct unconfirmed_list list; /* in order */
    unsigned count;
};

static amqp_bytes_t word(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text};
}

/* ---- copies ---- */

static size_t text_of(const amqp_table_entry_t *e)
{
    return e->key.len + (e->value.kind == AMQP_FIELD_KIND_UTF8
                             ? e->value.value.bytes.len
                             : 0);
}

static amqp_bytes_t copied(char **at, amqp_bytes_t from)
{
    amqp_bytes_t to = {from.len, *at};

    memcpy(*at, from.bytes, from.len);
    *at += from.len;
    return to;
}

static struct unconfirmed *copy(const struct publication *m)
{
    struct unconfirmed *u;
    size_t bytes = m->size;
    char *at;

    for (int i = 0; i < m->header_count; i++)
        bytes += text_of(&m->headers[i]);
    u = m->header_count <= HEADERS - 1 ? calloc(1, sizeof *u + bytes) : NULL;
    if (!u)
        return NULL;
    snprintf(u->queue, sizeof u->queue, "%s", m->queue);
    snprintf(u->id, sizeof u->id, "%s", m->id);
    at = u->bytes;
    for (int i = 0; i < m->header_count; i++) {
        u->headers[i] = m->headers[i];
        u->headers[i].key = copied(&at, m->headers[i].key);
        if (m->headers[i].value.kind == AMQP_FIELD_KIND_UTF8)
            u->headers[i].value.value.bytes =
                copied(&at, m->headers[i].value.value.bytes);
    }
    u->header_count = m->header_count;
    u->priority = m->priority;
    u->properties = m->properties;
    u->body = at;
    u->size = m->size;
    memcpy(at, m->body, m->size);
    return u;
}

/* ---- sending ---- */

static amqp_table_entry_t resent_header(void)
{
    return (amqp_table_entry_t){
        .key = word("mqw-resent"),
        .value = {.kind = AMQP_FIELD_KIND_I64, .value.i64 = 1}};
}

/* publish - with these properties, and marked if it was sent before; `all` has
 * room for one header more */
static int publish(struct publisher *b, struct unconfirmed *u,
                   amqp_basic_properties_t p, amqp_table_entry_t *all)
{
    int err;

    p.headers.entries = all;
    if (u->resent) {
        all[p.headers.num_entries++] = resent_header();
        p._flags |= AMQP_BASIC_HEADERS_FLAG;
    }
    topology_time_to_live(&b->setup.topology, u->queue, &p);
    u->sent_ns = clock_mono_ns();
    err = link_status(
        b->link, amqp_basic_publish(b->link->c, LINK_CHANNEL,
                                    (amqp_bytes_t){0, NULL}, word(u->queue), 1,
                                    0, &p, (amqp_bytes_t){u->size, u->body}));
    if (!err)
        u->number = ++b->numbers;
    return err;
}

static int send_one(struct publisher *b, struct unconfirmed *u)
{
    amqp_basic_properties_t p = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                  (u->id[0] ? AMQP_BASIC_MESSAGE_ID_FLAG : 0U) |
                  (u->priority ? AMQP_BASIC_PRIORITY_FLAG : 0U),
        .headers = {u->header_count, u->headers},
        .delivery_mode = 2,
        .priority = u->priority,
        .message_id = word(u->id)};
    const amqp_table_t *given;
    amqp_table_entry_t *all;
    int err;

    if (!u->properties)
        return publish(b, u, p, u->headers);
    given = &u->properties->headers;
    all = calloc((size_t)given->num_entries + 1, sizeof *all);
    if (!all)
        return -ENOMEM;
    if (given->num_entries > 0)
        memcpy(all, given->entries, (size_t)given->num_entries * sizeof *all);
    err = publish(b, u, *u->properties, all);
    free(all);
    return err;
}

/* send_all - those that are to be sent, in order */
static int send_all(struct publisher *b)
{
    struct unconfirmed *u;
    int err = 0;

    STAILQ_FOREACH (u, &b->list, link)
        if (!err && u->number == 0 && !b->link->blocked)
            err = send_one(b, u);
    return err;
}

/* ---- what the broker says ---- */

/* ended - the broker has it, or has returned it before: then the queue of one
 * is missing. Which one is not looked for, as that ends the sending: of those
 * that are acknowledged from here on, as many as were returned are in no queue.
 */
static int ended(struct publisher *b, struct unconfirmed *u)
{
    STAILQ_REMOVE(&b->list, u, unconfirmed, link);
    free(u);
    b->count--;
    if (b->returned == 0) {
        b->confirmed++;
        return 0;
    }
    b->acked++;
    return -ENOENT;
}

static int confirmed(struct publisher *b, const amqp_basic_ack_t *ack)
{
    struct unconfirmed *u, *next;
    int err = 0;

    for (u = STAILQ_FIRST(&b->list); u; u = next) {
        next = STAILQ_NEXT(u, link);
        if (u->number && (u->number == ack->delivery_tag ||
                          (ack->multiple && u->number < ack->delivery_tag)))
            err = ended(b, u);
    }
    return err;
}

static int frames_read(struct publisher *b)
{
    amqp_frame_t f;
    int n, err = 0;

    while (!err && (n = link_frame(b->link, &f)) != NO) {
        const amqp_method_t *m = &f.payload.method;

        if (n < 0)
            err = n;
        else if (f.channel != LINK_CHANNEL || f.frame_type != AMQP_FRAME_METHOD)
            continue;
        else if (m->id == AMQP_BASIC_ACK_METHOD)
            err = confirmed(b, m->decoded);
        else if (m->id == AMQP_BASIC_RETURN_METHOD)
            b->returned++;
        else if (m->id == AMQP_BASIC_NACK_METHOD)
            err = -EAGAIN;
        else if (link_closed_by(b->link, m))
            err = -ECONNRESET;
    }
    link_tidy(b->link);
    return err;
}

/* ---- the connection ---- */

static int connect_to(struct publisher *b, struct problem *p)
{
    int err = link_open(&b->link, &b->setup.link, b->host, p);

    if (!err && b->link)
        b->host = b->link->host;
    return err;
}

/* confirms - from here on; a channel that is opened again has none, as that of
 * a look for a queue that is not there */
static int confirms(struct publisher *b, struct problem *p)
{
    int err;

    if (!b->link)
        return 0;
    b->numbers = 0;
    (void)amqp_confirm_select(b->link->c, LINK_CHANNEL);
    err = link_reply(b->link, amqp_get_rpc_reply(b->link->c));
    return err ? problem_set(p, EX_UNAVAILABLE, -err,
                             "lost the connection to %s before it was used: "
                             "%s; run it again",
                             b->setup.link.operand->hosts[b->host].name,
                             b->link->why)
               : 0;
}

static int begin(struct publisher *b, struct problem *p)
{
    int err = connect_to(b, p);

    return err ? err : confirms(b, p);
}

/* lost - all that is not confirmed is to be sent again */
static void lost(struct publisher *b)
{
    struct unconfirmed *u;

    b->host++;
    b->returned = 0;
    link_close(&b->link);
    STAILQ_FOREACH (u, &b->list, link)
        if (u->number) {
            u->number = 0;
            u->resent = b->twice = true;
        }
}

/* rest - until the broker has something, or `ns` are over */
static void rest(const struct publisher *b, uint64_t ns)
{
    struct pollfd fd = {.fd = b->link ? b->link->fd : -1, .events = POLLIN};
    struct timespec limit = {.tv_nsec = (long)(ns < SLICE_NS ? ns : SLICE_NS)};

    (void)ppoll(&fd, 1, &limit, NULL);
}

/* again - a new connection, after a pause that grows */
static void again(struct publisher *b)
{
    uint64_t end = clock_mono_ns() + b->wait_ns;
    struct problem ignored;

    while (clock_mono_ns() < end && !b->setup.stop())
        rest(b, end - clock_mono_ns());
    b->wait_ns = 2 * b->wait_ns < WAIT_MOST ? 2 * b->wait_ns : WAIT_MOST;
    if (!b->setup.stop() && begin(b, &ignored) < 0)
        link_close(&b->link);
}

/* late - nothing was heard of the oldest for too long: another node may know
 * more */
static bool late(const struct publisher *b)
{
    const struct unconfirmed *u = STAILQ_FIRST(&b->list);

    return u && u->number && !b->link->blocked &&
           clock_mono_ns() - u->sent_ns > LATE_NS;
}

/* once - send, listen, and wait for more where that is wanted; -EINTR: told to
 * stop; -ENOENT; -EMSGSIZE: the first that is to be sent never can be */
static int once(struct publisher *b, bool wait)
{
    uint64_t before = b->confirmed;
    int err;

    if (!b->link)
        again(b);
    if (b->setup.stop())
        return -EINTR;
    if (!b->link)
        return 0;
    err = send_all(b);
    if (err == -EMSGSIZE)
        return err;
    if (!err)
        err = frames_read(b);
    if (b->confirmed > before)
        b->wait_ns = WAIT_FIRST;
    if (err == -ENOENT)
        return err;
    if (err || late(b))
        lost(b);
    else if (wait && b->count > 0)
        rest(b, SLICE_NS);
    return 0;
}

/* waits - more than `count` are not confirmed, or there is no connection */
static bool waits(const struct publisher *b, unsigned count)
{
    return b->count > count || (b->count > 0 && !b->link);
}

/* missing - no queue took one: until it is known of all that were sent whether
 * they are in a queue */
static int missing(struct publisher *b, struct problem *p)
{
    const struct broker_operand *o = b->setup.link.operand;
    uint64_t end = clock_mono_ns() + REST_NS;
    int err = -ENOENT;

    while (b->count > 0 && (!err || err == -ENOENT) && !b->setup.stop() &&
           clock_mono_ns() < end) {
        err = frames_read(b);
        if (!err)
            rest(b, SLICE_NS);
    }
    if (b->acked > b->returned)
        b->confirmed += b->acked - b->returned;
    return problem_set(
        p, EX_NOINPUT, ENOENT, "no queue %s in virtual host %s: %s", o->queue,
        o->vhost,
        b->setup.create ? "it or a wait queue of it was deleted just now; run "
                          "it again: then it is made again"
                        : "start its worker, which makes it, or send with "
                          "mqsend --create");
}

static int too_long(const struct publisher *b, struct problem *p)
{
    const struct unconfirmed *u = STAILQ_FIRST(&b->list);
    amqp_bytes_t id;

    while (u->number)
        u = STAILQ_NEXT(u, link);
    id = u->properties ? u->properties->message_id : word(u->id);
    return problem_set(p, EX_DATAERR, EMSGSIZE,
                       "the properties of message %.*s are longer than "
                       "frame_max of the broker, %d bytes: raise that",
                       (int)id.len, (const char *)id.bytes,
                       amqp_get_frame_max(b->link->c));
}

/* until - at most `count` are not confirmed; each confirm begins the time
 * again */
static int until(struct publisher *b, unsigned count, struct problem *p)
{
    uint64_t seen = b->confirmed;
    uint64_t end = ns_add(clock_mono_ns(), b->setup.wait_ns);
    int err = b->count > 0 ? once(b, false) : 0;

    while (!err && waits(b, count)) {
        err = once(b, true);
        if (b->confirmed > seen) {
            seen = b->confirmed;
            end = ns_add(clock_mono_ns(), b->setup.wait_ns);
        }
        if (!err && waits(b, count) && clock_mono_ns() >= end)
            err = -ETIMEDOUT;
    }
    if (err == -ENOENT)
        return missing(b, p);
    if (err == -EMSGSIZE)
        return too_long(b, p);
    if (err == -ETIMEDOUT)
        return problem_set(p, EX_TEMPFAIL, ETIMEDOUT,
                           "%s does not confirm: it is full, or the broker has "
                           "no majority or no memory",
                           b->setup.link.operand->shown);
    return err ? problem_set(p, EX_TEMPFAIL, EINTR, "interrupted") : 0;
}

int publisher_put(struct publisher *b, const struct publication *m,
                  struct problem *p)
{
    struct unconfirmed *u = copy(m);

    if (!u)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    STAILQ_INSERT_TAIL(&b->list, u, link);
    b->count++;
    return until(b, WINDOW, p);
}

int publisher_flush(struct publisher *b, struct problem *p)
{
    return until(b, 0, p);
}

uint64_t publisher_confirmed(const struct publisher *b)
{
    return b->confirmed;
}

uint64_t publisher_refused(const struct publisher *b)
{
    return b->twice ? 0 : b->returned;
}

int publisher_wait_queue(struct publisher *b, unsigned part, uint64_t ms,
                         struct problem *p)
{
    /* It may have been lost with the last confirm. */
    int err = b->link ? 0 : begin(b, p);

    if (!err && !b->setup.create)
        err = topology_there(b->link, &b->setup.topology, part, p);
    return err ? err : topology_wait(b->link, &b->setup.topology, part, ms, p);
}

/* priorities_check - of a replicated queue */
static int priorities_check(const struct publisher *b, struct problem *p)
{
    if (!b->setup.priorities || b->link->server >= SERVER_4)
        return 0;
    return problem_set(p, EX_USAGE, ENOTSUP,
                       "--priority cannot be used with this server (RabbitMQ "
                       "%s): before 4.0 a replicated queue has no priorities; "
                       "use a queue for each",
                       b->link->version);
}

int publisher_open(struct publisher **out, const struct publisher_setup *setup,
                   struct problem *p)
{
    struct publisher *b = calloc(1, sizeof *b);
    int err;

    *out = b;
    if (!b)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    b->setup = *setup;
    b->wait_ns = WAIT_FIRST;
    b->host = arc4random();
    STAILQ_INIT(&b->list);
    err = connect_to(b, p);
    if (!err)
        err = priorities_check(b, p);
    if (!err && setup->create)
        err = topology_unlike(b->link, &b->setup.topology, p);
    if (!err && setup->create)
        err = topology_open(b->link, &b->setup.topology, p);
    else if (!err)
        err = topology_number(b->link, &b->setup.topology, p);
    if (!err)
        err = confirms(b, p);
    if (err)
        publisher_close(out);
    return err;
}

void publisher_close(struct publisher **publisher)
{
    struct publisher *b = *publisher;
    struct unconfirmed *u;

    if (!b)
        return;
    *publisher = NULL;
    while ((u = STAILQ_FIRST(&b->list)) != NULL) {
        STAILQ_REMOVE_HEAD(&b->list, link);
        free(u);
    }
    link_close(&b->link);
    free(b);
}
