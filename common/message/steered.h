/* steered.h - result of an order to run a waiting message now, or to cancel it
 *
 * WHAT   The results, and their names on the control socket.
 * WHO    Any thread: the source and the store give a result, the worker's
 *        control socket prints its name, and mqctl reads the name.
 */
#ifndef COMMON_MESSAGE_STEERED_H
#define COMMON_MESSAGE_STEERED_H

enum steered {
    STEERED,           /* carried out, durably */
    STEERED_BEFORE,    /* nothing to do. run-now: the message is due, or waits
                          for the head of its group; cancel: it is cancelled */
    STEERED_GONE,      /* the message is not waiting here */
    STEERED_IN_FLIGHT, /* a slot has the message, or is about to */
    STEERED_RESULTS,
};

static const char *const steered_texts[STEERED_RESULTS] = {
    [STEERED] = "done",
    [STEERED_BEFORE] = "already",
    [STEERED_GONE] = "gone",
    [STEERED_IN_FLIGHT] = "in flight",
};

#endif
