/* steer_tell.h - what became of messages that were to be steered
 *
 * WHAT   The numbers, and of those that were left alone why, and what to do.
 * WHO    One thread.
 * OWNS   Nothing.
 * FAILS  Never; the reason is out on stderr.
 */
#ifndef SCRIPTS_MQCTL_STEER_STEER_TELL_H
#define SCRIPTS_MQCTL_STEER_STEER_TELL_H

#include "scripts/mqctl/look/messages.h"

struct steered_sums {
    uint64_t chosen, result[WAITING_IN_FLIGHT + 1];
    uint64_t spooled; /* left alone: nobody knows whether they have run */
    uint64_t runs;    /* of those in flight: a handler has them, or had */
    uint64_t letters; /* of the others: letters that were sent again */
    /* To run now: those for which there was nothing to do, by their state. */
    uint64_t waits[WAITING_STATES];
    uint64_t unended;   /* --running: messages that have not ended */
    uint64_t told_gone; /* gone messages already reported by name */
    bool
        blind; /* nobody knows which of them a handler of a killed worker has */
};

void steered_tell(const struct steered_sums *n, const struct messages *m,
                  const struct options *o);

#endif
