/* publisher.h - sends messages to a broker and knows which it has
 *
 * WHAT   Keeps each message until the broker has confirmed it. After a nack, or
 *        when the connection is gone, what was not confirmed is sent again by
 *        another connection, with the same id and marked as resent.
 * WHO    One thread.
 * OWNS   The connection, and copies of what is not confirmed.
 * FAILS  open: a problem. put, flush: a problem; -ETIMEDOUT: not confirmed
 *        within the time; -ENOENT: there is no such queue, and the publisher is
 *        of no use any more.
 */
#ifndef COMMON_AMQP_PUBLISHER_H
#define COMMON_AMQP_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/amqp/link.h"
#include "common/amqp/topology.h"

struct publisher; /* opaque; body in publisher.c */

/* A message; all of it is copied, but for `properties`. Headers are numbers and
 * text. */
struct publication {
    const char *queue;
    const char *id; /* a ULID */
    uint8_t priority;
    const amqp_table_entry_t *headers;
    int header_count;
    /* All that there is to say of it, instead of id and headers. They stay as
     * they are until it is confirmed. NULL: none. */
    const amqp_basic_properties_t *properties;
    const void *body;
    size_t size;
};

struct publisher_setup {
    struct link_setup link;
    struct topology topology;
    bool create;        /* the queues are made */
    bool priorities;    /* of the messages; refused before SERVER_4 */
    uint64_t wait_ns;   /* for a confirm; UINT64_MAX: as long as it takes */
    bool (*stop)(void); /* asked while it waits */
};

int publisher_open(struct publisher **out, const struct publisher_setup *setup,
                   struct problem *p);
/* May wait until others are confirmed. */
int publisher_put(struct publisher *b, const struct publication *m,
                  struct problem *p);
/* Until all are confirmed. */
int publisher_flush(struct publisher *b, struct problem *p);
uint64_t publisher_confirmed(const struct publisher *b);
/* After -ENOENT: those that are in no queue for sure; 0 where some were sent
 * twice, as the first time may have been enough. */
uint64_t publisher_refused(const struct publisher *b);
/* A queue for messages that wait, made if it is missing. */
int publisher_wait_queue(struct publisher *b, unsigned part, uint64_t ms,
                         struct problem *p);
void publisher_close(struct publisher **publisher); /* NULL-safe; sets NULL */

#endif
