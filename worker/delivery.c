/* delivery.c - one message on its way through a handler (see delivery.h) */
#include "worker/delivery.h"

#include <string.h>

#include "common/clock.h"

/* has_id - whether the slot's message was named before */
static bool has_id(const struct slot *slot)
{
    static const struct ulid none;

    return memcmp(&slot->id, &none, sizeof none) != 0;
}

/* delivery_read - header, id, body
 * Crash before the id is in the slot: the next run names the message again,
 * and nobody has seen the other name.
 */
bool delivery_read(struct delivery *d, struct slot *slot, char why[HEADER_WHY])
{
    uint32_t length = atomic_load_explicit(&slot->length, memory_order_relaxed);
    int err = header_parse(slot->body, length, &d->header, why);

    if (err)
        memset(&d->header, 0, sizeof d->header);
    if (!has_id(slot))
        slot->id = d->header.fields & HEADER_ID
                       ? d->header.id
                       : ulid_make(slot->received_ns ? slot->received_ns
                                                     : clock_wall_ns());
    ulid_print(slot->id, d->id);
    d->slot = slot;
    d->body = slot->body + d->header.bytes;
    d->body_size = length - d->header.bytes;
    return err == 0;
}
