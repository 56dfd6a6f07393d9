/* ready.c - messages that wait for a thread (see ready.h) */
#include "worker/gate/ready.h"

void ready_init(struct ready *r, struct attention *attention)
{
    r->attention = attention;
    pthread_mutex_init(&r->mtx, NULL);
    STAILQ_INIT(&r->list);
}

void ready_fini(struct ready *r)
{
    pthread_mutex_destroy(&r->mtx);
}

void ready_put(struct ready *r, struct message *m, bool front)
{
    pthread_mutex_lock(&r->mtx);
    if (front)
        STAILQ_INSERT_HEAD(&r->list, m, link);
    else
        STAILQ_INSERT_TAIL(&r->list, m, link);
    atomic_fetch_add(&r->waiting, 1);
    attention_on(r->attention, ATTEND_READY);
    pthread_mutex_unlock(&r->mtx);
}

struct message *ready_take(struct ready *r)
{
    struct message *m;

    if (ready_empty(r))
        return NULL;
    pthread_mutex_lock(&r->mtx);
    m = STAILQ_FIRST(&r->list);
    if (m) {
        STAILQ_REMOVE_HEAD(&r->list, link);
        if (atomic_fetch_sub(&r->waiting, 1) == 1)
            attention_off(r->attention, ATTEND_READY);
    }
    pthread_mutex_unlock(&r->mtx);
    return m;
}

struct message *ready_pull(struct ready *r, uint64_t seq)
{
    struct message *m;

    pthread_mutex_lock(&r->mtx);
    STAILQ_FOREACH (m, &r->list, link)
        if (m->seq == seq)
            break;
    if (m) {
        STAILQ_REMOVE(&r->list, m, message, link);
        if (atomic_fetch_sub(&r->waiting, 1) == 1)
            attention_off(r->attention, ATTEND_READY);
    }
    pthread_mutex_unlock(&r->mtx);
    return m;
}
