/* amqp_settle.c - verdict -> acknowledgement, or copy, confirm, acknowledgement
 * (see source_amqp.h)
 *
 * One order everywhere: the consequence of a verdict is published, the broker
 * confirms that it has it on its replicas, the run file has the message as
 * settled, and then the original is acknowledged.
 * Crash before the confirm: the broker gives the original again, marked. If the
 * copy is there, too, it has the same id and its own attempt: a repeat, and no
 * loss. Crash between confirm and acknowledgement: the original comes again,
 * and is found in the run file if it comes to this machine.
 * Assumed: a message that is confirmed by a quorum queue survives as long as
 * most of its replicas do; one that is not acknowledged is given again.
 */
#include "worker/source/amqp/amqp_inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault_point.h"

void amqp_release(struct source *s, struct message *message)
{
    amqp_let_go(source_amqp_of(s), amqp_message_of(message));
}

/* unlend - it has no index any more; mtx is held */
static void unlend(struct source_amqp *q, struct amqp_message *m)
{
    TAILQ_REMOVE(&q->lent, m, link);
    q->lent_count--;
    q->late_count -= m->at == AMQP_LATE;
    run_file_unrun(q->runs, m->m.index);
    q->free_index[q->free_count++] = m->m.index;
    (void)amqp_ready_locked(q); /* who settles looks at what is due itself */
}

/* ---- jobs ---- */

void amqp_change(const struct source_amqp *q, const struct amqp_job *j,
                 struct envelope_change *out, struct envelope_attempt *attempt)
{
    const struct amqp_message *m =
        amqp_job_message((struct amqp_job *)(uintptr_t)j);
    const struct settle *s = j->settle;
    const struct attempt *a = s ? s->attempt : NULL;

    *out = (struct envelope_change){.id = &m->id,
                                    .attempt = m->m.failures + (a != NULL),
                                    .first_ns = m->first_ns,
                                    .due_ns = j->due_wall_ns,
                                    .hop = m->key.hop,
                                    .line = m->line,
                                    .number = j->u.number};
    /* What there may be two of has two copies, maybe. */
    out->resent = j->u.resent || m->m.stale || m->m.flags & MESSAGE_REDELIVERED;
    if (!a)
        out->hop++;
    if (s && s->kind == SETTLE_DEAD) {
        out->reason = dead_reason_text(s->reason);
        out->error = s->error;
        out->died_ns = s->died_ns;
    }
    if (!a)
        return;
    *attempt = (struct envelope_attempt){.at_ns = a->started_ns,
                                         .duration_ns = a->duration_ns,
                                         .number = out->attempt,
                                         .error = a->error,
                                         .machine = q->machine,
                                         .tail = a->stderr_tail,
                                         .tail_size = a->stderr_size};
    out->failed = attempt;
}

/* buried - a burial of our own, which flow hears of now */
static void buried(struct source_amqp *q, const struct amqp_message *m)
{
    const struct source_death death = {.id = m->id,
                                       .seq = 0,
                                       .reason = m->job.own.reason,
                                       .error = m->job.own.error,
                                       .died_ns = m->job.own.died_ns,
                                       .size = m->m.size};

    q->events.died(q->events.arg, &death);
}

/* amqp_confirmed - what follows is durable: the original may go
 * Crash before the acknowledgement is sent: see the head of this file.
 */
void amqp_confirmed(struct source_amqp *q, struct amqp_job *j)
{
    struct amqp_message *m = amqp_job_message(j);
    struct settle *verdict;
    bool due;

    FAULT_POINT("amqp_confirmed");
    pthread_mutex_lock(&q->mtx);
    run_file_settled(q->runs, &m->key);
    amqp_ack_locked(q, m->epoch, m->tag);
    verdict = m->at == AMQP_LATE ? j->settle : NULL;
    if (verdict)
        unlend(q, m);
    else
        TAILQ_REMOVE(&q->lent, m, link);
    pthread_mutex_unlock(&q->mtx);
    if (verdict) {
        verdict->err = 0;
        q->events.settled(q->events.arg, verdict);
    } else if (j->settle) {
        buried(q, m);
    }
    pthread_mutex_lock(&q->mtx);
    if (--q->job_count == 0)
        pthread_cond_broadcast(&q->changed);
    /* What is behind it in its group may run, and no work item looks. */
    due = m->grouped || source_due(&q->source);
    pthread_mutex_unlock(&q->mtx);
    amqp_free(m);
    if (due)
        q->events.changed(q->events.arg);
}

