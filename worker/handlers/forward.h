/* forward.h - what a message says at the queue that it is forwarded to
 *
 * WHAT   The header of the message there: what its sender wrote, its id, its
 *        group, how many queues it came through, and whether it may have been
 *        sent before.
 * WHO    Any thread. Pure but for the id, which the message gets if it has
 *        none.
 * OWNS   Nothing.
 * FAILS  -ELOOP, -EMSGSIZE: the message can never be forwarded, and `out` says
 *        so: a dead letter.
 */
#ifndef WORKER_HANDLERS_FORWARD_H
#define WORKER_HANDLERS_FORWARD_H

#include "worker/rules/delivery.h"

/* Queues that a message may be forwarded from. A circle makes it a letter. */
#define FORWARD_MOST 16

/* Begin a delivery that ends as done unless `out` is changed. */
void forward_begin(struct outcome *out);
/* The message can never be forwarded: a dead letter, with this error. */
void forward_refuse(struct outcome *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* How many queues the message was forwarded from, this one included. */
int forward_count(const struct delivery *d, uint64_t *count,
                  struct outcome *out);
/* Return true if the destination is to take the message for a repeat. */
bool forward_resent(const struct delivery *d);
/* When the message is to run, wall clock: it was not due when it was taken.
 * 0: now. */
uint64_t forward_due(const struct delivery *d);
/* Write the header. Returns its bytes. */
int forward_header(char head[HEADER_MAX], const struct delivery *d,
                   struct outcome *out);

#endif
