/* in_hand.c - retries of groups, which wait unacknowledged (see amqp_inner.h)
 *
 * A copy would come behind the rest of its group, and so would what is given
 * back to the broker. So a head that failed stays the worker's until it has
 * come to its end, and those behind it wait in its group. A worker that dies
 * meanwhile, or its connection, takes the failures along: the broker gives the
 * message again as it was sent.
 */
#include <stdlib.h>
#include <string.h>

#include "common/amqp/envelope.h"
#include "worker/source/amqp/amqp_inner.h"

/* history_add - to its properties, for a letter that it may become; without
 * memory, or room in them, this attempt is not told */
static void history_add(const struct source_amqp *q, struct amqp_message *m,
                        const struct attempt *a)
{
    const struct envelope_attempt failed = {.at_ns = a->started_ns,
                                            .duration_ns = a->duration_ns,
                                            .number = m->tries,
                                            .error = a->error,
                                            .machine = q->machine,
                                            .tail = a->stderr_tail,
                                            .tail_size = a->stderr_size};
    struct envelope_made e = {.raw = {m->raw.len, malloc(m->raw.len + 1)}};

    if (!e.raw.bytes)
        return;
    memcpy(e.raw.bytes, m->raw.bytes, m->raw.len);
    if (envelope_made_attempt(&e, &m->id, &failed) < 0) {
        free(e.raw.bytes);
        return;
    }
    free(m->own_raw);
    m->own_raw = e.raw.bytes;
    m->raw = e.raw;
}

void amqp_again(struct source_amqp *q, struct amqp_message *m,
                const struct settle *s)
{
    m->again = true;
    m->tries = m->m.failures + (s->attempt != NULL);
    if (s->attempt)
        history_add(q, m, s->attempt);
}

void amqp_due_locked(struct source_amqp *q, struct amqp_message *m)
{
    m->at = AMQP_DUE;
    if (m->epoch != q->epoch)
        atomic_store(&m->m.stale, true);
    TAILQ_INSERT_TAIL(&q->due, m, link);
}

struct amqp_message *amqp_due_take(struct source_amqp *q)
{
    struct amqp_message *m = TAILQ_FIRST(&q->due);

    if (m) {
        TAILQ_REMOVE(&q->due, m, link);
        q->again_count--;
        m->m.failures = m->tries;
    }
    return m;
}
