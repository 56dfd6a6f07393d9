/* limits.h - when no more messages are taken: at the end of a run, at a rate,
 * when too many wait
 *
 * WHAT   --run-for, --exit-when-idle, --max-deliveries: runs that end by
 *        themselves, for cron and timers (BOUNDED RUNS in docs/mqworker.8).
 *        --rate: a delivery or a retry costs a token. If there is none, the
 *        gate is held (HOLD_RATE) until half of the burst is there, so that a
 *        quick worker is not stopped and started for each message.
 *        --max-waiting: while the store has that many messages, none is taken
 *        from the queue (HOLD_WAITING); due messages and messages in slots
 *        still run. Messages in slots are stored if they fail, so the store may
 *        exceed the limit by the number of slots. Reaching the limit is logged
 *        again only after a sixteenth of it was free.
 * WHO    run_limits_init: flow_init. rate_set: one thread at a time. All
 *        others: any thread.
 * OWNS   Three timers. A limit that is not set costs nothing.
 * FAILS  Never.
 */
#ifndef WORKER_FLOW_LIMITS_H
#define WORKER_FLOW_LIMITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/loop/chore.h"
#include "worker/loop/timers.h"

struct flow;

/* c = constant after start   a = atomic */
struct run_limits {
    uint64_t started_ns;         /* c  monotonic */
    uint64_t end_ns;             /* c  UINT64_MAX: no end */
    uint64_t max_deliveries;     /* c  UINT64_MAX: no bound */
    bool idle_ends;              /* c */
    uint64_t idle_ns;            /* c */
    _Atomic uint64_t tickets;    /* a  deliveries made or about to be made */
    _Atomic uint64_t idle_since; /* a  last run_limits_busy, monotonic */
    unsigned unread;   /* failed reads of the store in a row, by `idle` */
    struct chore idle; /* ends the run if there is nothing left to do */
    struct timer end_timer;
};

void run_limits_init(struct flow *f);
/* Return true if one more message may be taken. It counts as a delivery until
 * run_limits_untake. */
bool run_limits_take(struct flow *f);
/* Give back what run_limits_take counted: no message was delivered. */
void run_limits_untake(struct flow *f);
/* Note that the run is not idle, because a message came or a delivery ended.
 * Called while the work item is still counted as running. */
void run_limits_busy(struct flow *f);
/* Check whether the run is over, after a work item has left, and when the
 * worker begins to take messages. */
void run_limits_left(struct flow *f);

/* ---- --rate ---- */

/* c = constant after init   a = atomic */
struct rate {
    struct gate *gate;   /* c */
    _Atomic uint64_t is; /* a  as in rate_text.h, or RATE_OFF */
    /* a  time when the bucket is full again, monotonic; in the past if it is
     * full. A token adds an interval, so no timer has to fill the bucket. */
    _Atomic uint64_t full_ns;
    atomic_bool logged; /* a  the hold was logged after the last full bucket */
    struct timer timer; /* ends a hold */
};

/* Change the rate. Spent tokens stay spent, but at most a whole bucket. */
void rate_set(struct rate *r, uint64_t rate);
/* Take a token; if there is none, hold the gate for a while, return false. */
bool rate_take(struct rate *r);
/* Give a token back, because there was no delivery. */
void rate_untake(struct rate *r);

/* ---- --max-waiting ---- */

/* Hold the gate, or lift the hold, after the number of waiting messages has
 * changed. Does nothing during recovery, which also stores messages. */
void backlog_look(struct flow *f);
/* Return true if `more` messages in the store would reach the limit. */
bool backlog_fills(const struct flow *f, size_t more);

#endif
