/* store_look.c - the check of the whole store (see store_look.h) */
#include "worker/files/store_look.h"

#include <errno.h>
#include <sysexits.h>

#include "common/base/basics.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/problem.h"
#include "worker/flow/flow.h"

#define SMALL (UINT64_C(16) << 20) /* bytes; checked in about 20 ms */

int store_look_open(struct store_look *l, struct flow *f, struct store *s,
                    struct problem *p)
{
    const struct settings *set = f->set;
    bool bounded =
        set->exit_when_idle || set->run_for_ns || set->max_deliveries;
    int err;

    l->flow = f;
    l->store = s;
    /* A bounded run checks any store first, so that its exit status reports
     * damage. */
    if (!bounded && store_bytes(s) > SMALL) {
        atomic_store(&l->state, STORE_LOOK_DUE);
        return 0;
    }
    err = store_check(s, NULL, l->found);
    atomic_store(&l->state, STORE_LOOK_FINE);
    if (err == -EUCLEAN)
        return problem_set(
            p, EX_CANTCREAT, EUCLEAN,
            "%s/store.db is damaged (%s) and was left untouched: %s", f->folder,
            l->found, DISK_DAMAGED_ADVICE);
    return err ? problem_set(
                     p, err == -ENOMEM ? EX_OSERR : EX_CANTCREAT, -err,
                     "%s/store.db cannot be checked: %s; %s, and start again",
                     f->folder, errno_text(-err), disk_advice(err))
               : 0;
}

/* Job: check a large store while the worker is running. */
static void store_look_run(struct pool_job *job)
{
    struct store_look *l = CONTAINER_OF(job, struct store_look, job);
    struct flow *f = l->flow;
    uint64_t began = clock_mono_ns();
    int err = store_check(l->store, &l->stop, l->found);

    if (err == -ECANCELED)
        return;
    if (err == -EUCLEAN) {
        atomic_store(&l->state, STORE_LOOK_DAMAGED);
        log_error(
            "store_damaged", F_STR("queue", f->set->queue),
            F_STR("found", l->found), F_STR("store", f->folder),
            F_STR("next",
                  "the worker takes no more messages; " DISK_DAMAGED_ADVICE));
        gate_hold(&f->gate, HOLD_DAMAGED);
    } else if (err) {
        atomic_store(&l->state, STORE_LOOK_FAILED);
        log_warn("store_not_checked", F_STR("queue", f->set->queue),
                 F_STR("error", errno_text(-err)),
                 F_STR("next", disk_advice(err)));
    } else {
        atomic_store(&l->state, STORE_LOOK_FINE);
        log_info("store_checked", F_STR("queue", f->set->queue),
                 F_DURATION("took",
                            (clock_mono_ns() - began) / NS_PER_MS * NS_PER_MS));
    }
}

void store_look_start(struct store_look *l)
{
    if (atomic_load(&l->state) != STORE_LOOK_DUE)
        return;
    l->job.run = store_look_run;
    atomic_store(&l->state, STORE_LOOK_CHECKING);
    if (pool_submit(l->flow->pool, &l->job) < 0)
        atomic_store(&l->state, STORE_LOOK_FAILED);
}

const char *store_look_text(const struct store_look *l)
{
    switch ((enum store_look_state)atomic_load(&l->state)) {
    case STORE_LOOK_FINE:
        return "ok";
    case STORE_LOOK_DUE:
    case STORE_LOOK_CHECKING:
        return "being checked";
    case STORE_LOOK_DAMAGED:
        return l->found;
    case STORE_LOOK_FAILED:
        return "could not be checked";
    case STORE_LOOK_NONE:
    default:
        return NULL;
    }
}
