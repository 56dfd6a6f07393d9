/* breaker.c - when to stop taking messages (see breaker.h) */
#include "worker/rules/breaker.h"

#include <bsd/string.h>

#define DOUBLINGS_MAX 4 /* 16 times */

const char *const breaker_state_texts[] = {[BREAKER_CLOSED] = "closed",
                                           [BREAKER_OPEN] = "open",
                                           [BREAKER_PROBING] = "probing"};

void breaker_init(struct breaker *b, uint64_t failures, uint64_t pause_ns)
{
    *b = (struct breaker){.limit = failures, .pause_ns = pause_ns};
    pthread_mutex_init(&b->mtx, NULL);
}

void breaker_tune(struct breaker *b, uint64_t failures, uint64_t pause_ns)
{
    pthread_mutex_lock(&b->mtx);
    b->limit = failures;
    b->pause_ns = pause_ns;
    pthread_mutex_unlock(&b->mtx);
}

enum breaker_state breaker_state(const struct breaker *b)
{
    return (enum breaker_state)b->state;
}

/* Take no messages for a pause. */
static void open_locked(struct breaker *b, struct breaker_step *step)
{
    step->opened = true;
    step->first = b->state == BREAKER_CLOSED;
    if (b->state == BREAKER_PROBING && b->doublings < DOUBLINGS_MAX)
        b->doublings++;
    step->pause_ns = b->pause_ns << b->doublings;
    if (step->pause_ns >> b->doublings != b->pause_ns) /* bits were lost */
        step->pause_ns = UINT64_MAX / 2;
    b->state = BREAKER_OPEN;
}

struct breaker_step breaker_tell(struct breaker *b, enum breaker_event event,
                                 const char *reason)
{
    struct breaker_step step = {0};

    /* The common case costs no lock. */
    if (event == BREAKER_GOOD && b->state == BREAKER_CLOSED && b->limit == 0)
        return step;
    pthread_mutex_lock(&b->mtx);
    if (b->state == BREAKER_OPEN) {
        /* The end of a delivery that was running when the breaker opened
         * changes nothing. */
        if (event == BREAKER_PAUSE_OVER)
            b->state = BREAKER_PROBING;
    } else if (event == BREAKER_NOT_STARTED) {
        b->for_failures = false;
        open_locked(b, &step);
    } else if (b->state == BREAKER_PROBING) {
        /* A failed probe still shows that the handler can be started. So it
         * closes a breaker that a failed start had opened, and reopens a
         * breaker that failures had opened. */
        if (event == BREAKER_BAD && b->for_failures) {
            open_locked(b, &step);
        } else if (event == BREAKER_BAD || event == BREAKER_GOOD) {
            b->state = BREAKER_CLOSED;
            b->row = 0;
            b->doublings = 0;
            step.closed = true;
        }
    } else if (event == BREAKER_GOOD) {
        b->row = 0;
    } else if (event == BREAKER_BAD && b->limit > 0 && ++b->row >= b->limit) {
        b->for_failures = true;
        open_locked(b, &step);
    }
    if (step.opened && reason)
        strlcpy(b->reason, reason, sizeof b->reason);
    pthread_mutex_unlock(&b->mtx);
    return step;
}

void breaker_reason(struct breaker *b, char *buf, size_t room)
{
    pthread_mutex_lock(&b->mtx);
    strlcpy(buf, b->reason, room);
    pthread_mutex_unlock(&b->mtx);
}
