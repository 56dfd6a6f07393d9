/* gate.c - whether messages may be taken, and why not (see gate.h)
 *
 * A thread that changes a reason not to take messages sends GATE_CHANGED after
 * the change, and a work item sends it after it has counted itself out. So if
 * two changes happen at the same time, the thread that is later sees both.
 */
#include "worker/flow/gate.h"

#include <errno.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "common/state/counters.h"
#include "worker/loop/loop.h"

#define TROUBLE_FIRST NS_PER_S
#define TROUBLE_MOST  (30 * NS_PER_S)

/* Derive the attention bits from the reasons as they are now. */
static unsigned attend_bits(struct gate *g)
{
    unsigned running = gate_running(g), bits = 0;

    if (atomic_load(&g->holds))
        bits |= ATTEND_HOLD;
    if (running > atomic_load(&g->cap))
        bits |= ATTEND_CAP;
    if (running > 1)
        bits |= ATTEND_OTHERS;
    if (gate_alone(g))
        bits |= ATTEND_SUSPECT;
    if (breaker_state(&g->breaker) != BREAKER_CLOSED ||
        atomic_load(&g->breaker.limit))
        bits |= ATTEND_BREAKER;
    return bits;
}

/* Set the gate's attention bits, after each change of a reason. The last thread
 * to get the lock has seen all changes. `running` may change without the lock
 * (gate_enter), so the bits are computed again until they agree. */
static void gate_attend(struct gate *g)
{
    unsigned bits;

    pthread_mutex_lock(&g->attend_mtx);
    do {
        bits = attend_bits(g);
        attention_set(&g->attention, ATTEND_LEAVE, bits);
    } while (bits != attend_bits(g));
    pthread_mutex_unlock(&g->attend_mtx);
}

/* Update ATTEND_OTHERS and ATTEND_CAP after `running` became `n`, and before an
 * item that was counted in takes a message. A single work item needs neither
 * bit: the cap is at least 1, and no item runs beside it. So the bits are
 * derived only if two items run, or if one of the two bits is still set. A
 * thread that sets one of them at the same time reads `running` after that. */
static void running_changed(struct gate *g, unsigned n)
{
    if (n > 1 || atomic_load(&g->attention.bits) & (ATTEND_OTHERS | ATTEND_CAP))
        gate_attend(g);
}

void gate_run_alone(struct gate *g, uint64_t seq)
{
    if (atomic_exchange(&g->alone, seq) == 0)
        gate_attend(g);
}

void gate_run_together(struct gate *g, uint64_t seq)
{
    if (!atomic_compare_exchange_strong(&g->alone, &seq, 0))
        return;
    gate_attend(g);
    g->event(g->arg, GATE_WIDER);
}

void gate_tune_breaker(struct gate *g, uint64_t failures, uint64_t pause_ns)
{
    breaker_tune(&g->breaker, failures, pause_ns);
    gate_attend(g);
}

void gate_set_cap(struct gate *g, unsigned cap)
{
    atomic_store(&g->cap, cap);
    gate_attend(g);
}

unsigned gate_room(struct gate *g)
{
    enum breaker_state state;
    unsigned most, cap;

    if (atomic_load(&g->holds) & ~(unsigned)HOLD_WAITING)
        return 0;
    cap = gate_alone(g) ? 1 : atomic_load(&g->cap);
    state = breaker_state(&g->breaker);
    if (state == BREAKER_CLOSED)
        return cap;
    most = state == BREAKER_PROBING ? atomic_load(&g->probe_room) : 0;
    return most < cap ? most : cap;
}

enum gate_why gate_why(struct gate *g)
{
    static const struct {
        unsigned bits;
        enum gate_why why;
    } order[] = {
        {HOLD_STOP, WHY_STOPPING},   {HOLD_FILES, WHY_FILES},
        {HOLD_DAMAGED, WHY_DAMAGED}, {HOLD_PAUSE, WHY_PAUSED},
        {HOLD_STORE, WHY_STORE},     {HOLD_QUEUE, WHY_QUEUE},
        {HOLD_BOUND, WHY_BOUND},     {HOLD_RATE, WHY_RATE},
    };
    unsigned holds = atomic_load(&g->holds);

    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (holds & order[i].bits)
            return order[i].why;
    if (gate_running(g) >= gate_room(g))
        return breaker_state(&g->breaker) != BREAKER_CLOSED ? WHY_BREAKER
               : gate_alone(g)                              ? WHY_ALONE
                                                            : WHY_BUSY;
    return gate_takes(g) ? WHY_NOT_SO : WHY_WAITING;
}

bool gate_wants(struct gate *g)
{
    enum gate_why why = gate_why(g);

    return why == WHY_NOT_SO || why == WHY_RATE || why >= WHY_ALONE;
}

const char *gate_why_text(enum gate_why why)
{
    static const char *const texts[] = {
        [WHY_NOT_SO] = "messages are taken",
        [WHY_STOPPING] = "the worker is stopping",
        [WHY_FILES] = "a file of the worker is gone, or cannot be written",
        [WHY_DAMAGED] = "the store is damaged; run mqctl doctor for advice",
        [WHY_PAUSED] = "paused; mqctl resume",
        [WHY_STORE] = "the store cannot be written",
        [WHY_QUEUE] = "receiving or starting a thread failed, and is retried",
        [WHY_BOUND] = "--max-deliveries is reached",
        [WHY_RATE] = "--rate is reached; mqctl set rate=N/s, or rate=off",
        [WHY_BREAKER] = "the breaker is open",
        [WHY_ALONE] = "a message that may have crashed the worker runs alone",
        [WHY_BUSY] = "--max-concurrency is reached",
        [WHY_WAITING] = "--max-waiting is reached",
        [WHY_SLOTS] = "all slots are in use",
        [WHY_GROUPS] = "blocked groups fill --lookahead and --max-parked",
    };

    return texts[why];
}

