/* forward.h - the header of a forwarded message
 *
 * WHAT   Writes the header that the message has at the destination: the lines
 *        of its sender, its id, its group, how many queues it came through, and
 *        whether it may have been sent before.
 * WHO    forward.c and forward_amqp.c, on pool threads, several at once. The
 *        only side effect is that a message without an id gets one.
 * OWNS   Nothing.
 * FAILS  -ELOOP, -EMSGSIZE: the message can never be forwarded, and `out` says
 *        so: a dead letter.
 */
#ifndef WORKER_HANDLERS_FORWARD_H
#define WORKER_HANDLERS_FORWARD_H

#include "worker/config/settings.h"
#include "worker/rules/delivery.h"

/* Most queues that a message may be forwarded from. A message that goes round
 * in a circle of queues reaches this number and becomes a dead letter. */
#define FORWARD_MOST 16

/* Make the message a dead letter with this error, because it can never be
 * forwarded. */
void forward_refuse(struct outcome *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Count the queues that the message was forwarded from, this one included. */
int forward_count(const struct delivery *d, uint64_t *count,
                  struct outcome *out);
/* Log at the start that the destination cannot be used yet. */
void forward_unusable(const struct settings *set, const struct problem *p);
/* Return true if the destination must treat the message as a repeat. */
bool forward_resent(const struct delivery *d);
/* Return the time at which the message is due (wall clock, ns), or 0 if it is
 * due now. */
uint64_t forward_due(const struct delivery *d);
/* Write the header, with the sender's unknown lines. Returns its size. */
int forward_header(char head[HEADER_MAX], const struct delivery *d,
                   struct outcome *out);

#endif
