/* unsettled.c - verdicts that are not durable yet (see unsettled.h) */
#include "worker/flow/unsettled.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/container.h"
#include "common/base/errno_text.h"
#include "common/base/log.h"
#include "worker/flow/decision.h"

#define WAIT_FIRST NS_PER_S /* to the first try; then twice that, ... */
#define WAIT_MOST  (5 * NS_PER_S)

/* One of them, with copies of what it points to. */
struct unsettled_verdict {
    STAILQ_ENTRY(unsettled_verdict) link;
    struct decision dec;
    struct attempt attempt;
    char error[OUTCOME_ERROR];
    char group[HEADER_VALUE_MAX];
    char tail[];
};

/* verdict_copy - a copy that outlives the delivery; NULL: no memory */
static struct unsettled_verdict *verdict_copy(const struct decision *dec)
{
    const struct attempt *a = dec->s.attempt;
    size_t tail = a ? a->stderr_size : 0;
    struct unsettled_verdict *v = calloc(1, sizeof *v + tail);

    if (!v)
        return NULL;
    v->dec = *dec;
    v->dec.count = NULL; /* another thread goes on with it */
    if (dec->s.error) {
        strncpy(v->error, dec->s.error, sizeof v->error - 1);
        v->dec.s.error = v->error;
    }
    if (dec->s.group.at) {
        memcpy(v->group, dec->s.group.at, dec->s.group.size);
        v->dec.s.group.at = v->group;
    }
    if (a) {
        v->attempt = *a;
        if (tail)
            memcpy(v->tail, a->stderr_tail, tail);
        v->attempt.stderr_tail = v->tail;
        v->attempt.error = v->error;
        v->dec.s.attempt = &v->attempt;
    }
    return v;
}

/* advice - what helps */
static const char *advice(int err)
{
    return err == -ENOSPC ? "free some space; nothing is taken and nothing is "
                            "lost until then"
           : err == -EBADFD ? "do what event=file_gone says; nothing is taken "
                              "and nothing is lost until then"
                            : "check the disk; nothing is taken and nothing is "
                              "lost until then";
}

/* wait - nothing more is taken until it was given again; it is counted
 * The source counts the message as not running: a worker that dies meanwhile
 * did not die under the handler, so no crash is counted; the message runs
 * again, redelivered if it had run.
 */
static void wait(struct unsettled *u, struct unsettled_verdict *v, int err)
{
    struct flow *f = u->flow;

    v->dec.s.lane = LANE_NONE;
    pthread_mutex_lock(&u->mtx);
    if (STAILQ_EMPTY(&u->list) && !u->trying) {
        log_error("store_cannot_write", F_STR("queue", f->set->queue),
                  F_STR("error", errno_text(-err)), F_STR("store", f->folder),
                  F_STR("next", advice(err)));
        gate_hold(&f->gate, HOLD_STORE);
        chore_after(&u->chore, WAIT_FIRST);
    }
    STAILQ_INSERT_TAIL(&u->list, v, link);
    pthread_mutex_unlock(&u->mtx);
}

/* no_memory - it comes again, as if it had not run */
static void no_memory(struct flow *f, const struct decision *dec)
{
    decision_give_back(f, dec->s.m, dec->lease);
    gate_trouble(&f->gate, "memory", ENOMEM);
}

void unsettled_keep(struct unsettled *u, const struct decision *dec, int err)
{
    struct unsettled_verdict *v = verdict_copy(dec);

    if (!v) {
        no_memory(u->flow, dec);
        return;
    }
    atomic_fetch_add(&u->count, 1);
    wait(u, v, err);
}

/* went - how the source answered for one that is counted, but on no list; true:
 * it is over, false: it waits */
static bool went(struct unsettled *u, struct unsettled_verdict *v, int err)
{
    struct flow *f = u->flow;

    if (err && err != -ESTALE) {
        wait(u, v, err);
        return false;
    }
    if (err)
        decision_stale(f, &v->dec);
    else
        decision_done(f, &v->dec);
    return true;
}