/* ---- settling ---- */

/* done - no trace is kept but for the run file's: a broker does not confirm an
 * acknowledgement, and gives again what it did not hear of
 * A claim that is gone changes nothing: it was done, and is known as that when
 * it comes here again. Crash before the run file has it: it runs again, marked.
 */
static int done(struct source_amqp *q, struct amqp_message *m)
{
    run_file_settled(q->runs, &m->key);
    FAULT_POINT("amqp_done_before_ack");
    amqp_ack_locked(q, m->epoch, m->tag);
    unlend(q, m);
    m->at = AMQP_OVER;
    return 0;
}

/* stale - somebody else may have it by now: nothing is written */
static int stale(struct source_amqp *q, struct amqp_message *m)
{
    unlend(q, m);
    m->at = AMQP_OVER;
    return -ESTALE;
}

/* put_off - it is lent again when it is due; until then it is nobody's, but its
 * lane may read it for a while */
static int put_off(struct source_amqp *q, struct amqp_message *m,
                   const struct settle *s)
{
    unlend(q, m);
    m->due_ns = settle_due(s);
    m->at = AMQP_PUT_OFF;
    q->again_count += m->again;
    if (m->again)
        TAILQ_INSERT_TAIL(&q->put_off, m, link);
    return 0;
}

/* late - its copy goes out first; no handler has it, so a crash from here on is
 * none of its */
static int late(struct source_amqp *q, struct amqp_message *m, struct settle *s)
{
    uint64_t now = clock_boot_ns(), due = settle_due(s);

    m->at = AMQP_LATE;
    m->job = (struct amqp_job){.settle = s};
    if (s->kind == SETTLE_RETRY)
        m->job.due_wall_ns = s->due_boot_ns
                                 ? clock_wall_ns() + (due > now ? due - now : 0)
                                 : s->due_ns;
    q->late_count++;
    run_file_unrun(q->runs, m->m.index);
    (void)amqp_ready_locked(q); /* who settles looks at what is due itself */
    amqp_job_locked(q, m);
    return -EINPROGRESS;
}

/* settle_one - mtx is held */
static int settle_one(struct source_amqp *q, struct settle *s)
{
    struct amqp_message *m = amqp_message_of(s->m);

    if (s->kind <= SETTLE_DISCARD)
        return done(q, m);
    if (m->epoch != q->epoch)
        return stale(q, m);
    if (s->kind == SETTLE_RETRY && m->grouped)
        amqp_again(q, m, s);
    if (s->kind == SETTLE_RETURN || (s->kind == SETTLE_RETRY && m->grouped))
        return put_off(q, m, s);
    return late(q, m, s);
}

/* amqp_settle - one at a time: messages that settle late are given so */
int amqp_settle(struct source *source, struct settle *list, size_t n)
{
    struct source_amqp *q = source_amqp_of(source);
    struct amqp_message *m = amqp_message_of(list->m);
    unsigned lane = list->lane;
    int err;

    (void)n;
    pthread_mutex_lock(&q->mtx);
    err = settle_one(q, list);
    pthread_mutex_unlock(&q->mtx);
    if (err == -EINPROGRESS)
        return err; /* it, and the list, may be gone by now */
    list->err = err;
    if (err == -ESTALE && lane == LANE_NONE)
        amqp_free(m);
    else
        amqp_lane_keep(q, lane, m);
    return err;
}
