/* parts.c - which partitions this worker has (see amqp_inner.h)
 *
 * A broker does not tell a consumer that it is the active one. So what is known
 * is which partitions have given messages on this connection: nobody else is
 * given any of those while it lasts.
 */
#include "worker/source/amqp/amqp_inner.h"

static void count(const struct amqp_list *list, struct source_part *parts)
{
    const struct amqp_message *m;

    TAILQ_FOREACH (m, list, link) {
        parts[m->part].in_hand++;
        parts[m->part].blocked += m->again && m->at != AMQP_LENT;
    }
}

void amqp_parts(struct source *s,
                void (*visit)(void *arg, const struct source_part *part),
                void *arg)
{
    struct source_amqp *q = source_amqp_of(s);
    struct source_part parts[PARTITIONS_MAX] = {0};

    if (!amqp_parted(q))
        return;
    pthread_mutex_lock(&q->mtx);
    count(&q->arrived, parts);
    count(&q->held, parts);
    count(&q->due, parts);
    count(&q->lent, parts);
    for (unsigned i = 0; i < q->part_count; i++)
        parts[i].here = q->given[i] != 0 && q->given[i] == q->epoch;
    pthread_mutex_unlock(&q->mtx);
    for (unsigned i = 0; i < q->part_count; i++) {
        parts[i].number = i;
        visit(arg, &parts[i]);
    }
}
