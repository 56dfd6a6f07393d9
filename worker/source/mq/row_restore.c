/* row_restore.c - a stored message to a slot (see row_restore.h) */
#include "worker/source/mq/row_restore.h"

#include <errno.h>

#include "common/base/clock.h"
#include "worker/source/mq/row.h"
#include "worker/source/mq/delivery_read.h"

/* give_up - it cannot be run: nothing is lost, it is a letter */
static int give_up(const struct row_restore *l, int64_t row)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err = store_get(l->store, row, &m, NULL, 0, group);

    if (err)
        return err;
    m.state = STORE_DEAD;
    m.reason = REASON_REJECTED;
    m.error = "larger than the queue takes now";
    m.died_ns = clock_wall_ns();
    err = store_put(l->store, &m, NULL, NULL);
    if (!err)
        l->died(l->arg, &m);
    return err;
}

/* row_restore - read, hold, look at it */
int row_restore(const struct row_restore *l, int64_t row,
                enum store_state state, struct slot *slot, struct delivery *d)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err;

    /* Whatever is written there, the next slot_arm makes fill of it again. */
    slot->dirty = (uint32_t)l->room;
    err = store_get(l->store, row, &m, slot->body, slot->dirty, group);
    if (err == -EMSGSIZE) {
        err = give_up(l, row);
        return err ? err : -EMSGSIZE;
    }
    if (err)
        return err;
    if (m.state != state)
        return -ENOENT;
    row_hold(slot, &m);
    delivery_read(d, slot, 0);
    d->front = (m.flags & STORE_FRONT) != 0;
    if (m.group)
        delivery_regroup(d, group, m.group_size);
    return 0;
}
