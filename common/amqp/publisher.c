/* publisher.c - publishing to a broker, with confirms (see publisher.h)
 *
 * After a nack, the message is published again, on another connection. If the
 * first message on a channel came while a queue had no leader, RabbitMQ before
 * 3.12.5 may nack all later messages on that channel. A full queue nacks until
 * it has room.
 */
#include "common/amqp/publisher.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/amqp/envelope.h"
#include "common/base/basics.h"
#include "common/base/clock.h"

#define WINDOW          256 /* most messages that are not confirmed */
#define LATE_NS         (30 * NS_PER_S)
#define WAIT_FIRST      (100 * NS_PER_MS)
#define WAIT_MOST       (5 * NS_PER_S)
#define SLICE_NS        (200 * NS_PER_MS) /* between two calls of stop() */
#define REST_NS         (5 * NS_PER_S) /* for confirms after a returned one */
#define PROPERTIES_MOST 131072         /* no frame is longer (link.c) */
/* Bytes of a frame beside the properties of a new message: 20 of AMQP, and up
 * to 24 for the mark of a repeat and 9 for a time to live. */
#define FRAME_SLACK 64

/* ---- the confirms of one connection ---- */

int confirms_begin(struct confirms *c, struct link *l)
{
    c->numbers = 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it is open */
    (void)amqp_confirm_select(l->c, LINK_CHANNEL);
    return link_reply(l, amqp_get_rpc_reply(l->c));
}

int confirms_publish(struct confirms *c, struct link *l, struct unconfirmed *u,
                     const struct topology *t, const char *queue,
                     amqp_basic_properties_t *properties, amqp_bytes_t body)
{
    int err;

    topology_time_to_live(t, queue, properties);
    u->sent_ns = clock_mono_ns();
    err = link_status(l, amqp_basic_publish(l->c, LINK_CHANNEL,
                                            (amqp_bytes_t){0, NULL},
                                            amqp_cstring_bytes(queue), 1, 0,
                                            properties, body));
    if (err)
        return err;
    u->number = ++c->numbers;
    TAILQ_INSERT_TAIL(&c->sent, u, link);
    return 0;
}

bool confirms_full(const struct confirms *c)
{
    const struct unconfirmed *first = TAILQ_FIRST(&c->sent);

    return first && c->numbers - first->number >= WINDOW;
}

/* Remove the messages that this acknowledgement names from the list, even after
 * an error: the connection ends, but these messages are confirmed. */
static int confirms_acknowledge(struct confirms *c, const amqp_basic_ack_t *ack)
{
    struct unconfirmed *u, *next;
    int err = 0;

    for (u = TAILQ_FIRST(&c->sent); u && u->number <= ack->delivery_tag;
         u = next) {
        next = TAILQ_NEXT(u, link);
        if (ack->multiple || u->number == ack->delivery_tag) {
            int failed;

            TAILQ_REMOVE(&c->sent, u, link);
            failed = c->confirmed(c->arg, u);
            err = err ? err : failed;
        }
    }
    return err;
}

int confirms_read(struct confirms *c, struct link *l)
{
    amqp_frame_t f;
    const amqp_method_t *m = &f.payload.method;
    int n, err = 0;

    while (!err && (n = link_frame(l, &f)) != NO) {
        if (n < 0)
            err = n;
        else if (f.channel != LINK_CHANNEL ||
                 (f.frame_type != AMQP_FRAME_HEADER &&
                  f.frame_type != AMQP_FRAME_METHOD))
            continue;
        else if (f.frame_type == AMQP_FRAME_HEADER)
            /* Nothing is consumed here, so only a returned message has
             * properties. */
            c->returned(c->arg, f.payload.properties.raw);
        else if (m->id == AMQP_BASIC_ACK_METHOD)
            err = confirms_acknowledge(c, m->decoded);
        else if (m->id == AMQP_BASIC_NACK_METHOD) {
            snprintf(l->why, LINK_WHY,
                     "the broker did not take a message (nack)");
            err = -EAGAIN;
        } else if (link_closed_by(l, m))
            err = -ECONNRESET;
    }
    amqp_maybe_release_buffers(l->c);
    return err;
}

bool confirms_late(const struct confirms *c, struct link *l)
{
    const struct unconfirmed *first = TAILQ_FIRST(&c->sent);

    if (!first || l->blocked || clock_mono_ns() - first->sent_ns < LATE_NS)
        return false;
    snprintf(l->why, LINK_WHY,
             "no confirm for 30 s: check that a majority of nodes is up; a "
             "net_ticktime of 10 to 15 s detects a lost node sooner");
    return true;
}

