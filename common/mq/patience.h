/* patience.h - no program waits for ever without a word
 *
 * WHAT   After a second of waiting it is time to say what is waited for, and
 *        how to end that: once in a run, on a terminal and in a log alike, as
 *        a script of cron that hangs has nobody who looks.
 * WHO    One thread.
 * OWNS   Nothing; embedded in the caller. All zero is a good start.
 * FAILS  Never.
 */
#ifndef COMMON_MQ_PATIENCE_H
#define COMMON_MQ_PATIENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/mq/queue.h"

struct patience {
    uint64_t end_ns; /* monotonic; 0: nothing is waited for */
    bool said;
};

/* From here on something is waited for. */
void patience_start(struct patience *p);
/* Whether a second is over, and it was not said before; true once. */
bool patience_over(struct patience *p);

/* What waits for room, and says so. */
struct patient_send {
    struct patience *patience;
    struct queue *queue;
    const void *data;
    size_t size;
    uint32_t priority;
    uint64_t deadline_ns; /* monotonic; UINT64_MAX: for ever */
    /* Each time that a second is over; `first`: for the first time. */
    void (*say)(bool first, void *arg);
    void *arg;
};
/* As queue_send_wait. */
int patience_send(const struct patient_send *send);

#endif
