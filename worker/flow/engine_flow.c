/* engine_flow.c - what lets messages be taken, and what stops it (see engine.h)
 *
 * The cap and the holds say how many work items may run; whoever changes that,
 * or makes something to do, pokes. Here is also what the operator and trouble
 * do to it: pause, the cap, the breaker, delays, the stop.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/state/counters.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/engine_inner.h"
#include "worker/flow/keep.h"
#include "worker/flow/ordered.h"
#include "worker/loop/loop.h"
#include "worker/loop/peeker.h"
#include "worker/flow/receive.h"
#include "worker/source/reopen.h"
#include "worker/config/slots.h"

#define TROUBLE_FIRST NS_PER_S
#define TROUBLE_MOST  (30 * NS_PER_S)

/* cap_now - one at a time while there are suspects; when the last one is done,
 * the peeker lets others in */
static unsigned cap_now(struct engine *e)
{
    if (!atomic_load_explicit(&e->suspects.any, memory_order_relaxed))
        return atomic_load(&e->cap);
    if (suspects_left(&e->suspects))
        return 1;
    peeker_look_soon(e->peeker);
    return atomic_load(&e->cap);
}

/* engine_room - work items that may run now */
unsigned engine_room(struct engine *e)
{
    unsigned most, cap;

    if (atomic_load(&e->holds) & ~(unsigned)HOLD_WAITING)
        return 0;
    cap = cap_now(e);
    switch (breaker_state(&e->breaker)) {
    case BREAKER_OPEN:
        return 0;
    case BREAKER_PROBING:
        most = atomic_load(&e->probe_room);
        return most < cap ? most : cap;
    case BREAKER_CLOSED:
    default:
        return cap;
    }
}

/* somebody_would - take a message: one more work item, or one that runs and has
 * room in its window */
static bool somebody_would(struct engine *e)
{
    unsigned room = engine_room(e), running = atomic_load(&e->running);

    return running < room ||
           (running == room && room > 0 && atomic_load(&e->wants) > 0 &&
            breaker_state(&e->breaker) == BREAKER_CLOSED);
}

/* engine_peeks - start a work item, or say that there is nothing to do but to
 * wait for the queue */
bool engine_peeks(struct engine *e)
{
    bool slots, room;

    dirty_count(&e->dirty);
    if (!somebody_would(e))
        return false;
    /* Without a free slot, or room for what is received, a work item could only
     * leave, and come here again; but it can park, which frees slots, or else
     * takes a delay (HOLD_QUEUE). */
    slots = custody_free_slots(e->custody) > 0;
    room = slots && engine_takes(e) && ordered_room(e);
    if (atomic_load(&e->waiting) || (!slots && ordered_stuck(e)) ||
        (slots && (retries_ready(e->retries) || ordered_ready(e))) ||
        (room && reopen_gone(e->reopen))) {
        receive_start(e);
        return false;
    }
    return room;
}

/* engine_poke - start a work item or peek
 * Whoever changes a reason not to take messages calls this after the change,
 * and a work item after it has counted itself out. So of two that happen at
 * once, the later one sees both.
 */
void engine_poke(struct engine *e)
{
    if (engine_peeks(e))
        peeker_arm(e->peeker);
}

/* retitle - what others see; shown by the peeker, which is woken for it */
static void retitle(struct engine *e)
{
    dirty_state(&e->dirty);
    loop_wake(e->loop);
}

void engine_hold(struct engine *e, unsigned bit)
{
    atomic_fetch_or(&e->holds, bit);
    if (e->ops->lanes)
        receive_hold(e);
    retitle(e);
}

void engine_unhold(struct engine *e, unsigned bit)
{
    atomic_fetch_and(&e->holds, ~bit);
    retitle(e);
    engine_poke(e);
}

/* trouble_over - the delayed peek */
static void trouble_over(struct timer *timer)
{
    engine_unhold(CONTAINER_OF(timer, struct engine, queue_timer), HOLD_QUEUE);
}

/* engine_trouble - take nothing until a delay is over; it doubles while the
 * trouble comes back soon after it */
