/* outbox.h - the thread that publishes what follows from verdicts
 *
 * WHAT   Publishes the jobs of the claims, and tells them of each that the
 *        broker confirmed. Asks the broker how many messages a queue has.
 * WHO    count: any thread; the others: the engine's.
 * OWNS   The thread and its connection.
 * FAILS  open: a problem. start: -errno.
 */
#ifndef WORKER_SOURCE_AMQP_OUTBOX_H
#define WORKER_SOURCE_AMQP_OUTBOX_H

#include "worker/source/amqp/claims.h"

struct outbox; /* opaque; body in outbox.c */

/* Connect to the host of the inbox. */
int outbox_open(struct outbox **out, struct amqp_queue *queue,
                struct problem *p);
void *outbox_main(void *outbox);           /* run the thread (side_start) */
void outbox_close(struct outbox **outbox); /* NULL-safe; sets NULL */

/* Count the messages in a queue: 0, -ETIMEDOUT, -errno. Waits for the
 * broker. */
int outbox_count(struct outbox *out, const char *queue, uint32_t *messages);

#endif
