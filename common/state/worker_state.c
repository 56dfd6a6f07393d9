/* worker_state.c - see worker_state.h */
#include "common/state/worker_state.h"

#include <string.h>

#include "common/state/counters.h"

static const struct {
    const char *text;
    enum worker_severity severity;
} states[WORKER_STATES] = {
    [WORKER_STATE_UNSEEN] = {"not seen from here", WORKER_IDLE},
    [WORKER_STATE_NOT_RUNNING] = {"not running", WORKER_IDLE},
    [WORKER_STATE_KILLED] = {"killed", WORKER_BAD},
    [WORKER_STATE_STARTING] = {"starting", WORKER_IDLE},
    [WORKER_STATE_STOPPING] = {"stopping", WORKER_IDLE},
    [WORKER_STATE_STOPPED] = {"stopped by a signal", WORKER_BAD},
    [WORKER_STATE_STORE_GONE] = {"store.db is gone", WORKER_BAD},
    [WORKER_STATE_CUSTODY_GONE] = {"custody is gone", WORKER_BAD},
    [WORKER_STATE_READ_ONLY] = {"its disk is read-only", WORKER_BAD},
    [WORKER_STATE_DAMAGED] = {"store is damaged", WORKER_BAD},
    [WORKER_STATE_PAUSED] = {"paused", WORKER_WARN},
    [WORKER_STATE_STORE_HELD] = {"store cannot be written", WORKER_BAD},
    [WORKER_STATE_QUEUE_HELD] = {"trouble with the queue", WORKER_BAD},
    [WORKER_STATE_BOUND_HELD] = {"bound of deliveries reached", WORKER_IDLE},
    [WORKER_STATE_RATE_HELD] = {"at its --rate", WORKER_IDLE},
    [WORKER_STATE_FULL] = {"full: as many messages wait as --max-waiting "
                           "allows",
                           WORKER_WARN},
    [WORKER_STATE_BREAKER_OPEN] = {"breaker open", WORKER_BAD},
    [WORKER_STATE_BREAKER_PROBING] = {"breaker probing", WORKER_WARN},
    [WORKER_STATE_RUNNING] = {"running", WORKER_FINE},
};

const char *worker_state_text(enum worker_state state)
{
    return states[state].text;
}

enum worker_state worker_state_parse(const char *text)
{
    enum worker_state i = 0;

    while (i < WORKER_STATES && strcmp(states[i].text, text) != 0)
        i++;
    return i;
}

enum worker_severity worker_state_severity(enum worker_state state, bool waits)
{
    return state == WORKER_STATE_NOT_RUNNING && waits ? WORKER_BAD
                                                      : states[state].severity;
}

const char *worker_severity_text(enum worker_severity severity)
{
    static const char *const texts[] = {[WORKER_FINE] = "fine",
                                        [WORKER_IDLE] = "idle",
                                        [WORKER_WARN] = "warn",
                                        [WORKER_BAD] = "bad"};

    return texts[severity];
}

enum worker_state worker_state_of_holds(uint64_t holds)
{
    return holds & COUNTERS_STOPPING       ? WORKER_STATE_STOPPING
           : holds & COUNTERS_STORE_GONE   ? WORKER_STATE_STORE_GONE
           : holds & COUNTERS_CUSTODY_GONE ? WORKER_STATE_CUSTODY_GONE
           : holds & COUNTERS_READ_ONLY    ? WORKER_STATE_READ_ONLY
           : holds & COUNTERS_DAMAGED      ? WORKER_STATE_DAMAGED
           : holds & COUNTERS_PAUSED       ? WORKER_STATE_PAUSED
           : holds & COUNTERS_STORE_HELD   ? WORKER_STATE_STORE_HELD
           : holds & COUNTERS_QUEUE_HELD   ? WORKER_STATE_QUEUE_HELD
           : holds & COUNTERS_BOUND_HELD   ? WORKER_STATE_BOUND_HELD
           : holds & COUNTERS_RATE_HELD    ? WORKER_STATE_RATE_HELD
           : holds & COUNTERS_WAITING_HELD ? WORKER_STATE_FULL
                                           : WORKER_STATE_RUNNING;
}
