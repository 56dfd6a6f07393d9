/* exec_cancel.c - a run that an operator has ended (see exec_inner.h)
 *
 * The peeker signals its group, as at the worker's stop: the end of the process
 * wakes the thread that waits for it, which needs no other descriptor to be
 * woken by. That thread judges it, and leaves nothing of it.
 *
 * Which came first, the end or the order, is decided under the lock, by the
 * descriptor of the process. Crash before the verdict is durable: the message
 * runs again, and nobody was told that it was cancelled.
 */
#include "worker/handlers/exec_inner.h"

#include <poll.h>
#include <signal.h>
#include <string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"

/* exec_kill_due - and again for those whose time is not over yet */
void exec_kill_due(struct timer *timer)
{
    struct handler *h = CONTAINER_OF(timer, struct handler, kill);
    uint64_t now = clock_mono_ns(), next = UINT64_MAX;
    struct running *r;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (r, &h->running, link) {
        uint64_t at = ns_add(r->cancelled_ns, h->set->kill_after_ns);

        if (!r->cancelled_ns)
            continue;
        if (at <= now)
            process_group_signal(r->process.pid, SIGKILL);
        else if (at < next)
            next = at;
    }
    pthread_mutex_unlock(&h->mtx);
    if (next != UINT64_MAX)
        timers_start_earlier(h->timers, &h->kill, next);
}

/* has_ended - before it is asked for; nobody has reaped it */
static bool has_ended(const struct running *r)
{
    struct pollfd end = {.fd = r->process.end, .events = POLLIN};

    return poll(&end, 1, 0) > 0;
}

/* exec_cancel - once for each run */
bool exec_cancel(struct handler *h, const char *id)
{
    uint64_t now = clock_mono_ns();
    struct running *r;
    pid_t pid = 0;

    pthread_mutex_lock(&h->mtx);
    LIST_FOREACH (r, &h->running, link)
        if (strcmp(r->id, id) == 0)
            break;
    if (r && !r->cancelled_ns && has_ended(r))
        r = NULL;
    if (r && !r->cancelled_ns) {
        r->cancelled_ns = now;
        pid = r->process.pid;
        process_group_signal(pid, SIGTERM);
    }
    pthread_mutex_unlock(&h->mtx);
    if (pid) {
        log_info("handler_cancelled", F_STR("msg", id), F_INT("pid", pid),
                 F_DURATION("kill_after", h->set->kill_after_ns));
        timers_start_earlier(h->timers, &h->kill,
                             ns_add(now, h->set->kill_after_ns));
    }
    return r != NULL;
}
