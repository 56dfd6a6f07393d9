/* cap.c - how many work items may run, changed while they do (see cap.h) */
#include "worker/operate/cap.h"

#include "common/base/log.h"
#include "worker/flow/flow.h"
#include "worker/operate/orders.h"
#include "worker/config/slots.h"

/* cap_set - room for what it brings first */
int cap_set(struct orders *o, unsigned cap, struct problem *p)
{
    unsigned old = atomic_load(&o->flow->gate.cap);
    int err = custody_grow(o->flow->custody, slots_for(o->flow->set, cap), p);

    if (err)
        return err;
    pool_resize(o->flow->pool, cap + SPARE_THREADS);
    o->live->concurrency = cap;
    atomic_store(&o->flow->gate.cap, cap);
    if (o->flow->ops->lanes &&
        cap < old) /* who waits for its child keeps a place */
        items_wake_all(&o->flow->items, o->flow->ops->lanes->wake);
    dirty_state(&o->flow->dirty);
    log_info("max_concurrency", F_UINT("old", old), F_UINT("new", cap));
    gate_changed(&o->flow->gate);
    return 0;
}

/* cap_change - some work items more or fewer */
void cap_change(struct orders *o, int change)
{
    unsigned want = atomic_load(&o->flow->gate.cap) + (unsigned)change;
    struct problem p;

    if (want >= 1 && want <= CONCURRENCY_MAX && cap_set(o, want, &p) < 0)
        log_error("cap_not_raised", F_STR("error", p.text));
}
