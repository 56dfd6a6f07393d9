/* unsettled.c - verdicts that could not be written (see unsettled.h) */
#include "worker/flow/unsettled.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/custody/slot.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/flow/flow.h"
#include "worker/flow/settle_op.h"

#define WAIT_FIRST NS_PER_S
#define WAIT_MOST  (5 * NS_PER_S)

/* A verdict that could not be written yet, with copies of what it points to. */
struct unsettled_verdict {
    STAILQ_ENTRY(unsettled_verdict) link;
    struct slot *slot;
    struct op op;
    struct store_attempt attempt;
    char error[OUTCOME_ERROR];
    char group[HEADER_VALUE_MAX];
    char tail[];
};

/* verdict_copy - a copy that outlives the delivery; NULL: no memory */
static struct unsettled_verdict *verdict_copy(struct slot *slot,
                                              const struct op *op)
{
    size_t tail = op->attempt ? op->attempt->stderr_size : 0;
    struct unsettled_verdict *p = calloc(1, sizeof *p + tail);

    if (!p)
        return NULL;
    p->slot = slot;
    p->op = *op;
    p->op.count = NULL; /* another thread writes it again */
    if (op->row.error) {
        strncpy(p->error, op->row.error, sizeof p->error - 1);
        p->op.row.error = p->error;
    }
    if (op->row.group) {
        memcpy(p->group, op->row.group, op->row.group_size);
        p->op.row.group = p->group;
    }
    if (op->attempt) {
        p->attempt = *op->attempt;
        if (tail)
            memcpy(p->tail, op->attempt->stderr_tail, tail);
        p->attempt.stderr_tail = p->tail;
        p->attempt.error = p->error;
        p->op.attempt = &p->attempt;
    }
    return p;
}

/* advice - what helps */
static const char *advice(int err)
{
    return err == -ENOSPC ? "free some space; nothing is taken and nothing is "
                            "lost until then"
           : err == -ESTALE ? "do what event=file_gone says; nothing is taken "
                              "and nothing is lost until then"
                            : "check the disk; nothing is taken and nothing is "
                              "lost until then";
}

/* unsettled_keep - nothing more is taken until the store can be written
 * The slot is HELD from here on: a worker that dies meanwhile did not die under
 * the handler, so no crash is counted; the message runs again, redelivered if
 * it had run.
 */
void unsettled_keep(struct unsettled *u, struct slot *slot, const struct op *op,
                    int err)
{
    struct flow *f = u->flow;
    struct unsettled_verdict *p = verdict_copy(slot, op);

    slot_unrun(slot, slot_word(slot).state == SLOT_RUNNING);
    if (!p) {
        op_give_back(f, slot, op->lease);
        gate_trouble(&f->gate, "memory", ENOMEM);
        return;
    }
    atomic_fetch_add(&u->count, 1);
    pthread_mutex_lock(&u->mtx);
    if (STAILQ_EMPTY(&u->list)) {
        log_error("store_cannot_write", F_STR("queue", f->set->queue),
                  F_STR("error", strerror(-err)), F_STR("store", f->folder),
                  F_STR("next", advice(err)));
        u->wait_ns = WAIT_FIRST;
        gate_hold(&f->gate, HOLD_STORE);
        timers_start(f->timers, &u->timer, clock_mono_ns() + u->wait_ns);
    }
    STAILQ_INSERT_TAIL(&u->list, p, link);
    pthread_mutex_unlock(&u->mtx);
}

/* flush - write what could not be written; in order; first error
 * ends */
static int flush(struct unsettled *u)
{
    struct flow *f = u->flow;
    struct unsettled_verdict *p;
    int err = 0;

    pthread_mutex_lock(&u->mtx);
    while (!err && (p = STAILQ_FIRST(&u->list)) != NULL) {
        int64_t landed = p->slot->row;

        pthread_mutex_unlock(&u->mtx);
        err = op_write(f, &p->op);
        if (!err) {
            op_retire(f, p->slot, &p->op, landed);
            custody_release(f->custody, p->slot);
            atomic_fetch_sub(&u->count, 1);
        }
        pthread_mutex_lock(&u->mtx);
        if (!err) {
            STAILQ_REMOVE_HEAD(&u->list, link);
            free(p);
        }
    }
    if (err) {
        u->wait_ns *= 2;
        if (u->wait_ns > WAIT_MOST)
            u->wait_ns = WAIT_MOST;
        timers_start(f->timers, &u->timer, clock_mono_ns() + u->wait_ns);
    }
    pthread_mutex_unlock(&u->mtx);
    return err;
}

/* flush_job - try again, on a pool thread: a write may wait for the disk */
static void flush_job(struct pool_job *job)
{
    struct unsettled *u = CONTAINER_OF(job, struct unsettled, job);
    struct flow *f = u->flow;
    int err = flush(u);

    atomic_store(&u->flushing, false);
    if (err)
        return;
    log_info("store_writes_again", F_STR("queue", f->set->queue));
    gate_unhold(&f->gate, HOLD_STORE);
    /* The next trouble may have come between, and its hold is lifted now. */
    pthread_mutex_lock(&u->mtx);
    if (!STAILQ_EMPTY(&u->list))
        gate_hold(&f->gate, HOLD_STORE);
    pthread_mutex_unlock(&u->mtx);
}

/* flush_due - the wheel says it is time */
static void flush_due(struct timer *timer)
{
    struct unsettled *u = CONTAINER_OF(timer, struct unsettled, timer);
    struct flow *f = u->flow;

    atomic_store(&u->flushing, true);
    if (pool_submit(f->pool, &u->job) == 0)
        return;
    atomic_store(&u->flushing, false);
    timers_start(f->timers, timer, clock_mono_ns() + WAIT_MOST);
}

void unsettled_init(struct unsettled *u, struct flow *f)
{
    u->flow = f;
    pthread_mutex_init(&u->mtx, NULL);
    STAILQ_INIT(&u->list);
    timer_init(&u->timer, flush_due);
    u->job.run = flush_job;
}

/* unsettled_quiet - the timer fires in the caller, the peeker, so that no
 * further
 * job is submitted before it returns */
bool unsettled_quiet(struct unsettled *u)
{
    timers_cancel(u->flow->timers, &u->timer);
    return !atomic_load(&u->flushing);
}

/* unsettled_fini - one last try; what stays is in its slot */
void unsettled_fini(struct unsettled *u)
{
    struct unsettled_verdict *p;

    if (!STAILQ_EMPTY(&u->list))
        (void)flush(u);
    while ((p = STAILQ_FIRST(&u->list)) != NULL) {
        STAILQ_REMOVE_HEAD(&u->list, link);
        free(p);
    }
    pthread_mutex_destroy(&u->mtx);
}
