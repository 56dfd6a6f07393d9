/* stop.c - the way a worker is stopped (see stop.h) */
#include "worker/flow/stop.h"

#include <signal.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/engine.h"
#include "worker/flow/keep.h"

/* handlers_end - the grace is over, or the next step after it */
static void handlers_end(struct timer *timer)
{
    struct engine *e = CONTAINER_OF(timer, struct engine, stop.timer);
    int signal = e->stop.ending ? SIGKILL : SIGTERM;

    if (!e->stop.ending)
        log_warn("grace_over", F_STR("queue", e->set->queue),
                 F_UINT("running", gate_running(&e->gate)),
                 F_STR("next", "their handlers are ended; the messages are "
                               "kept, no attempt counted"));
    e->stop.ending = true;
    if (signal == SIGKILL) /* where handlers are threads, the process ends */
        counters_gauge(e->counters, COUNTERS_ENDED_NS, clock_wall_ns());
    e->ops->stop(e->handler, signal);
    if (signal == SIGKILL && e->ops->seize)
        keep_and_exit(e);
    if (signal != SIGKILL)
        timers_start_after(e->timers, timer, e->set->kill_after_ns);
}

/* stop_worker - a signal to stop came
 * First TERM or INT: finish what runs within the grace. A second one skips the
 * rest of the grace; QUIT kills now.
 */
void stop_worker(struct engine *e, int signal)
{
    uint64_t now = clock_mono_ns();

    e->stop.signals++;
    log_info("stopping", F_STR("queue", e->set->queue),
             F_STR("signal", sigabbrev_np(signal)),
             F_UINT("running", gate_running(&e->gate)));
    gate_finish(&e->gate, "signal", 0);
    if (signal == SIGQUIT) {
        e->stop.ending = true;
        if (!e->ops->within) /* else in the next round: it ends the process, and
                              * who asked has an answer by then */
            e->ops->stop(e->handler, SIGKILL);
    }
    if (e->stop.signals == 1 && !e->stop.ending)
        now = ns_add(now, e->set->grace_ns);
    timers_start(e->timers, &e->stop.timer, now);
}

void stop_init(struct stop *s)
{
    timer_init(&s->timer, handlers_end);
}
