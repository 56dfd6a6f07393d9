/* group_dispatch_inner.h - inside of group_dispatch.c, group_close.c,
 * group_hold.c and group_park.c
 *
 * WHAT   What they share: the groups, and the place of each message in them.
 * WHO    As group_dispatch.h.
 * OWNS   As group_dispatch.h.
 * FAILS  As group_dispatch.h.
 */
#ifndef WORKER_FLOW_GROUP_DISPATCH_INNER_H
#define WORKER_FLOW_GROUP_DISPATCH_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/flow/flow.h"
#include "worker/flow/group_dispatch.h"
#include "worker/groups/closings.h"
#include "worker/source/source.h"

/* A message that waits in its group. */
struct member {
    struct group_item item;
    struct message *m;
};

/* c = constant after open   p = the thread that set parking   a = atomic
 * x = under close_mtx, which is taken before that of the groups */
struct dispatch {
    struct groups *groups;  /* c */
    struct member *members; /* c  by the message's index */
    atomic_bool parking;    /* a  one thread parks at a time: in order */
    struct group_item *items[SETTLE_MOST]; /* p */
    struct settle parks[SETTLE_MOST];      /* p */
    atomic_bool full_told; /* a  the bound of parked messages was logged */
    pthread_mutex_t close_mtx;
    struct closings closings; /* x */
};

/* Whether the source has a place for what waits behind a head. */
static inline bool dispatch_parks(const struct flow *f)
{
    return f->source->local != NULL;
}

/* group_park.c: a due message to the source again, behind what its group has
 * there: PUT_BY, or -errno as groups_park_one. */
int dispatch_put_by(struct flow *f, struct delivery *d,
                    struct group_item *item);

/* ---- group_close.c: worth a call while closings_any ---- */

/* Whether the group of a message refuses it: `d` is unfit then, and has no
 * lease. */
bool close_refuses(struct flow *f, struct delivery *d);
/* As groups_release. */
bool close_release(struct flow *f, struct group *lease);
/* The group may be gone. */
void close_look(struct flow *f, const char *key, size_t size);

#endif
