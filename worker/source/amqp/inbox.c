/* inbox.c - consumes, and acknowledges (see amqp_inner.h) */
#include "worker/source/amqp/amqp_inner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/problem.h"

/* ---- a message, frame by frame ---- */

/* part_drop - what is there of a message that will not be whole */
static void part_drop(struct source_amqp *q)
{
    if (q->part.m)
        amqp_free(q->part.m);
    q->part = (struct inbox_part){0};
}

/* part_over - it has all its bytes */
static void part_over(struct source_amqp *q)
{
    struct amqp_message *m = q->part.m;
    bool redelivered = q->part.redelivered;

    q->part = (struct inbox_part){0};
    amqp_arrived(q, m, redelivered);
}

/* header - it begins: its properties, and how much is to follow
 * The header that the worker reads is written in front of the body later.
 */
static int header(struct source_amqp *q, const amqp_frame_t *f)
{
    amqp_bytes_t raw = f->payload.properties.raw;
    uint64_t size = f->payload.properties.body_size;
    struct amqp_message *m;

    if (!q->part.expected || q->part.m || size > SIZE_MAX / 2)
        return -EPROTO;
    m = malloc(sizeof *m + raw.len + HEADER_MAX + (size_t)size);
    if (!m)
        return -ENOMEM;
    *m = (struct amqp_message){.q = q,
                               .epoch = q->epoch,
                               .tag = q->part.tag,
                               .part = q->part.queue,
                               .raw = {raw.len, m->bytes},
                               .body = m->bytes + raw.len + HEADER_MAX,
                               .body_size = (size_t)size};
    memcpy(m->bytes, raw.bytes, raw.len);
    q->part.m = m;
    if (size == 0)
        part_over(q);
    return 0;
}

static int body(struct source_amqp *q, const amqp_frame_t *f)
{
    amqp_bytes_t more = f->payload.body_fragment;
    struct inbox_part *part = &q->part;

    if (!part->m || more.len > part->m->body_size - part->filled)
        return -EPROTO;
    memcpy((unsigned char *)(uintptr_t)part->m->body + part->filled, more.bytes,
           more.len);
    part->filled += more.len;
    if (part->filled == part->m->body_size)
        part_over(q);
    return 0;
}

/* method - a message begins, or the broker ends something */
static int method(struct source_amqp *q, const amqp_method_t *m)
{
    const amqp_basic_deliver_t *d;

    if (m->id == AMQP_BASIC_DELIVER_METHOD) {
        d = m->decoded;
        if (q->part.expected)
            return -EPROTO;
        prefetch_delivered(q);
        ack_window_delivered(&q->window, d->delivery_tag);
        q->part =
            (struct inbox_part){.tag = d->delivery_tag,
                                .queue = consumer_part(q, d->consumer_tag),
                                .expected = true,
                                .redelivered = d->redelivered != 0};
        return 0;
    }
    if (m->id == AMQP_BASIC_CANCEL_METHOD) {
        snprintf(q->inbox.link->why, LINK_WHY,
                 "the broker cancelled the consumer: was the queue deleted?");
        return -ENOENT;
    }
    return link_closed_by(q->inbox.link, m) ? -ECONNRESET : 0;
}

static int read_frames(struct source_amqp *q)
{
    amqp_frame_t f;
    int n, err = 0;

    while (!err && (n = link_frame(q->inbox.link, &f)) != NO) {
        if (n < 0)
            err = n;
        else if (f.channel != LINK_CHANNEL)
            continue;
        else if (f.frame_type == AMQP_FRAME_METHOD)
            err = method(q, &f.payload.method);
        else if (f.frame_type == AMQP_FRAME_HEADER)
            err = header(q, &f);
        else if (f.frame_type == AMQP_FRAME_BODY)
            err = body(q, &f);
        /* Its memory is the library's: a large message has many frames. */
        link_tidy(q->inbox.link);
        if (!link_more(q->inbox.link))
            amqp_place_all(q);
    }
    amqp_place_all(q);
    return err;
}

/* ---- acknowledgements ---- */