void confirms_lost(struct confirms *c, struct unconfirmed_list *to)
{
    struct unconfirmed *u;

    while ((u = TAILQ_LAST(&c->sent, unconfirmed_list)) != NULL) {
        TAILQ_REMOVE(&c->sent, u, link);
        u->resent = true;
        TAILQ_INSERT_HEAD(to, u, link);
    }
}

/* ---- a publisher ---- */

/* A message that is not confirmed. */
struct copy {
    struct unconfirmed u;
    char queue[TOPOLOGY_NAME];
    amqp_bytes_t properties, body; /* both in `bytes`; properties encoded */
    char bytes[];
};

struct publisher {
    struct publisher_setup setup;
    struct link *link; /* NULL: not connected */
    unsigned host;
    uint64_t wait_ns; /* before the next try to connect */
    uint64_t confirmed;
    uint64_t returned; /* messages of this connection that no queue took */
    uint64_t acked;    /* confirmed since the first returned message */
    bool twice;        /* some messages were also sent on another connection */
    struct confirms confirms;
    struct unconfirmed_list waiting;   /* to publish before new messages */
    unsigned count;                    /* of both lists */
    unsigned declared[PARTITIONS_MAX]; /* for each part: a bit for each wait
                                        * queue that exists */
    char scratch[PROPERTIES_MOST];
};

static struct copy *copy_of(struct unconfirmed *u)
{
    return CONTAINER_OF(u, struct copy, u);
}

/* ---- sending ---- */

/* Publish a copy, marked if it was published on an earlier connection. */
static int copy_send(struct publisher *b, struct copy *c)
{
    amqp_pool_t pool;
    amqp_basic_properties_t *p = envelope_decode(c->properties, &pool);
    amqp_table_entry_t *all;
    size_t n;
    int err = p ? 0 : -ENOMEM;

    if (!err && c->u.resent) {
        n = p->_flags & AMQP_BASIC_HEADERS_FLAG ? (size_t)p->headers.num_entries
                                                : 0;
        all = amqp_pool_alloc(&pool, (n + 1) * sizeof *all);
        err = all ? 0 : -ENOMEM;
        if (all && n > 0)
            memcpy(all, p->headers.entries, n * sizeof *all);
        if (all)
            all[n] = entry_number("mqw-resent", 1);
        p->headers = (amqp_table_t){(int)n + 1, all};
        p->_flags |= AMQP_BASIC_HEADERS_FLAG;
    }
    if (!err)
        err = confirms_publish(&b->confirms, b->link, &c->u, &b->setup.topology,
                               c->queue, p, c->body);
    if (p)
        empty_amqp_pool(&pool);
    return err;
}

/* Count a message that the broker acknowledged. It also acknowledges a message
 * that it has returned because no queue took it. After the first returned
 * message, end the sending (-ENOENT) and count all acknowledged messages:
 * confirms_wait then subtracts the returned ones. */
static int on_confirmed(void *arg, struct unconfirmed *u)
{
    struct publisher *b = arg;

    free(copy_of(u));
    b->count--;
    if (b->returned == 0) {
        b->confirmed++;
        return 0;
    }
    b->acked++;
    return -ENOENT;
}

static void on_returned(void *arg, amqp_bytes_t properties)
{
    struct publisher *b = arg;

    (void)properties;
    b->returned++;
}

/* ---- the connection ---- */

/* Have the broker confirm messages. This must be repeated on each new channel.
 */
static int confirms_set(struct publisher *b, struct problem *p)
{
    int err = confirms_begin(&b->confirms, b->link);

    b->host = b->link->host;
    return err ? problem_set(p, EX_UNAVAILABLE, -err,
                             "lost the connection to %s before it was used: "
                             "%s; run the command again",
                             b->setup.link.operand->hosts[b->host].name,
                             b->link->why)
               : 0;
}

static int publisher_reconnect(struct publisher *b, struct problem *p)
{
    int err = link_open(&b->link, &b->setup.link, b->host, p);

    return err ? err : confirms_set(b, p);
}

static bool publisher_stopping(const struct publisher *b)
{
    return b->setup.stop && b->setup.stop(b->setup.arg);
}

/* Wait until the broker has sent something or `ns` have passed. */
static void frames_wait(const struct publisher *b, uint64_t ns)
{
    struct pollfd fd = {.fd = b->link ? b->link->fd : -1, .events = POLLIN};
    struct timespec limit = {.tv_nsec = (long)(ns < SLICE_NS ? ns : SLICE_NS)};

    (void)ppoll(&fd, 1, &limit, NULL);
}

