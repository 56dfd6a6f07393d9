/* ready.c - messages in slots that wait for a thread (see ready.h) */
#include "worker/flow/ready.h"

#include <errno.h>
#include <stdlib.h>

#include "common/custody/custody.h"

int ready_open(struct ready *r, const struct custody *custody)
{
    r->of = calloc(custody_slots_most(custody), sizeof *r->of);
    if (!r->of)
        return -ENOMEM;
    r->custody = custody;
    pthread_mutex_init(&r->mtx, NULL);
    STAILQ_INIT(&r->slots);
    return 0;
}

void ready_close(struct ready *r)
{
    if (!r->of)
        return;
    pthread_mutex_destroy(&r->mtx);
    free(r->of);
    r->of = NULL;
}

void ready_put(struct ready *r, struct slot *slot, bool front)
{
    struct ready_slot *one = &r->of[custody_index(r->custody, slot)];

    pthread_mutex_lock(&r->mtx);
    one->slot = slot;
    if (front)
        STAILQ_INSERT_HEAD(&r->slots, one, link);
    else
        STAILQ_INSERT_TAIL(&r->slots, one, link);
    atomic_fetch_add(&r->waiting, 1);
    pthread_mutex_unlock(&r->mtx);
}

struct slot *ready_take(struct ready *r)
{
    struct ready_slot *one;

    if (ready_empty(r))
        return NULL;
    pthread_mutex_lock(&r->mtx);
    one = STAILQ_FIRST(&r->slots);
    if (one) {
        STAILQ_REMOVE_HEAD(&r->slots, link);
        atomic_fetch_sub(&r->waiting, 1);
    }
    pthread_mutex_unlock(&r->mtx);
    return one ? one->slot : NULL;
}
