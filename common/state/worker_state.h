/* worker_state.h - the states that the tools can show for a worker
 *
 * WHAT   One table with the sentence and the severity of each state, used by
 *        status, top, doctor and the web page.
 * WHO    Any thread. Pure functions.
 * OWNS   Nothing.
 * FAILS  Never.
 */
#ifndef COMMON_STATE_WORKER_STATE_H
#define COMMON_STATE_WORKER_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum worker_state {
    WORKER_STATE_UNSEEN,
    WORKER_STATE_NOT_RUNNING,
    WORKER_STATE_KILLED,
    WORKER_STATE_STARTING,
    WORKER_STATE_STOPPING,
    WORKER_STATE_STOPPED, /* by SIGSTOP or ^Z; the process still exists */
    WORKER_STATE_STORE_GONE,
    WORKER_STATE_CUSTODY_GONE,
    WORKER_STATE_READ_ONLY,
    WORKER_STATE_DAMAGED,
    WORKER_STATE_PAUSED,
    WORKER_STATE_STORE_HELD,
    WORKER_STATE_QUEUE_HELD,
    WORKER_STATE_BOUND_HELD,
    WORKER_STATE_RATE_HELD,
    WORKER_STATE_FULL,
    WORKER_STATE_BREAKER_OPEN,
    WORKER_STATE_BREAKER_PROBING,
    WORKER_STATE_RUNNING,
    WORKER_STATES,
};

/* Severity of a state. */
enum worker_severity {
    WORKER_FINE, /* the worker takes messages */
    WORKER_IDLE, /* the worker takes no messages; no action is needed */
    WORKER_WARN, /* action is needed sooner or later */
    WORKER_BAD,  /* action is needed soon */
};

/* "running", "store.db is gone", ... */
const char *worker_state_text(enum worker_state state);
/* Return the state with that sentence; WORKER_STATES if there is none. */
enum worker_state worker_state_parse(const char *text);
/* Return the severity of a state. `waits`: messages are waiting, so a worker
 * should be running. */
enum worker_severity worker_state_severity(enum worker_state state, bool waits);
/* "fine", "idle", "warn" or "bad". */
const char *worker_severity_text(enum worker_severity severity);
/* Return the state for bits of COUNTERS_HOLDS (counters.h): the most important
 * bit's state, or WORKER_STATE_RUNNING without any. */
enum worker_state worker_state_of_holds(uint64_t holds);

#endif
