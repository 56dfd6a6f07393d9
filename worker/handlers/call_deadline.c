/* call_deadline.c - one call of a C function (see call_deadline.h)
 *
 * Two threads meet at the deadline: the item's, which sets it and takes it
 * back, and the peeker's, which marks it as passed. The first of them
 * decides, by one atomic operation, so a call is late exactly if `late` was
 * called for it.
 *
 * Whether the timer must be started is asked without a lock. The item stores
 * the deadline, then reads `pending`; the callback clears `pending`, then reads
 * the deadline. All four are sequentially consistent, so at least one of the
 * two sees what the other wrote, and starts the timer.
 */
#include "worker/handlers/call_deadline.h"

#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/container.h"

static char seized; /* its address is no message's */
#define SEIZED ((struct message *)(void *)&seized)

/* timer_by - the timer fires at `when` or before */
static void timer_by(struct call_deadline *p, uint64_t when)
{
    atomic_store(&p->pending, when);
    timers_start_earlier(p->timers, &p->timer, when);
}

/* due - the deadline of the call that is there now, if any, has passed, or not
 * yet
 * The call cannot end between the exchange and the return of `late`: leave
 * waits for it.
 */
static void due(struct timer *timer)
{
    struct call_deadline *p = CONTAINER_OF(timer, struct call_deadline, timer);
    uint64_t deadline;

    atomic_store(&p->pending, 0);
    deadline = atomic_load(&p->deadline);
    if (deadline <= CALL_PASSED)
        return;
    if (deadline > clock_mono_ns())
        timer_by(p, deadline);
    else if (atomic_compare_exchange_strong(&p->deadline, &deadline,
                                            CALL_PASSED))
        p->late(p->call);
}

void call_deadline_init(struct call_deadline *p, struct timers *timers,
                        void (*late)(void *call), void *call)
{
    *p = (struct call_deadline){.timers = timers, .late = late, .call = call};
    timer_init(&p->timer, due);
}

void call_deadline_fini(struct call_deadline *p)
{
    timers_cancel_sync(p->timers, &p->timer);
}

void call_deadline_set(struct call_deadline *p, uint64_t deadline_ns)
{
    uint64_t pending;

    atomic_store(&p->deadline, deadline_ns);
    pending = atomic_load(&p->pending);
    if (pending == 0 || pending > deadline_ns)
        timer_by(p, deadline_ns);
}

/* call_deadline_leave - a call without a limit has no deadline to take back */
bool call_deadline_leave(struct call_deadline *p)
{
    bool late = false;

    if (atomic_load_explicit(&p->deadline, memory_order_relaxed))
        late = atomic_exchange(&p->deadline, 0) == CALL_PASSED;
    if (late) {
        timers_cancel_sync(p->timers, &p->timer);
        atomic_store(&p->pending, 0);
    }
    if (atomic_exchange(&p->message, NULL) == SEIZED) {
        atomic_store(&p->message, SEIZED);
        for (;;)
            pause(); /* until the process ends: there is nothing to settle */
    }
    return late;
}

/* call_deadline_seize - the exchange in call_deadline_leave comes before this
 * one or after it:
 * either the call is over and settles, or it never does */
struct message *call_deadline_seize(struct call_deadline *p)
{
    struct message *message = atomic_load(&p->message);

    if (message && message != SEIZED &&
        atomic_compare_exchange_strong(&p->message, &message, SEIZED))
        return message;
    return NULL;
}

bool place_seized(const struct call_deadline *p)
{
    return atomic_load(&p->message) == SEIZED;
}
