/* cap.c - how many work items may run, changed while they do (see cap.h) */
#include "worker/flow/cap.h"

#include "common/base/log.h"
#include "worker/engine.h"
#include "worker/config/slots.h"

/* cap_set - room for what it brings first */
int cap_set(struct engine *e, unsigned cap, struct problem *p)
{
    unsigned old = atomic_load(&e->gate.cap);
    int err = custody_grow(e->custody, slots_for(e->set, cap), p);

    if (err)
        return err;
    pool_resize(e->pool, cap + SPARE_THREADS);
    e->live->concurrency = cap;
    atomic_store(&e->gate.cap, cap);
    if (e->ops->lanes && cap < old) /* who waits for its child keeps a place */
        items_wake_all(&e->items, e->ops->lanes->wake);
    dirty_state(&e->dirty);
    log_info("max_concurrency", F_UINT("old", old), F_UINT("new", cap));
    gate_changed(&e->gate);
    return 0;
}

/* cap_change - some work items more or fewer */
void cap_change(struct engine *e, int change)
{
    unsigned want = atomic_load(&e->gate.cap) + (unsigned)change;
    struct problem p;

    if (want >= 1 && want <= CONCURRENCY_MAX && cap_set(e, want, &p) < 0)
        log_error("cap_not_raised", F_STR("error", p.text));
}
