/* spin.h - whether an empty queue is tried again at once
 *
 * WHAT   Going to sleep and being woken costs both sides some microseconds. So
 *        an empty queue is tried again for SPIN_NS, while that pays: after
 *        SPIN_VAIN times in vain, only one empty queue in SPIN_SKIP is. A
 *        sender that runs beside us costs no thread switch for each message
 *        then; for one that waits for our processor it would be in vain.
 * WHO    The thread that receives, each with a struct of its own; all 0 at
 *        first.
 * OWNS   Nothing. The caller says what time it is.
 * FAILS  Never.
 */
#ifndef WORKER_GATE_SPIN_H
#define WORKER_GATE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/clock.h"

#define SPIN_NS   (10 * NS_PER_US)
#define SPIN_VAIN 4
#define SPIN_SKIP 64

struct spin {
    unsigned tries;    /* of an empty queue since the last message */
    unsigned left;     /* how often it may be in vain still */
    unsigned skipped;  /* empty queues, since none is left */
    uint64_t since_ns; /* the first of the tries */
};

/* The queue is empty: false, it is not worth a try now. */
bool spin_begin(struct spin *s);
/* It is: the next try. False: the time is over, and it was in vain. */
bool spin_on(struct spin *s, uint64_t now_ns);

/* Between two tries: well under a microsecond, and no system call. */
void spin_pause(void);

/* A new batch. */
static inline void spin_reset(struct spin *s)
{
    s->tries = 0;
}
/* There is a message, which may have been waited for. */
static inline void spin_hit(struct spin *s)
{
    if (s->tries == 0)
        return;
    s->left = SPIN_VAIN;
    s->tries = 0;
}

#endif
