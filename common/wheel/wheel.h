/* wheel.h - hierarchical timer wheel over all 64 bits of a nanosecond clock
 *
 * WHAT   Keeps timers by absolute deadline; fires them in strict (deadline,
 *        start order) order, never early. A pure data structure: the caller
 *        passes the time.
 * WHO    One thread at a time; worker/timers puts a lock around it.
 * OWNS   Only itself. Timers are the caller's, embedded in its own structs, and
 *        must stay where they are while pending.
 * FAILS  Starting a timer cannot fail.
 *
 * The worker starts, cancels and pops timers. Periods, batches, moving,
 * stopping, refusing and wheel_advance are here because a timer wheel is
 * expected to have them; tests compare them with a model, and no more are added
 * until a program needs them.
 */
#ifndef COMMON_WHEEL_WHEEL_H
#define COMMON_WHEEL_WHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wheel; /* opaque; body in wheel.c */
struct wheel_timer;

/* Called by wheel_advance for a timer that fired; the timer is no longer
 * pending (a periodic one is: it was placed again before the call). `missed`:
 * whole periods that were skipped. It may start, move and cancel any timer of
 * the wheel, itself too; a deadline in the past is fired by the next
 * advance. */
typedef void wheel_fire(struct wheel_timer *timer, uint64_t missed);

/* Half a cache line. With many timers pending, the time that one takes is that
 * of fetching it and its two neighbours from memory. So it has what each start
 * and each cancel needs, and nothing else. */
struct wheel_timer {
    struct wheel_timer *next, *prev; /* NULL: not pending */
    uint64_t when_ns;
    uint16_t place; /* bank * 2048 + level * 256 + slot, see wheel_bank.h */
    bool periodic;  /* it is that of a struct wheel_periodic */
};

struct wheel_periodic {
    struct wheel_timer timer;
    uint64_t period_ns;
};

/* `fire` is for all timers of the wheel; NULL if they are popped only.
 * -ENOMEM. */
int wheel_open(struct wheel **out, uint64_t now_ns, wheel_fire *fire);
/* Forgets its timers: none is pending after it. NULL-safe; sets NULL. */
void wheel_close(struct wheel **wheel);

/* Prepare a timer; once, before the first start. */
void wheel_timer_init(struct wheel_timer *timer);
bool wheel_pending(const struct wheel_timer *timer);

/* Fire at `when_ns`. A pending timer is moved. False only if the wheel was
 * closed for new timers (wheel_refuse); nothing is changed then. */
bool wheel_start(struct wheel *w, struct wheel_timer *t, uint64_t when_ns);
/* First at `when_ns`, then each `period_ns` (> 0) after the last deadline:
 * next = deadline + k * period, the smallest k that lies ahead of now. It ends
 * by wheel_cancel, or when its next deadline would not fit 64 bits. */
bool wheel_start_periodic(struct wheel *w, struct wheel_periodic *p,
                          uint64_t when_ns, uint64_t period_ns);
/* True exactly if the timer was pending: its callback will not run. */
bool wheel_cancel(struct wheel *w, struct wheel_timer *t);
/* Shift a pending timer's deadline by `offset_ns` (saturating). False if it was
 * not pending. */
bool wheel_move(struct wheel *w, struct wheel_timer *t, int64_t offset_ns);

void wheel_start_batch(struct wheel *w, struct wheel_timer *const *timers,
                       const uint64_t *when_ns, size_t n);
/* How many were pending. */
size_t wheel_cancel_batch(struct wheel *w, struct wheel_timer *const *timers,
                          size_t n);

/* Exact time of the next expiry in *when_ns; false if nothing is pending or the
 * wheel is stopped. A due timer gives its deadline, which may lie in the past.
 * A few ctz; after a cancel of just the earliest timer, also one walk over the
 * timers of its slot, if those were not started in order of deadline. */
bool wheel_next(struct wheel *w, uint64_t *when_ns);

/* Let time reach `now_ns` (an earlier time than before does nothing) and fire
 * what is due. At most `budget` timers are fired or moved; 0 = no bound.
 * True if the budget ended it before all that is due was done: call again.
 * Timers that callbacks started with a deadline in the past do not count:
 * wheel_next has those. */
bool wheel_advance(struct wheel *w, uint64_t now_ns, size_t budget);
/* As above, but instead of running the callback the next due timer is taken off
 * and returned, NULL if there is none: for callers that fire outside a lock.
 * *missed as for wheel_fire. *more as wheel_advance returns. Calls with one and
 * the same `now_ns` up to the NULL are one advance: one started in between with
 * a deadline in the past waits for the next. */
struct wheel_timer *wheel_pop(struct wheel *w, uint64_t now_ns, size_t budget,
                              uint64_t *missed, bool *more);

/* A stopped wheel keeps its timers and fires nothing; resuming fires what has
 * become due meanwhile with the next advance. */
void wheel_stop(struct wheel *w);
void wheel_resume(struct wheel *w);
bool wheel_stopped(const struct wheel *w);
/* No new timers from here on; those that are pending go on, periodic too. */
void wheel_refuse(struct wheel *w);
/* Forget all timers; the time goes to `now_ns`, which may be earlier. */
void wheel_reset(struct wheel *w, uint64_t now_ns);

uint64_t wheel_now(const struct wheel *w); /* the time reached so far */
size_t wheel_count(const struct wheel *w); /* pending timers */

/* Pending timers in no particular order; stop early when `visit` is false.
 * `visit` must not change the wheel. */
void wheel_each(const struct wheel *w,
                bool (*visit)(const struct wheel_timer *t, void *arg),
                void *arg);

/* Every invariant, for tests; NULL or what is wrong. */
const char *wheel_check(const struct wheel *w);

#endif
