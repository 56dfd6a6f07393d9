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

/* Connect, declare the queues, and count their messages (queue->ready). */
int inbox_open(struct inbox **out, struct amqp_queue *queue, struct problem *p);
/* Run the thread (side_start). It ends with the last acknowledgements sent. */
void *inbox_main(void *inbox);
void inbox_close(struct inbox **inbox); /* NULL-safe; sets NULL */
/* Consume again, because messages may be taken again: source_ops.wanted. */
void inbox_wanted(struct source *s);

/* ---- acknowledgements of one channel, as few as possible ----
 *
 * The tags of a channel are 1, 2, 3, ... One acknowledgement may cover all tags
 * up to its own, but only if each of them was given to ack_window_send. A tag
 * that stays open while ACK_WINDOW later ones are delivered (its handler is
 * slow) has all be acknowledged one by one, until it is acknowledged, too.
 */

#define ACK_WINDOW 16384 /* a power of two */

struct ack_window {
    uint64_t next;   /* tag of the next delivery */
    uint64_t open;   /* tags delivered and not acknowledged */
    uint64_t low;    /* all tags below are acknowledged, but for `behind` */
    uint64_t behind; /* number of open tags below `low` */
    uint64_t done[ACK_WINDOW / 64]; /* bits: acknowledged, from `low` on */
};

/* Acknowledge a tag, and with `all` each one before it. 0, or the error of the
 * connection, which is of no more use then. */
typedef int ack_send(void *arg, uint64_t tag, bool all);

void ack_window_begin(struct ack_window *w); /* of a new channel */
void ack_window_delivered(struct ack_window *w, uint64_t tag);
/* Acknowledge `n` different tags, which are sorted. */
int ack_window_send(struct ack_window *w, const uint64_t *tags, size_t n,
                    ack_send *tell, void *arg);

#endif
