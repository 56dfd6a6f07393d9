/* steered.h - what became of a message that was to run now, or to be cancelled
 *
 * WHAT   The results of an order, and their names on the control socket.
 * WHO    Any thread.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_MESSAGE_STEERED_H
#define COMMON_MESSAGE_STEERED_H

enum steered {
    STEERED,           /* the order is carried out, and that is durable */
    STEERED_BEFORE,    /* nothing to do. run-now: the message is due, or waits
                          for the head of its group; cancel: it is cancelled */
    STEERED_GONE,      /* the message does not wait here */
    STEERED_IN_FLIGHT, /* a slot has the message, or is about to */
    STEERED_RESULTS,
};

const char *steered_text(enum steered result); /* "in flight" */
/* STEERED_RESULTS if the text, or NULL, names no result. */
enum steered steered_parse(const char *text);

#endif
