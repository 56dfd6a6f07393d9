/* inbox.h - the thread that consumes and acknowledges
 *
 * WHAT   Gives each message of the broker to claims.h, and sends the broker the
 *        acknowledgements that it gets from there. Decides how many messages
 *        the worker has in hand: delivered to it and not acknowledged.
 * WHO    open, close: source_amqp.c, on the engine's thread. wanted: any
 *        thread, as an operation of source.h.
 * OWNS   A message that is coming in.
 * FAILS  open: a problem.
 */
#ifndef WORKER_SOURCE_AMQP_INBOX_H
#define WORKER_SOURCE_AMQP_INBOX_H

#include "worker/source/amqp/claims.h"

struct inbox; /* opaque; body in inbox.c */

/* Connect, declare the queues, and count their messages (queue->ready). */
int inbox_open(struct inbox **out, struct amqp_queue *queue, struct problem *p);
/* The main function of the thread (side_start). Before it returns, it sends the
 * last acknowledgements. */
void *inbox_main(void *inbox);
void inbox_close(struct inbox **inbox); /* NULL-safe; sets NULL */
/* Consume again, because the worker may take messages again: source_ops.wanted.
 */
void inbox_wanted(struct source *s);

/* ---- acknowledgements of one channel, as few as possible ----
 *
 * The tags of a channel are 1, 2, 3, ... One acknowledgement can cover all tags
 * up to its own, once each of them was given to ack_window_close. If a slow
 * handler keeps a tag open while ACK_WINDOW later tags are delivered, the
 * others are acknowledged one by one until that tag is closed as well.
 */

#define ACK_WINDOW 16384 /* a power of two */

struct ack_window {
    uint64_t next;   /* tag of the next delivery */
    uint64_t open;   /* tags delivered and not acknowledged */
    uint64_t low;    /* all tags below it are acknowledged, except `behind` */
    uint64_t behind; /* number of open tags below `low` */
    uint64_t done[ACK_WINDOW / 64]; /* bits: acknowledged, from `low` on */
};

#define ACK_WINDOW_NEW      \
    {                       \
        .low = 1, .next = 1 \
    } /* for a new channel */

void ack_window_delivered(struct ack_window *w, uint64_t tag);
/* Close `n` different tags in ascending order, which the caller then
 * acknowledges. Returns how many tags are acknowledged with the last one of
 * them, which also covers all tags before it. Each further tag needs an
 * acknowledgement of its own. */
size_t ack_window_close(struct ack_window *w, const uint64_t *tags, size_t n);

#endif