/* Publish, read confirms, and with `wait` wait for more. -EINTR: told to stop;
 * -ENOENT: a message was returned; -EMSGSIZE: this connection has shorter
 * frames than the one for which the message was copied; -E2BIG: a body is
 * longer than the broker accepts. */
static int round_run(struct publisher *b, bool wait)
{
    uint64_t before = b->confirmed, end, now;
    struct unconfirmed *u;
    struct problem ignored;
    int err = 0;

    if (!b->link) { /* try another connection, after a pause that grows */
        end = clock_mono_ns() + b->wait_ns;
        while ((now = clock_mono_ns()) < end && !publisher_stopping(b))
            frames_wait(b, end - now);
        b->wait_ns = 2 * b->wait_ns < WAIT_MOST ? 2 * b->wait_ns : WAIT_MOST;
        if (!publisher_stopping(b) && publisher_reconnect(b, &ignored) < 0)
            link_close(&b->link);
    }
    if (publisher_stopping(b))
        return -EINTR;
    if (!b->link)
        return 0;
    while (!err && !b->link->blocked &&
           (u = TAILQ_FIRST(&b->waiting)) != NULL) {
        TAILQ_REMOVE(&b->waiting, u, link);
        err = copy_send(b, copy_of(u));
        if (err)
            TAILQ_INSERT_HEAD(&b->waiting, u, link);
    }
    if (err == -EMSGSIZE)
        return err;
    if (!err)
        err = confirms_read(&b->confirms, b->link);
    if (b->confirmed > before)
        b->wait_ns = WAIT_FIRST;
    if (err == -ENOENT)
        return err;
    if (err && link_largest_body(b->link) > 0)
        return -E2BIG;
    if (err || confirms_late(&b->confirms, b->link)) {
        b->host++;
        b->returned = 0;
        b->twice = b->twice || !TAILQ_EMPTY(&b->confirms.sent);
        link_close(&b->link);
        confirms_lost(&b->confirms, &b->waiting);
    } else if (wait && b->count > 0) {
        frames_wait(b, SLICE_NS);
    }
    return 0;
}

/* ---- waiting for confirms ---- */

/* Return true if more than `count` messages are not confirmed, or if some are
 * not and there is no connection. */
static bool must_wait(const struct publisher *b, unsigned count)
{
    return b->count > count || (b->count > 0 && !b->link);
}

/* Wait until at most `count` messages are not confirmed. Each confirm restarts
 * the time limit. */
static int confirms_wait(struct publisher *b, unsigned count, struct problem *p)
{
    uint64_t seen = b->confirmed;
    uint64_t end = ns_add(clock_mono_ns(), b->setup.wait_ns);
    const struct broker_operand *o = b->setup.link.operand;
    int err = b->count > 0 ? round_run(b, false) : 0;

    while (!err && must_wait(b, count)) {
        err = round_run(b, true);
        if (b->confirmed > seen) {
            seen = b->confirmed;
            end = ns_add(clock_mono_ns(), b->setup.wait_ns);
        }
        if (!err && must_wait(b, count) && clock_mono_ns() >= end)
            err = -ETIMEDOUT;
    }
    if (err == -ENOENT) { /* no queue took a message */
        /* Read the other confirms, to count the messages that a queue has. */
        end = clock_mono_ns() + REST_NS;
        while (b->count > 0 && (!err || err == -ENOENT) &&
               !publisher_stopping(b) && clock_mono_ns() < end) {
            err = confirms_read(&b->confirms, b->link);
            if (!err)
                frames_wait(b, SLICE_NS);
        }
        if (b->acked > b->returned)
            b->confirmed += b->acked - b->returned;
        return problem_set(
            p, EX_NOINPUT, ENOENT, "no queue %s in virtual host %s: %s",
            o->queue, o->vhost,
            b->setup.create ? "it or one of its wait queues was deleted during "
                              "the run; run "
                              "the command again to create it"
                            : "start its worker, or run mqsend --create");
    }
    if (err == -EMSGSIZE)
        return problem_set(p, EX_DATAERR, E2BIG,
                           "frame_max of %s, %d bytes, is less than that of "
                           "the other nodes: raise it",
                           o->hosts[b->host].name,
                           amqp_get_frame_max(b->link->c));
    if (err == -E2BIG)
        return problem_set(p, EX_DATAERR, E2BIG,
                           "body too large: %s accepts up to %" PRIu64
                           " bytes; raise max_message_size in rabbitmq.conf of "
                           "each node",
                           o->hosts[b->host].name, link_largest_body(b->link));
    if (err == -ETIMEDOUT)
        return problem_set(p, EX_TEMPFAIL, ETIMEDOUT,
                           "%s does not confirm: it is full, or the broker has "
                           "no majority or no memory",
                           o->shown);
    return err ? problem_set(p, EX_TEMPFAIL, EINTR, "interrupted") : 0;
}

