/* call_deadline.c - one call of a C function (see call_deadline.h)
 *
 * Two threads meet at the end of a call: the work item's, which takes its
 * message back, and the peeker's, which decides that the limit has passed, or
 * that the call is seized. The item stores NULL, then reads `asked`. The peeker
 * takes the lock, stores `asked`, makes all threads pass a barrier, and then
 * reads the message. An item that stored before its barrier has left: the
 * peeker sees NULL, or the next call. An item that stores after it also reads
 * `asked` after it, and waits for the lock. So the call that the peeker sees
 * stays, with everything that belongs to it, until the lock is released, and
 * the item then reads the decision. A call is late exactly if `late` was called
 * for it, and a seized call never leaves.
 *
 * In the same way the two decide who starts the timer. The item stores its
 * deadline and message, then reads `pending`; the timer's callback clears
 * `pending`, makes all threads pass the barrier, then reads message and
 * deadline. At least one of the two sees what the other wrote, and starts it.
 *
 * If the kernel has no such barrier, `asked` is never cleared, so each call
 * takes the lock at its end; and at its start the item makes a barrier itself
 * when it stores the message.
 */
#include "worker/handlers/call_deadline.h"

#include <errno.h>
#include <unistd.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/base/quick_lock.h"

void call_deadline_timer(struct call_deadline *p, uint64_t when)
{
    atomic_store(&p->pending, when);
    timers_start_earlier(p->timers, &p->timer, when);
}

/* Return the message of the running call, which stays until the lock is
 * released; NULL: no call is running, or it is about to leave. */
static struct message *ask_locked(struct call_deadline *p)
{
    atomic_store(&p->asked, true);
    if (p->barrier && !far_barrier())
        panic("membarrier is refused, and was not at the start: %s; let "
              "the filter of system calls that was set since then allow it",
              errno_text(errno));
    return atomic_load(&p->message);
}

/* Let calls leave without the lock again, unless something was decided. */
static void answered_locked(struct call_deadline *p)
{
    atomic_store(&p->asked,
                 p->passed || atomic_load(&p->seized) || !p->barrier);
}

/* Handle the deadline of the call in the place, if it has passed; start the
 * timer again if it has not. The call cannot end before `late` returns, because
 * call_deadline_leave waits for the lock. */
static void deadline_due(struct timer *timer)
{
    struct call_deadline *p = CONTAINER_OF(timer, struct call_deadline, timer);
    uint64_t deadline = UINT64_MAX;

    pthread_mutex_lock(&p->mtx);
    atomic_store(&p->pending, 0);
    if (ask_locked(p) && !p->passed)
        deadline = atomic_load(&p->deadline);
    if (deadline <= clock_mono_ns()) {
        p->passed = true;
        p->late(p->call);
    } else if (deadline != UINT64_MAX) {
        call_deadline_timer(p, deadline);
    }
    answered_locked(p);
    pthread_mutex_unlock(&p->mtx);
}

void call_deadline_init(struct call_deadline *p, struct timers *timers,
                        void (*late)(void *call), void *call)
{
    *p = (struct call_deadline){.timers = timers, .late = late, .call = call};
    pthread_mutex_init(&p->mtx, NULL);
    p->barrier = far_barrier_open();
    atomic_store(&p->asked, !p->barrier);
    timer_init(&p->timer, deadline_due);
}

void call_deadline_fini(struct call_deadline *p)
{
    timers_cancel_sync(p->timers, &p->timer);
    pthread_mutex_destroy(&p->mtx);
}

/* Read the decision about a call that has just left. */
bool call_deadline_decided(struct call_deadline *p)
{
    bool passed;

    pthread_mutex_lock(&p->mtx);
    passed = p->passed;
    p->passed = false;
    answered_locked(p);
    pthread_mutex_unlock(&p->mtx);
    while (atomic_load(&p->seized))
        pause(); /* until the process ends: there is nothing to settle */
    return passed;
}

/* A call either leaves before this and its message is settled, or it never
 * leaves. Most places have no call, and cost no barrier. */
struct message *call_deadline_seize(struct call_deadline *p)
{
    struct message *message = NULL;

    if (!atomic_load(&p->message))
        return NULL;
    pthread_mutex_lock(&p->mtx);
    if (!atomic_load(&p->seized))
        message = ask_locked(p);
    if (message)
        atomic_store(&p->seized, true);
    answered_locked(p);
    pthread_mutex_unlock(&p->mtx);
    return message;
}
