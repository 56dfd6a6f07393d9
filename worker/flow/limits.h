/* limits.h - when no more messages are taken: at the end of a run, at a rate,
 * when too many wait
 *
 * WHAT   --run-for, --exit-when-idle, --max-deliveries: runs that end by
 *        themselves, for cron and timers (BOUNDED RUNS in docs/mqworker.8).
 *        --rate: a delivery or a retry costs a token. Without one the gate is
 *        held (HOLD_RATE) until there is one again, or half of the burst, so
 *        that a quick worker is not stopped and started for each message.
 *        --max-waiting: at that many messages in the store nothing more is
 *        taken from the queue (HOLD_WAITING); what is due, and what waits in
 *        slots, goes on. Messages in hand at that moment are stored all the
 *        same, so the rows can be more by as many as there are slots. It is
 *        logged again only after a sixteenth was free.
 * WHO    run_limits_init, run_limits_start: the engine. rate_set: one thread at
 *        a time. All others: any thread.
 * OWNS   Three timers. Costs nothing where no limit was asked for.
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
    _Atomic uint64_t idle_since; /* a  monotonic; grows: last run_limits_busy */
    unsigned unread;   /* of idle: looks in a row at a store that failed */
    struct chore idle; /* ends the run if there is nothing left to do */
    struct timer end_timer;
};

void run_limits_init(struct flow *f);
/* Return true if one more message may be taken. It counts as a delivery until
 * run_limits_untake. */
bool run_limits_take(struct flow *f);
/* Give back what run_limits_take counted: there was no message, or it was not
 * delivered. */
void run_limits_untake(struct flow *f);
/* Note that the run is not idle: a message came, or a delivery has ended, in a
 * work item that still counts. A try that found none, or failed, is no work. */
void run_limits_busy(struct flow *f);
/* End the run, if it is over, after a work item has left. */
void run_limits_left(struct flow *f);

/* ---- --rate ---- */

/* c = constant after init   a = atomic */
struct rate {
    struct gate *gate;   /* c */
    _Atomic uint64_t is; /* a  rate_text.h; RATE_OFF */
    /* a  when the bucket is full again, monotonic; past: it is. So a token
     * moves it by an interval, and nothing runs while it fills. */
    _Atomic uint64_t full_ns;
    atomic_bool logged; /* a  the hold was logged, and it was not full since */
    struct timer timer; /* ends a hold */
};

/* Change the rate. Tokens spent before count, up to an empty bucket. */
void rate_set(struct rate *r, uint64_t rate);
/* Take a token. Returns false if there is none: the gate is held until there
 * is. */
bool rate_take(struct rate *r);
/* Give a token back, as there was no delivery. */
void rate_untake(struct rate *r);

/* ---- --max-waiting ---- */

/* Hold the gate or lift its hold, after the number that waits has changed.
 * Before the run nothing is held: the start puts into the store what it
 * finds. */
void backlog_look(struct flow *f);
/* Return true if `more` messages reach the bound. */
bool backlog_fills(const struct flow *f, size_t more);

#endif
