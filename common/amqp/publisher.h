/* publisher.h - publishing to a broker, with confirms
 *
 * WHAT   Two layers. `confirms` has a list of the messages that were published
 *        on one connection and are not confirmed; its owner decides what
 *        follows. A `publisher` is for programs that can wait: it keeps a copy
 *        of each message until the broker has confirmed it. After a nack or a
 *        lost connection, the publisher connects again and publishes the
 *        unconfirmed messages, marked as resent.
 * WHO    confirms: the worker's outbox, and the publisher. publisher: mqsend,
 *        mqdlq, and each work item of mqworker --forward. One thread at a time.
 * OWNS   confirms: nothing, the messages are their owner's. A publisher: its
 *        connection, and its copies.
 * FAILS  confirms: -errno, and only link_close may follow. A publisher: a
 *        problem; -ETIMEDOUT: not confirmed within the time; -ENOENT: the queue
 *        does not exist, and only publisher_close may follow. put: -EMSGSIZE,
 *        -ENOMEM: the message was not accepted; the publisher and its other
 *        messages are not affected.
 */
#ifndef COMMON_AMQP_PUBLISHER_H
#define COMMON_AMQP_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

#include "common/amqp/link.h"
#include "common/amqp/topology.h"

/* ---- the confirms of one connection ---- */

/* A message to publish, inside a struct of its owner. */
struct unconfirmed {
    TAILQ_ENTRY(unconfirmed) link;
    uint64_t number;  /* of the message on its connection, 1 and up */
    uint64_t sent_ns; /* clock_mono_ns when it was published */
    bool resent;      /* also published on an earlier connection */
};
TAILQ_HEAD(unconfirmed_list, unconfirmed);

struct confirms {
    struct unconfirmed_list sent; /* published and not confirmed, by number */
    uint64_t numbers;             /* last number given on this connection */
    /* Called by confirms_read when the broker has acknowledged the message,
     * which is on no list now. 0, or -errno to end the connection. */
    int (*confirmed)(void *arg, struct unconfirmed *u);
    /* Called by confirms_read if no queue took the message with these
     * properties; `confirmed` follows. */
    void (*returned)(void *arg, amqp_bytes_t properties);
    void *arg;
};

/* Have the broker confirm what is published on this new connection. */
int confirms_begin(struct confirms *c, struct link *l);
/* Publish persistently and put the message on the list. -EMSGSIZE: the
 * properties are too long; nothing was sent, and the connection is good. */
int confirms_publish(struct confirms *c, struct link *l, struct unconfirmed *u,
                     const struct topology *t, const char *queue,
                     amqp_basic_properties_t *properties, amqp_bytes_t body);
/* Return true if no more should be published before some are confirmed. */
bool confirms_full(const struct confirms *c);
/* Read all frames that have come. -EAGAIN: the broker refused a message
 * (nack). */
int confirms_read(struct confirms *c, struct link *l);
/* Return true if the oldest message has waited too long for its confirm, and
 * say so in the link. */
bool confirms_late(const struct confirms *c, struct link *l);
/* Move all messages of a lost connection, in order, to the front of `to`. */
void confirms_lost(struct confirms *c, struct unconfirmed_list *to);

/* ---- a publisher ---- */

struct publisher; /* opaque; body in publisher.c */

struct publisher_setup {
    struct link_setup link;
    struct topology topology;
    bool create;      /* create missing queues */
    bool priorities;  /* messages have some; refused before SERVER_4 */
    uint64_t wait_ns; /* for a confirm; UINT64_MAX: as long as it takes */
    bool (*stop)(void *arg); /* called while it waits; true: give up with
                                -EINTR. NULL: never give up */
    void *arg;
};

int publisher_open(struct publisher **out, const struct publisher_setup *setup,
                   struct problem *p);
/* Publish a copy of a message. May wait until earlier messages are confirmed.
 * On any error but -EMSGSIZE and -ENOMEM the publisher has accepted the
 * message. */
int publisher_put(struct publisher *b, const char *queue,
                  const amqp_basic_properties_t *properties, const void *body,
                  size_t size, struct problem *p);
/* Wait until all messages are confirmed. */
int publisher_flush(struct publisher *b, struct problem *p);
/* Count the confirmed messages. */
uint64_t publisher_confirmed(const struct publisher *b);
/* Count the messages that are certainly in no queue, after -ENOENT. Returns 0
 * if some were published twice: a queue may have them from the first time. */
uint64_t publisher_refused(const struct publisher *b);
/* Create the queue for messages that wait for `ms`, if it is missing. Asks the
 * broker only once about each queue. */
int publisher_wait_queue(struct publisher *b, unsigned part, uint64_t ms,
                         struct problem *p);
/* Return the most bytes that a body may have, if the broker refused a longer
 * one; else 0. */
uint64_t publisher_largest_body(const struct publisher *b);
void publisher_close(struct publisher **publisher); /* NULL-safe; sets NULL */

#endif
