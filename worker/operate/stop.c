/* stop.c - the way a worker is stopped (see stop.h) */
#include "worker/operate/stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/state/counters.h"
#include "worker/flow/flow.h"

/* handlers_end - the grace is over, or the next step after it */
static void handlers_end(struct timer *timer)
{
    struct stop *s = CONTAINER_OF(timer, struct stop, timer);
    struct flow *f = s->flow;
    int signal = s->ending ? SIGKILL : SIGTERM;

    if (!s->ending)
        log_warn("grace_over", F_STR("queue", f->set->queue),
                 F_UINT("running", gate_running(&f->gate)),
                 F_STR("next", "their handlers are ended; the messages are "
                               "kept, no attempt counted"));
    s->ending = true;
    if (signal == SIGKILL) /* where handlers are threads, the process ends */
        counters_gauge(f->counters, COUNTERS_ENDED_NS, clock_wall_ns());
    f->ops->stop(f->handler, signal);
    if (signal == SIGKILL && f->ops->seize)
        s->last(s->arg);
    if (signal != SIGKILL)
        timers_start_after(f->timers, timer, f->set->kill_after_ns);
}

/* stop_worker - a signal to stop came
 * First TERM or INT: finish what runs within the grace. A second one skips the
 * rest of the grace; QUIT kills now.
 */
void stop_worker(struct stop *s, int signal)
{
    struct flow *f = s->flow;
    uint64_t now = clock_mono_ns();

    s->signals++;
    log_info("stopping", F_STR("queue", f->set->queue),
             F_STR("signal", sigabbrev_np(signal)),
             F_UINT("running", gate_running(&f->gate)));
    gate_finish(&f->gate, "signal", 0);
    if (signal == SIGQUIT) {
        s->ending = true;
        if (!f->ops->within) /* else in the next round: it ends the process, and
                              * the client needs its answer first */
            f->ops->stop(f->handler, SIGKILL);
    }
    if (s->signals == 1 && !s->ending)
        now = ns_add(now, f->set->grace_ns);
    timers_start(f->timers, &s->timer, now);
}

/* Stop as after SIGTERM, because a file was removed, unless a stop has begun. */
static void stop_again(struct timer *timer)
{
    struct stop *s = CONTAINER_OF(timer, struct stop, again);
    struct flow *f = s->flow;

    if (gate_held(&f->gate, HOLD_STOP))
        return;
    log_info("stopping", F_STR("queue", f->set->queue),
             F_STR("why", "file_gone"),
             F_UINT("running", gate_running(&f->gate)));
    gate_finish(&f->gate, "file_gone", -ESTALE);
    timers_start(f->timers, &s->timer,
                 ns_add(clock_mono_ns(), f->set->grace_ns));
}

void stop_init(struct stop *s, struct flow *f, void (*last)(void *arg),
               void *arg)
{
    s->flow = f;
    s->last = last;
    s->arg = arg;
    timer_init(&s->timer, handlers_end);
    timer_init(&s->again, stop_again);
}
