/* wheel.h - hierarchical timer wheel over all 64 bits of a nanosecond clock
 *
 * WHAT   Keeps timers by absolute deadline; fires them in strict (deadline,
 *        start order) order, never early. A pure data structure: the caller
 *        passes the time.
 * WHO    One thread at a time; worker/loop/timers.c puts a lock around it.
 * OWNS   Only itself. The caller embeds timers in its own structs, where they
 *        must stay while they are pending.
 * FAILS  Starting a timer cannot fail.
 */
#ifndef COMMON_WHEEL_WHEEL_H
#define COMMON_WHEEL_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wheel; /* opaque; body in wheel.c */

/* Half a cache line. If many timers are pending, a start or cancel takes as
 * long as fetching the timer and its two neighbours from memory. So a timer has
 * only the fields that each start and cancel needs. */
struct wheel_timer {
    struct wheel_timer *next, *prev; /* NULL: not pending */
    uint64_t when_ns;
    uint16_t place; /* bank * 2048 + level * 256 + slot, see wheel.c */
};

/* Make an empty wheel at `now_ns`. Returns 0 or -ENOMEM. */
int wheel_open(struct wheel **out, uint64_t now_ns);
/* Free the wheel; none of its timers is pending any more. NULL-safe; sets
 * NULL. */
void wheel_close(struct wheel **wheel);

/* Prepare a timer; once, before the first start. */
void wheel_timer_init(struct wheel_timer *timer);
bool wheel_pending(const struct wheel_timer *timer);

/* Start a timer that fires at `when_ns`. A pending timer is moved. */
void wheel_start(struct wheel *w, struct wheel_timer *t, uint64_t when_ns);
/* Cancel a timer. Returns true exactly if it was pending: its callback will not
 * run. */
bool wheel_cancel(struct wheel *w, struct wheel_timer *t);

/* Find the earliest deadline, which may be in the past; returns false if
 * nothing is pending. Costs a few ctz; after a cancel of the earliest timer
 * also a search of its slot, if the slot's timers were not started in order of
 * deadline. */
bool wheel_next(struct wheel *w, uint64_t *when_ns);

/* Let time reach `now_ns`, and take off and return the next due timer, which is
 * then no longer pending; NULL if there is none. A time earlier than before
 * does nothing. At most `budget` timers are taken or moved; 0: no limit. *more
 * is set if another call is needed, because more is due or the budget ended.
 * Calls with the same `now_ns` up to the NULL are one round: a timer started
 * during a round with a deadline in the past waits for the next round. */
struct wheel_timer *wheel_pop(struct wheel *w, uint64_t now_ns, size_t budget,
                              bool *more);

#endif
