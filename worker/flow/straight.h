/* straight.h - the usual message, in one short straight line
 *
 * WHAT   While nothing needs attention (attention.h) and handlers are quick, a
 *        fresh message that has no time of its own goes from the source to the
 *        handler, and is done: one after the other, until one is not so.
 * WHO    The thread that runs the item.
 * OWNS   Nothing.
 * FAILS  As take, in receive_inner.h.
 */
#ifndef WORKER_FLOW_STRAIGHT_H
#define WORKER_FLOW_STRAIGHT_H

struct receive;

/* What the next message is to be asked for first: the reasons. No message was
 * taken, or the last one is settled. */
#define STRAIGHT_ASK 100

/* STRAIGHT_ASK; or as take: TAKEN, one that is not usual and is to be
 * delivered; TAKEN_NONE; -errno. */
int straight(struct receive *item);

#endif
