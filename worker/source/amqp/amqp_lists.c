/* amqp_lists.c - where a message of a broker is put (see amqp_inner.h) */
#include "worker/source/amqp/amqp_inner.h"

#include <stdlib.h>
#include <bsd/stdlib.h>

#include "common/base/basics.h"
#include "common/base/clock.h"

void amqp_free(struct amqp_message *m)
{
    free(m->own_raw);
    free(m);
}

void amqp_hold_locked(struct source_amqp *q, struct amqp_message *m)
{
    struct amqp_message *before;

    m->at = AMQP_HELD;
    q->held_count++;
    TAILQ_FOREACH_REVERSE(before, &q->held, amqp_list, link)
    if (before->due_ns < m->due_ns ||
        (before->due_ns == m->due_ns && before->m.priority >= m->m.priority)) {
        TAILQ_INSERT_AFTER(&q->held, before, m, link);
        return;
    }
    TAILQ_INSERT_HEAD(&q->held, m, link);
}

/* ---- who may read it still ---- */

void amqp_lane_keep(struct source_amqp *q, unsigned lane,
                    struct amqp_message *m)
{
    struct amqp_message *last;

    if (lane == LANE_NONE)
        return;
    last = q->lanes[lane];
    q->lanes[lane] = m;
    if (last)
        amqp_let_go(q, last);
}

/* amqp_let_go - one that was put off is held only now, as it could be lent
 * again, and gone, while its reader is not done; one whose group waits for it
 * is never just forgotten */
void amqp_let_go(struct source_amqp *q, struct amqp_message *m)
{
    bool due;

    if (m->at != AMQP_PUT_OFF) {
        amqp_free(m);
        return;
    }
    pthread_mutex_lock(&q->mtx);
    if (m->again)
        TAILQ_REMOVE(&q->put_off, m, link);
    if (m->epoch == q->epoch)
        amqp_hold_locked(q, m);
    else if (m->again)
        amqp_due_locked(q, m);
    else
        amqp_free(m);
    due = amqp_ready_locked(q);
    pthread_mutex_unlock(&q->mtx);
    side_wake(&q->inbox);
    if (due)
        q->events.changed(q->events.arg);
}

/* ---- acknowledgements ---- */

/* amqp_ack_locked - without memory it is not sent: the broker gives the message
 * again when the connection ends, and it is known as settled */
void amqp_ack_locked(struct source_amqp *q, uint64_t epoch, uint64_t tag)
{
    uint64_t *acks;

    if (epoch != q->epoch)
        return;
    acks = array_grow(q->acks, q->ack_count, &q->ack_room, sizeof *acks);
    if (!acks)
        return;
    q->acks = acks;
    q->acks[q->ack_count++] = tag;
    if (q->ack_count == 1)
        side_wake(&q->inbox);
}

/* amqp_job_locked - for the outbox; mtx is held. The inbox looks where nothing
 * in hand is left to run (prefetch.c). */
void amqp_job_locked(struct source_amqp *q, struct amqp_message *m)
{
    unsigned running = q->lent_count - q->late_count;

    while (m->line == 0) /* a header's number has a sign: 63 bits */
        m->line = (uint64_t)arc4random() << 31 ^ arc4random();
    TAILQ_INSERT_TAIL(&q->jobs, &m->job.u, link);
    q->job_count++;
    if (TAILQ_EMPTY(&q->arrived) && running + q->job_count >= q->fetched)
        side_wake(&q->inbox);
    side_wake(&q->outbox);
}

void amqp_hop_locked(struct source_amqp *q, struct amqp_message *m)
{
    m->at = AMQP_HOP;
    m->job = (struct amqp_job){.due_wall_ns = m->due_wall_ns};
    TAILQ_INSERT_TAIL(&q->lent, m, link);
    amqp_job_locked(q, m);
}

void amqp_die_locked(struct source_amqp *q, struct amqp_message *m,
                     enum dead_reason reason, const char *error)
{
    m->at = AMQP_HOP;
    m->job = (struct amqp_job){.own = {.m = &m->m,
                                       .kind = SETTLE_DEAD,
                                       .lane = LANE_NONE,
                                       .reason = reason,
                                       .error = error,
                                       .died_ns = clock_wall_ns()}};
    m->job.settle = &m->job.own;
    TAILQ_INSERT_TAIL(&q->lent, m, link);
    amqp_job_locked(q, m);
}
