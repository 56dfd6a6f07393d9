/* flow.c - the parts that a message passes (see flow.h) */
#include "worker/flow/flow.h"

void flow_init(struct flow *f, void (*event)(void *arg, enum gate_event event),
               void *arg)
{
    items_init(&f->items, f->ops->guess_ns);
    gate_init(&f->gate, f->set, event, arg);
    f->ready.attention = &f->gate.attention;
    pthread_mutex_init(&f->ready.mtx, NULL);
    STAILQ_INIT(&f->ready.list);
    pthread_mutex_init(&f->crashes.mtx, NULL);
    timer_init(&f->crashes.timer, crashes_wait_log);
    unsettled_init(f);
    run_limits_init(f);
}

void flow_lend(struct flow *f)
{
    f->dirty.timers = f->timers;
    f->dirty.loop = f->loop;
    f->gate.timers = f->timers;
    f->gate.dirty = &f->dirty;
    f->gate.counters = f->counters;
    f->items.counters = f->counters;
    f->unsettled.retry_chore.timers = f->timers;
    f->run_limits.idle.timers = f->timers;
}

void flow_fini(struct flow *f)
{
    items_fini(&f->items);
    pthread_mutex_destroy(&f->crashes.mtx);
    gate_fini(&f->gate);
    pthread_mutex_destroy(&f->ready.mtx);
}