/* over - after all that follows from it */
static void over(struct unsettled *u, struct unsettled_verdict *v)
{
    free(v);
    atomic_fetch_sub(&u->count, 1);
}

/* unsettled_late - once it is in progress it is the event's, which may have
 * come and gone already */
void unsettled_late(struct unsettled *u, const struct decision *dec)
{
    struct flow *f = u->flow;
    struct unsettled_verdict *v = verdict_copy(dec);
    struct message *m = dec->s.m;
    int err;

    if (!v) {
        m->ops->unrun(m, true);
        no_memory(f, dec);
        return;
    }
    atomic_fetch_add(&u->count, 1);
    err = f->source->ops->settle(f->source, &v->dec.s, 1);
    if (err == -EINPROGRESS || !went(u, v, err))
        return;
    if (!err && dec->s.lane == LANE_NONE)
        f->source->ops->release(f->source, m);
    over(u, v);
}

void unsettled_settled(struct unsettled *u, struct settle *s)
{
    struct decision *dec = CONTAINER_OF(s, struct decision, s);
    struct unsettled_verdict *v =
        CONTAINER_OF(dec, struct unsettled_verdict, dec);

    if (went(u, v, s->err))
        over(u, v);
}

/* again - the first on the list; what is in progress is the event's, as in
 * unsettled_late */
static int again(struct unsettled *u, struct unsettled_verdict *v)
{
    struct flow *f = u->flow;
    struct message *m = v->dec.s.m;
    int err = f->source->ops->settle(f->source, &v->dec.s, 1);

    if (err == -EINPROGRESS)
        return 0;
    if (err && err != -ESTALE)
        return err;
    (void)went(u, v, err);
    if (!err)
        f->source->ops->release(f->source, m);
    over(u, v);
    return 0;
}

/* flush - give all once more, in order; the first that is refused ends it */
static int flush(struct unsettled *u)
{
    struct unsettled_verdict *v;
    int err = 0;

    pthread_mutex_lock(&u->mtx);
    while (!err && (v = STAILQ_FIRST(&u->list)) != NULL) {
        STAILQ_REMOVE_HEAD(&u->list, link);
        u->trying = true;
        pthread_mutex_unlock(&u->mtx);
        err = again(u, v);
        pthread_mutex_lock(&u->mtx);
        u->trying = false;
        if (err)
            STAILQ_INSERT_HEAD(&u->list, v, link);
    }
    pthread_mutex_unlock(&u->mtx);
    return err;
}

/* again_all - the store may be writable by now
 * A verdict that comes meanwhile is written by this run or starts the next one:
 * the thread that puts it on the list asks for that under the lock.
 */
static int again_all(struct chore *chore)
{
    struct unsettled *u = CONTAINER_OF(chore, struct unsettled, chore);
    struct flow *f = u->flow;
    int err = flush(u);

    if (err)
        return err;
    log_info("store_writes_again", F_STR("queue", f->set->queue));
    gate_unhold(&f->gate, HOLD_STORE);
    /* The next trouble may have come between, and its hold is lifted now. */
    pthread_mutex_lock(&u->mtx);
    if (!STAILQ_EMPTY(&u->list))
        gate_hold(&f->gate, HOLD_STORE);
    pthread_mutex_unlock(&u->mtx);
    return 0;
}

void unsettled_init(struct unsettled *u, struct flow *f)
{
    u->flow = f;
    pthread_mutex_init(&u->mtx, NULL);
    STAILQ_INIT(&u->list);
    u->chore = (struct chore){.run = again_all,
                              .first_ns = 2 * WAIT_FIRST,
                              .most_ns = WAIT_MOST,
                              .timers = f->timers,
                              .pool = &f->pool};
    chore_init(&u->chore);
}

/* unsettled_fini - one last try; what stays is lent, and kept by its source */
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