int publisher_put(struct publisher *b, const char *queue,
                  const amqp_basic_properties_t *properties, const void *body,
                  size_t size, struct problem *p)
{
    amqp_bytes_t id = properties->message_id;
    int most = b->link ? amqp_get_frame_max(b->link->c) : PROPERTIES_MOST;
    /* Refuse properties that do not fit into a frame, before they could keep
     * later messages from being sent. */
    int n = amqp_encode_properties(
        AMQP_BASIC_CLASS, (amqp_basic_properties_t *)(uintptr_t)properties,
        (amqp_bytes_t){(size_t)most - FRAME_SLACK, b->scratch});
    struct copy *c;

    if (n < 0)
        return problem_set(p, EX_DATAERR, EMSGSIZE,
                           "the properties of message %.*s do not fit into a "
                           "frame of the broker, %d bytes: raise its frame_max",
                           (int)id.len, id.bytes ? (const char *)id.bytes : "",
                           most);
    c = calloc(1, sizeof *c + (size_t)n + size);
    if (!c)
        return problem_set(p, EX_OSERR, ENOMEM, "out of memory");
    snprintf(c->queue, sizeof c->queue, "%s", queue);
    c->properties = (amqp_bytes_t){(size_t)n, c->bytes};
    c->body = (amqp_bytes_t){size, c->bytes + n};
    memcpy(c->properties.bytes, b->scratch, (size_t)n);
    if (size > 0)
        memcpy(c->body.bytes, body, size);
    TAILQ_INSERT_TAIL(&b->waiting, &c->u, link);
    b->count++;
    return confirms_wait(b, WINDOW, p);
}

int publisher_flush(struct publisher *b, struct problem *p)
{
    return confirms_wait(b, 0, p);
}

uint64_t publisher_confirmed(const struct publisher *b)
{
    return b->confirmed;
}

uint64_t publisher_refused(const struct publisher *b)
{
    return b->twice ? 0 : b->returned;
}

uint64_t publisher_largest_body(const struct publisher *b)
{
    return b->link ? link_largest_body(b->link) : 0;
}

int publisher_wait_queue(struct publisher *b, unsigned part, uint64_t ms,
                         struct problem *p)
{
    unsigned bit = 1U << topology_index(ms);
    int err;

    if (b->declared[part] & bit)
        return 0;
    /* The connection may have been lost with the last confirm. */
    err = b->link ? 0 : publisher_reconnect(b, p);
    if (!err && !b->setup.create)
        err = topology_there(b->link, &b->setup.topology, part, p);
    if (!err)
        err = topology_wait(b->link, &b->setup.topology, part, ms, p);
    if (!err)
        b->declared[part] |= bit;
    return err;
}

/* ---- open and close ---- */

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
    b->confirms.confirmed = on_confirmed;
    b->confirms.returned = on_returned;
    b->confirms.arg = b;
    TAILQ_INIT(&b->confirms.sent);
    TAILQ_INIT(&b->waiting);
    err = link_open(&b->link, &b->setup.link, b->host, p);
    if (!err && setup->priorities && b->link->server < SERVER_4)
        err = problem_set(p, EX_USAGE, ENOTSUP,
                          "--priority cannot be used with this server "
                          "(RabbitMQ %s): before 4.0 a replicated queue has no "
                          "priorities; use a queue for each",
                          b->link->version);
    if (!err && setup->create)
        err = topology_unlike(b->link, &b->setup.topology, p);
    if (!err && setup->create)
        err = topology_open(b->link, &b->setup.topology, p);
    else if (!err)
        err = topology_number(b->link, &b->setup.topology, p);
    if (!err)
        err = confirms_set(b, p);
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
    confirms_lost(&b->confirms, &b->waiting);
    while ((u = TAILQ_FIRST(&b->waiting)) != NULL) {
        TAILQ_REMOVE(&b->waiting, u, link);
        free(copy_of(u));
    }
    link_close(&b->link);
    free(b);
}
