/* crashes.c - messages under which the worker crashed (see crashes.h) */
#include "worker/flow/crashes.h"

#include "common/base/clock.h"
#include "common/base/basics.h"
#include "common/base/log.h"
#include "worker/flow/flow.h"
#include "worker/flow/dispatch.h"

#define WAIT_NS NS_PER_S /* a longer wait of a suspect is logged */

bool crashes_too_many(const struct flow *f, const struct message *m)
{
    return m->crashes >= f->set->max_crashes &&
           m->flags & MESSAGE_CRASHED_ALONE;
}

bool crashes_is_suspect(const struct flow *f, const struct message *m)
{
    return m->crashes > 0 && m->crashes + 1 >= f->set->max_crashes;
}

void crashes_wait_log(struct timer *timer)
{
    struct flow *f = CONTAINER_OF(timer, struct flow, crashes.timer);
    struct crashes *c = &f->crashes;
    struct items_stats s;
    char id[ULID_TEXT];

    items_stats(&f->items, &s);
    pthread_mutex_lock(&c->mtx);
    if (c->seq)
        log_warn("suspect_waits", F_STR("queue", f->set->queue),
                 F_STR("msg", ulid_print(c->id, id)),
                 F_UINT("crashes", c->count),
                 F_UINT("running", s.deliveries - s.ended),
                 F_STR("next", "a worker died while this message ran, so it "
                               "has to run alone: it waits for the running "
                               "messages, and no other message starts; "
                               "--timeout stops handlers that hang"));
    pthread_mutex_unlock(&c->mtx);
}

/* Note which suspect is waiting; NULL: no suspect is waiting any more. */
static void wait_note(struct flow *f, struct message *m)
{
    struct crashes *c = &f->crashes;

    pthread_mutex_lock(&c->mtx);
    if (!m) {
        c->seq = 0;
        (void)timers_cancel(f->timers, &c->timer);
    } else if (c->seq != m->seq) {
        c->seq = m->seq;
        c->id = *message_name(m);
        c->count = m->crashes;
        timers_start_after(f->timers, &c->timer, WAIT_NS);
    }
    pthread_mutex_unlock(&c->mtx);
}

/* The suspect is marked at the gate before the running items are counted, and a
 * work item that has counted itself in looks for that mark before it takes a
 * message. So if both happen together, at least one thread sees the other. */
bool crashes_run_alone(struct flow *f, struct message *m, bool beside)
{
    char id[ULID_TEXT];

    gate_run_alone(&f->gate, m->seq);
    if (beside || gate_running(&f->gate) > 1) {
        wait_note(f, m);
        return false;
    }
    wait_note(f, NULL);
    log_warn("suspect_alone", F_STR("queue", f->set->queue),
             F_STR("msg", ulid_print(*message_name(m), id)),
             F_UINT("crashes", m->crashes),
             F_STR("next", "a worker died while this message ran, so it runs "
                           "alone, and the worker's other messages wait; "
                           "--timeout stops a handler that hangs"));
    return true;
}

void crashes_ended(struct flow *f, uint64_t seq)
{
    if (atomic_load_explicit(&f->gate.alone, memory_order_relaxed) == seq)
        gate_run_together(&f->gate, seq);
}

void crashes_stuck(struct flow *f)
{
    uint64_t seq = atomic_load_explicit(&f->gate.alone, memory_order_relaxed);

    if (!seq || gate_running(&f->gate) != 1 || !ready_empty(&f->ready) ||
        source_due(f->source) || dispatch_ready(f))
        return;
    wait_note(f, NULL);
    gate_run_together(&f->gate, seq);
}
