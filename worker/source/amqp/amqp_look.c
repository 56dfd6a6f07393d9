/* amqp_look.c - how many messages there are, and where (see amqp_inner.h) */
#include "worker/source/amqp/amqp_inner.h"

#include <errno.h>

unsigned amqp_room(const struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);
    unsigned n;

    pthread_mutex_lock(&q->mtx);
    n = q->free_count;
    pthread_mutex_unlock(&q->mtx);
    return n;
}

/* amqp_fresh - when it was last asked, and those that are here already */
long amqp_fresh(const struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);
    long n;

    pthread_mutex_lock(&q->mtx);
    n = (long)q->arrived_count;
    pthread_mutex_unlock(&q->mtx);
    return n + atomic_load(&q->ready);
}

static uint64_t waits(const struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);
    uint64_t n;

    pthread_mutex_lock(&q->mtx);
    n = q->held_count;
    pthread_mutex_unlock(&q->mtx);
    return n;
}

/* ready_ask - a broker that does not answer may have any number */
static int ready_ask(struct source_amqp *q)
{
    long ready = 0;
    uint32_t n;

    for (unsigned i = 0; i < q->part_count; i++) {
        if (outbox_count(q, q->parts[i], &n) < 0)
            return -EAGAIN;
        ready += (long)n;
    }
    atomic_store(&q->ready, ready);
    return 0;
}

/* amqp_is_due - what the broker has sent is not in the queue, and may not be
 * here yet: nothing is due if the look before found nothing either, and nothing
 * came since. A head that waits in hand is: a worker that ended now would give
 * it back, and its failures would be forgotten. */
int amqp_is_due(struct source *s)
{
    struct source_amqp *q = source_amqp_of(s);
    int err = ready_ask(q);
    bool still;

    if (err || amqp_fresh(s) > 0)
        return err ? err : YES;
    pthread_mutex_lock(&q->mtx);
    still = q->empty_at == q->seq + 1 && q->again_count == 0;
    q->empty_at = q->seq + 1;
    pthread_mutex_unlock(&q->mtx);
    return still ? NO : YES;
}

int64_t amqp_count(struct source *s, enum source_count what)
{
    struct source_amqp *q = source_amqp_of(s);
    uint32_t n;
    int err;

    if (what == COUNT_WAITING)
        return (int64_t)waits(s);
    if (what == COUNT_PARKED || what == COUNT_SPOOLED)
        return 0;
    (void)ready_ask(q);
    err = outbox_count(q, q->dead, &n);
    return err ? -EAGAIN : (int64_t)n;
}