/* A caller that finds no room need not try again: the thread that makes room
 * sends GATE_CHANGED after that. */
bool gate_enter(struct gate *g)
{
    unsigned n = atomic_load(&g->running);

    do {
        if (n >= gate_room(g))
            return false;
    } while (!atomic_compare_exchange_weak(&g->running, &n, n + 1));
    running_changed(g, n + 1);
    return true;
}

void gate_leave(struct gate *g)
{
    running_changed(g, atomic_fetch_sub(&g->running, 1) - 1);
}

bool gate_leave_over(struct gate *g, unsigned most)
{
    unsigned n = atomic_load(&g->running);

    do {
        if (n <= most)
            return false;
    } while (!atomic_compare_exchange_weak(&g->running, &n, n - 1));
    running_changed(g, n - 1);
    return true;
}

void gate_changed(struct gate *g)
{
    g->event(g->arg, GATE_CHANGED);
}

void gate_hold(struct gate *g, unsigned bit)
{
    atomic_fetch_or(&g->holds, bit);
    gate_attend(g);
    g->event(g->arg, GATE_SHUT);
    dirty_state_now(g->dirty);
}

void gate_unhold(struct gate *g, unsigned bit)
{
    atomic_fetch_and(&g->holds, ~bit);
    gate_attend(g);
    dirty_state_now(g->dirty);
    gate_changed(g);
}

static void trouble_over(struct timer *timer)
{
    gate_unhold(CONTAINER_OF(timer, struct gate, trouble_timer), HOLD_QUEUE);
}

/* The delay doubles if the trouble comes back soon after the last delay. */
void gate_trouble(struct gate *g, const char *what, int err)
{
    uint64_t now = clock_mono_ns(), wait;
    char limit[ERRNO_LIMIT_TEXT];

    pthread_mutex_lock(&g->mtx);
    if (now > ns_add(g->trouble_ns, 2 * g->trouble_wait_ns))
        g->trouble_wait_ns = TROUBLE_FIRST;
    else if (now > g->trouble_ns)
        g->trouble_wait_ns = g->trouble_wait_ns * 2 < TROUBLE_MOST
                                 ? g->trouble_wait_ns * 2
                                 : TROUBLE_MOST;
    wait = g->trouble_wait_ns;
    g->trouble_ns = ns_add(now, wait);
    pthread_mutex_unlock(&g->mtx);
    log_error("trouble", F_STR("queue", g->set->queue), F_STR("with", what),
              F_STR("error", errno_limit_text(err, limit)),
              F_STR("next", err == EUCLEAN || err == EBUSY || disk_is_full(-err)
                                ? disk_advice(-err)
                                : NULL),
              F_DURATION("again_in", wait));
    gate_hold(g, HOLD_QUEUE);
    timers_start(g->timers, &g->trouble_timer, ns_add(now, wait));
}

/* Let the breaker send a probe. Handlers that were started before the breaker
 * opened may still be running: the first handler that ends, old or probe,
 * decides. */
static void breaker_probe(struct timer *timer)
{
    struct gate *g = CONTAINER_OF(timer, struct gate, breaker_timer);

    atomic_store(&g->probe_room, atomic_load(&g->running) + 1);
    breaker_tell(&g->breaker, BREAKER_PAUSE_OVER, NULL);
    gate_attend(g);
    dirty_state(g->dirty);
    gate_changed(g);
}

void gate_breaker(struct gate *g, enum breaker_event event, const char *reason)
{
    struct breaker_step step = breaker_tell(&g->breaker, event, reason);
    const char *next =
        event == BREAKER_NOT_STARTED
            ? "messages are kept and no attempt is counted; fix "
              "the cause, and the messages will run"
            : "after each pause only one message runs, as a probe; fix "
              "the cause, and all messages run again";

    if (!step.opened && !step.closed)
        return;
    gate_attend(g);
    if (step.opened) {
        if (reason)
            counters_say(g->counters, COUNTERS_WHY_BREAKER, reason,
                         clock_wall_ns());
        log_error("breaker_open", F_STR("queue", g->set->queue),
                  F_STR("reason", reason), F_DURATION("pause", step.pause_ns),
                  F_STR("next", step.first ? next : NULL));
        timers_start(g->timers, &g->breaker_timer,
                     ns_add(clock_mono_ns(), step.pause_ns));
    } else {
        log_info("breaker_closed", F_STR("queue", g->set->queue));
    }
    dirty_state_now(g->dirty);
    if (step.closed)
        gate_changed(g);
}

void gate_finish(struct gate *g, const char *why, int status)
{
    const char *none = NULL;

    if (status)
        atomic_store(&g->status, status);
    atomic_compare_exchange_strong(&g->why, &none, why);
    gate_hold(g, HOLD_STOP);
}

void gate_init(struct gate *g, const struct settings *set,
               void (*event)(void *arg, enum gate_event event), void *arg)
{
    g->set = set;
    g->event = event;
    g->arg = arg;
    g->trouble_wait_ns = TROUBLE_FIRST;
    atomic_store(&g->cap, (unsigned)set->concurrency);
    pthread_mutex_init(&g->mtx, NULL);
    pthread_mutex_init(&g->attend_mtx, NULL);
    breaker_init(&g->breaker, set->breaker_failures, set->breaker_pause_ns);
    timer_init(&g->breaker_timer, breaker_probe);
    timer_init(&g->trouble_timer, trouble_over);
    gate_attend(g);
}

void gate_fini(struct gate *g)
{
    breaker_fini(&g->breaker);
    pthread_mutex_destroy(&g->attend_mtx);
    pthread_mutex_destroy(&g->mtx);
}