/* acks_flush - without the lock: a write may wait for the broker */
static int acks_flush(struct source_amqp *q)
{
    uint64_t *acks;
    bool starved;
    size_t n;
    int err;

    pthread_mutex_lock(&q->mtx);
    acks = q->acks;
    n = q->ack_count;
    starved = prefetch_starves_locked(q);
    if (n > 0) {
        q->acks = NULL;
        q->ack_count = q->ack_room = 0;
    }
    pthread_mutex_unlock(&q->mtx);
    if (n == 0)
        return 0;
    err = consumer_ack(q, acks, n);
    free(acks);
    prefetch_acked(q, n, starved);
    return err;
}

/* ---- the connection ---- */

/* begin - claims of this connection are good from here on */
static int begin(struct source_amqp *q)
{
    pthread_mutex_lock(&q->mtx);
    q->epoch = ++q->epochs;
    pthread_mutex_unlock(&q->mtx);
    ack_window_begin(&q->window);
    prefetch_begin(q);
    return prefetch_apply(q);
}

/* back - after a new connection: the queue may be gone */
static int back(struct source_amqp *q)
{
    struct problem p = {0};
    int err = topology_open(q->inbox.link, &q->topology, &p);

    if (!err) {
        side_limited(&q->inbox);
        return begin(q);
    }
    snprintf(q->inbox.link->why, LINK_WHY, "%.200s", p.text);
    return err;
}

static void lost(struct source_amqp *q, int err)
{
    uint64_t wait = q->inbox.wait_ns;

    side_lost(&q->inbox,
              q->inbox.link->why[0] ? q->inbox.link->why : errno_text(-err));
    /* Where it is refused again and again, each try waits longer. */
    if (q->epoch == 0)
        q->inbox.wait_ns =
            10 * wait < 10 * NS_PER_S ? 10 * wait : 10 * NS_PER_S;
    part_drop(q);
    amqp_void_claims(q);
}

/* Send a request to a host that the outbox has given up. Otherwise a hanging
 * host would be noticed only a minute later, by its missing heartbeats. */
static int host_check(struct source_amqp *q)
{
    uint32_t messages, consumers;

    if (atomic_exchange(&q->doubted, 0) != q->inbox.link->host + 1)
        return 0;
    q->fetch.called =
        true; /* messages that have arrived since are in the library */
    return topology_count(q->inbox.link, q->parts[0], &messages, &consumers);
}

/* serve - what there is to do, then a wait; none after a call, as messages that
 * came meanwhile are with the library, and are to be looked at */
static int serve(struct source_amqp *q)
{
    uint64_t due, wait = UINT64_MAX;
    int err;

    q->fetch.called = false;
    err = read_frames(q);
    due = amqp_due(q);
    if (!err)
        err = host_check(q);
    if (!err)
        err = acks_flush(q);
    if (!err)
        err = prefetch_look(q, &wait);
    if (!err)
        err = prefetch_apply(q);
    if (!err && !q->fetch.called)
        side_wait(&q->inbox, due < wait ? due : wait);
    return err;
}

void *inbox_main(void *side)
{
    struct source_amqp *q = ((struct amqp_side *)side)->q;
    int err = begin(q);

    if (err)
        lost(q, err);
    while (!atomic_load(&q->stopping)) {
        if (!q->inbox.link) {
            if (!side_reconnect(&q->inbox))
                continue;
            err = back(q);
        } else {
            err = serve(q);
        }
        if (err)
            lost(q, err);
    }
    if (q->inbox.link)
        (void)acks_flush(q);
    return NULL;
}

int inbox_open(struct source_amqp *q, struct problem *p)
{
    uint32_t messages, consumers;
    long ready = 0;
    int err = link_open(&q->inbox.link, &q->setup, arc4random(), p);

    if (!err)
        err = topology_unlike(q->inbox.link, &q->topology, p);
    if (!err)
        err = topology_open(q->inbox.link, &q->topology, p);
    if (err)
        return err;
    for (unsigned i = 0; i < q->part_count && !err; i++) {
        err = topology_count(q->inbox.link, q->parts[i], &messages, &consumers);
        ready += err ? 0 : (long)messages;
    }
    if (err)
        return problem_set(p, EX_UNAVAILABLE, -err, "queue %s: %s",
                           q->operand->queue, q->inbox.link->why);
    atomic_store(&q->ready, ready);
    side_limited(&q->inbox);
    return 0;
}
