/* row.c - a message in a slot, and the row of it in the store (see row.h) */
#include "worker/source/mq/row.h"

#include <errno.h>

#include "common/base/clock.h"
#include "worker/source/mq/source_mq.h"

/* row_make - what the store keeps of a message */
void row_make(struct store_row *row, const struct lent *l,
              struct header_text group, size_t header_size)
{
    struct slot *slot = l->slot;
    struct slot_word w = slot_word(slot);

    *row = (struct store_row){
        .row = slot->row,
        .receive_seq = slot->seq,
        .id = *message_name((struct message *)&l->m),
        .priority = slot->priority,
        .attempts = slot->failures,
        .crashes = w.crashes,
        .group = group.at,
        .group_size = group.size,
        .first_received_ns = slot->received_ns,
        .data = slot->body,
        .size = atomic_load(&slot->length),
        .header_size = header_size,
        .spool = l->spooled,
        .slot = slot,
        .retire = slot_retire,
    };
    if (w.flags & SLOT_REDELIVERED)
        row->flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        row->flags |= STORE_LENGTH_INFERRED;
    if (l->spooled && l->m.flags & MESSAGE_CANCELLED)
        row->flags |= STORE_CANCELLED;
}

/* hold - the row is in the body of a FREE slot; the rest of the record */
static void hold(struct slot *slot, const struct store_row *row)
{
    struct slot_meta meta = {
        .row = row->row,
        .length = (uint32_t)row->size,
        .priority = row->priority,
        .failures = row->attempts,
        .crashes = row->crashes,
        .seq = row->receive_seq,
        .received_ns = row->first_received_ns,
        .id = row->id,
    };

    if (row->flags & STORE_REDELIVERED)
        meta.flags |= SLOT_REDELIVERED;
    if (row->flags & STORE_LENGTH_INFERRED)
        meta.flags |= SLOT_LENGTH_INFERRED;
    slot_hold(slot, &meta);
}

int row_too_large(struct source_mq *q, struct store_row *m)
{
    int64_t row = m->row;
    int err;

    m->state = STORE_DEAD;
    m->reason = REASON_REJECTED;
    m->error = "larger than the queue takes now";
    m->died_ns = clock_wall_ns();
    err = store_put(q->store, m, NULL, &row);
    if (err)
        return err;
    q->events.died(
        q->events.arg,
        &(struct source_death){.id = m->id,
                               .seq = m->receive_seq,
                               .letter = row,
                               .group = {.at = m->group, .size = m->group_size},
                               .reason = m->reason,
                               .error = m->error,
                               .died_ns = m->died_ns,
                               .size = m->size,
                               .allowed = custody_body_bytes(q->custody)});
    source_mq_died(q);
    return 0;
}

/* give_up - the same of a row of the messages */
static int give_up(struct source_mq *q, int64_t row)
{
    char group[HEADER_VALUE_MAX + 1];
    struct store_row m;
    int err = store_get(q->store, row, &m, NULL, 0, group);

    return err ? err : row_too_large(q, &m);
}

/* row_restore - read, hold, look at it */
int row_restore(struct source_mq *q, int64_t row, enum store_state state,
                struct lent *l)
{
    char group[HEADER_VALUE_MAX + 1];
    struct slot *slot = l->slot;
    struct store_row m;
    int err;

    /* Whatever is written there, the next slot_arm makes fill of it again. */
    slot->dirty = (uint32_t)custody_body_bytes(q->custody);
    err = store_get(q->store, row, &m, slot->body, slot->dirty, group);
    if (err == -EMSGSIZE) {
        err = give_up(q, row);
        return err ? err : -EMSGSIZE;
    }
    if (err)
        return err;
    if (m.state != state)
        return -ENOENT;
    hold(slot, &m);
    lent_fill(l);
    if (m.flags & STORE_FRONT)
        l->m.flags |= MESSAGE_FRONT;
    if (m.flags & STORE_CANCELLED)
        l->m.flags |= MESSAGE_CANCELLED;
    if (m.group)
        lent_group(l, group, m.group_size);
    return 0;
}
