/* row.c - a message in a slot, and the row of it in the store (see row.h) */
#include "worker/source/mq/row.h"

#include "common/custody/slot.h"
#include "worker/source/source.h"

/* row_make - what the store keeps of a message */
void row_make(struct store_row *m, const struct delivery *d)
{
    const struct slot *slot = d->slot;
    struct slot_word w = slot_word(slot);

    *m = (struct store_row){
        .row = slot->row,
        .receive_seq = slot->seq,
        .id = slot->id,
        .priority = slot->priority,
        .attempts = slot->failures,
        .crashes = w.crashes,
        .group = d->group.at,
        .group_size = d->group.size,
        .first_received_ns = slot->received_ns,
        .data = slot->body,
        .size = atomic_load(&slot->length),
        .header_size = d->header.bytes,
        .slot = d->slot,
        .retire = slot_retire,
    };
    if (w.flags & SLOT_REDELIVERED)
        m->flags |= STORE_REDELIVERED;
    if (w.flags & SLOT_LENGTH_INFERRED)
        m->flags |= STORE_LENGTH_INFERRED;
}

/* row_hold - the row is in the body; the rest of the record */
void row_hold(struct slot *slot, const struct store_row *m)
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
