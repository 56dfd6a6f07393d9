/* ack_window.h - acknowledgements of one channel, as few as can be
 *
 * WHAT   The tags of a channel are 1, 2, 3, ...; an acknowledgement may be for
 *        all up to its tag. It is that where each of them has been given to us
 *        to acknowledge: of none else the broker may hear.
 * WHO    One thread. Pure; calls `tell`.
 * OWNS   Nothing; it is embedded.
 * FAILS  With what `tell` returned: then the connection is of no use any more.
 *
 * A tag that stays open while ACK_WINDOW others behind it are delivered (its
 * handler is slow) makes all be acknowledged one by one, until it is, too.
 */
#ifndef WORKER_SOURCE_AMQP_ACK_WINDOW_H
#define WORKER_SOURCE_AMQP_ACK_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACK_WINDOW 16384 /* a power of two */

struct ack_window {
    uint64_t next;   /* behind the last that was delivered */
    uint64_t open;   /* delivered, and not acknowledged */
    uint64_t low;    /* all before it are acknowledged, but for `behind` */
    uint64_t behind; /* so many */
    uint64_t done[ACK_WINDOW / 64]; /* bits: acknowledged, from `low` on */
};

/* 0, or the error of the connection. `all`: and all before it. */
typedef int ack_send(void *arg, uint64_t tag, bool all);

/* A new channel. */
void ack_window_begin(struct ack_window *w);
void ack_window_delivered(struct ack_window *w, uint64_t tag);
/* `n` tags, sorted, each of them once: they are acknowledged. */
int ack_window_send(struct ack_window *w, const uint64_t *tags, size_t n,
                    ack_send *tell, void *arg);

#endif
