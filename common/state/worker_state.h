/* worker_state.h - the states that a worker can be seen in
 *
 * WHAT   One table: for each state its sentence, and how badly it needs a
 *        person. Status, top, doctor and the page all read it here.
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
    WORKER_STATE_STOPPED, /* by SIGSTOP or ^Z; it is still running */
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

/* How badly a state needs a person. */
enum worker_severity {
    WORKER_FINE, /* it takes messages */
    WORKER_IDLE, /* it takes none, and nobody has to act */
    WORKER_WARN, /* somebody has to act now or later */
    WORKER_BAD,  /* somebody has to act soon */
};

/* "running", "store.db is gone", ... */
const char *worker_state_text(enum worker_state state);
/* Return the state of that sentence; WORKER_STATES: there is none. */
enum worker_state worker_state_parse(const char *text);
/* `waits`: messages wait, so that a worker that is not running is missed. */
enum worker_severity worker_state_severity(enum worker_state state, bool waits);
/* "fine", "idle", "warn" or "bad". */
const char *worker_severity_text(enum worker_severity severity);
/* Return what bits of COUNTERS_HOLDS (counters.h) say: the most important of
 * them, WORKER_STATE_RUNNING without any. */
enum worker_state worker_state_of_holds(uint64_t holds);

#endif
