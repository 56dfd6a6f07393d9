/* load.c - a stored message to a slot (see load.h) */
#include "worker/load.h"

#include <errno.h>

#include "common/clock.h"
#include "common/counters.h"
#include "common/log.h"
#include "worker/dead_queue.h"
#include "worker/engine.h"
#include "worker/ordered.h"

/* died - what a letter is to others: to the log, to its group */
static void died(struct engine *e, const struct store_row *m)
{
    struct counters_block *b = counters_rest(e->counters);
    char id[ULID_TEXT];

    counters_add(&b->dead, 1);
    counters_settled(b, COUNTERS_DEAD, &m->id, m->died_ns);
    counters_rest_done(e->counters);
    log_warn("dead", F_STR("msg", ulid_print(m->id, id)),
             F_STR("reason", store_reason_text(m->reason)),
             F_STR("error", m->error), F_UINT("size", m->size),
             F_UINT("allowed", custody_body_bytes(e->custody)));
    if (m->group)
        ordered_died(e, m);
    if (e->dead_queue)
        dead_queue_poke(e->dead_queue);
    backlog_look(e);
}

/* give_up - it cannot be run: nothing is lost, it is a letter */
static int give_up(struct engine *e, int64_t row)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err = store_get(e->store, row, &m, NULL, 0, group);

    if (err)
        return err;
    m.state = STORE_DEAD;
    m.reason = REASON_REJECTED;
    m.error = "larger than the queue takes now";
    m.died_ns = clock_wall_ns();
    err = store_put(e->store, &m, NULL, NULL);
    if (!err)
        died(e, &m);
    return err;
}

/* hold - the row is in the body; the rest of the record */
static void hold(struct slot *slot, const struct store_row *m)
{
    struct slot_meta meta = {
        .row = m->row,
        .length = (uint32_t)m->size,
        .priority = m->priority,
        .failures = m->attempts,
        .crashes = m->crashes,
        .seq = m->receive_seq,
        .received_ns = m->first_received_ns,
        .id = m->id,
    };

    if (m->flags & STORE_REDELIVERED)
        meta.flags |= SLOT_REDELIVERED;
    if (m->flags & STORE_LENGTH_INFERRED)
        meta.flags |= SLOT_LENGTH_INFERRED;
    slot_hold(slot, &meta);
}

/* load_row - read, hold, look at it */
int load_row(struct engine *e, int64_t row, enum store_state state,
             struct slot *slot, struct delivery *d)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err;

    /* Whatever is written there, the next slot_arm makes fill of it again. */
    slot->dirty = (uint32_t)custody_body_bytes(e->custody);
    err = store_get(e->store, row, &m, slot->body, slot->dirty, group);
    if (err == -EMSGSIZE) {
        err = give_up(e, row);
        return err ? err : -EMSGSIZE;
    }
    if (err)
        return err;
    if (m.state != state)
        return -ENOENT;
    hold(slot, &m);
    delivery_read(d, slot, 0);
    d->front = (m.flags & STORE_FRONT) != 0;
    if (m.group)
        delivery_regroup(d, group, m.group_size);
    return 0;
}
