/* call_deadline.c - one call of a C function (see call_deadline.h)
 *
 * Two threads meet at the end of a call: the item's, which takes its message
 * back, and the peeker's, which decides that its limit has passed, or that it
 * is seized. The item stores NULL, then looks at `asked`. The peeker has the
 * lock, stores `asked`, has all threads pass a barrier, and then looks at the
 * message. An item that stored before its barrier has left: NULL is seen here,
 * or the next call. One that stores after it looks after it, too, and waits for
 * the lock: so the call that is seen here stays where it is until the lock is
 * given back, with what belongs to it, and learns then what was decided.
 * So a call is late exactly if `late` was called for it, and one that was
 * seized never leaves.
 *
 * Whether the timer must be started is asked in the same way. The item stores
 * its deadline and message, then reads `pending`; the callback clears
 * `pending`, has all pass the barrier, then reads message and deadline: at
 * least one of the two sees what the other wrote, and starts the timer.
 *
 * Where the kernel has no such barrier `asked` is never cleared, so each call
 * takes the lock at its end; and at its begin its message is stored with a
 * barrier of the item's own.
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

/* What runs now, and stays until the lock is given back; NULL:
 * nothing does, or it is about to leave */
static struct message *ask_locked(struct call_deadline *p)
{
    atomic_store(&p->asked, true);
    if (p->barrier && !far_barrier())
        panic("membarrier is refused, and was not at the start: %s; let "
              "the filter of system calls that was set since then allow it",
              errno_text(errno));
    return atomic_load(&p->message);
}

/* Who leaves from here on has to look only if something was
 * decided */
static void answered_locked(struct call_deadline *p)
{
    atomic_store(&p->asked,
                 p->passed || atomic_load(&p->seized) || !p->barrier);
}

/* The deadline of the call that is there now, if any, has passed, or not
 * yet
 * The call cannot end before `late` returns: leave waits for the lock.
 */
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

/* It is out, and somebody asked: what was decided? */
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

/* Either the call is over and settles, or it never does
 * Of a place without a call nobody is asked: most are like that. */
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
