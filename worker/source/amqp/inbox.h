/* inbox.h - the thread that consumes and acknowledges
 *
 * WHAT   Gives each message of the broker to the claims, and the broker the
 *        acknowledgements. Decides how much of the queue is in hand.
 * WHO    open, start, stop, close: the engine's thread. The others: any thread.
 * OWNS   The thread, its connection, and a message that is coming in.
 * FAILS  open: a problem. start: -errno.
 */
#ifndef WORKER_SOURCE_AMQP_INBOX_H
#define WORKER_SOURCE_AMQP_INBOX_H

#include "worker/source/amqp/claims.h"

struct inbox; /* opaque; body in inbox.c */

struct inbox_setup {
    struct amqp_queue *queue;
    struct claims *claims;
    struct source *source;              /* of which `rests` is set */
    const struct source_events *events; /* wants */
    unsigned in_hand;                   /* messages lent at once */
};

/* Connect and declare the queues. *ready: messages in them. */
int inbox_open(struct inbox **out, const struct inbox_setup *setup, long *ready,
               struct problem *p);
int inbox_start(struct inbox *in);
/* Wait until the thread has ended (queue->stopping), with the last
 * acknowledgements sent. */
void inbox_stop(struct inbox *in);
void inbox_close(struct inbox **inbox); /* NULL-safe; sets NULL */

/* Messages lent at once. */
unsigned inbox_in_hand(const struct inbox *in);
void inbox_resize(struct inbox *in, unsigned in_hand);
/* Have the inbox try a host that the outbox has given up. Otherwise a hanging
 * host would be noticed only a minute later, by its missing heartbeats. */
void inbox_doubt(struct inbox *in, unsigned host);
/* A message may be taken again: source_ops.wanted. */
void inbox_wanted(struct inbox *in);

#endif
