/* breaker.c - when to stop taking messages (see breaker.h) */
#include "worker/rules/breaker.h"

#include <bsd/string.h>

#define DOUBLINGS_MAX 4 /* 16 times */

const char *breaker_state_text(enum breaker_state state)
{
    static const char *const texts[] = {[BREAKER_CLOSED] = "closed",
                                        [BREAKER_OPEN] = "open",
                                        [BREAKER_PROBING] = "probing"};

    return texts[state];
}

void breaker_init(struct breaker *b, uint64_t failures, uint64_t pause_ns)
{
    *b = (struct breaker){.limit = failures, .pause_ns = pause_ns};
    pthread_mutex_init(&b->mtx, NULL);
}

void breaker_fini(struct breaker *b)
{
    pthread_mutex_destroy(&b->mtx);
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
    if (step->pause_ns >> b->doublings != b->pause_ns)
        step->pause_ns = UINT64_MAX / 2;
    b->state = BREAKER_OPEN;
}

/* The actions of the table. */
static void clear_row(struct breaker *b, struct breaker_step *step)
{
    (void)step;
    b->row = 0;
}

static void count_bad(struct breaker *b, struct breaker_step *step)
{
    if (b->limit == 0 || ++b->row < b->limit)
        return;
    b->for_failures = true;
    open_locked(b, step);
}

static void open_not_started(struct breaker *b, struct breaker_step *step)
{
    b->for_failures = false;
    open_locked(b, step);
}

static void start_probing(struct breaker *b, struct breaker_step *step)
{
    (void)step;
    b->state = BREAKER_PROBING;
}

static void close_it(struct breaker *b, struct breaker_step *step)
{
    b->state = BREAKER_CLOSED;
    b->row = 0;
    b->doublings = 0;
    step->closed = true;
}

/* The probe ran and failed. So the handler can be started: a breaker that was
 * opened by a failed start closes, one that failures opened does not. */
static void probe_bad(struct breaker *b, struct breaker_step *step)
{
    if (b->for_failures)
        open_locked(b, step);
    else
        close_it(b, step);
}

/* NULL: nothing. Deliveries that were running when the breaker opened end while
 * it is open. */
static void (*const table[][BREAKER_EVENTS])(struct breaker *,
                                             struct breaker_step *) = {
    [BREAKER_CLOSED] = {[BREAKER_GOOD] = clear_row,
                        [BREAKER_BAD] = count_bad,
                        [BREAKER_NOT_STARTED] = open_not_started},
    [BREAKER_OPEN] = {[BREAKER_PAUSE_OVER] = start_probing},
    [BREAKER_PROBING] = {[BREAKER_GOOD] = close_it,
                         [BREAKER_BAD] = probe_bad,
                         [BREAKER_NOT_STARTED] = open_not_started},
};

struct breaker_step breaker_tell(struct breaker *b, enum breaker_event event,
                                 const char *reason)
{
    struct breaker_step step = {0};

    /* The common case costs no lock. */
    if (event == BREAKER_GOOD && b->state == BREAKER_CLOSED && b->limit == 0)
        return step;
    pthread_mutex_lock(&b->mtx);
    if (table[b->state][event])
        table[b->state][event](b, &step);
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