void engine_trouble(struct engine *e, const char *what, int err)
{
    uint64_t now = clock_mono_ns(), wait;

    pthread_mutex_lock(&e->held_mtx);
    if (now > ns_add(e->trouble_ns, 2 * e->trouble_wait_ns))
        e->trouble_wait_ns = TROUBLE_FIRST;
    else if (now > e->trouble_ns)
        e->trouble_wait_ns = e->trouble_wait_ns * 2 < TROUBLE_MOST
                                 ? e->trouble_wait_ns * 2
                                 : TROUBLE_MOST;
    wait = e->trouble_wait_ns;
    e->trouble_ns = ns_add(now, wait);
    pthread_mutex_unlock(&e->held_mtx);
    log_error("trouble", F_STR("queue", e->set->queue), F_STR("with", what),
              F_STR("error", strerror(err)), F_DURATION("again_in", wait));
    engine_hold(e, HOLD_QUEUE);
    timers_start(e->timers, &e->queue_timer, ns_add(now, wait));
}

/* pause_over - the breaker lets one probe through, beside handlers that run
 * since before it opened: the first of all these that ends decides
 */
static void pause_over(struct timer *timer)
{
    struct engine *e = CONTAINER_OF(timer, struct engine, breaker_timer);

    atomic_store(&e->probe_room, atomic_load(&e->running) + 1);
    breaker_tell(&e->breaker, BREAKER_PAUSE_OVER, NULL);
    dirty_state(&e->dirty);
    engine_poke(e);
}

/* breaker_advice - what an operator should know first */
static const char *breaker_advice(enum breaker_event event)
{
    return event == BREAKER_NOT_STARTED
               ? "messages are kept and no attempt is counted; mend the cause "
                 "and they run"
               : "nothing more is taken but one probe after each pause; mend "
                 "the cause and all run";
}

/* engine_breaker - tell the breaker, do what it says */
void engine_breaker(struct engine *e, enum breaker_event event,
                    const char *reason)
{
    struct breaker_step step = breaker_tell(&e->breaker, event, reason);

    if (step.opened) {
        if (reason)
            counters_say(e->counters, COUNTERS_WHY_BREAKER, reason,
                         clock_wall_ns());
        log_error("breaker_open", F_STR("queue", e->set->queue),
                  F_STR("reason", reason), F_DURATION("pause", step.pause_ns),
                  F_STR("next", step.first ? breaker_advice(event) : NULL));
        timers_start(e->timers, &e->breaker_timer,
                     ns_add(clock_mono_ns(), step.pause_ns));
    }
    if (step.closed)
        log_info("breaker_closed", F_STR("queue", e->set->queue));
    if (step.opened || step.closed)
        retitle(e);
    if (step.closed)
        engine_poke(e);
}

/* engine_hold_slot - to the held list */
void engine_hold_slot(struct engine *e, struct slot *slot, bool front)
{
    struct held *h = &e->held_of[custody_index(e->custody, slot)];

    h->slot = slot;
    pthread_mutex_lock(&e->held_mtx);
    if (front)
        STAILQ_INSERT_HEAD(&e->held, h, link);
    else
        STAILQ_INSERT_TAIL(&e->held, h, link);
    atomic_fetch_add(&e->waiting, 1);
    pthread_mutex_unlock(&e->held_mtx);
}

/* engine_take_held - the first held slot, or NULL */
struct slot *engine_take_held(struct engine *e)
{
    struct held *h;

