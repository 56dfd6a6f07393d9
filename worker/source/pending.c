/* pending.c - verdicts that could not be written (see pending.h) */
#include "worker/source/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/container.h"
#include "worker/source/dead_queue.h"
#include "worker/flow/ordered.h"

#define WAIT_FIRST NS_PER_S
#define WAIT_MOST  (5 * NS_PER_S)

/* A verdict that could not be written yet, with copies of what it points to. */
struct pending {
    STAILQ_ENTRY(pending) link;
    struct slot *slot;
    struct op op;
    struct store_attempt attempt;
    char error[OUTCOME_ERROR];
    char group[HEADER_VALUE_MAX];
    char tail[];
};

/* pending_make - a copy that outlives the delivery; NULL: no memory */
static struct pending *pending_make(struct slot *slot, const struct op *op)
{
    size_t tail = op->attempt ? op->attempt->stderr_size : 0;
    struct pending *p = calloc(1, sizeof *p + tail);

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

/* pending_keep - nothing more is taken until the store can be written
 * The slot is HELD from here on: a worker that dies meanwhile did not die under
 * the handler, so no crash is counted; the message runs again, redelivered if
 * it had run.
 */
enum settled pending_keep(struct engine *e, struct slot *slot,
                          const struct op *op, int err)
{
    struct pending *p = pending_make(slot, op);

    slot_unrun(slot, slot_word(slot).state == SLOT_RUNNING);
    if (!p) {
        op_give_back(e, slot, op->lease);
        gate_trouble(&e->gate, "memory", ENOMEM);
        return SETTLED_KEPT;
    }
    atomic_fetch_add(&e->unsettled, 1);
    pthread_mutex_lock(&e->settle_mtx);
    if (STAILQ_EMPTY(&e->pending)) {
        log_error("store_cannot_write", F_STR("queue", e->set->queue),
                  F_STR("error", strerror(-err)), F_STR("store", e->dir.folder),
                  F_STR("next", advice(err)));
        e->settle_wait_ns = WAIT_FIRST;
        gate_hold(&e->gate, HOLD_STORE);
        timers_start(e->timers, &e->settle_timer,
                     clock_mono_ns() + e->settle_wait_ns);
    }
    STAILQ_INSERT_TAIL(&e->pending, p, link);
    pthread_mutex_unlock(&e->settle_mtx);
    return SETTLED_KEPT;
}

/* pending_flush - write what could not be written; in order; first error
 * ends */
static int pending_flush(struct engine *e)
{
    struct pending *p;
    int err = 0;

    pthread_mutex_lock(&e->settle_mtx);
    while (!err && (p = STAILQ_FIRST(&e->pending)) != NULL) {
        int64_t landed = p->slot->row;

        pthread_mutex_unlock(&e->settle_mtx);
        err = op_write(e, &p->op);
        if (!err) {
            op_retire(e, p->slot, &p->op, landed);
            custody_release(e->custody, p->slot);
            atomic_fetch_sub(&e->unsettled, 1);
        }
        pthread_mutex_lock(&e->settle_mtx);
        if (!err) {
            STAILQ_REMOVE_HEAD(&e->pending, link);
            free(p);
        }
    }
    if (err) {
        e->settle_wait_ns *= 2;
        if (e->settle_wait_ns > WAIT_MOST)
            e->settle_wait_ns = WAIT_MOST;
        timers_start(e->timers, &e->settle_timer,
                     clock_mono_ns() + e->settle_wait_ns);
    }
    pthread_mutex_unlock(&e->settle_mtx);
    return err;
}

/* flush_job - try again, on a pool thread: a write may wait for the disk */
static void flush_job(struct pool_job *job)
{
    struct engine *e = CONTAINER_OF(job, struct engine, settle_job);

    int err = pending_flush(e);

    atomic_store(&e->flushing, false);
    if (err)
        return;
    log_info("store_writes_again", F_STR("queue", e->set->queue));
    gate_unhold(&e->gate, HOLD_STORE);
    /* The next trouble may have come between, and its hold is lifted now. */
    pthread_mutex_lock(&e->settle_mtx);
    if (!STAILQ_EMPTY(&e->pending))
        gate_hold(&e->gate, HOLD_STORE);
    pthread_mutex_unlock(&e->settle_mtx);
}

/* flush_due - the wheel says it is time */
static void flush_due(struct timer *timer)
{
    struct engine *e = CONTAINER_OF(timer, struct engine, settle_timer);

    atomic_store(&e->flushing, true);
    if (pool_submit(e->pool, &e->settle_job) == 0)
        return;
    atomic_store(&e->flushing, false);
    timers_start(e->timers, timer, clock_mono_ns() + WAIT_MOST);
}

void pending_init(struct engine *e)
{
    pthread_mutex_init(&e->settle_mtx, NULL);
    STAILQ_INIT(&e->pending);
    timer_init(&e->settle_timer, flush_due);
    e->settle_job.run = flush_job;
}

/* pending_quiet - the timer fires in the caller, the peeker, so that no further
 * job is submitted before it returns */
bool pending_quiet(struct engine *e)
{
    timers_cancel(e->timers, &e->settle_timer);
    return !atomic_load(&e->flushing);
}

/* pending_fini - one last try; what stays is in its slot */
void pending_fini(struct engine *e)
{
    struct pending *p;

    if (!STAILQ_EMPTY(&e->pending))
        (void)pending_flush(e);
    while ((p = STAILQ_FIRST(&e->pending)) != NULL) {
        STAILQ_REMOVE_HEAD(&e->pending, link);
        free(p);
    }
    pthread_mutex_destroy(&e->settle_mtx);
}
