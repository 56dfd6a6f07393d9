/* breaker.h - when to stop taking messages, because handlers cannot start or
 * all fail
 *
 * WHAT   The breaker opens when the handler cannot be started, or after N
 *        failures in a row. After a pause it lets one probe through at a time;
 *        a successful probe closes it. The pause doubles, up to 16 times the
 *        first, while probes fail. docs/design/machines.md draws the states.
 * WHO    Any thread.
 * OWNS   Nothing; the caller runs the pause (a timer).
 * FAILS  Never.
 */
#ifndef WORKER_RULES_BREAKER_H
#define WORKER_RULES_BREAKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_PROBING };

extern const char *const breaker_state_texts[]; /* by enum breaker_state */

enum breaker_event {
    BREAKER_GOOD,        /* a delivery ended: done, dead or discarded */
    BREAKER_BAD,         /* a delivery failed */
    BREAKER_NOT_STARTED, /* the handler could not be started */
    BREAKER_PAUSE_OVER,
};

/* m = under mtx   c = constant   a = atomic, for readers without the lock */
struct breaker {
    pthread_mutex_t mtx;
    uint64_t pause_ns; /* m  the first pause */
    /* a  failures in a row that open it; 0: off; written under mtx */
    _Atomic uint64_t limit;
    uint64_t row;       /* m  failures in a row so far */
    unsigned doublings; /* m  of the pause, 0 to 4 */
    bool for_failures;  /* m  opened by failures, not by a failed start */
    _Atomic int state;  /* a  enum breaker_state, written under mtx */
    char reason[160];   /* m  of the last opening */
};

void breaker_init(struct breaker *b, uint64_t failures, uint64_t pause_ns);
static inline void breaker_fini(struct breaker *b)
{
    pthread_mutex_destroy(&b->mtx);
}
/* Change the settings; an open breaker stays open until its pause ends. */
void breaker_tune(struct breaker *b, uint64_t failures, uint64_t pause_ns);
enum breaker_state breaker_state(const struct breaker *b);

/* Orders to the caller after an event. */
struct breaker_step {
    bool opened; /* run a pause of pause_ns, then BREAKER_PAUSE_OVER */
    bool closed; /* take messages again */
    bool first;  /* opened from closed: worth a line in the log */
    uint64_t pause_ns;
};
/* Report an event. If it opens the breaker, `reason` is kept unless NULL. */
struct breaker_step breaker_tell(struct breaker *b, enum breaker_event event,
                                 const char *reason);
void breaker_reason(struct breaker *b, char *buf, size_t room);

#endif