    if (atomic_load_explicit(&e->waiting, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&e->held_mtx);
    h = STAILQ_FIRST(&e->held);
    if (h) {
        STAILQ_REMOVE_HEAD(&e->held, link);
        atomic_fetch_sub(&e->waiting, 1);
    }
    pthread_mutex_unlock(&e->held_mtx);
    return h ? h->slot : NULL;
}

/* limit_over - of a pause that had one */
static void limit_over(struct timer *timer)
{
    engine_pause(CONTAINER_OF(timer, struct engine, pause_timer), false);
}

/* engine_pause - on, with no limit, or off */
void engine_pause(struct engine *e, bool on)
{
    unsigned was = atomic_load(&e->holds) & HOLD_PAUSE;

    e->pause_until_ns = 0;
    timers_cancel(e->timers, &e->pause_timer);
    if (on == (was != 0))
        return;
    log_info(on ? "paused" : "resumed", F_STR("queue", e->set->queue));
    if (on)
        engine_hold(e, HOLD_PAUSE);
    else
        engine_unhold(e, HOLD_PAUSE);
}

/* engine_pause_for - on, and off by itself after a while; 0: not by itself */
void engine_pause_for(struct engine *e, uint64_t limit_ns)
{
    engine_pause(e, true);
    if (!limit_ns)
        return;
    e->pause_until_ns = ns_add(clock_mono_ns(), limit_ns);
    timers_start(e->timers, &e->pause_timer, e->pause_until_ns);
}

/* engine_set_cap - room for what it brings first */
int engine_set_cap(struct engine *e, unsigned cap, struct problem *p)
{
    unsigned old = atomic_load(&e->cap);
    int err = custody_grow(e->custody, slots_for(e->set, cap), p);

    if (err)
        return err;
    pool_resize(e->pool, cap + SPARE_THREADS);
    e->live->concurrency = cap;
    atomic_store(&e->cap, cap);
    if (e->ops->lanes && cap < old)
        receive_hold(e); /* who waits for its child would keep a place */
    dirty_state(&e->dirty);
    log_info("max_concurrency", F_UINT("old", old), F_UINT("new", cap));
    engine_poke(e);
    return 0;
}

/* engine_cap - some work items more or fewer */
void engine_cap(struct engine *e, int change)
{
    unsigned want = atomic_load(&e->cap) + (unsigned)change;
    struct problem p;

    if (want >= 1 && want <= CONCURRENCY_MAX && engine_set_cap(e, want, &p) < 0)
        log_error("cap_not_raised", F_STR("error", p.text));
}

/* engine_finish - nothing more is taken */
void engine_finish(struct engine *e, const char *why)
{
    const char *none = NULL;

    atomic_compare_exchange_strong(&e->why, &none, why);
    engine_hold(e, HOLD_STOP);
}

/* handlers_end - the grace is over, or the next step after it */
static void handlers_end(struct timer *timer)
{
    struct engine *e = CONTAINER_OF(timer, struct engine, grace_timer);
    int signal = e->ending ? SIGKILL : SIGTERM;

    if (!e->ending)
        log_warn("grace_over", F_STR("queue", e->set->queue),
                 F_UINT("running", atomic_load(&e->running)),
                 F_STR("next", "their handlers are ended; the messages are "
                               "kept, no attempt counted"));
    e->ending = true;
    if (signal == SIGKILL) /* where handlers are threads, the process ends */
        counters_gauge(e->counters, COUNTERS_ENDED_NS, clock_wall_ns());
    e->ops->stop(e->handler, signal);
    if (signal == SIGKILL && e->ops->seize)
        keep_and_exit(e);
    if (signal != SIGKILL)
        timers_start_after(e->timers, timer, e->set->kill_after_ns);
}

/* engine_stop - a signal to stop came
 * First TERM or INT: finish what runs within the grace. A second one skips the
 * rest of the grace; QUIT kills now.
 */
void engine_stop(struct engine *e, int signal)
{
    uint64_t now = clock_mono_ns();

    e->stops++;
    log_info("stopping", F_STR("queue", e->set->queue),
             F_STR("signal", sigabbrev_np(signal)),
             F_UINT("running", atomic_load(&e->running)));
    engine_finish(e, "signal");
    if (signal == SIGQUIT) {
        e->ending = true;
        if (!e->ops->within) /* else in the next round: it ends the process, and
                              * who asked has an answer by then */
            e->ops->stop(e->handler, SIGKILL);
    }
    if (e->stops == 1 && !e->ending)
        now = ns_add(now, e->set->grace_ns);
    timers_start(e->timers, &e->grace_timer, now);
}

bool engine_finished(struct engine *e)
{
    return atomic_load(&e->holds) & HOLD_STOP && atomic_load(&e->running) == 0;
}

static bool finished(void *arg)
{
    return engine_finished(arg);
}

/* wait_ms - without a limit, unless work items run with peek mode off and more
 * could run: then a handler that takes long would keep others waiting */
static int wait_ms(void *arg)
{
    struct engine *e = arg;
    unsigned running = atomic_load(&e->running);

    return running > 0 && running < engine_room(e) && !peeker_armed(e->peeker)
               ? PEEKER_STUCK_MS
               : -1;
}

/* quiet - a round without an event: does a handler keep its thread for long? */
static void quiet(void *arg)
{
    struct engine *e = arg;
    struct receive_stats s;

    receive_stats(e, &s);
    if (s.deliveries == e->seen)
        engine_poke(e);
    e->seen = s.deliveries;
}

static void show(void *arg)
{
    board_show(arg);
}

const struct loop_hooks engine_rounds = {
    .finished = finished, .wait_ms = wait_ms, .quiet = quiet, .round = show};

void engine_flow_init(struct engine *e)
{
    timer_init(&e->breaker_timer, pause_over);
    timer_init(&e->queue_timer, trouble_over);
    timer_init(&e->grace_timer, handlers_end);
    timer_init(&e->pause_timer, limit_over);
    e->trouble_wait_ns = TROUBLE_FIRST;
}
