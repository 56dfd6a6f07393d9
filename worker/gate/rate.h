/* rate.h - at most so many deliveries in so long: a token bucket
 *
 * WHAT   A delivery costs a token. With none left the gate is held
 *        (HOLD_RATE), until a timer says that there are some again: one, or
 *        half of the burst, so that a quick worker is not stopped and started
 *        for each message. Retries cost a token, too.
 * WHO    init, set: one thread at a time. The others: any thread.
 * OWNS   Its timer. Costs nothing where no rate was asked for: take is not
 *        called while ATTEND_RATE is clear.
 * FAILS  Never.
 */
#ifndef WORKER_GATE_RATE_H
#define WORKER_GATE_RATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/loop/timers.h"

struct gate;

/* c = constant after init   a = atomic */
struct rate {
    struct gate *gate;   /* c */
    _Atomic uint64_t is; /* a  rate_text.h; RATE_OFF */
    /* a  monotonic: when the bucket is full again; past: it is. So a token
     * moves it by an interval, and nothing runs while it fills. */
    _Atomic uint64_t full_ns;
    atomic_bool told;   /* a  the hold was logged, and it was not full since */
    struct timer timer; /* there are tokens again */
};

/* `gate` is open, its timers may be set later. */
void rate_init(struct rate *r, struct gate *gate, uint64_t rate);
/* From here on; tokens spent before count, up to an empty bucket. */
void rate_set(struct rate *r, uint64_t rate);
/* A token; false: there is none, and the gate is held until there is. */
bool rate_take(struct rate *r);
/* It was no delivery. */
void rate_untake(struct rate *r);

#endif
