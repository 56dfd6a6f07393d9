/* outbox.h - the thread that publishes copies of messages after verdicts
 *
 * WHAT   Publishes the copies that follow from verdicts: retries, dead letters.
 *        When the broker has confirmed a copy, reports that to the claims
 *        (claims.h), which then acknowledge the original. Counts the messages
 *        of a queue.
 * WHO    open, close: source_amqp.c, on the engine's thread. count: any thread.
 * OWNS   The copies that are not confirmed.
 * FAILS  open: a problem.
 */
#ifndef WORKER_SOURCE_AMQP_OUTBOX_H
#define WORKER_SOURCE_AMQP_OUTBOX_H

#include "worker/source/amqp/claims.h"

struct outbox; /* opaque; body in outbox.c */

/* Connect to the host that the inbox is connected to. */
int outbox_open(struct outbox **out, struct amqp_queue *queue,
                struct problem *p);
/* The main function of the thread (side_start). */
void *outbox_main(void *outbox);
void outbox_close(struct outbox **outbox); /* NULL-safe; sets NULL */

/* Count the messages in a queue. Waits some seconds for the broker: -ETIMEDOUT,
 * or another -errno. */
int outbox_count(struct outbox *out, const char *queue, uint32_t *messages);

#endif
